"""Where the candidates' fields stand in a file: named layouts, and how to write your own.

A :class:`Collection` says which branch of a collection holds what; a :class:`Layout`
is the list of collections that make up an event. A field is given by a branch name,
by a constant, or by a function ``collection -> array``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import awkward as ak
import numpy as np

from puma_coffea.vertexing import VERTEXING, Vertexing

Source = str | float | Callable[[Any], Any]

# Masses in GeV (PDG 2024) of long-lived particles, by absolute PDG id.
MASSES: dict[int, float] = {
    11: 0.00051099895,
    13: 0.1056583755,
    211: 0.13957039,
    321: 0.493677,
    2212: 0.93827208816,
    3112: 1.197449,
    3222: 1.18937,
    3312: 1.32171,
    3334: 1.67245,
    130: 0.497611,
    310: 0.497611,
    2112: 0.93956542052,
    3122: 1.115683,
}


def mass_of(pid: Any) -> Any:
    """Mass in GeV by PDG id: tabulated, 0 for 22 and 0 (towers), the pion's for others.

    >>> import numpy as np
    >>> mass_of(np.array([13, -211, 22, 0])).round(3).tolist()
    [0.106, 0.14, 0.0, 0.0]
    """
    absolute = np.abs(np.asarray(pid))
    masses = np.where((absolute == 22) | (absolute == 0), 0.0, MASSES[211])
    for code, mass in MASSES.items():
        masses[absolute == code] = mass
    return masses


@dataclass(frozen=True)
class Collection:
    """Where one collection of candidates keeps its fields; the defaults are Delphes's names.

    ``mass = None`` takes the mass of the particle id; so does a branch that is not there,
    since releases before 3.5 stored none. ``vertexing`` maps the names a user may ask for
    to functions ``(events, collection) -> vertex`` of the charged candidates.
    """

    name: str
    pt: Source = "PT"
    eta: Source = "Eta"
    phi: Source = "Phi"
    mass: Source | None = "Mass"
    charge: Source = "Charge"
    pid: Source = "PID"
    hard_fraction: Source | None = "HardEnergyFraction"
    vertexing: Mapping[str, Vertexing] = field(default_factory=lambda: VERTEXING)


@dataclass(frozen=True)
class Layout:
    """The collections that together are an event's candidates, in this order.

    ``npv`` gives the number of vertices per event, or None where the file cannot tell.
    """

    name: str
    collections: tuple[Collection, ...]
    npv: Callable[[ak.Array], Any] | None = None

    def present_in(self, events: ak.Array) -> bool:
        """Whether the events have all collections of this layout."""
        return all(collection.name in events.fields for collection in self.collections)


def _count_vertex(events: ak.Array) -> Any:
    if "Vertex" not in events.fields:
        return None
    return ak.num(events["Vertex"][events["Vertex"].fields[0]], axis=1)


def _massless_neutrals(collection: Any) -> Any:
    # Towers of ParticleFlowCandidate carry a rounding remnant of 1e-6 GeV as mass.
    return ak.where(collection["Charge"] == 0, np.float32(0), collection["Mass"])


def _tower(name: str, pid: int) -> Collection:
    return Collection(name, pt="ET", mass=0.0, charge=0, pid=pid, vertexing={})


EFLOW = Layout(
    "EFlow",
    (Collection("EFlowTrack"), _tower("EFlowPhoton", 22), _tower("EFlowNeutralHadron", 0)),
    npv=_count_vertex,
)
PARTICLE_FLOW = Layout(
    "ParticleFlowCandidate",
    (Collection("ParticleFlowCandidate", mass=_massless_neutrals),),
    npv=_count_vertex,
)
SINGLE_PF = Layout("PF", (Collection("PF"),), npv=_count_vertex)


def _by_dz(_events: ak.Array, pf: Any) -> Any:
    return ak.where(abs(pf["dz"]) < 0.2, 0, 1)  # cm


def _by_puppi(_events: ak.Array, pf: Any) -> Any:
    return ak.where(pf["puppiWeight"] > 0.5, 0, 1)


PFNANO = Layout(
    "PFNano",
    (
        Collection(
            "PFCands",
            pt="pt",
            eta="eta",
            phi="phi",
            mass="mass",
            charge="charge",
            pid="pdgId",
            hard_fraction=None,
            vertexing={"dz": _by_dz, "puppi": _by_puppi},
        ),
    ),
    npv=lambda events: events["PV"]["npvs"],
)

# Tried in this order when the user names no layout.
LAYOUTS = (EFLOW, PARTICLE_FLOW, SINGLE_PF, PFNANO)

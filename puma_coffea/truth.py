"""What the generator knows of an event: true pTmiss, boson, jets, hard energy fractions."""

from __future__ import annotations

import logging
from typing import Any

import awkward as ak
import numpy as np
import vector

from puma_coffea.candidates import refuse_lazy
from puma_coffea.exceptions import MissingCollection
from puma_coffea.layouts import LAYOUTS, Source
from puma_coffea.vertexing import has_final_state

vector.register_awkward()

logger = logging.getLogger(__name__)

NEUTRINOS = (12, 14, 16, 18)
# Invisible particles of common models: dark matter of simplified models, sneutrinos,
# the lightest neutralino, the gravitino, the Kaluza-Klein graviton.
BEYOND = (51, 52, 53, 1000012, 1000014, 1000016, 1000022, 1000039, 5000039)
HIGGS, Z, W = 25, 23, 24


def truth(events: ak.Array) -> ak.Array:
    """True quantities of each event.

    Parameters
    ----------
    events
        NanoEvents of a Delphes file with ``GenMissingET`` or ``Particle``.

    Returns
    -------
    awkward.Array
        One record per event:

        ``met``
            Momentum2D (GeV), vector sum of all invisible particles of the hard event.
        ``boson``
            Momentum2D (GeV) of the Higgs boson, else of the Z, else of the only W; None where
            there is none or, as in ttbar, more than one W. :func:`puma_coffea.recoil` then
            takes the true pTmiss as axis.
        ``boson_products``
            ``var * Momentum4D``, the boson's visible stable descendants.
        ``jets``
            ``var * Momentum4D``, generator jets, where the file has ``GenJet``.
        ``hard_fraction``
            per candidate, in the order of :func:`puma_coffea.candidates`, where the file has it.

    Examples
    --------
    >>> from puma_coffea import open_events, sample_path, truth
    >>> true = truth(open_events(sample_path("zvv_pu140")))
    >>> float(round(true.met.pt[0], 1)), float(round(true.boson.pt[0], 1))
    (46.2, 46.2)
    """
    refuse_lazy(events)
    boson, products = _boson(events)
    fields = {"met": _met(events), "boson": boson, "boson_products": products}
    if "GenJet" in events.fields:
        jets = events["GenJet"]
        fields["jets"] = momentum4d(*(jets[name] for name in ("PT", "Eta", "Phi", "Mass")))
    fraction = _hard_fraction(events)
    if fraction is not None:
        fields["hard_fraction"] = fraction
    return ak.zip(fields, depth_limit=1)


def momentum2d(pt: Any, phi: Any) -> ak.Array:
    """Momentum2D records from pT (GeV) and phi, in float64."""
    return ak.zip(
        {"pt": ak.values_astype(pt, np.float64), "phi": ak.values_astype(phi, np.float64)},
        with_name="Momentum2D",
    )


def momentum4d(pt: Any, eta: Any, phi: Any, mass: Any) -> ak.Array:
    """Momentum4D records from pT, eta, phi and mass (GeV)."""
    return ak.zip({"pt": pt, "eta": eta, "phi": phi, "mass": mass}, with_name="Momentum4D")


def no_products(events: int) -> ak.Array:
    """An empty list of decay products for each event."""
    empty = ak.unflatten(np.zeros(0, np.float32), np.zeros(events, np.int64))
    return ak.with_field(momentum4d(empty, empty, empty, empty), empty, "charge")


def _met(events: ak.Array) -> ak.Array:
    """GenMissingET, except where invisible particles beyond neutrinos exist.

    Delphes builds GenMissingET from the complete list of particles, while the stored
    ``Particle`` may be a filtered one; but it counts only neutrinos as invisible.
    """
    names = events.fields
    if "Particle" not in names and "GenMissingET" not in names:
        msg = "No true pTmiss: the events have neither 'GenMissingET' nor 'Particle'."
        raise MissingCollection(msg)
    if "Particle" not in names:
        return _from_gen_missing(events)
    particles = events["Particle"]
    stable = (particles["Status"] == 1) & (_origin(particles) == 0)
    beyond = stable & _is_any(particles["PID"], BEYOND)
    summed = _sum2d(particles, beyond | (stable & _is_any(particles["PID"], NEUTRINOS)))
    if "GenMissingET" not in names:
        return summed
    return _where2d(ak.any(beyond, axis=1), summed, _from_gen_missing(events))


def _from_gen_missing(events: ak.Array) -> ak.Array:
    missing = events["GenMissingET"]
    if missing.ndim > 1:  # coffea's own schema leaves it a list of one
        missing = missing[:, 0]
    return momentum2d(missing["MET"], missing["Phi"])


def _boson(events: ak.Array) -> tuple[ak.Array, ak.Array]:
    if "Particle" not in events.fields:
        none = ak.mask(
            momentum2d(np.zeros(len(events)), np.zeros(len(events))), np.zeros(len(events), bool)
        )
        return none, no_products(len(events))
    particles = events["Particle"]
    hard = _origin(particles) == 0
    species = abs(particles["PID"])
    # Generators list the copies of a particle in order: the last one is about to decay.
    is_w = hard & (species == W)
    charges = ak.to_numpy(ak.num(particles["PID"][is_w & (particles["PID"] > 0)], axis=1) > 0)
    anticharges = ak.to_numpy(ak.num(particles["PID"][is_w & (particles["PID"] < 0)], axis=1) > 0)
    has = {code: ak.to_numpy(ak.any(hard & (species == code), axis=1)) for code in (HIGGS, Z)}
    one_w = charges ^ anticharges
    code = np.select([has[HIGGS], has[Z], one_w], [HIGGS, Z, W], default=0)
    chosen = hard & (species == code) & (code > 0)
    last = ak.firsts(particles[chosen][:, ::-1])
    boson = momentum2d(last["PT"], last["Phi"])
    if not has_final_state(particles) and len(events) > 0:
        logger.warning(
            "'Particle' is a filtered list: visible decay products of the boson are unknown"
        )
        chosen = chosen & False
    return boson, _visible_descendants(particles, chosen)


def _visible_descendants(particles: Any, ancestors: ak.Array) -> ak.Array:
    counts = ak.to_numpy(ak.num(particles["PID"], axis=1))
    start = np.repeat(np.concatenate(([0], np.cumsum(counts)))[:-1], counts)
    size = np.repeat(counts, counts)
    mother = ak.to_numpy(ak.flatten(particles["M1"]))
    # A filtered list may point outside of itself: such a particle is its own root.
    known = (mother >= 0) & (mother < size)
    mother = np.where(known, start + mother, np.arange(len(mother)))
    family = ak.to_numpy(ak.flatten(ancestors))
    while True:
        grown = family | family[mother]
        if (grown == family).all():
            break
        family = grown
    visible = (particles["Status"] == 1) & ~_is_any(particles["PID"], NEUTRINOS + BEYOND)
    chosen = particles[ak.unflatten(family, counts) & visible]
    momenta = momentum4d(*(chosen[name] for name in ("PT", "Eta", "Phi", "Mass")))
    return ak.with_field(momenta, chosen["Charge"], "charge")


def _hard_fraction(events: ak.Array) -> ak.Array | None:
    layout = next((each for each in LAYOUTS if each.present_in(events)), None)
    if layout is None:
        return None
    parts = []
    for collection in layout.collections:
        source: Source | None = collection.hard_fraction
        if not isinstance(source, str) or source not in events[collection.name].fields:
            return None
        parts.append(events[collection.name][source])
    return ak.concatenate(parts, axis=1)


def _origin(particles: Any) -> Any:
    if "IsPU" in particles.fields:
        return particles["IsPU"]
    return ak.zeros_like(particles["PID"])


def _is_any(pid: ak.Array, codes: tuple[int, ...]) -> ak.Array:
    flat = np.isin(np.abs(ak.to_numpy(ak.flatten(pid))), codes)
    return ak.unflatten(flat, ak.num(pid, axis=1))


def _sum2d(particles: Any, mask: ak.Array) -> ak.Array:
    pt = ak.values_astype(particles["PT"][mask], np.float64)
    phi = particles["Phi"][mask]
    px, py = ak.sum(pt * np.cos(phi), axis=1), ak.sum(pt * np.sin(phi), axis=1)
    return momentum2d(np.hypot(px, py), np.arctan2(py, px))


def _where2d(condition: ak.Array, first: ak.Array, second: ak.Array) -> ak.Array:
    return momentum2d(
        ak.where(condition, first["pt"], second["pt"]),
        ak.where(condition, first["phi"], second["phi"]),
    )

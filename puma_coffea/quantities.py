"""What is measured in every event, for every method: names, axes, and the numbers themselves.

Each quantity is one number per event, None where the event has none (fewer than two jets).
Those of the recoil are also binned in the true boson's pT (for ttbar in the true pTmiss).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np

from puma_coffea.observables import Weighted, dijet_mass, leading_jet_response, pileup_jets

# GeV; the last bin is open. Narrow where events are, wide where they are few.
BOSON_PT_EDGES = (0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 130.0, 170.0, 220.0, 300.0, 500.0)

GENERATOR_JET_PT_MIN = 30.0  # GeV, softest leading generator jet whose response counts


@dataclass(frozen=True)
class Quantity:
    """One number per event: its name in the output, its label in plots, its histogram's axis."""

    name: str
    label: str
    bins: int
    low: float
    high: float
    unit: str = "GeV"
    against_boson: bool = False


QUANTITIES = (
    # Fine bins: the central 68 % is read off the histogram, plots merge them.
    Quantity("met_x", r"$\hat{p}_x^\mathrm{miss} - p_x^\mathrm{miss}$", 1200, -300, 300),
    Quantity("met_y", r"$\hat{p}_y^\mathrm{miss} - p_y^\mathrm{miss}$", 1200, -300, 300),
    Quantity(
        "met", r"$\hat{p}_\mathrm{T}^\mathrm{miss} - p_\mathrm{T}^\mathrm{miss}$", 1200, -300, 300
    ),
    Quantity("dijet_mass", r"$\hat{m}_{jj} - m_{jj}$", 1600, -2000, 2000),
    Quantity(
        "jet_response", r"leading jet $\hat{p}_\mathrm{T} / p_\mathrm{T}$", 800, 0, 4, unit=""
    ),
    Quantity("pileup_jets", "pile-up jets above 30 GeV", 40, -0.5, 39.5, unit=""),
    Quantity("u_parallel", r"$U_\parallel$", 240, -600, 600, against_boson=True),
    Quantity("u_perpendicular", r"$U_\perp$", 240, -300, 300, against_boson=True),
)


def measure(candidates: ak.Array, weights: ak.Array, truth: ak.Array) -> dict[str, Any]:
    """Each quantity as a float64 array, NaN where an event has none; ``boson_pt`` beside them.

    Parameters
    ----------
    candidates, weights, truth
        As from :func:`puma_coffea.candidates`, a method, and :func:`puma_coffea.truth`.
        Quantities that need generator jets are left out where ``truth`` has none.
    """
    weighted = Weighted(candidates, weights)
    missing, u = weighted.met(), weighted.recoil(truth)
    numbers = {
        "met_x": missing.px - truth["met"].px,
        "met_y": missing.py - truth["met"].py,
        "met": missing.pt - truth["met"].pt,
        "u_parallel": u["parallel"],
        "u_perpendicular": u["perpendicular"],
        "boson_pt": u["boson_pt"],
    }
    if "jets" in truth.fields:
        found, generated = weighted.jets(), truth["jets"]
        ordered = generated[ak.argsort(generated["pt"], axis=1, ascending=False, stable=True)]
        hard = generated[generated["pt"] > GENERATOR_JET_PT_MIN]
        numbers["dijet_mass"] = dijet_mass(found) - dijet_mass(ordered)
        numbers["jet_response"] = leading_jet_response(found, hard)["pt"]
        numbers["pileup_jets"] = pileup_jets(found, generated)
    return {name: _plain(values) for name, values in numbers.items()}


def boson_bin(boson_pt: Any) -> Any:
    """Index of the bin of the boson's pT; the last bin is open."""
    return np.searchsorted(BOSON_PT_EDGES, boson_pt, side="right") - 1


def _plain(values: Any) -> Any:
    return np.asarray(ak.to_numpy(ak.fill_none(values, np.nan)), dtype=np.float64)

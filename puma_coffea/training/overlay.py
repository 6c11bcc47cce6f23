"""Overlay: a hard event without pile-up laid over the pile-up of another event.

The pile-up is what remains of a full event when its hard part is taken out: its pile-up tracks,
and its neutrals times (1 - y). The hard event is turned by a multiple of 10 degrees, which maps
the calorimeter's cells onto themselves, and perhaps reflected in eta. Neutrals of one kind that
fall into one cell are merged: pT adds, the direction is that of the larger, y = hard / sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puma_coffea.flat import HARD

Event = dict[str, Any]

COLUMNS = ("pt", "eta", "phi", "mass", "pid", "vertex", "y")
# What is true of the hard event besides its missing momentum, where a sample has it.
TRUE = (
    "boson_pt", "boson_phi",
    *(f"genjet_{name}" for name in ("pt", "eta", "phi", "mass")),
    *(f"boson_products_{name}" for name in ("pt", "eta", "phi", "mass", "charge")),
)  # fmt: skip

# Cells of the CMS Phase-II card v04, in eta and degrees of phi.
ECAL_EDGE, BARREL_EDGE = 2.958, 1.5
FORWARD = np.array([2.958, 3.125, 3.3, 3.475, 3.65, 3.825, 4.0, 4.175, 4.35, 4.525, 4.7, 5.0, 10.0])
TOWER_THRESHOLD = {22: 0.5, 0: 1.0}  # GeV of energy


def overlay(pileup: Event, hard: Event, turn: int, reflect: bool) -> Event:
    """One event from the pile-up of the first and the hard part of the second.

    Parameters
    ----------
    pileup, hard
        Flat columns ``COLUMNS`` of one event each, ``npv``, and ``true_met``: x and y (GeV) of the
        hard event's true pTmiss. It turns with the event, and so does what there is of ``TRUE``.
    turn
        Multiple of 10 degrees by which the hard event is turned.
    reflect
        Whether the hard event is reflected in eta.
    """
    soft = _without_hard(pileup)
    new = {name: np.array(hard[name]) for name in COLUMNS}
    angle = turn * np.pi / 18
    new |= {name: np.array(hard[name]) for name in TRUE if name in hard}
    for name in new:
        if name.endswith("phi"):
            new[name] = np.remainder(new[name] + angle + np.pi, 2 * np.pi) - np.pi
        elif name.endswith("eta") and reflect:
            new[name] = -new[name]
    joined = {name: np.concatenate([soft[name], new[name]]) for name in COLUMNS}
    neutral = joined["vertex"] < 0
    tracks = {name: column[~neutral] for name, column in joined.items()}
    towers = _merged({name: column[neutral] for name, column in joined.items()})
    event: Event = {name: np.concatenate([tracks[name], towers[name]]) for name in COLUMNS}
    event |= {name: new[name] for name in TRUE if name in new}
    event["npv"] = pileup["npv"]
    x, y = hard["true_met"]
    cos, sin = np.cos(angle), np.sin(angle)
    event["true_met"] = (x * cos - y * sin, x * sin + y * cos)
    return event


def _without_hard(event: Event) -> Event:
    left = {name: np.array(event[name]) for name in COLUMNS}
    neutral = left["vertex"] < 0
    left["pt"] = np.where(neutral, left["pt"] * (1 - left["y"]), left["pt"])
    left["y"] = np.zeros_like(left["y"])
    energy = left["pt"] * np.cosh(left["eta"])
    least = np.where(left["pid"] == 22, TOWER_THRESHOLD[22], TOWER_THRESHOLD[0])
    keep = np.where(neutral, energy >= least, left["vertex"] != HARD)
    return {name: column[keep] for name, column in left.items()}


def _merged(towers: Event) -> Event:
    """Towers of one kind and cell as one."""
    cell = _cells(towers["eta"], towers["phi"], towers["pid"])
    # The hardest of a cell first: it gives the direction.
    order = np.lexsort((-towers["pt"], cell))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = cell[order][1:] != cell[order][:-1]
    group = np.cumsum(first) - 1
    pt = np.bincount(group, weights=towers["pt"][order])
    hard = np.bincount(group, weights=(towers["pt"] * towers["y"])[order])
    merged = {name: column[order][first] for name, column in towers.items()}
    merged["y"] = np.where(pt > 0, hard / np.maximum(pt, 1e-9), 0)
    merged["pt"] = pt
    return merged


def _cells(eta: Any, phi: Any, pid: Any) -> Any:
    """A number for each cell and kind."""
    photon, size = pid == 22, np.abs(eta)
    forward = size >= ECAL_EDGE
    barrel = size < BARREL_EDGE
    eta_step = np.where(photon, 0.0174, np.where(barrel, 0.087, 0.0696))
    phi_step = np.where(photon, 1.0, np.where(barrel, 5.0, 4.0))
    phi_step = np.where(forward, 10.0, phi_step)
    row = np.floor(eta / eta_step).astype(np.int64) + 10_000
    ring = np.searchsorted(FORWARD, size, side="right") + 20_000
    row = np.where(forward, np.where(eta > 0, ring, ring + 100), row)
    column = np.floor((phi + np.pi) / np.deg2rad(phi_step)).astype(np.int64)
    return (row * 1000 + column) * 2 + photon

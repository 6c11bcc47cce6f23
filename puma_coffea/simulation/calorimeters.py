"""Energy flow: what a calorimeter's towers have beyond the tracks that point to them."""

from __future__ import annotations

from math import ceil, cosh, pi, sqrt
from typing import Any

import numpy as np

from puma_coffea.kernels import kernel
from puma_coffea.simulation.card import PHOTON_SMEARING, TOWER_MIN, deposit, tower_resolution
from puma_coffea.simulation.tracks import ETA, MASS, PT, RESOLUTION, log_normal

RING = 400  # more than there are cells in a ring


@kernel
def flow(
    ecal: bool,
    cells: tuple[Any, Any],
    pid: Any,
    energy: Any,
    wall_eta: Any,
    wall_phi: Any,
    pileup: Any,
    tracked: Any,
    particle: Any,
    tracks: Any,
) -> Any:
    """Neutral towers as rows of pT, eta, phi and hard share; tracks are rescaled in place.

    A tower whose energy exceeds that of its tracks significantly gives a neutral; in others the
    tracks' pT is averaged with the tower's energy. A track that misses the calorimeter gets pT 0.
    The hard share is that of the particles without a track or, if there is none, of all.
    """
    edges, divisions = cells
    cell = _hits(ecal, edges, divisions, pid, wall_eta, wall_phi, particle, tracks)
    order = np.argsort(cell)
    towers, made = np.empty((len(pid), 4)), 0
    least = TOWER_MIN[1] if ecal else TOWER_MIN[0]
    first = np.searchsorted(cell[order], 0)
    while first < len(order):
        here, last = cell[order[first]], first
        while last < len(order) and cell[order[last]] == here:
            last += 1
        hits = order[first:last]
        first = last
        ring, column = here // RING, here % RING
        low, high = edges[ring - 1], edges[ring]
        centre = 0.5 * (low + high)
        given, share = _given(ecal, hits, pid, energy, pileup, tracked)
        charged, variance = _charged(ecal, centre, hits, len(pid), pid, particle, tracks)
        seen = log_normal(given, tower_resolution(ecal, centre, given))
        sigma = tower_resolution(ecal, centre, seen)
        if seen < least or seen < sigma:
            seen = 0.0
        excess = max(seen - charged, 0.0)
        if excess > least and excess > sqrt(variance + sigma**2):
            if ecal:
                excess = log_normal(excess, PHOTON_SMEARING * excess)
            eta = low + (high - low) * np.random.random()
            phi = (column + np.random.random()) * 2 * pi / divisions[ring] - pi
            row = towers[made]
            row[0], row[1], row[2], row[3] = excess / cosh(eta), eta, phi, share
            made += 1
        elif charged > 0:
            _rescale(hits, len(pid), tracks, charged, variance, seen, sigma)
    return towers[:made]


@kernel
def _hits(
    ecal: bool,
    edges: Any,
    divisions: Any,
    pid: Any,
    wall_eta: Any,
    wall_phi: Any,
    particle: Any,
    tracks: Any,
) -> Any:
    """Cell of each particle, then of each track; -1 for those that leave nothing."""
    n = len(pid)
    cell = np.full(n + len(particle), -1, np.int64)
    for i in range(n):
        if deposit(ecal, pid[i]) > 0:
            cell[i] = _cell(wall_eta[i], wall_phi[i], edges, divisions)
    for j in range(len(particle)):
        i = particle[j]
        hit = _cell(wall_eta[i], wall_phi[i], edges, divisions)
        if hit < 0:
            tracks[j, PT] = 0.0
        elif deposit(ecal, pid[i]) > 0:
            cell[n + j] = hit
    return cell


@kernel
def _cell(eta: float, phi: float, edges: Any, divisions: Any) -> int:
    """Number of the cell that holds a direction, -1 outside."""
    ring = np.searchsorted(edges, eta)
    if ring in (0, len(edges)):
        return -1
    column = ceil((phi + pi) / (2 * pi) * divisions[ring]) - 1
    return int(ring * RING + min(max(column, 0), divisions[ring] - 1))


@kernel
def _given(
    ecal: bool, hits: Any, pid: Any, energy: Any, pileup: Any, tracked: Any
) -> tuple[float, float]:
    """Energy (GeV) that particles leave in a tower, and the hard share of its neutral."""
    given = hard = free = free_hard = 0.0
    for i in hits:
        if i >= len(pid):
            continue
        left = energy[i] * deposit(ecal, pid[i])
        mine = 0.0 if pileup[i] else left
        given, hard = given + left, hard + mine
        if not tracked[i]:
            free, free_hard = free + left, free_hard + mine
    if free > 0:
        return given, free_hard / free
    return given, hard / given if given > 0 else 1.0


@kernel
def _charged(
    ecal: bool, eta: float, hits: Any, n: int, pid: Any, particle: Any, tracks: Any
) -> tuple[float, float]:
    """Energy (GeV) of the tracks that point to a tower, and its variance."""
    charged = variance = 0.0
    for hit in hits:
        if hit < n:
            continue
        track = tracks[hit - n]
        whole = sqrt((track[PT] * cosh(track[ETA])) ** 2 + track[MASS] ** 2)
        left = whole * deposit(ecal, pid[particle[hit - n]])
        charged += left
        sharp = tower_resolution(ecal, eta, whole) / whole < track[RESOLUTION]
        variance += (track[RESOLUTION] * (left if sharp else whole)) ** 2
    return charged, variance


@kernel
def _rescale(
    hits: Any, n: int, tracks: Any, charged: float, variance: float, seen: float, sigma: float
) -> None:
    """Set a tower's tracks to the average of their own energy and the tower's."""
    by_track = 1 / variance if variance > 0 else 0.0
    by_tower = 1 / sigma**2 if sigma > 0 else 0.0
    if by_track + by_tower == 0:
        return
    best = (by_track * charged + by_tower * seen) / (by_track + by_tower)
    for hit in hits:
        if hit >= n:
            tracks[hit - n, PT] *= best / charged

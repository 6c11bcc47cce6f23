"""Charged particles as tracks: the hardest of a pixel, found with some chance, smeared."""

from __future__ import annotations

from math import asinh, atan2, ceil, cosh, exp, hypot, log, pi, sqrt
from typing import Any

import numpy as np

from puma_coffea.kernels import kernel
from puma_coffea.simulation.card import (
    PIXEL,
    PIXEL_HALF_LENGTH,
    PIXEL_RADIUS,
    TRACKER_EDGE,
    track_efficiency,
    track_resolution,
)
from puma_coffea.simulation.propagation import leave

# Columns of a track; its particle stands apart.
PT, ETA, PHI, MASS, RESOLUTION = range(5)


@kernel
def log_normal(mean: float, sigma: float) -> float:
    """A draw from the log-normal distribution of this mean and width."""
    if mean <= 0:
        return 0.0
    width = sqrt(log(1 + (sigma / mean) ** 2))
    return mean * exp(width * np.random.normal() - width**2 / 2)


@kernel
def find_tracks(
    pid: Any,
    charge: Any,
    px: Any,
    py: Any,
    pz: Any,
    energy: Any,
    x: Any,
    y: Any,
    z: Any,
    wall_eta: Any,
) -> tuple[Any, Any]:
    """Particle of each track, and tracks as rows of ``PT, ETA, PHI, MASS, RESOLUTION``.

    ``wall_eta`` is where a particle meets the calorimeter: efficiencies depend on it.
    """
    best = _hardest_of_pixels(charge, px, py, pz, x, y, z)
    particle, tracks = np.empty(len(best), np.int64), np.empty((len(best), 5))
    found = 0
    for i in best:
        kind, pt = abs(pid[i]), hypot(px[i], py[i])
        if np.random.random() > track_efficiency(kind, pt, wall_eta[i]):
            continue
        eta = asinh(pz[i] / pt) + PIXEL * np.random.normal()
        phi = atan2(py[i], px[i]) + PIXEL * np.random.normal()
        resolution = track_resolution(kind, pt, wall_eta[i])
        scale = cosh(eta) if kind == 11 else 1.0  # an electron's energy is smeared, not its pT
        row = tracks[found]
        row[PT] = log_normal(pt * scale, resolution * pt * scale) / scale
        row[ETA], row[PHI] = eta, (phi + pi) % (2 * pi) - pi
        row[MASS] = sqrt(max(energy[i] ** 2 - pt**2 - pz[i] ** 2, 0.0))
        row[RESOLUTION] = resolution
        particle[found] = i
        found += 1
    return particle[:found], tracks[:found]


@kernel
def _hardest_of_pixels(charge: Any, px: Any, py: Any, pz: Any, x: Any, y: Any, z: Any) -> Any:
    """Particles that the tracker can tell apart."""
    rows, columns = int(TRACKER_EDGE / PIXEL), 2 * int(pi / PIXEL)
    charged, pixel, number = np.empty(len(px), np.int64), np.empty(len(px), np.int64), 0
    for i in range(len(px)):
        if charge[i] == 0:
            continue
        a, b, c = x[i], y[i], z[i]
        if hypot(a, b) <= PIXEL_RADIUS and abs(c) <= PIXEL_HALF_LENGTH:
            a, b, c = leave(
                charge[i], px[i], py[i], pz[i], a, b, c, PIXEL_RADIUS, PIXEL_HALF_LENGTH
            )
        if a == 0 and b == 0:
            continue
        row = ceil(asinh(c / hypot(a, b)) / PIXEL) + rows
        if 0 < row <= 2 * rows:
            charged[number] = i
            pixel[number] = row * 10_000 + ceil((atan2(b, a) + pi) / (2 * pi) * columns)
            number += 1
    order = np.argsort(pixel[:number])
    best, found, last = np.empty(number, np.int64), 0, -1
    for k in order:
        i = charged[k]
        if pixel[k] != last:
            best[found] = i
            found += 1
            last = pixel[k]
        elif hypot(px[i], py[i]) > hypot(px[best[found - 1]], py[best[found - 1]]):
            best[found - 1] = i
    return best[:found]

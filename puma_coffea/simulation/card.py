"""Numbers of Delphes's CMS Phase-II card v04 (``CMS_PhaseII_200PU_v04.tcl``), as kernels and tables.

Lengths are in metres, momenta and energies in GeV.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from puma_coffea.kernels import kernel

FIELD = 3.8  # tesla
RADIUS, HALF_LENGTH = 1.29, 3.0  # of the field: where the calorimeters begin
PIXEL_RADIUS, PIXEL_HALF_LENGTH = 0.3, 0.7  # where tracks that are too close merge
PIXEL = 0.003  # in eta and phi; also the resolution of a track's direction
TRACKER_EDGE = 4.0
BEAM_LENGTH, BEAM_LIMIT = 0.053, 0.25  # of the vertices along z

# Relative pT resolution of tracks, a row per 0.2 in |eta|: below 1 GeV; at 1 GeV and its slope up to
# 10; at 10 GeV and its slope up to 100; at 100 GeV, in proportion to pT beyond.
TRACK_RESOLUTION = np.array([
    (0.00457888, 0.004579, 0.000045, 0.004983, 0.000047, 0.009244),
    (0.00505011, 0.005050, 0.000033, 0.005343, 0.000043, 0.009172),
    (0.00510573, 0.005106, 0.000023, 0.005317, 0.000042, 0.009077),
    (0.00578020, 0.005780, 0.000000, 0.005779, 0.000038, 0.009177),
    (0.00728723, 0.007287, -0.000031, 0.007011, 0.000038, 0.010429),
    (0.01045117, 0.010451, -0.000051, 0.009989, 0.000043, 0.013867),
    (0.01477199, 0.014772, -0.000128, 0.013616, 0.000035, 0.016800),
    (0.01731474, 0.017315, -0.000208, 0.015439, 0.000030, 0.018161),
    (0.01942025, 0.019420, -0.000417, 0.015669, 0.000026, 0.018039),
    (0.02201432, 0.022014, -0.000667, 0.016012, 0.000045, 0.020098),
    (0.02574300, 0.025743, -0.001118, 0.015681, 0.000051, 0.020289),
    (0.02885821, 0.028858, -0.001345, 0.016753, 0.000053, 0.021524),
    (0.03204812, 0.032048, -0.001212, 0.021138, 0.000037, 0.024477),
    (0.03950405, 0.039504, -0.001386, 0.027026, 0.000037, 0.030392),
    (0.04084751, 0.040848, -0.001780, 0.024824, 0.000029, 0.027445),
    (0.04532425, 0.045324, -0.002497, 0.022851, 0.000024, 0.025053),
    (0.06418925, 0.064189, -0.004055, 0.027691, 0.000034, 0.030710),
    (0.07682500, 0.076825, -0.004510, 0.036234, 0.000049, 0.040629),
    (0.09796358, 0.097964, -0.005758, 0.046145, 0.000069, 0.052345),
    (0.13415929, 0.134159, -0.008283, 0.059612, 0.000111, 0.069617),
])  # fmt: skip
MUON_RESOLUTION = 0.02  # at most: the card's table for muons is better than that for hadrons

_FORWARD = (3.125, 3.3, 3.475, 3.65, 3.825, 4.0, 4.175, 4.35, 4.525, 4.7, 5.0)


def _cells(fine: list[tuple[float, int]]) -> tuple[Any, Any]:
    """Edges in eta, and for each the number of cells in phi of the ring below it."""
    rings = {round(edge, 6): number for edge, number in fine}
    rings |= {sign * edge: 36 for edge in _FORWARD for sign in (-1, 1)} | {-2.958: 36}
    edges = sorted(rings)
    return np.array(edges), np.array([rings[edge] for edge in edges])


ECAL = _cells(
    [(0.0174 * k, 360) for k in range(-85, 87)]
    + [(start + 0.0174 * k, 360) for start in (-2.958, 1.4964) for k in range(1, 85)]
)
HCAL = _cells(
    [(0.087 * k, 72) for k in range(-18, 19)]
    + [(1.65, 72)]
    + [(start + 0.0696 * k, 90) for start in (-2.958, 1.4964) for k in range(1, 22)]
)


@kernel
def track_efficiency(pid: int, pt: float, eta: float) -> float:
    """Chance that a charged particle of this |id| leaves a track."""
    size = abs(eta)
    if pt <= 0.2 or size > TRACKER_EDGE:
        return 0.0
    if pid == 13:
        soft, found = (1.0, 1.0) if size <= 2.8 else (0.95, 0.95)
    elif size <= 1.2:
        soft, found = 0.96, 0.97
    elif size <= 2.5:
        soft, found = 0.85, 0.87 if pid != 11 else 0.82 + 0.01 * pt if pt <= 10 else 0.9
    else:
        soft, found = 0.8, 0.82 if pid != 11 else 0.8 + 0.01 * pt if pt <= 10 else 0.85
    return pt * soft if pt <= 1 else found


@kernel
def track_resolution(pid: int, pt: float, eta: float) -> float:
    """Relative resolution of a track: of its energy for electrons, else of its pT."""
    size = abs(eta)
    if pid == 11:
        if size <= 1.5:
            return 0.028
        if size <= 1.75:
            return 0.037
        if size <= 2.15:
            return 0.038
        return 0.044 if size <= 3 else 0.1
    row = TRACK_RESOLUTION[min(int(size / 0.2), len(TRACK_RESOLUTION) - 1)]
    if pt < 1:
        found = row[0]
    elif pt < 10:
        found = row[1] + (pt - 1) * row[2]
    elif pt < 100:
        found = row[3] + (pt - 10) * row[4]
    else:
        found = row[5] * pt / 100
    return float(min(found, MUON_RESOLUTION if pid == 13 else 1.0))


@kernel
def tower_resolution(ecal: bool, eta: float, energy: float) -> float:
    """Resolution (GeV) of a tower of the electromagnetic or hadronic calorimeter."""
    size = abs(eta)
    if not ecal:
        constant, stochastic, noise = (0.05, 1.0, 0.0) if size <= 3 else (0.11, 2.8, 0.0)
    elif size <= 1.5:
        constant, stochastic, noise = 0.009, 0.12, 0.45
    elif size <= 1.75:
        constant, stochastic, noise = 0.006, 0.20, 0.0
    elif size <= 2.15:
        constant, stochastic, noise = 0.007, 0.21, 0.0
    elif size <= 3:
        constant, stochastic, noise = 0.008, 0.24, 0.0
    else:
        constant, stochastic, noise = 0.08, 1.98, 0.0
    return sqrt((constant * energy) ** 2 + energy * stochastic**2 + noise**2)


@kernel
def deposit(ecal: bool, pid: int) -> float:
    """Share of its energy that a particle leaves in a calorimeter."""
    size = abs(pid)
    if size in (12, 13, 14, 16, 1000022):
        return 0.0
    share = 1.0 if size in (11, 22) else 0.3 if size in (310, 3122) else 0.0
    return share if ecal else 1.0 - share


TOWER_MIN = (1.0, 0.5)  # GeV of energy: hadronic, electromagnetic
PHOTON_SMEARING = 0.01  # of electromagnetic towers, on top of the calorimeter's

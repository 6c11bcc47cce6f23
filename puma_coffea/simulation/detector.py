"""The detector: stable particles in, energy-flow candidates out."""

from __future__ import annotations

from math import asinh, atan2, hypot
from typing import Any

import numpy as np

from puma_coffea.kernels import kernel
from puma_coffea.simulation.calorimeters import flow
from puma_coffea.simulation.card import ECAL, HALF_LENGTH, HCAL, RADIUS
from puma_coffea.simulation.propagation import leave
from puma_coffea.simulation.tracks import ETA, PHI, PT, find_tracks

_ECAL, _HCAL = ECAL, HCAL


@kernel
def set_seed(seed: int) -> None:
    """Of all that the detector draws."""
    np.random.seed(seed)


@kernel
def detect(
    pid: Any,
    charge: Any,
    px: Any,
    py: Any,
    pz: Any,
    energy: Any,
    x: Any,
    y: Any,
    z: Any,
    pileup: Any,
) -> tuple[Any, Any, Any]:
    """Tracks, photons and neutral hadrons of one event.

    Parameters
    ----------
    pid, charge, px, py, pz, energy, x, y, z, pileup
        Stable particles: momenta in GeV, places of birth in metres, whether they are pile-up.

    Returns
    -------
    tuple
        Tracks as rows of pT (GeV), eta, phi, id, whether pile-up; photons and neutral hadrons as
        rows of pT, eta, phi, hard share.
    """
    reached, wall_eta, wall_phi = _to_the_wall(charge, px, py, pz, x, y, z)
    pid, charge, energy, pileup = pid[reached], charge[reached], energy[reached], pileup[reached]
    px, py, pz = px[reached], py[reached], pz[reached]
    particle, tracks = find_tracks(
        pid, charge, px, py, pz, energy, x[reached], y[reached], z[reached], wall_eta
    )
    tracked = np.zeros(len(pid), np.bool_)
    tracked[particle] = True
    photons = flow(True, _ECAL, pid, energy, wall_eta, wall_phi, pileup, tracked, particle, tracks)
    hadrons = flow(False, _HCAL, pid, energy, wall_eta, wall_phi, pileup, tracked, particle, tracks)
    seen = np.flatnonzero(tracks[:, PT] > 0)
    rows = np.empty((len(seen), 5))
    for k, j in enumerate(seen):
        rows[k, 0], rows[k, 1], rows[k, 2] = tracks[j, PT], tracks[j, ETA], tracks[j, PHI]
        rows[k, 3], rows[k, 4] = pid[particle[j]], pileup[particle[j]]
    return rows, photons, hadrons


@kernel
def _to_the_wall(
    charge: Any, px: Any, py: Any, pz: Any, x: Any, y: Any, z: Any
) -> tuple[Any, Any, Any]:
    """Particles that reach the calorimeters, and the directions where they do."""
    reached, eta, phi = np.empty(len(px), np.int64), np.empty(len(px)), np.empty(len(px))
    number = 0
    for i in range(len(px)):
        inside = hypot(x[i], y[i]) <= RADIUS and abs(z[i]) <= HALF_LENGTH
        if not inside or px[i] ** 2 + py[i] ** 2 < 1e-9:
            continue
        a, b, c = leave(charge[i], px[i], py[i], pz[i], x[i], y[i], z[i], RADIUS, HALF_LENGTH)
        if a == 0 and b == 0:
            continue
        reached[number], eta[number], phi[number] = i, asinh(c / hypot(a, b)), atan2(b, a)
        number += 1
    return reached[:number], eta[:number], phi[:number]

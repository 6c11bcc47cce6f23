"""SoftKiller: a pT cut per event that empties half of the detector.

M. Cacciari, G. Salam, G. Soyez, Eur. Phys. J. C 75 (2015) 59, on the neutrals after
charged-hadron subtraction.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from puma_coffea.flat import Flat, weigh
from puma_coffea.kernels import kernel

RAPIDITY_MAX = 5.0  # edge of the forward calorimeters


def softkiller(candidates: ak.Array, side: float = 0.4) -> ak.Array:
    """Weight 1 for neutrals above the event's pT cut, 0 below; charged by vertex.

    The cut is the median over the cells of a grid in rapidity (up to 5) and phi of the largest
    neutral pT in each; empty cells count as 0.

    Parameters
    ----------
    candidates
        As from :func:`puma_coffea.candidates`.
    side
        Side of the cells; 0.4 is the authors' choice.
    """
    return weigh(candidates, partial(_weights, side=side))


def _weights(flat: Flat, side: float) -> NDArray[np.float32]:
    pz = flat.pt * np.sinh(flat.eta)
    rapidity = np.arcsinh(pz / np.hypot(flat.pt, flat.mass))
    shape = round(2 * RAPIDITY_MAX / side), round(2 * np.pi / side)
    cuts = pt_cuts(flat.offsets, flat.pt, rapidity, flat.phi, flat.neutral, *shape)
    return flat.by_vertex(flat.pt > np.repeat(cuts, np.diff(flat.offsets)))


@kernel
def pt_cuts(
    offsets: Any, pt: Any, rapidity: Any, phi: Any, neutral: Any, n_y: int, n_phi: int
) -> Any:
    """Each event's pT cut in GeV."""
    cuts = np.zeros(len(offsets) - 1)
    for event in range(len(offsets) - 1):
        largest = np.zeros(n_y * n_phi)
        for i in range(offsets[event], offsets[event + 1]):
            if neutral[i] and abs(rapidity[i]) < RAPIDITY_MAX:
                row = min(int((rapidity[i] + RAPIDITY_MAX) / (2 * RAPIDITY_MAX) * n_y), n_y - 1)
                column = min(int((phi[i] + np.pi) / (2 * np.pi) * n_phi), n_phi - 1)
                cell = row * n_phi + column
                largest[cell] = max(largest[cell], pt[i])
        cuts[event] = np.sort(largest)[len(largest) // 2]
    return cuts

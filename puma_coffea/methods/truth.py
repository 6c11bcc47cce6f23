"""Perfect weights: the true hard energy fraction of every neutral."""

from __future__ import annotations

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from puma_coffea.exceptions import NoTarget
from puma_coffea.flat import HARD, Flat, weigh

# A hard event has more hard neutrals than hard tracks; with this many tracks and no neutral
# the target was not filled, whatever the physics.
ENOUGH_TRACKS = 20


def truth(candidates: ak.Array) -> ak.Array:
    """True hard energy fraction for neutrals, 1 or 0 by vertex for tracks.

    Raises
    ------
    NoTarget
        The candidates carry no fractions, or their Delphes card never filled them.
    """
    return weigh(candidates, _fractions)


def _fractions(flat: Flat) -> NDArray[np.float32]:
    if flat.hard_fraction is None:
        msg = (
            "Method 'truth' needs the hard energy fraction of the candidates: the file has no branch "
            "HardEnergyFraction (Delphes before 3.5). Leave 'truth' out."
        )
        raise NoTarget(msg)
    check_filled(flat.hard_fraction, flat.vertex)
    return flat.by_vertex(np.clip(np.nan_to_num(flat.hard_fraction), 0, 1))


def check_filled(hard_fraction: NDArray[np.float32], vertex: NDArray[np.int32]) -> None:
    """Raise NoTarget if no neutral has a positive fraction although hard tracks exist."""
    neutral = vertex < 0
    tracks = int(np.sum(vertex == HARD))
    if tracks >= ENOUGH_TRACKS and neutral.any() and not np.any(hard_fraction[neutral] > 0):
        msg = (
            f"HardEnergyFraction is 0 for all {int(neutral.sum())} neutral candidates beside {tracks} "
            "hard tracks: this Delphes card never fills it (only SimpleCalorimeter does). "
            "Leave 'truth' out, or simulate with a card built on SimpleCalorimeter."
        )
        raise NoTarget(msg)

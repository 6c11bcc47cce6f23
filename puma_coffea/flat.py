"""From jagged candidates to the flat arrays that kernels loop over, and back to weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from puma_coffea.candidates import physical, refuse_lazy
from puma_coffea.exceptions import MissingCollection

NEUTRAL = -1
HARD = 0


@dataclass(frozen=True)
class Flat:
    """Physical candidates of a chunk: flat columns, and offsets that delimit the events.

    ``phi`` lies in [-pi, pi]; ``eta``, ``phi`` and ``pt`` are float64, so that kernels do
    not lose digits in differences.
    """

    offsets: NDArray[np.int64]
    pt: NDArray[np.float64]
    eta: NDArray[np.float64]
    phi: NDArray[np.float64]
    mass: NDArray[np.float64]
    pid: NDArray[np.int32]
    vertex: NDArray[np.int32]
    npv: NDArray[np.int32]
    hard_fraction: NDArray[np.float32] | None

    @property
    def neutral(self) -> NDArray[np.bool_]:
        """Mask of the candidates without a vertex."""
        return np.equal(self.vertex, NEUTRAL)

    def by_vertex(self, neutral_weights: Any) -> NDArray[np.float32]:
        """Weights: the given ones for neutrals; 1 or 0 by vertex for charged candidates."""
        charged = (self.vertex == HARD).astype(np.float32)
        weights: NDArray[np.float32] = np.where(self.neutral, neutral_weights, charged)
        return weights.astype(np.float32)


def weigh(candidates: ak.Array, kernel: Callable[[Flat], NDArray[np.float32]]) -> ak.Array:
    """Weights of the candidates from a kernel on flat arrays; unphysical ones get 0.

    Parameters
    ----------
    candidates
        As from :func:`puma_coffea.candidates`.
    kernel
        Function from :class:`Flat` to one weight per physical candidate.

    Returns
    -------
    awkward.Array
        ``var * float32`` of the candidates' layout.
    """
    refuse_lazy(candidates)
    counts, usable, flat = flatten(candidates)
    weights = np.zeros(len(usable), dtype=np.float32)
    weights[usable] = kernel(flat)
    offsets = ak.index.Index64(np.concatenate(([0], np.cumsum(counts))))
    return ak.Array(ak.contents.ListOffsetArray(offsets, ak.contents.NumpyArray(weights)))


def flatten(candidates: ak.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_], Flat]:
    """Counts per event, mask of the physical candidates, and their flat columns."""
    needed = ("pt", "eta", "phi", "mass", "pid", "vertex", "npv")
    missing = [name for name in needed if name not in candidates.fields]
    if missing:
        msg = (
            f"These candidates lack {', '.join(missing)}; make them with puma_coffea.candidates()."
        )
        raise MissingCollection(msg)
    counts = _plain(ak.num(candidates, axis=1)).astype(np.int64)
    usable = _column(physical(candidates), np.bool_)
    columns = {name: _column(candidates[name], np.float64)[usable] for name in needed[:4]}
    phi = columns["phi"]
    columns["phi"] = np.where(abs(phi) <= np.pi, phi, np.remainder(phi + np.pi, 2 * np.pi) - np.pi)
    integers = {name: _column(candidates[name], np.int32)[usable] for name in needed[4:]}
    fraction = None
    if "hard_fraction" in candidates.fields:
        fraction = _column(candidates["hard_fraction"], np.float32)[usable]
    kept = np.concatenate(([0], np.cumsum(usable)))
    bounds = np.concatenate(([0], np.cumsum(counts)))
    return counts, usable, Flat(kept[bounds], **columns, **integers, hard_fraction=fraction)


def _column(values: ak.Array, dtype: Any) -> Any:
    return _plain(ak.flatten(values)).astype(dtype)


def _plain(values: ak.Array) -> Any:
    """As a numpy array; a type that allows for None is no harm as long as there is none."""
    found = ak.to_numpy(values)
    if np.ma.is_masked(found):
        msg = "These candidates hold None; choose events and candidates with [...], not ak.mask."
        raise MissingCollection(msg)
    return np.ma.getdata(found)

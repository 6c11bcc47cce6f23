"""Crops of sequences: short stretches of tokens around candidates that matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from puma_coffea.puma.features import WAVES
from puma_coffea.training.config import Recipe
from puma_coffea.training.store import NEUTRAL, TokenStore, chance

SOME = 2000  # draws from which the mean weight is estimated


class Batch(NamedTuple):
    """Crops, padded to one length."""

    x: Tensor
    """(B, N, F)."""
    mask: Tensor
    """bool (B, N)."""
    target: Tensor
    """(B, N)."""
    weight: Tensor
    """(B, N), of each token in the loss; 0 for padding, tracks and the crop's edges."""

    def to(self, device: torch.device) -> Batch:
        """The batch on a device."""
        return Batch(*(each.to(device) for each in self))


class Crops:
    """Draws batches of crops; which ones depends on the seed and the step alone.

    Parameters
    ----------
    stores
        Tokens of real and overlaid events; an event is drawn from all of them alike.
    recipe
        Sizes, loss weights and seed.
    edge
        Tokens at a crop's ends that see less than their band and do not enter the loss.
    inputs
        Names of the features; directions among them are turned and reflected at random.
    """

    def __init__(
        self, stores: list[TokenStore], recipe: Recipe, edge: int, inputs: Sequence[str] = ()
    ) -> None:
        self.stores, self.recipe, self.edge = stores, recipe, edge
        self._place = {name: column for column, name in enumerate(inputs)}
        sizes = np.array([len(store.columns["drawn"]) for store in stores], dtype=np.float64)
        self._share = shares(sizes, recipe.real_share)
        self._norm = 1.0
        # Loss weights of order one, whatever the cap.
        drawn = [self._weights_at(store, c) for store in stores for c in _some(store)]
        self._norm = float(np.mean(drawn))

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """This process's part of the step's batch."""
        rng = np.random.default_rng((self.recipe.seed, step))
        which = rng.choice(len(self.stores), self.recipe.crops, p=self._share)
        draws = rng.random((self.recipe.crops, 5))
        mine = [self._crop(w, *d) for w, d in list(zip(which, draws, strict=True))[rank::world]]
        return pad(mine)

    def _crop(
        self, which: int, first: float, second: float, *turn: float
    ) -> tuple[NDArray[np.float32], ...]:
        store = self.stores[which]
        centres = store.columns["drawn"]
        centre = int(centres[int(first * len(centres))])
        begin, end = _event_around(store, centre)
        size = min(self.recipe.crop, end - begin)
        # The centre anywhere in the crop but at its edges.
        start = int(centre - self.edge - second * max(size - 2 * self.edge, 1))
        start = min(max(start, begin), end - size)
        here = slice(start, start + size)
        weight = self._weights(store, start, start + size)
        if start > begin:
            weight[: self.edge] = 0
        if start + size < end:
            weight[size - self.edge :] = 0
        target = np.asarray(store.columns["y"][here], np.float32)
        return self._turned(np.array(store.x[here], np.float32), *turn), target, weight

    def _turned(
        self, x: NDArray[np.float32], turn: float, mirror: float, swap: float
    ) -> NDArray[np.float32]:
        """The same physics elsewhere: all other inputs are the same for a turned event."""
        if not self.recipe.augment:
            return x
        place, sign = self._place, 1 if mirror < 0.5 else -1
        if "phi" in place:
            phi = np.remainder(x[:, place["phi"]] + 2 * np.pi * (turn + 0.5), 2 * np.pi) - np.pi
            x[:, place["phi"]] = phi * sign
        for k in WAVES:
            if f"cos_phi_{k}" in place and f"sin_phi_{k}" in place:
                cos, sin = place[f"cos_phi_{k}"], place[f"sin_phi_{k}"]
                wave = (x[:, cos] + 1j * x[:, sin]) * np.exp(2j * np.pi * k * turn)
                x[:, cos], x[:, sin] = wave.real, wave.imag * sign
        for name in ("eta", *(f"sin_eta_{k}" for k in WAVES)):
            if name in place and swap < 0.5:
                x[:, place[name]] *= -1
        return x

    def _weights(self, store: TokenStore, start: int, stop: int) -> NDArray[np.float32]:
        """pT^alpha of each neutral of a stretch, over how often crops meet it; 0 for tracks.

        Crops crowd where there is much pT. Without the division a soft token beside a jet would
        count hundreds of times more than the same token elsewhere, and few jets would make up the
        whole gradient.
        """
        begin, end = _event_around(store, start)
        half = self.recipe.crop // 2
        low, high = max(start - half, begin), min(stop + half, end)
        pt = np.asarray(store.columns["pt"][low:high])
        neutral = store.columns["kind"][low:high] == NEUTRAL
        running = np.concatenate(([0], np.cumsum(np.where(neutral, chance(pt), 0))))
        place = np.arange(start, stop) - low
        met = running[np.minimum(place + half, high - low)] - running[np.maximum(place - half, 0)]
        weight = np.minimum(pt, self.recipe.pt_cap)
        if self.recipe.pt_unit == "leading":  # a sequence begins with it
            weight = weight / store.columns["pt"][begin]
        weight = np.where(neutral, weight, 0)[place] ** self.recipe.alpha
        found: NDArray[np.float32] = weight / np.maximum(met, 1) / self._norm
        return found.astype(np.float32)

    def _weights_at(self, store: TokenStore, token: int) -> float:
        return float(self._weights(store, token, token + 1)[0])


def shares(sizes: NDArray[Any], real: float | None) -> NDArray[np.float64]:
    """Share of each store in batches: by size, but ``real`` for the first if there are others.

    >>> shares(np.array([10, 20, 10]), None)
    array([0.25, 0.5 , 0.25])
    >>> shares(np.array([10, 20, 20]), 0.6)
    array([0.6, 0.2, 0.2])
    """
    found: NDArray[np.float64] = sizes / sizes.sum()
    if real is not None and len(sizes) > 1:
        found = np.append(real, (1 - real) * sizes[1:] / sizes[1:].sum())
    return found


def draw(
    rng: np.random.Generator, sizes: NDArray[Any], real: float | None, count: int
) -> NDArray[np.int64]:
    """Numbers of randomly drawn entries of stores of these sizes, counted through all of them."""
    which = rng.choice(len(sizes), count, p=shares(sizes, real))
    first = np.concatenate(([0], np.cumsum(sizes)))
    drawn: NDArray[np.int64] = first[which] + (rng.random(count) * sizes[which]).astype(np.int64)
    return drawn


def _some(store: TokenStore) -> Any:
    drawn = store.columns["drawn"]
    return drawn[:: max(1, len(drawn) // SOME)]


def _event_around(store: TokenStore, token: int) -> tuple[int, int]:
    event = int(np.searchsorted(store.offsets, token, side="right")) - 1
    return int(store.offsets[event]), int(store.offsets[event + 1])


def pad(crops: list[tuple[Any, ...]]) -> Batch:
    """Sequences (features, target, weight) as a batch of the longest one's length."""
    length = max(len(x) for x, _, _ in crops)
    x = torch.zeros(len(crops), length, crops[0][0].shape[1])
    mask = torch.zeros(len(crops), length, dtype=torch.bool)
    target, weight = torch.zeros(len(crops), length), torch.zeros(len(crops), length)
    for i, (features, y, w) in enumerate(crops):
        n = len(y)
        x[i, :n], target[i, :n] = torch.from_numpy(features), torch.from_numpy(y)
        weight[i, :n], mask[i, :n] = torch.from_numpy(w), True
    return Batch(x, mask, target, weight)

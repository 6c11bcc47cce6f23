"""Crops of sequences: short stretches of tokens around candidates that matter."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from puma_coffea.training.config import Recipe
from puma_coffea.training.data import NEUTRAL, TokenStore

PT_HALF = 6.0  # GeV: a neutral is drawn as a crop's centre with min(1, (pT / 6)^2)


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
    """

    def __init__(self, stores: list[TokenStore], recipe: Recipe, edge: int) -> None:
        self.stores, self.recipe, self.edge = stores, recipe, edge
        self._centres = [neutrals_by_pt(store) for store in stores]
        sizes = np.array([len(found) for found in self._centres], dtype=np.float64)
        self._share = sizes / sizes.sum()
        self._weights = [self._loss_weights(store) for store in stores]
        # Of order one, whatever the cap.
        drawn = [w[c] for w, c in zip(self._weights, self._centres, strict=True)]
        self._norm = float(np.mean(np.concatenate(drawn)))

    def _loss_weights(self, store: TokenStore) -> Any:
        """pT^alpha of each neutral, over how often crops meet it.

        Crops crowd where there is much pT. Without the division a soft token beside a jet would
        count hundreds of times more than the same token elsewhere, and few jets would make up the
        whole gradient.
        """
        pt = np.asarray(store.columns["pt"])
        neutral = store.columns["kind"][:] == NEUTRAL
        running = np.concatenate(([0], np.cumsum(np.where(neutral, _chance(pt), 0))))
        half = self.recipe.crop // 2
        place = np.arange(len(pt))
        event = np.repeat(np.arange(len(store)), np.diff(store.offsets))
        first = np.maximum(place - half, store.offsets[event])
        last = np.minimum(place + half, store.offsets[event + 1])
        met = np.maximum(running[last] - running[first], 1.0)
        weight = np.minimum(pt, self.recipe.pt_cap)
        if self.recipe.pt_unit == "leading":  # a sequence begins with it
            weight = weight / pt[store.offsets[event]]
        weight = weight**self.recipe.alpha / met
        return np.where(neutral, weight, 0).astype(np.float32)

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """This process's part of the step's batch."""
        rng = np.random.default_rng((self.recipe.seed, step))
        which = rng.choice(len(self.stores), self.recipe.crops, p=self._share)
        draws = rng.random((self.recipe.crops, 2))
        mine = [self._crop(w, *d) for w, d in list(zip(which, draws, strict=True))[rank::world]]
        return _pad(mine)

    def _crop(self, which: int, first: float, second: float) -> tuple[Any, ...]:
        store, centres = self.stores[which], self._centres[which]
        centre = centres[int(first * len(centres))]
        event = int(np.searchsorted(store.offsets, centre, side="right")) - 1
        begin, end = store.offsets[event], store.offsets[event + 1]
        size = min(self.recipe.crop, end - begin)
        # The centre anywhere in the crop but at its edges.
        start = int(centre - self.edge - second * max(size - 2 * self.edge, 1))
        start = min(max(start, begin), end - size)
        here = slice(start, start + size)
        weight = self._weights[which][here] / self._norm
        if start > begin:
            weight[: self.edge] = 0
        if start + size < end:
            weight[size - self.edge :] = 0
        target = np.asarray(store.columns["y"][here], np.float32)
        return np.asarray(store.x[here], np.float32), target, weight


def neutrals_by_pt(store: TokenStore) -> Any:
    """Neutral tokens, thinned so that a draw among them prefers hard ones."""
    rng = np.random.default_rng(0)
    pt = np.asarray(store.columns["pt"])
    drawn = rng.random(len(pt)) < _chance(pt)
    return np.flatnonzero(drawn & (store.columns["kind"][:] == NEUTRAL))


def _chance(pt: Any) -> Any:
    return np.minimum(1, (pt / PT_HALF) ** 2)


def _pad(crops: list[tuple[Any, ...]]) -> Batch:
    length = max(len(x) for x, _, _ in crops)
    x = torch.zeros(len(crops), length, crops[0][0].shape[1])
    mask = torch.zeros(len(crops), length, dtype=torch.bool)
    target, weight = torch.zeros(len(crops), length), torch.zeros(len(crops), length)
    for i, (features, y, w) in enumerate(crops):
        n = len(y)
        x[i, :n], target[i, :n] = torch.from_numpy(features), torch.from_numpy(y)
        weight[i, :n], mask[i, :n] = torch.from_numpy(w), True
    return Batch(x, mask, target, weight)

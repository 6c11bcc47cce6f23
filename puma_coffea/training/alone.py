"""The first phase of a training: candidates one by one, before they attend to each other.

Few candidates carry the physics, and most of what there is to learn about one stands in its own
features. So the network is first trained without attention on candidates drawn by pT, of which
a step then sees thousands that matter. The attention's output starts at zero: at the end of the
phase the network with attention is exactly the network without, and goes on from there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from puma_coffea.puma.network import PumaNetwork
from puma_coffea.training.batches import Batch, draw
from puma_coffea.training.config import Recipe
from puma_coffea.training.store import TokenStore, chance


class Singles:
    """Draws batches of single candidates; which ones depends on the seed and the step alone."""

    def __init__(self, stores: list[TokenStore], recipe: Recipe) -> None:
        self.stores, self.recipe = stores, recipe
        sizes = [len(store.columns["drawn"]) for store in stores]
        self._first = np.concatenate(([0], np.cumsum(sizes)))
        some = np.concatenate(
            [
                store.columns["drawn_pt"][:: 1 + n // 100_000]
                for store, n in zip(stores, sizes, strict=True)
            ]
        )
        self._norm = float(np.mean(self._weight(some)))

        self._taught: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return int(self._first[-1])

    def teach(self, weights: NDArray[np.float32]) -> None:
        """Mix a teacher's weights, one per drawn neutral, into the targets of batches."""
        self._taught = weights

    def events(self) -> NDArray[np.int64]:
        """Number of each drawn neutral's event within its store."""
        found = [
            np.searchsorted(store.offsets, store.columns["drawn"], side="right") - 1
            for store in self.stores
        ]
        return np.concatenate(found)

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """This process's part of the step's batch, as one crop."""
        rng = np.random.default_rng((self.recipe.seed, 1, step))
        sizes = np.diff(self._first)
        mine = draw(rng, sizes, self.recipe.real_share, self.recipe.singles)[rank::world]
        mine.sort()
        features, target, weights = self.take(mine)
        if self._taught is not None:
            share = np.float32(self.recipe.teacher)
            target = (1 - share) * target + share * self._taught[mine]
        x, y, weight = (torch.from_numpy(each)[None] for each in (features, target, weights))
        return Batch(x, torch.ones(1, len(mine), dtype=torch.bool), y, weight)

    def take(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.float32], ...]:
        """Features, targets and loss weights of the drawn neutrals of these numbers, increasing."""
        parts = []
        for store, first, last in zip(self.stores, self._first, self._first[1:], strict=False):
            here = chosen[(chosen >= first) & (chosen < last)] - first
            x, y, pt = (store.columns[f"drawn_{name}"][here] for name in ("x", "y", "pt"))
            parts.append((x, y, self._weight(pt) / self._norm))
        return tuple(np.concatenate(each).astype(np.float32) for each in zip(*parts, strict=True))

    def _weight(self, pt: NDArray[np.float32]) -> Any:
        """pT^alpha over how often a neutral is drawn."""
        return np.minimum(pt, self.recipe.pt_cap) ** self.recipe.alpha / chance(pt)


def silence_attention(network: PumaNetwork) -> None:
    """Set the attention's output projection to zero."""
    for layer in network.layers:
        nn.init.zeros_(layer.attention_out.weight)  # type: ignore[union-attr,arg-type]
        nn.init.zeros_(layer.attention_out.bias)  # type: ignore[union-attr,arg-type]


def wake_attention(network: PumaNetwork, seed: int) -> None:
    """Set the attention's output projection to small random numbers."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in network.layers:
            weight: Any = layer.attention_out.weight  # type: ignore[union-attr]
            weight.copy_(1e-3 * torch.randn(weight.shape, generator=random))


def attends(network: PumaNetwork) -> bool:
    """Whether any candidate changes another's weight."""
    outputs = [layer.attention_out for layer in network.layers]
    return any(bool(p.any()) for out in outputs for p in out.parameters())  # type: ignore[union-attr]


def alone_logits(network: PumaNetwork, batch: Batch) -> Tensor:
    """Logits of the network without its attention, (B, N)."""
    h: Any = network.embed(network.input_norm(batch.x, batch.mask))
    h = network.embed_norm(torch.relu(h), batch.mask)
    for layer in network.layers:
        for _ in range(layer.repeats):  # type: ignore[arg-type]
            if layer.pre:
                h = h + layer.dropout(layer.feed_through(layer.feed_norm(h)))  # type: ignore[operator]
            else:
                h = layer.attention_norm(h)  # type: ignore[operator]
                h = layer.feed_norm(h + layer.dropout(layer.feed_through(h)))  # type: ignore[operator]
    logits: Tensor = network.decode(network.final_norm(h)).squeeze(-1)
    return logits

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
from torch import Tensor, nn

from puma_coffea.puma.network import PumaNetwork
from puma_coffea.training.batches import PT_HALF, Batch, neutrals_by_pt
from puma_coffea.training.config import Recipe
from puma_coffea.training.data import TokenStore


class Singles:
    """Draws batches of single candidates; which ones depends on the seed and the step alone."""

    def __init__(self, stores: list[TokenStore], recipe: Recipe) -> None:
        self.recipe = recipe
        chosen = [neutrals_by_pt(store) for store in stores]
        # Copied into memory: random rows of a file on disk are slow. About 1 GB for 10,000 events.
        self.x = np.concatenate([s.x[c] for s, c in zip(stores, chosen, strict=True)])
        self.y = np.concatenate([s.columns["y"][c] for s, c in zip(stores, chosen, strict=True)])
        pt = np.concatenate([s.columns["pt"][c] for s, c in zip(stores, chosen, strict=True)])
        chance = np.minimum(1, (pt / PT_HALF) ** 2)
        weight = np.minimum(pt, recipe.pt_cap) ** recipe.alpha / chance
        self.weight = (weight / weight.mean()).astype(np.float32)

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """This process's part of the step's batch, as one crop."""
        rng = np.random.default_rng((self.recipe.seed, 1, step))
        mine = rng.integers(0, len(self.y), self.recipe.singles)[rank::world]
        x, y = (torch.from_numpy(a[mine].astype(np.float32)) for a in (self.x, self.y))
        weight = torch.from_numpy(self.weight[mine])
        return Batch(x[None], torch.ones(1, len(mine), dtype=torch.bool), y[None], weight[None])


def silence_attention(network: PumaNetwork) -> None:
    """Set the attention's output projection to zero."""
    for layer in network.layers:
        nn.init.zeros_(layer.attention_out.weight)  # type: ignore[union-attr,arg-type]
        nn.init.zeros_(layer.attention_out.bias)  # type: ignore[union-attr,arg-type]


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

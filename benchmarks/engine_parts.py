"""The parts of the engine alone, as often as the whole network runs them: where the time goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from puma_coffea.benchmarks.events import NETWORK
from puma_coffea.puma import fast
from puma_coffea.puma.fast_vectors import gelu, normalise
from puma_coffea.puma.vectors import LANES, TILES

PARTS = ("qkv", "attention", "after", "gelu", "norms")


def functions(engine: fast.NumbaEngine, length: int) -> dict[str, Callable[[], Any]]:
    """One for each of PARTS, on arrays of the right sizes."""
    shape, rng = engine.shape, np.random.default_rng(0)
    steps = -(-(length + shape.reach) // fast.STEP)
    places = shape.reach + steps * fast.STEP
    sizes = (places * shape.rows, places + shape.reach, *engine.scratch_sizes())
    arrays = [rng.normal(size=size).astype(np.float32) for size in sizes]
    arguments = (NETWORK.layers, shape, engine.parameters, steps, *arrays)
    return {name: partial(_part, i, *arguments) for i, name in enumerate(PARTS)}


def shares(seconds: dict[str, float]) -> dict[str, float]:
    """Seconds by kind of work: what follows attention holds GELU and LayerNorm too."""
    products = seconds["qkv"] + seconds["after"] - seconds["gelu"] - seconds["norms"]
    return {
        "of it: its products": products,
        "of it: attention": seconds["attention"],
        "of it: GELU": seconds["gelu"],
        "of it: LayerNorm": seconds["norms"],
    }


@njit
def _part(
    which: int,
    layers: int,
    shape: Any,
    p: Any,
    steps: int,
    state: Any,
    hidden: Any,
    tiles: Any,
    mixed: Any,
    feed: Any,
    window: Any,
    shares: Any,
) -> None:
    tile = shape.rows * LANES
    for _ in range(layers):
        for step in range(steps):
            if which == 0:
                fast.next_keys(shape, p, 0, step, state, tiles, window)
            for place in range(0, fast.STEP, fast.GROUP):
                here = (step * fast.STEP + place) * shape.rows
                if which == 1:
                    fast.attention(shape, place, step, window, hidden, shares, mixed)
                elif which == 2:
                    at = step * fast.STEP + place
                    fast.after_attention(shape, p, 0, at, state, tiles, mixed, feed)
                elif which == 3:
                    gelu(feed, TILES * shape.feed_rows)
                elif which == 4:
                    for _ in range(2):
                        normalise(
                            state, here, tile, shape.width, p.eps, p.feed_norm[0], 0, state, here
                        )

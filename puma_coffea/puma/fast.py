"""The network on a CPU without torch: the same numbers, close to the time of its matrix products.

Equal to :class:`puma_coffea.puma.network.PumaNetwork` to 1e-5. The sequence is cut into tiles of
LANES places; a tile holds its features as rows, so that everything but attention works on whole
vectors of places. A layer walks along the sequence in steps of STEP places whose data stay in the
cache: it computes queries, keys and values of the next places, then attention and all that
follows for the places whose keys are complete (``reach`` places behind), in place.

One event at a time on the calling thread, without BLAS: a weight depends on its event alone. A layer
whose attention's output is all zeros, as the first phase of a training leaves it, does without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from puma_coffea.kernels import kernel
from puma_coffea.puma.fast_vectors import (
    MIXED,
    SCORES,
    decode,
    gelu,
    mix_single,
    mix_wide,
    normalise,
    product,
    product_onto,
    relu_scaled,
    scores_single,
    scores_wide,
    shift,
    softmax,
)
from puma_coffea.puma.fast_weights import NetworkShape, Parameters, check, pack, round_up
from puma_coffea.puma.vectors import LANES, ROWS, TILES

GROUP = TILES * LANES  # places of a matrix product
STEP = GROUP * -(-96 // GROUP)  # places whose keys and values of a head fit the first-level cache
HIDDEN = np.float32(-1e30)  # score of a key that does not exist


class Shape(NamedTuple):
    """The integers that the kernels need."""

    inputs: int
    width: int
    rows: int
    """``width`` up to a multiple of ROWS: rows of a tile."""
    heads: int
    feed: int
    feed_rows: int
    band: int
    reach: int
    """``band`` up to a multiple of LANES."""
    pre: bool


class NumbaEngine:
    """A network on one core of a CPU.

    Parameters
    ----------
    config
        Shapes of the network.
    tensors
        Its numbers by their names in ``weights.safetensors``.

    Raises
    ------
    ValueError
        Numbers that do not fit the shapes.
    """

    def __init__(self, config: NetworkShape, tensors: Mapping[str, NDArray[Any]]) -> None:
        check(config, tensors)
        inputs, width = tensors["embed.weight"].shape[::-1]
        self.shape = Shape(
            inputs=int(inputs),
            width=int(width),
            rows=round_up(int(width), ROWS),
            heads=config.heads,
            feed=config.feed_forward,
            feed_rows=round_up(config.feed_forward, ROWS),
            band=config.band,
            reach=round_up(config.band, LANES),
            pre=config.norm == "pre",
        )
        self.parameters = pack(config, tensors)
        self.uses = np.arange(config.layers) * config.groups // config.layers
        self.attends = self.parameters.attention_out.any(axis=1)

    def __call__(self, events: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """Weights of the tokens of each event, from features of shape (tokens, inputs)."""
        return [self._alone(np.ascontiguousarray(x, dtype=np.float32)) for x in events]

    def _alone(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        length, reach = len(x), self.shape.reach
        if length == 0:
            return np.zeros(0, dtype=np.float32)
        steps = -(-(length + reach) // STEP)
        state = _aligned((reach + steps * STEP) * self.shape.rows)
        weights = _aligned(steps * STEP)
        hidden = np.full(2 * reach + steps * STEP, HIDDEN, dtype=np.float32)
        hidden[2 * reach : 2 * reach + length] = 0
        scratch = tuple(_aligned(size) for size in self.scratch_sizes())
        forward(
            x.reshape(-1),
            self.uses,
            self.attends,
            self.shape,
            self.parameters,
            steps,
            hidden,
            state,
            weights,
            *scratch,
        )
        return weights[reach : reach + length]

    def scratch_sizes(self) -> tuple[int, ...]:
        """Of the arrays that a step works in: tiles, mixed values, feed-forward, window, shares."""
        s = self.shape
        return (
            GROUP * max(s.inputs, s.rows),
            GROUP * s.width,
            GROUP * s.feed_rows,
            round_up(3 * s.width, ROWS) * (2 * s.reach + STEP),
            LANES * (2 * s.band + 2),
        )


def _aligned(size: int) -> NDArray[np.float32]:
    """Zeros that begin at a cache line, so that no aligned vector lies across two."""
    line = 16
    room = np.zeros(size + line, dtype=np.float32)
    start = -(room.ctypes.data // room.itemsize) % line
    return room[start : start + size]


@kernel(nogil=True)
def forward(
    x: Any,
    uses: Any,
    attends: Any,
    shape: Shape,
    p: Parameters,
    steps: int,
    hidden: Any,
    state: Any,
    weights: Any,
    tiles: Any,
    mixed: Any,
    feed: Any,
    window: Any,
    shares: Any,
) -> None:
    """The whole network for one event."""
    embed(x, shape, p, state, tiles)
    for g in uses:
        window[:] = 0
        if not attends[g]:
            mixed[:] = 0
        for step in range(steps):
            if attends[g]:
                next_keys(shape, p, g, step, state, tiles, window)
            for place in range(0, STEP, GROUP):
                if attends[g]:
                    attention(shape, place, step, window, hidden, shares, mixed)
                after_attention(shape, p, g, step * STEP + place, state, tiles, mixed, feed)
            if attends[g]:
                row = 2 * shape.reach + STEP
                shift(window, 3 * shape.width, row, STEP, 2 * shape.reach // LANES)
    for place in range(0, steps * STEP, GROUP):
        here, source = place * shape.rows, state
        if shape.pre:
            tile = LANES * shape.rows
            normalise(state, here, tile, shape.width, p.eps, p.final_norm, 0, tiles, 0)
            here, source = 0, tiles
        for t in range(TILES):
            decode(
                source,
                here + t * LANES * shape.rows,
                shape.width,
                p.decode,
                weights,
                place + t * LANES,
            )


@kernel(nogil=True)
def linear(
    w: Any,
    x: Any,
    x0: int,
    inner: int,
    x_tile: int,
    out: Any,
    out0: int,
    out_row: int,
    out_tile: int,
    onto: bool,
) -> None:
    """A linear layer for TILES tiles, instead of what is in ``out`` or added to it."""
    block = ROWS * (1 + inner)
    for b in range(len(w) // block):
        at = out0 + b * ROWS * out_row
        if onto:
            product_onto(w, b * block, x, x0, x_tile, out, at, out_row, out_tile, inner)
        else:
            product(w, b * block, x, x0, x_tile, out, at, out_row, out_tile, inner)


@kernel(nogil=True)
def embed(x: Any, shape: Shape, p: Parameters, state: Any, tiles: Any) -> None:
    """Normalise the features of all places and embed them; places behind the last are like 0."""
    n, tile = shape.inputs, shape.rows * LANES
    for place in range(0, len(state) // shape.rows - shape.reach, GROUP):
        for i in range(GROUP):
            start = i // LANES * n * LANES + i % LANES
            inside = (place + i) * n < len(x)
            for f in range(n):
                value = x[(place + i) * n + f] if inside else np.float32(0)
                tiles[start + f * LANES] = value * p.input_norm[f] + p.input_norm[n + f]
        here = (shape.reach + place) * shape.rows
        linear(p.embed, tiles, 0, n, n * LANES, state, here, LANES, tile, False)
        for t in range(TILES):
            relu_scaled(state, here + t * tile, shape.width, p.embed_norm)


@kernel(nogil=True)
def next_keys(
    shape: Shape, p: Parameters, g: int, step: int, state: Any, tiles: Any, window: Any
) -> None:
    """Queries, keys and values of the next STEP places, as rows at the end of the window."""
    row, tile = 2 * shape.reach + STEP, shape.rows * LANES
    for place in range(0, STEP, GROUP):
        here, source = (shape.reach + step * STEP + place) * shape.rows, state
        if shape.pre:
            normalise(state, here, tile, shape.width, p.eps, p.attention_norm[g], 0, tiles, 0)
            here, source = 0, tiles
        linear(
            p.query_key_value[g],
            source,
            here,
            shape.width,
            tile,
            window,
            2 * shape.reach + place,
            row,
            LANES,
            False,
        )


@kernel(nogil=True)
def attention(
    shape: Shape, place: int, step: int, window: Any, hidden: Any, shares: Any, mixed: Any
) -> None:
    """Values mixed by banded attention for the GROUP places from ``reach + place`` of the window."""
    row, size, count = 2 * shape.reach + STEP, shape.width // shape.heads, 2 * shape.band + 1
    for t in range(TILES):
        query = shape.reach + place + t * LANES
        first = query - shape.band
        for feature in range(0, shape.width, size):
            q, k = feature * row + query, (shape.width + feature) * row + first
            seen = step * STEP + first
            if count < SCORES:
                for o in range(count):
                    scores_single(window, q, k + o, row, size, hidden, seen + o, shares, o * LANES)
            else:
                for begin in range(0, count, SCORES):
                    o = min(begin, count - SCORES)
                    scores_wide(window, q, k + o, row, size, hidden, seen + o, shares, o * LANES)
            softmax(shares, count)
            value = (2 * shape.width + feature) * row + first
            out = (t * shape.width + feature) * LANES
            wide = size // MIXED * MIXED
            for f in range(0, wide, MIXED):
                mix_wide(window, value + f * row, row, shares, count, mixed, out + f * LANES)
            for f in range(wide, size):
                mix_single(window, value + f * row, row, shares, count, mixed, out + f * LANES)


@kernel(nogil=True)
def after_attention(
    shape: Shape, p: Parameters, g: int, place: int, state: Any, tiles: Any, mixed: Any, feed: Any
) -> None:
    """The rest of a layer for GROUP places, in place."""
    width, tile, here = shape.width, shape.rows * LANES, place * shape.rows
    linear(p.attention_out[g], mixed, 0, width, width * LANES, state, here, LANES, tile, True)
    source, start = state, here
    if shape.pre:
        source, start = tiles, 0
        normalise(state, here, tile, width, p.eps, p.feed_norm[g], 0, tiles, 0)
    else:
        normalise(state, here, tile, width, p.eps, p.attention_norm[g], 0, state, here)
    fed = shape.feed_rows * LANES
    linear(p.feed[g], source, start, width, tile, feed, 0, LANES, fed, False)
    gelu(feed, TILES * shape.feed_rows)
    linear(p.feed_out[g], feed, 0, shape.feed, fed, state, here, LANES, tile, True)
    if not shape.pre:
        normalise(state, here, tile, width, p.eps, p.feed_norm[g], 0, state, here)

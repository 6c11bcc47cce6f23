"""Banded attention and its derivative on a CPU, for training: the same numbers, several times faster.

Equal to :func:`puma_coffea.puma.network.banded_attention` to rounding. A crop's head is copied to
arrays that stay in the cache; queries are then taken QUERIES at a time. Scores of a block with its
window of keys are a small matrix product with keys in the lanes of vectors. From then on a row
holds what one query gives to its keys, counted from the first in its band ("shares"), and the
remaining products have features in the lanes and skip everything outside of the band. Padding and
places outside of the crop are hidden by their scores.

Kept for the derivative: the shares alone. The inner loops are LLVM instructions, see
:mod:`puma_coffea.training.attention_vectors`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from puma_coffea.kernels import kernel
from puma_coffea.puma.fast_weights import round_up
from puma_coffea.puma.vectors import LANES, ROWS, TILES
from puma_coffea.training.attention_vectors import (
    QUERIES,
    copy_rows,
    hand_out,
    mix,
    product_single,
    product_wide,
    softmax,
    softmax_slopes,
    turn,
)
from puma_coffea.training.tensor_calls import flat, spread

HIDDEN = np.float32(-1e30)  # score of a key that must not be seen


class Shape(NamedTuple):
    """The integers that the kernels need."""

    length: int
    heads: int
    size: int
    """Features of a head."""
    row: int
    """``size`` up to a multiple of LANES: distance of places in the kernels' arrays."""
    band: int
    """At least half a block; offsets beyond the true band are hidden."""
    reach: int
    """``band`` up to a multiple of LANES: places before the first and behind the last."""
    places: int
    """All of a crop in the kernels' arrays: ``length`` up to a multiple of QUERIES, and reaches."""
    keys: int
    """Offsets of a query's keys, 2 band + 1, up to a multiple of LANES."""
    window: int
    """Places that a block of queries sees, up to a multiple of LANES."""

    @classmethod
    def of(cls, length: int, heads: int, size: int, band: int) -> Shape:
        band = max(band, QUERIES // 2)
        reach = round_up(band, LANES)
        return cls(
            length=length,
            heads=heads,
            size=size,
            row=round_up(size, LANES),
            band=band,
            reach=reach,
            places=round_up(length, QUERIES) + 2 * reach,
            keys=round_up(2 * band + 1, LANES),
            window=round_up(QUERIES + reach + band, LANES),
        )

    @property
    def queries(self) -> int:
        return self.places - 2 * self.reach


class BandedAttention(torch.autograd.Function):
    """:func:`banded_attention` for autograd."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, mask: Tensor, heads: int, band: int) -> Tensor:
        batch, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        shape = Shape.of(length, heads, width // heads, band)
        qkv = qkv.contiguous()
        shares = torch.empty(batch * heads * shape.queries * shape.keys)
        out = qkv.new_empty(batch, length, width)
        offsets = np.arange(shape.keys) - shape.band
        far = np.where(np.abs(offsets) <= band, np.float32(0), HIDDEN)
        _call(
            batch, forward, shape, flat(qkv), flat(mask.contiguous()), far, flat(shares),
            flat(out),
        )  # fmt: skip
        ctx.shape = shape
        ctx.save_for_backward(qkv, shares)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        qkv, shares = ctx.saved_tensors
        given = gradients[0].contiguous()
        out = torch.empty_like(qkv)
        _call(len(qkv), backward, ctx.shape, flat(qkv), flat(shares), flat(given), flat(out))
        return out, None, None, None


def banded_attention(qkv: Tensor, mask: Tensor, heads: int, band: int) -> Tensor:
    """Softmax attention of each place to the ``band`` before it, itself, and the ``band`` after.

    Parameters
    ----------
    qkv
        Queries, keys and values side by side, float32 or bfloat16 (B, N, 3 D).
    mask
        bool (B, N), False for padding: it is not seen, and what it sees means nothing.
    heads, band
        H and w.

    Returns
    -------
    torch.Tensor
        (B, N, D).
    """
    if qkv.shape[2] // 3 // heads % LANES:
        qkv = qkv.float()  # numbers one by one
    out: Tensor = BandedAttention.apply(qkv, mask, heads, band)  # type: ignore[no-untyped-call]
    return out


def _call(batch: int, kernel: Any, shape: Shape, *arrays: Any) -> None:
    """Call a kernel for all crops."""

    def part(_: int, first: int, last: int) -> None:
        # torch's memory begins at a cache line, so that no aligned vector lies across two.
        room = torch.zeros(7, shape.places * shape.row).numpy()
        small = torch.zeros(3, QUERIES * (shape.window + shape.keys) + shape.places).numpy()
        kernel(shape, first, last, *arrays, *room, *small)

    spread(batch, part)


@kernel(nogil=True)
def forward(
    s: Shape,
    first: int,
    last: int,
    qkv: Any,
    mask: Any,
    far: Any,
    shares: Any,
    out: Any,
    q: Any,
    k: Any,
    v: Any,
    turned: Any,
    mixed: Any,
    _5: Any,
    _6: Any,
    scores: Any,
    hidden: Any,
    scale: Any,
) -> None:
    """Attention of the crops from ``first`` to ``last``."""
    width = s.heads * s.size
    scale[0] = 1 / (np.sqrt(s.size) * np.log(2))  # shares are powers of two
    for crop in range(first, last):
        hidden[:] = HIDDEN
        for i in range(s.length):
            if mask[crop * s.length + i]:
                hidden[s.reach + i] = 0
        for head in range(s.heads):
            here = crop * s.length * 3 * width + head * s.size
            take(s, qkv, here, 3 * width, q)
            take(s, qkv, here + width, 3 * width, k)
            take(s, qkv, here + 2 * width, 3 * width, v)
            turn_all(s, k, turned)
            for i in range(0, s.places - 2 * s.reach, QUERIES):
                at = ((crop * s.heads + head) * (s.places - 2 * s.reach) + i) * s.keys
                products(s, q, turned, i, scores)
                start = s.reach - s.band
                softmax(scores, start, s.window + 1, hidden, start + i, far, scale, shares, at,
                        s.keys)  # fmt: skip
                for f in range(0, s.row, LANES):
                    mix(shares, at, s.keys, v, (start + i) * s.row + f, s.row,
                        mixed, (s.reach + i) * s.row + f, 2 * s.band)  # fmt: skip
            give(s, mixed, out, crop * s.length * width + head * s.size, width)


@kernel(nogil=True)
def backward(
    s: Shape,
    first: int,
    last: int,
    qkv: Any,
    shares: Any,
    given: Any,
    out: Any,
    q: Any,
    k: Any,
    v: Any,
    turned: Any,
    above: Any,
    dk: Any,
    dv: Any,
    scores: Any,
    slopes: Any,
    scale: Any,
) -> None:
    """Derivative of the loss by ``qkv``, from ``given``, that by the attention's output."""
    width = s.heads * s.size
    scale[0] = 1 / np.sqrt(s.size)
    for crop in range(first, last):
        for head in range(s.heads):
            here = crop * s.length * 3 * width + head * s.size
            take(s, qkv, here, 3 * width, q)
            take(s, qkv, here + width, 3 * width, k)
            take(s, qkv, here + 2 * width, 3 * width, v)
            take(s, given, crop * s.length * width + head * s.size, width, above)
            turn_all(s, v, turned)
            dk[:] = 0
            dv[:] = 0
            start = s.reach - s.band
            for i in range(0, s.places - 2 * s.reach, QUERIES):
                at = ((crop * s.heads + head) * (s.places - 2 * s.reach) + i) * s.keys
                products(s, above, turned, i, scores)
                softmax_slopes(scores, start, s.window + 1, shares, at, scale, slopes, s.keys)
                for f in range(0, s.row, LANES):
                    block, keys = (s.reach + i) * s.row + f, (start + i) * s.row + f
                    hand_out(shares, at, s.keys, above, block, s.row, dv, keys, 2 * s.band)
                    hand_out(slopes, 0, s.keys, q, block, s.row, dk, keys, 2 * s.band)
                    mix(slopes, 0, s.keys, k, keys, s.row, q, block, 2 * s.band)
            give(s, q, out, here, 3 * width)
            give(s, dk, out, here + width, 3 * width)
            give(s, dv, out, here + 2 * width, 3 * width)


@kernel(nogil=True)
def take(s: Shape, x: Any, x0: int, distance: int, out: Any) -> None:
    """Copy a crop's head to an array with room at its ends."""
    vectors = s.size // LANES
    copy_rows(x, x0, distance, out, s.reach * s.row, s.row, s.length, vectors)
    for f in range(vectors * LANES, s.size):
        for i in range(s.length):
            out[(s.reach + i) * s.row + f] = x[x0 + i * distance + f]


@kernel(nogil=True)
def give(s: Shape, x: Any, out: Any, out0: int, distance: int) -> None:
    """The inverse of :func:`take`."""
    vectors = s.size // LANES
    copy_rows(x, s.reach * s.row, s.row, out, out0, distance, s.length, vectors)
    for f in range(vectors * LANES, s.size):
        for i in range(s.length):
            out[out0 + i * distance + f] = x[(s.reach + i) * s.row + f]


@kernel(nogil=True)
def turn_all(s: Shape, x: Any, out: Any) -> None:
    """From features of places to places of features, tile by tile of LANES places."""
    for place in range(0, s.places, LANES):
        for f in range(0, s.row, LANES):
            turn(x, place * s.row + f, s.row, out, place * s.row + f * LANES)


@kernel(nogil=True)
def products(s: Shape, q: Any, turned: Any, i: int, out: Any) -> None:
    """Products of a block of queries with all places of its window."""
    tile = LANES * s.row
    for m in range(0, QUERIES, ROWS):
        here, to = (s.reach + i + m) * s.row, m * s.window
        t = 0
        while t + TILES * LANES <= s.window:
            product_wide(q, here, s.row, turned, (i + t) * s.row, tile, out, to + t, s.window,
                         s.row)  # fmt: skip
            t += TILES * LANES
        while t < s.window:
            product_single(q, here, s.row, turned, (i + t) * s.row, tile, out, to + t, s.window,
                           s.row)  # fmt: skip
            t += LANES

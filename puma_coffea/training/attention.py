"""Banded attention and its derivative on a CPU, for training: the same numbers, several times faster.

Equal to :func:`puma_coffea.puma.network.banded_attention` to rounding. A crop's head is copied to
arrays that stay in the cache; queries are then taken QUERIES at a time. Scores of a block with its
window of keys are a small matrix product with keys in the lanes of vectors. From then on a row
holds what one query gives to its keys, counted from the first in its band ("shares"), and the
remaining products have features in the lanes and skip everything outside of the band. Padding and
places outside of the crop are hidden by their scores.

Kept for the derivative: the shares alone. The inner loops are LLVM instructions, see
:mod:`puma_coffea.puma.fast_vectors`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from puma_coffea.kernels import kernel
from puma_coffea.puma.fast_vectors import (
    LANES,
    LARGEST,
    ROWS,
    TILES,
    Vectors,
    vectorised,
)
from puma_coffea.puma.fast_weights import round_up
from puma_coffea.training.tensor_calls import flat, spread

QUERIES = 2 * ROWS
"""Queries of a block: their sums fill half of the registers."""
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


@vectorised
def copy_rows(
    v: Vectors,
    x: Any,
    x0: Any,
    x_row: Any,
    out: Any,
    out0: Any,
    out_row: Any,
    rows: Any,
    vectors: Any,
) -> None:
    """Copy the first vectors of each row."""
    with v.loop(rows) as i, v.loop(vectors) as f:
        v.store(v.load(x, x0, (i, x_row), (f, LANES)), out, out0, (i, out_row), (f, LANES))


@vectorised
def turn(v: Vectors, x: Any, x0: Any, row: Any, out: Any, out0: Any) -> None:
    """Transpose LANES rows of LANES numbers: halves of pairs of rows change places, log2 times."""
    rows = [v.load(x, x0, (i, row)) for i in range(LANES)]
    half = LANES // 2
    while half:
        for i in (i for i in range(LANES) if not i & half):
            a, b = rows[i], rows[i + half]
            lanes = range(LANES)
            rows[i] = v.choose(a, b, [n + LANES - half if n & half else n for n in lanes])
            rows[i + half] = v.choose(a, b, [n + LANES if n & half else n + half for n in lanes])
        half //= 2
    for i, each in enumerate(rows):
        v.store(each, out, out0, i * LANES)


def _product(tiles: int) -> Any:
    def product(
        v: Vectors,
        q: Any,
        q0: Any,
        q_row: Any,
        k: Any,
        k0: Any,
        tile: Any,
        out: Any,
        out0: Any,
        out_row: Any,
        inner: Any,
    ) -> None:
        cells = [(m, t) for m in range(ROWS) for t in range(tiles)]
        sums = {cell: v.variable(v.splat(0.0)) for cell in cells}
        with v.loop(inner) as f:
            columns = [v.load(k, k0, (f, LANES), (t, tile)) for t in range(tiles)]
            for m in range(ROWS):
                number = v.spread(q, q0, (m, q_row), f)
                for t in range(tiles):
                    v.set(sums[m, t], v.fma(number, columns[t], v.get(sums[m, t])))
        for m, t in cells:
            v.store(v.get(sums[m, t]), out, out0, (m, out_row), t * LANES)

    return vectorised(product)


# Products of ROWS queries with the keys of TILES tiles, or of one.
product_wide, product_single = _product(TILES), _product(1)


@vectorised
def softmax(
    v: Vectors,
    scores: Any,
    scores0: Any,
    next_row: Any,
    hidden: Any,
    hidden0: Any,
    far: Any,
    scale: Any,
    shares: Any,
    shares0: Any,
    count: Any,
) -> None:
    """Shares of a block of queries; its scores begin one place later from row to row."""
    factor, vectors = v.spread(scale, 0), v.builder.udiv(count, v.index(LANES))
    with v.loop(v.index(QUERIES)) as i:
        row, to = v.index(scores0, (i, next_row)), v.index(shares0, (i, count))
        top = v.variable(v.splat(-1e38))
        with v.loop(vectors) as c:
            unseen = v.builder.fadd(v.load(hidden, hidden0, i, (c, LANES)), v.load(far, (c, LANES)))
            score = v.fma(v.load(scores, row, (c, LANES)), factor, unseen)
            v.store(score, shares, to, (c, LANES))
            v.set(top, v.larger(v.get(top), score))
        highest = v.splat(v.largest(v.get(top)))
        total = v.variable(v.splat(0.0))
        with v.loop(vectors) as c:
            score = v.builder.fsub(v.load(shares, to, (c, LANES)), highest)
            seen = v.builder.fcmp_ordered(">", score, v.splat(-LARGEST))
            share = v.builder.select(seen, v.power_of_two(score, above=False), v.splat(0.0))
            v.store(share, shares, to, (c, LANES))
            v.set(total, v.builder.fadd(v.get(total), share))
        inverse = v.builder.fdiv(v.splat(1.0), v.splat(v.sum(v.get(total))))
        with v.loop(vectors) as c:
            share = v.builder.fmul(v.load(shares, to, (c, LANES)), inverse)
            v.store(share, shares, to, (c, LANES))


@vectorised
def softmax_slopes(
    v: Vectors,
    above: Any,
    above0: Any,
    next_row: Any,
    shares: Any,
    shares0: Any,
    scale: Any,
    out: Any,
    count: Any,
) -> None:
    """Derivatives by the scores from those by the shares: p (dp - sum p dp), times ``scale``."""
    factor, vectors = v.spread(scale, 0), v.builder.udiv(count, v.index(LANES))
    with v.loop(v.index(QUERIES)) as i:
        row, at = v.index(above0, (i, next_row)), v.index(shares0, (i, count))
        total = v.variable(v.splat(0.0))
        with v.loop(vectors) as c:
            share = v.load(shares, at, (c, LANES))
            v.set(total, v.fma(share, v.load(above, row, (c, LANES)), v.get(total)))
        mean = v.splat(v.sum(v.get(total)))
        with v.loop(vectors) as c:
            share = v.builder.fmul(v.load(shares, at, (c, LANES)), factor)
            slope = v.builder.fmul(share, v.builder.fsub(v.load(above, row, (c, LANES)), mean))
            v.store(slope, out, (i, count), (c, LANES))


def _band(v: Vectors, last: Any, one: Any) -> None:
    """Call ``one(place, queries)`` for all keys of a block and the queries that see each.

    The first keys are seen by the first queries, the last by the last; ``last`` is 2 band.
    """
    for j in range(QUERIES - 1):
        one(v.index(j), range(j + 1))
    with v.loop(v.builder.sub(last, v.index(QUERIES - 2))) as j:
        one(v.index(j, QUERIES - 1), range(QUERIES))
    for j in range(1, QUERIES):
        one(v.index(last, j), range(j, QUERIES))


@vectorised
def mix(
    v: Vectors,
    shares: Any,
    shares0: Any,
    count: Any,
    x: Any,
    x0: Any,
    row: Any,
    out: Any,
    out0: Any,
    last: Any,
) -> None:
    """For each query of a block the sum over its keys of share times x."""
    sums = [v.variable(v.splat(0.0)) for _ in range(QUERIES)]
    starts = [v.index(shares0, (i, count), -i) for i in range(QUERIES)]

    def one(j: Any, queries: range) -> None:
        value = v.load(x, x0, (j, row))
        for i in queries:
            v.set(sums[i], v.fma(v.spread(shares, starts[i], j), value, v.get(sums[i])))

    _band(v, last, one)
    for i, total in enumerate(sums):
        v.store(v.get(total), out, out0, (i, row))


@vectorised
def hand_out(
    v: Vectors,
    shares: Any,
    shares0: Any,
    count: Any,
    x: Any,
    x0: Any,
    row: Any,
    out: Any,
    out0: Any,
    last: Any,
) -> None:
    """For each key of a block add the sum over its queries of share times x."""
    values = [v.load(x, x0, (i, row)) for i in range(QUERIES)]
    starts = [v.index(shares0, (i, count), -i) for i in range(QUERIES)]

    def one(j: Any, queries: range) -> None:
        total = v.load(out, out0, (j, row))
        for i in queries:
            total = v.fma(v.spread(shares, starts[i], j), values[i], total)
        v.store(total, out, out0, (j, row))

    _band(v, last, one)

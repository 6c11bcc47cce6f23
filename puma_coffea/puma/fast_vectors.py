"""Inner loops of the network: matrix products, banded attention, LayerNorm, GELU.

See :mod:`puma_coffea.puma.vectors` for how they are written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puma_coffea.puma.vectors import FEW_REGISTERS, FLOAT, LANES, ROWS, TILES, Vectors, vectorised

SCORES = 8 if FEW_REGISTERS else 16
"""Scores of a query summed at once."""
MIXED = 8
"""Features of the mixed values summed at once."""


def _product(onto: bool) -> Any:
    def product(
        v: Vectors,
        w: Any,
        w0: Any,
        x: Any,
        x0: Any,
        x_tile: Any,
        out: Any,
        out0: Any,
        out_row: Any,
        out_tile: Any,
        inner: Any,
    ) -> None:
        cells = [(m, t) for m in range(ROWS) for t in range(TILES)]
        where = {(m, t): v.index(out0, (m, out_row), (t, out_tile)) for m, t in cells}
        sums = {cell: v.variable(v.splat(0.0)) for cell in cells}
        with v.loop(inner) as k:
            columns = [v.load(x, x0, (k, LANES), (t, x_tile)) for t in range(TILES)]
            for m in range(ROWS):
                weight = v.spread(w, w0, (k, ROWS), ROWS + m)
                for t in range(TILES):
                    v.set(sums[m, t], v.fma(weight, columns[t], v.get(sums[m, t])))
        for m, t in cells:
            # Bias and residual come last: a sum of small terms keeps its small rounding errors.
            value = v.builder.fadd(v.get(sums[m, t]), v.spread(w, w0, m))
            if onto:
                value = v.builder.fadd(value, v.load(out, where[m, t]))
            v.store(value, out, where[m, t])

    return vectorised(product)


# ROWS rows of a linear layer for TILES tiles, instead of what is in ``out`` or added to it. The
# weights ``w`` begin with the rows' ROWS biases, then come ROWS weights for each input.
product, product_onto = _product(onto=False), _product(onto=True)


def _scores(many: int) -> Any:
    def scores(
        v: Vectors,
        qkv: Any,
        q: Any,
        k: Any,
        row: Any,
        size: Any,
        hidden: Any,
        hidden0: Any,
        out: Any,
        out0: Any,
    ) -> None:
        sums = [v.variable(v.load(hidden, hidden0, o)) for o in range(many)]
        with v.loop(size) as f:
            query = v.load(qkv, q, (f, row))
            for o, total in enumerate(sums):
                v.set(total, v.fma(query, v.load(qkv, k, (f, row), o), v.get(total)))
        for o, total in enumerate(sums):
            v.store(v.get(total), out, out0, o * LANES)

    return vectorised(scores)


# Scores of a tile of queries with the keys at SCORES offsets in a row, or at one.
scores_wide, scores_single = _scores(SCORES), _scores(1)


@vectorised
def softmax(v: Vectors, shares: Any, count: Any) -> None:
    """Scores (logarithms to base 2) to shares, not yet divided by their sum: its inverse follows."""
    top = v.variable(v.load(shares, 0))
    with v.loop(count) as o:
        v.set(top, v.larger(v.get(top), v.load(shares, (o, LANES))))
    total = v.variable(v.splat(0.0))
    with v.loop(count) as o:
        score = v.builder.fsub(v.load(shares, (o, LANES)), v.get(top))
        share = v.power_of_two(score, above=False)
        v.store(share, shares, (o, LANES))
        v.set(total, v.builder.fadd(v.get(total), share))
    v.store(v.builder.fdiv(v.splat(1.0), v.get(total)), shares, (count, LANES))


def _mix(many: int) -> Any:
    def mix(
        v: Vectors, qkv: Any, values: Any, row: Any, shares: Any, count: Any, out: Any, out0: Any
    ) -> None:
        sums = [v.variable(v.splat(0.0)) for _ in range(many)]
        with v.loop(count) as o:
            share = v.load(shares, (o, LANES))
            for f, total in enumerate(sums):
                value = v.load(qkv, values, (f, row), o)
                v.set(total, v.fma(share, value, v.get(total)))
        inverse = v.load(shares, (count, LANES))
        for f, total in enumerate(sums):
            v.store(v.builder.fmul(v.get(total), inverse), out, out0, f * LANES)

    return vectorised(mix)


# Values of a tile of queries mixed by their shares: MIXED features, or one.
mix_wide, mix_single = _mix(MIXED), _mix(1)


@vectorised
def normalise(
    v: Vectors,
    x: Any,
    x0: Any,
    tile: Any,
    width: Any,
    eps: Any,
    gain: Any,
    gain0: Any,
    out: Any,
    out0: Any,
) -> None:
    """LayerNorm of TILES tiles; gains are followed by offsets."""
    zero, one = v.splat(0.0), v.splat(1.0)
    count = v.splat(v.builder.sitofp(width, FLOAT))
    sums = [v.variable(zero) for _ in range(TILES)]
    with v.loop(width) as f:
        for t, total in enumerate(sums):
            v.set(total, v.builder.fadd(v.get(total), v.load(x, x0, (f, LANES), (t, tile))))
    means = [v.builder.fdiv(v.get(total), count) for total in sums]
    squares = [v.variable(zero) for _ in range(TILES)]
    with v.loop(width) as f:
        for t, total in enumerate(squares):
            off = v.builder.fsub(v.load(x, x0, (f, LANES), (t, tile)), means[t])
            v.set(total, v.fma(off, off, v.get(total)))
    scales = []
    for total in squares:
        variance = v.builder.fadd(v.builder.fdiv(v.get(total), count), v.spread(eps, 0))
        scales.append(v.builder.fdiv(one, v.root(variance)))
    with v.loop(width) as f:
        factor, offset = v.spread(gain, gain0, f), v.spread(gain, gain0, width, f)
        for t, scale in enumerate(scales):
            off = v.builder.fsub(v.load(x, x0, (f, LANES), (t, tile)), means[t])
            value = v.fma(v.builder.fmul(off, scale), factor, offset)
            v.store(value, out, out0, (f, LANES), (t, tile))


@vectorised
def gelu(v: Vectors, x: Any, count: Any) -> None:
    """GELU (tanh form) of ``count`` vectors, in place: x / (1 + 2^(-c (x + 0.044715 x^3)))."""
    c = -2 * np.sqrt(2 / np.pi) / np.log(2)
    with v.loop(count) as i:
        value = v.load(x, (i, LANES))
        square = v.builder.fmul(value, value)
        slope = v.fma(square, v.splat(float(0.044715 * c)), v.splat(float(c)))
        power = v.power_of_two(v.builder.fmul(value, slope))
        result = v.builder.fdiv(value, v.builder.fadd(power, v.splat(1.0)))
        v.store(result, x, (i, LANES))


@vectorised
def relu_scaled(v: Vectors, x: Any, x0: Any, width: Any, gain: Any) -> None:
    """max(x, 0) times a gain plus an offset, row by row of one tile, in place."""
    with v.loop(width) as f:
        value = v.larger(v.load(x, x0, (f, LANES)), v.splat(0.0))
        value = v.fma(value, v.spread(gain, f), v.spread(gain, width, f))
        v.store(value, x, x0, (f, LANES))


@vectorised
def decode(v: Vectors, x: Any, x0: Any, width: Any, w: Any, out: Any, out0: Any) -> None:
    """Sigmoid of the last linear layer for one tile; ``w`` ends with its bias."""
    logit = v.variable(v.splat(0.0))
    with v.loop(width) as f:
        v.set(logit, v.fma(v.load(x, x0, (f, LANES)), v.spread(w, f), v.get(logit)))
    complete = v.builder.fadd(v.get(logit), v.spread(w, width))
    scaled = v.builder.fmul(complete, v.splat(float(-1 / np.log(2))))
    power = v.builder.fadd(v.power_of_two(scaled), v.splat(1.0))
    v.store(v.builder.fdiv(v.splat(1.0), power), out, out0)


@vectorised
def shift(v: Vectors, x: Any, rows: Any, row: Any, distance: Any, count: Any) -> None:
    """Move ``count`` vectors of each row from ``distance`` to the row's beginning."""
    with v.loop(rows) as r, v.loop(count) as i:
        v.store(v.load(x, (r, row), distance, (i, LANES)), x, (r, row), (i, LANES))

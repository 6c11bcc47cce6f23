"""Inner loops of :mod:`puma_coffea.training.attention` as LLVM instructions.

See :mod:`puma_coffea.puma.vectors` for how they are written.
"""

from __future__ import annotations

from typing import Any

from puma_coffea.puma.vectors import LANES, LARGEST, ROWS, TILES, Vectors, vectorised

QUERIES = 2 * ROWS
"""Queries of a block: their sums fill half of the registers."""


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

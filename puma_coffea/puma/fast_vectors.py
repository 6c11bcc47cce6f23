"""Vector arithmetic for numba kernels: the inner loops of the network, register by register.

Numba leaves it to LLVM to find the vectors in a loop, and LLVM keeps no tile of a matrix product
in registers by itself. Here the few inner loops are written as LLVM instructions on vectors of
``LANES`` numbers instead; LLVM still assigns registers and turns them into AVX-512, AVX2, NEON
or whatever the machine has. Every function takes flat float32 arrays, each followed by the place
where to start in it, and distances ("row", "tile") counted in numbers, never in bytes.

A *tile* is ``LANES`` places of the sequence next to each other in one vector; TILES of them are
worked on together. Numba's cache is bound to the CPU, hence to LANES, but it does not see a change
of this file: whoever edits it deletes the cached kernels of ``fast.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
import numpy as np
from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.extending import intrinsic

cgutils: Any = _cgutils  # untyped

_CPU = llvmlite.binding.get_host_cpu_features()
_AVX512 = bool(_CPU.get("avx512f"))
_X86 = "sse2" in _CPU
LANES = 16 if _AVX512 else 8 if _CPU.get("avx2") else 4
"""Numbers in a vector register."""
TILES = 3
"""Tiles that share a weight in a matrix product."""
ROWS = 4 if _X86 and not _AVX512 else 8
"""Rows of a matrix product that share an input: ROWS x TILES sums stay in registers (16 or 32)."""
SCORES = 8 if _X86 and not _AVX512 else 16
"""Scores of a query summed at once."""
MIXED = 8
"""Features of the mixed values summed at once."""

_FLOAT = ir.FloatType()
_INT = ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_INTS = ir.VectorType(_INT, LANES)
_SHORT = ir.IntType(16)
_SHORTS = ir.VectorType(_SHORT, LANES)
_INDEX = ir.IntType(8 * np.dtype(np.intp).itemsize)

ROUND = 1.5 * 2.0**23  # a float32 this large has no binary places: adding it rounds
LARGEST = 126.0  # 2 to this power and its inverse are normal numbers


def _power_of_two() -> list[float]:
    """Polynomial of degree 6 for 2^x on [-1/2, 1/2], relative error 2e-9, highest power first."""
    nodes = np.cos(np.pi * (np.arange(64) + 0.5) / 64) / 2
    return [float(c) for c in np.polyfit(nodes, 2.0**nodes, 6, w=2.0**-nodes)]


class Vectors:
    """Writes vector instructions at the place where an intrinsic is called."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def index(self, *terms: Any) -> Any:
        """Sum of places; a pair is a product."""
        total = _INDEX(0)
        for term in terms:
            if isinstance(term, tuple):
                factors = [_INDEX(f) if isinstance(f, int) else f for f in term]
                value = self.builder.mul(*factors)
            else:
                value = _INDEX(term) if isinstance(term, int) else term
            total = self.builder.add(total, value)
        return total

    def _address(self, array: Any, place: Any, kind: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(array, [place]), kind.as_pointer())

    def load(self, array: Any, *place: Any) -> Any:
        """LANES numbers; those of an int16 array are the upper halves of float32 (bfloat16)."""
        if array.type.pointee == _SHORT:
            halves = self.builder.load(self._address(array, self.index(*place), _SHORTS), align=2)
            whole = self.builder.shl(self.builder.zext(halves, _INTS), self.splat_int(16))
            return self.builder.bitcast(whole, _VECTOR)
        return self.builder.load(self._address(array, self.index(*place), _VECTOR), align=4)

    def store(self, value: Any, array: Any, *place: Any) -> None:
        """The inverse of :meth:`load`; halves are rounded to the nearest, ties to even."""
        if array.type.pointee == _SHORT:
            whole = self.builder.bitcast(value, _INTS)
            odd = self.builder.and_(self.builder.lshr(whole, self.splat_int(16)), self.splat_int(1))
            whole = self.builder.add(whole, self.builder.add(odd, self.splat_int(0x7FFF)))
            halves = self.builder.trunc(self.builder.lshr(whole, self.splat_int(16)), _SHORTS)
            where = self._address(array, self.index(*place), _SHORTS)
            self.builder.store(halves, where, align=2)
            return
        self.builder.store(value, self._address(array, self.index(*place), _VECTOR), align=4)

    def spread(self, array: Any, *place: Any) -> Any:
        """One number in all lanes."""
        return self.splat(self.load_number(array, *place))

    def splat(self, number: Any) -> Any:
        if isinstance(number, float):
            return _VECTOR([np.float32(number)] * LANES)
        return self._in_all_lanes(number, _VECTOR)

    def number(self, value: float) -> Any:
        """A constant that is not a vector."""
        return _FLOAT(np.float32(value))

    def load_number(self, array: Any, *place: Any) -> Any:
        return self.builder.load(self._address(array, self.index(*place), _FLOAT))

    def to_float(self, integer: Any) -> Any:
        return self.builder.sitofp(integer, _FLOAT)

    def splat_int(self, number: int) -> Any:
        """An integer in all lanes."""
        return _INTS([number] * LANES)

    def spread_int(self, array: Any, place: int) -> Any:
        """The lower half of a 64-bit integer in all lanes."""
        value = self.builder.load(self.builder.gep(array, [_INDEX(place)]))
        return self._in_all_lanes(self.builder.trunc(value, _INT), _INTS)

    def count_from(self, place: Any) -> Any:
        """The integers from ``place`` on, modulo 2^32."""
        first = self._in_all_lanes(self.builder.trunc(place, _INT), _INTS)
        return self.builder.add(first, _INTS(list(range(LANES))))

    def _in_all_lanes(self, value: Any, kind: Any) -> Any:
        first = self.builder.insert_element(kind(ir.Undefined), value, _INT(0))
        return self.builder.shuffle_vector(first, kind(ir.Undefined), _INTS([0] * LANES))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c, fused where the machine can."""
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        name = f"llvm.fmuladd.v{LANES}f32"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [a, b, c])

    def root_number(self, a: Any) -> Any:
        kind = ir.FunctionType(_FLOAT, [_FLOAT])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.sqrt.f32")
        return self.builder.call(function, [a])

    def root(self, a: Any) -> Any:
        kind = ir.FunctionType(_VECTOR, [_VECTOR])
        name = f"llvm.sqrt.v{LANES}f32"
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, name), [a]
        )

    def larger(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def smaller(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered("<", a, b), a, b)

    def sum(self, a: Any) -> Any:
        """Of all lanes, as one number."""
        kind = ir.FunctionType(_FLOAT, [_FLOAT, _VECTOR])
        name = f"llvm.vector.reduce.fadd.v{LANES}f32"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        # Without leave to reorder, LLVM would add lane after lane.
        return self.builder.call(function, [_FLOAT(-0.0), a], fastmath=("reassoc",))

    def largest(self, a: Any) -> Any:
        """Of all lanes, as one number."""
        for half in (2**n for n in reversed(range(LANES.bit_length() - 1))):
            lanes = [n + half if n < half else n for n in range(LANES)]
            a = self.larger(a, self.choose(a, a, lanes))
        return self.builder.extract_element(a, _INT(0))

    def choose(self, a: Any, b: Any, lanes: list[int]) -> Any:
        """Lanes of two vectors, those of the second counted from LANES."""
        return self.builder.shuffle_vector(a, b, _INTS(lanes))

    def power_of_two(self, x: Any, above: bool = True) -> Any:
        """2^x; x is cut to +-126, from above only where it may be positive."""
        x = self.larger(x, self.splat(-LARGEST))
        if above:
            x = self.smaller(x, self.splat(LARGEST))
        shifted = self.builder.fadd(x, self.splat(ROUND))
        rest = self.builder.fsub(x, self.builder.fsub(shifted, self.splat(ROUND)))
        first, *others = _power_of_two()
        value = self.splat(first)
        for coefficient in others:
            value = self.fma(value, rest, self.splat(coefficient))
        exponent = self.builder.shl(self.builder.bitcast(shifted, _INTS), _INTS([23] * LANES))
        return self.builder.bitcast(
            self.builder.add(self.builder.bitcast(value, _INTS), exponent), _VECTOR
        )

    def variable(self, value: Any) -> Any:
        """A value that changes in a loop; LLVM makes it a register."""
        return cgutils.alloca_once_value(self.builder, value)

    def get(self, variable: Any) -> Any:
        return self.builder.load(variable)

    def set(self, variable: Any, value: Any) -> None:
        self.builder.store(value, variable)

    @contextmanager
    def loop(self, count: Any) -> Iterator[Any]:
        with cgutils.for_range(self.builder, count) as loop:
            yield loop.index


def vectorised(write: Callable[..., None]) -> Any:
    """Intrinsic from a function that writes its instructions, given pointers and integers."""

    def plain(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if isinstance(kind, types.Array):
            return context.make_array(kind)(context, builder, value).data
        return context.cast(builder, value, kind, types.intp)

    def typed(_context: Any, *kinds: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            given = zip(signature.args, values, strict=True)
            write(Vectors(builder), *(plain(context, builder, *each) for each in given))
            return context.get_dummy_value()

        return types.void(*kinds), generate

    typed.__name__, typed.__doc__ = write.__name__, write.__doc__
    # Numba asks for the names of the arguments; the first one, Vectors, is its typing context.
    typed.__signature__ = inspect.signature(write)  # type: ignore[attr-defined]
    return intrinsic(typed)


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
    count = v.splat(v.builder.sitofp(width, _FLOAT))
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

"""A small language for inner loops of numba kernels, register by register.

Numba leaves it to LLVM to find the vectors in a loop, and LLVM keeps no tile of a matrix product
in registers by itself. So the few inner loops are written as LLVM instructions on vectors of
``LANES`` numbers (:func:`vectorised`) instead; LLVM still assigns registers and turns them into AVX-512, AVX2, NEON
or whatever the machine has. Every function takes flat float32 arrays, each followed by the place
where to start in it, and distances ("row", "tile") counted in numbers, never in bytes.

A *tile* is ``LANES`` places of the sequence next to each other in one vector; TILES of them are
worked on together. Numba's cache is bound to the CPU, hence to LANES.
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
FEW_REGISTERS = _X86 and not _AVX512
"""Whether there are 16 vector registers instead of 32."""
ROWS = 4 if FEW_REGISTERS else 8
"""Rows of a matrix product that share an input: ROWS x TILES sums stay in registers."""

FLOAT = ir.FloatType()
_INT = ir.IntType(32)
_VECTOR = ir.VectorType(FLOAT, LANES)
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
        return FLOAT(np.float32(value))

    def load_number(self, array: Any, *place: Any) -> Any:
        return self.builder.load(self._address(array, self.index(*place), FLOAT))

    def to_float(self, integer: Any) -> Any:
        return self.builder.sitofp(integer, FLOAT)

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
        kind = ir.FunctionType(FLOAT, [FLOAT])
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
        kind = ir.FunctionType(FLOAT, [FLOAT, _VECTOR])
        name = f"llvm.vector.reduce.fadd.v{LANES}f32"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        # Without leave to reorder, LLVM would add lane after lane.
        return self.builder.call(function, [FLOAT(-0.0), a], fastmath=("reassoc",))

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

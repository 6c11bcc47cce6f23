"""Sums of floating-point numbers that do not depend on the order of the terms, to the last bit.

Chunks are merged in the order in which workers finish. A float sum would then differ from run
to run and from chunk size to chunk size; here each term is turned into an integer number of
2^-256, and integers of any length add exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, Self

Key = tuple[Any, ...]

# Every double above 2^-204 in size is a whole number of these; smaller ones are rounded alike.
UNIT_EXPONENT = 256
_UNIT = 1 << UNIT_EXPONENT


class ExactSums:
    """Exact sums, each under a key; adding two of them merges key by key.

    >>> a, b = ExactSums(), ExactSums()
    >>> a.add([("x",), ("y",)], [0.1, 1e16])
    >>> b.add([("x",), ("y",)], [0.2, 1.0])
    >>> (a + b).value(("y",)) - 1e16
    0.0
    >>> (a + b).fraction(("y",)) - 10**16
    Fraction(1, 1)
    >>> a + b == b + a
    True
    """

    __slots__ = ("_sums",)

    def __init__(self) -> None:
        self._sums: dict[Key, int] = {}

    def add(self, keys: Iterable[Key], values: Iterable[float]) -> None:
        """Add each finite value to the sum under its key."""
        sums = self._sums
        for key, value in zip(keys, values, strict=True):
            sums[key] = sums.get(key, 0) + int(math.ldexp(value, UNIT_EXPONENT))

    def fraction(self, key: Key) -> Fraction:
        """The sum under a key, exactly; 0 where nothing was added."""
        return Fraction(self._sums.get(key, 0), _UNIT)

    def value(self, key: Key) -> float:
        """The sum under a key, rounded once."""
        return float(self.fraction(key))

    def __iter__(self) -> Iterator[Key]:
        """Keys that something was added to."""
        return iter(self._sums)

    def __iadd__(self, other: ExactSums) -> Self:
        sums = self._sums
        for key, value in other._sums.items():
            sums[key] = sums.get(key, 0) + value
        return self

    def __add__(self, other: ExactSums) -> ExactSums:
        merged = ExactSums()
        merged += self
        merged += other
        return merged

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactSums) and self._sums == other._sums

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[Key, int]:
        return self._sums

    def __setstate__(self, state: dict[Key, int]) -> None:
        self._sums = state

    def __repr__(self) -> str:
        return f"<ExactSums of {len(self._sums)} keys>"

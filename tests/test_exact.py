"""Exact sums do not depend on order or grouping, and lose nothing."""

from __future__ import annotations

import math
import pickle

from hypothesis import given
from hypothesis import strategies as st

from puma_coffea.exact import ExactSums

numbers = st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=1, max_size=30)
KEY = ("k",)


def total(values):
    sums = ExactSums()
    sums.add([KEY] * len(values), values)
    return sums


@given(numbers, st.randoms())
def test_order_and_grouping_change_no_bit(values, random):
    shuffled = values.copy()
    random.shuffle(shuffled)
    cut = len(values) // 2
    assert total(values) == total(shuffled[:cut]) + total(shuffled[cut:])


@given(numbers)
def test_the_sum_is_the_correctly_rounded_one(values):
    assert math.isclose(total(values).value(KEY), math.fsum(values), rel_tol=1e-15, abs_tol=1e-60)


def test_sums_travel():
    sums = total([0.1, 0.2])
    assert pickle.loads(pickle.dumps(sums)) == sums

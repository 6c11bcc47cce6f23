"""A method is a name; a user's own is one call away and is checked."""

from __future__ import annotations

import pickle

import awkward as ak
import numpy as np
import pytest

from puma_coffea import method, method_names, register_method
from puma_coffea.exceptions import BadWeights, UnknownMethod


def soft_cut(pf):
    return ak.where(pf.vertex < 0, pf.pt > 2, pf.vertex == 0)


def test_a_registered_method_works_like_a_built_in_one(ttbar):
    register_method("soft-cut", soft_cut)
    weights = method("soft-cut")(ttbar)
    assert "soft-cut" in method_names()
    assert ak.all(weights == soft_cut(ttbar))
    assert ak.flatten(weights).layout.dtype == np.float32


@pytest.mark.parametrize(
    "function",
    [lambda pf: pf.pt, lambda pf: pf.pt[:, 1:], lambda _: 1.0, lambda pf: pf.pt * np.nan,
     lambda pf: ak.Array([1.0] * len(pf))],
)  # fmt: skip
def test_wrong_weights_of_a_users_method_are_refused(ttbar, function):
    register_method("wrong", function)
    with pytest.raises(BadWeights, match="'wrong'"):
        method("wrong")(ttbar)


@pytest.mark.parametrize("name", ["pupi", "puppi:cms-run4", "chs:tight", ""])
def test_unknown_names_are_refused_with_the_known_ones(name):
    with pytest.raises(UnknownMethod, match=r"known are none, chs, puppi|choose one of tuned"):
        method(name)


def test_built_in_names_cannot_be_taken():
    with pytest.raises(UnknownMethod, match="built-in"):
        register_method("chs", soft_cut)


def test_unphysical_candidates_of_a_users_method_get_zero(ttbar):
    register_method("all", lambda pf: ak.ones_like(pf.pt))
    broken = ak.with_field(ttbar, ak.where(ttbar.pt > 5, np.nan, ttbar.pt), "pt")
    assert ak.all(method("all")(broken) == (ttbar.pt <= 5))


@pytest.mark.parametrize("name", ["none", "chs", "puppi", "puppi:cms-run2", "softkiller", "truth"])
def test_built_in_methods_travel_in_a_small_pickle(ttbar, name):
    packed = pickle.dumps(method(name))
    assert len(packed) < 5000
    assert ak.all(pickle.loads(packed)(ttbar[:1]) == method(name)(ttbar[:1]))

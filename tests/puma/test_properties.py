"""The nine properties of the design for PUMA, with an untrained model on real events."""

from __future__ import annotations

import pickle
import tracemalloc

import awkward as ak
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from methods.test_properties import as_candidates, assert_valid, event
from puma.models import untrained
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from puma_coffea import Puma, met, physical
from puma_coffea.puma.card import Tokens

MODELS = {
    "clusters": untrained(),
    "tokens": untrained(tokens=Tokens(neutral_pt_min=0.7, pileup_pt_min=1.0)),
    "by pT": untrained(by="pt", charged="model"),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


@every_model
@pytest.mark.parametrize("size", [1, 5])
def test_any_chunking_gives_the_same_bits(ttbar, model, size):
    whole = model(ttbar)
    parts = [model(ttbar[i : i + size]) for i in range(0, len(ttbar), size)]
    assert ak.array_equal(ak.concatenate(parts), whole)


@every_model
def test_permuted_candidates_get_permuted_weights_bit_by_bit(ttbar, model):
    rng = np.random.default_rng(7)
    order = ak.Array([rng.permutation(n) for n in ak.num(ttbar[:3])])
    assert ak.array_equal(model(ttbar[:3][order]), model(ttbar[:3])[order])


def shifted(pf, angle, kind):
    phi = ak.values_astype(pf.phi, np.float64) + angle
    return ak.with_field(pf, ak.values_astype(phi, kind), "phi")


@every_model
@pytest.mark.parametrize("turns", [1, -2, 5])
def test_whole_turns_in_phi_change_nothing(ttbar, model, turns):
    turned = model(shifted(ttbar[:3], turns * 2 * np.pi, np.float64))
    np.testing.assert_allclose(ak.flatten(turned), ak.flatten(model(ttbar[:3])), atol=1e-6)


@every_model
def test_whole_turns_of_a_float32_phi_change_nothing_but_rounding(ttbar, model):
    # A float32 phi beyond pi has lost a digit or two before any method sees it.
    turned = model(shifted(ttbar[:3], 2 * np.pi, np.float32))
    assert np.mean(abs(ak.flatten(turned) - ak.flatten(model(ttbar[:3]))) > 1e-3) < 0.02


@every_model
def test_empty_tiny_and_one_sided_events_get_an_answer(model):
    pf = as_candidates(
        event(0), event(1), event(2), event(0), event(1, charge=0), event(1, charge=1),
        event(50, charge=0), event(50, charge=1), event(200, same_direction=True), event(9),
        event(0),
    )  # fmt: skip
    weights = model(pf)
    assert_valid(weights, pf)
    assert_valid(model(pf[:0]), pf[:0])
    for i in range(len(pf)):
        assert ak.array_equal(model(pf[i : i + 1]), weights[i : i + 1])


@every_model
@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    seed=st.integers(0, 2**16),
    damage=st.lists(
        st.tuples(
            st.sampled_from(["pt", "eta", "phi", "mass"]),
            st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 0.0, 999.9, 1e30]),
        ),
        max_size=5,
    ),
)
def test_strange_values_never_spread(model, sizes, seed, damage):
    events = [event(n, seed=seed + i) for i, n in enumerate(sizes)]
    rng = np.random.default_rng(seed)
    for column, value in damage:
        target = events[rng.integers(len(events))]
        if len(target["pt"]):
            target[column][rng.integers(len(target["pt"]))] = value
    pf = as_candidates(*events)
    weights = model(pf)
    assert_valid(weights, pf)
    assert ak.all(weights[~physical(pf)] == 0)
    assert ak.array_equal(model(pf[physical(pf)]), weights[physical(pf)])


def test_weights_are_in_range_and_charged_ones_by_vertex(ttbar):
    for model in (MODELS["clusters"], MODELS["tokens"]):
        weights = model(ttbar)
        assert_valid(weights, ttbar)
        tracks = ttbar.charge != 0
        assert ak.all(weights[tracks] == (ttbar.vertex[tracks] == 0))


@every_model
def test_batch_mates_change_no_bit(ttbar, model):
    alone = model(ttbar[3:4])
    company = ak.concatenate([ttbar[:2], ttbar[3:4], ttbar[:0], ttbar[5:6]])
    assert ak.array_equal(model(company)[2:3], alone)


@every_model
def test_thirty_thousand_candidates_run(ttbar, model):
    heavy = ak.flatten(ttbar[:4], axis=1)[np.newaxis][:, :30_000]
    assert len(heavy[0]) == 30_000
    assert_valid(model(heavy), heavy)


class LargestTensor(TorchDispatchMode):
    """Number of elements of the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self.elements = max(self.elements, each.numel())
        return result


@every_model
def test_no_array_grows_with_the_square_of_the_candidates(ttbar, model):
    heavy = ak.flatten(ttbar[:4], axis=1)[np.newaxis][:, :30_000]
    model(heavy)
    with LargestTensor() as largest:
        Puma(model.card, model._weights, device="torch-cpu")(heavy)
    tracemalloc.start()
    model(heavy)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 30_000 * 10 < largest.elements < 30_000 * 100
    assert peak < 100e6  # bytes, of numpy and numba; a square of bytes would be 900 MB


@every_model
def test_a_model_that_travelled_gives_the_same_bits(ttbar, model):
    assert ak.array_equal(pickle.loads(pickle.dumps(model))(ttbar[:2]), model(ttbar[:2]))


def test_without_pileup_the_missing_momentum_is_that_of_all_candidates(ttbar_pu0):
    # Closure: nothing to remove, so weights 1.
    weights = MODELS["clusters"](ttbar_pu0)
    assert ak.all(weights[physical(ttbar_pu0)] == 1)
    everything = met(ttbar_pu0, ak.values_astype(physical(ttbar_pu0), np.float32))
    assert ak.array_equal(met(ttbar_pu0, weights).pt, everything.pt)

"""The properties every method has: chunking, order, angle, small events, range, isolation, cost."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puma_coffea import method, physical
from puma_coffea.candidates import assemble

METHODS = ["none", "chs", "puppi", "puppi:delphes-phase2", "puppi:cms-phase2", "puppi:cms-run2", "softkiller", "truth"]  # fmt: skip
every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_any_chunking_gives_the_same_bits(ttbar, name):
    weigh, whole = method(name), method(name)(ttbar)
    for size in (1, 5):
        parts = ak.concatenate([weigh(ttbar[i : i + size]) for i in range(0, len(ttbar), size)])
        assert ak.all(parts == whole)


@every_method
def test_permuted_candidates_get_permuted_weights_bit_by_bit(ttbar, name):
    rng = np.random.default_rng(7)
    order = ak.Array([rng.permutation(n) for n in ak.num(ttbar)])
    assert ak.all(method(name)(ttbar[order]) == method(name)(ttbar)[order])


def shifted(pf, angle):
    phi = ak.values_astype(ak.values_astype(pf.phi, np.float64) + angle, np.float32)
    return ak.with_field(pf, phi, "phi")


@every_method
@pytest.mark.parametrize("turns", [1, -2])
def test_whole_turns_in_phi_change_nothing_but_rounding(ttbar, name, turns):
    # A float32 phi beyond pi has lost a digit or two before any method sees it.
    turned = method(name)(shifted(ttbar, turns * 2 * np.pi))
    assert np.mean(abs(ak.flatten(turned) - ak.flatten(method(name)(ttbar))) > 1e-3) < 2e-4


@pytest.mark.parametrize("name", [name for name in METHODS if name != "softkiller"])
def test_a_rotated_event_gets_the_same_weights_up_to_rounding(ttbar, name):
    rotated = method(name)(shifted(ttbar, 1.234))
    assert np.mean(abs(ak.flatten(rotated) - ak.flatten(method(name)(ttbar))) > 1e-3) < 2e-4


def event(n, *, charge=None, seed=0, same_direction=False):
    rng = np.random.default_rng(seed)
    charge = rng.integers(0, 2, n) if charge is None else np.full(n, charge)
    eta, phi = rng.uniform(-5, 5, n), rng.uniform(-np.pi, np.pi, n)
    if same_direction:
        eta, phi = np.ones(n), np.ones(n)
    return {
        "pt": rng.exponential(1.0, n) + 0.1, "eta": eta, "phi": phi, "mass": np.zeros(n),
        "charge": charge, "pid": np.where(charge == 0, 22, 211),
        "vertex": np.where(charge == 0, -1, rng.integers(0, 2, n)), "npv": np.full(n, 100),
        "hard_fraction": rng.uniform(0, 1, n),
    }  # fmt: skip


def as_candidates(*events):
    offsets = np.cumsum([0, *(len(e["pt"]) for e in events)])
    return assemble(offsets, {k: np.concatenate([e[k] for e in events]) for k in events[0]})


def assert_valid(weights, pf):
    assert ak.num(weights).to_list() == ak.num(pf).to_list()
    assert ak.flatten(weights).layout.dtype == np.float32
    assert ak.all((weights >= 0) & (weights <= 1))


@every_method
def test_empty_tiny_and_one_sided_events_get_an_answer(name):
    pf = as_candidates(
        event(0), event(1), event(2), event(0), event(1, charge=0), event(50, charge=0),
        event(50, charge=1), event(200, same_direction=True), event(0),
    )  # fmt: skip
    assert_valid(method(name)(pf), pf)
    assert_valid(method(name)(pf[:0]), pf[:0])


@every_method
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    seed=st.integers(0, 2**16),
    damage=st.lists(
        st.tuples(
            st.sampled_from(["pt", "eta", "phi"]),
            st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 0.0, 999.9, 1e30]),
        ),
        max_size=5,
    ),
)
def test_strange_values_never_spread(name, sizes, seed, damage):
    events = [event(n, seed=seed + i) for i, n in enumerate(sizes)]
    rng = np.random.default_rng(seed)
    for column, value in damage:
        target = events[rng.integers(len(events))]
        if len(target["pt"]):
            target[column][rng.integers(len(target["pt"]))] = value
    pf = as_candidates(*events)
    weights = method(name)(pf)
    assert_valid(weights, pf)
    assert ak.all(weights[~physical(pf)] == 0)
    clean = pf[physical(pf)]
    assert ak.all(method(name)(clean) == weights[physical(pf)])


@pytest.mark.parametrize("name", [name for name in METHODS if name != "none"])
def test_charged_weights_are_one_or_zero_by_vertex(ttbar, name):
    tracks = ttbar.charge != 0
    assert ak.all(method(name)(ttbar)[tracks] == (ttbar.vertex[tracks] == 0))


@every_method
def test_thirty_thousand_candidates_run(ttbar, name):
    heavy = ak.flatten(ttbar[:4], axis=1)[np.newaxis][:, :30_000]
    assert len(heavy[0]) == 30_000
    assert_valid(method(name)(heavy), heavy)

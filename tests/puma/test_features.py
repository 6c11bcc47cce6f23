"""The network's inputs: what their names say, for any order, angle and size of event."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from puma import oracles
from puma.events import flat_of, one_event, permuted

from puma_coffea.exceptions import PumaCoffeaError
from puma_coffea.flat import flatten
from puma_coffea.puma.clustering import iterative_cluster
from puma_coffea.puma.features import FEATURES, PAPER, UnknownFeature, features

ALL = list(FEATURES)
strange = st.tuples(
    st.sampled_from([1e-30, 0.5, 1.0, 3e38]),
    st.sampled_from([-10.0, -3.0, 0.0, 0.005, 0.2, 10.0]),
    st.sampled_from([-np.pi, -3.0, 0.0, 0.005, 0.2, np.pi]),
    st.integers(-1, 2),
)


@pytest.fixture(scope="module")
def crowd(ttbar):
    """Some 1000 candidates of two real events: a stretch of eta with all kinds, round in phi."""
    _, _, flat = flatten(ttbar[:2])
    inside = (flat.eta > 2.3) & (flat.eta < 3.2)
    offsets = np.concatenate(([0], np.cumsum(inside)))[flat.offsets]
    return permuted(flat, np.flatnonzero(inside), offsets)


def test_every_input_equals_its_definition_on_real_candidates(crowd):
    sequence = iterative_cluster(crowd)
    table = features(crowd, sequence, ALL)
    assert table.dtype == np.float32
    for number in range(2):
        event, here = one_event(crowd, number)
        expected = oracles.features(event, sequence.cluster[here])
        assert set(expected) == set(ALL)
        for column, name in enumerate(ALL):
            np.testing.assert_allclose(
                table[here, column], expected[name], rtol=2e-4, atol=2e-5, err_msg=name
            )


def test_the_papers_eleven_inputs_are_the_default(crowd):
    sequence = iterative_cluster(crowd)
    np.testing.assert_array_equal(features(crowd, sequence), features(crowd, sequence, PAPER))
    assert len(PAPER) == 11


def test_chosen_candidates_get_what_they_get_among_all(crowd):
    sequence = iterative_cluster(crowd)
    chosen = np.random.default_rng(1).permutation(len(crowd.pt))[::3]
    some = features(crowd, sequence, ALL, of=chosen)
    np.testing.assert_array_equal(some, features(crowd, sequence, ALL)[chosen])


def test_a_column_does_not_depend_on_what_else_is_asked(crowd):
    sequence = iterative_cluster(crowd)
    table = features(crowd, sequence, ALL)
    for names in (["photon_max_0.1"], ["neutral_rank_0.2", "hard_pt_0.8"], ["pt", "eta", "pt"]):
        chosen = [ALL.index(name) for name in names]
        np.testing.assert_allclose(features(crowd, sequence, names), table[:, chosen], rtol=1e-5)


def test_permuting_the_candidates_permutes_the_rows_bit_by_bit(ttbar):
    _, _, flat = flatten(ttbar[:1])
    shuffle = np.random.default_rng(2).permutation(len(flat.pt))
    mixed = permuted(flat, shuffle)
    plain = features(flat, iterative_cluster(flat), ALL)
    np.testing.assert_array_equal(features(mixed, iterative_cluster(mixed), ALL), plain[shuffle])
    assert np.isfinite(plain).all()


def test_an_event_does_not_depend_on_its_neighbours(ttbar):
    _, _, together = flatten(ttbar[:2])
    _, _, alone = flatten(ttbar[1:2])
    np.testing.assert_array_equal(
        features(together, iterative_cluster(together), ALL)[together.offsets[1] :],
        features(alone, iterative_cluster(alone), ALL),
    )


def test_turning_the_event_changes_only_phi(ttbar):
    _, _, flat = flatten(ttbar[:1])
    sequence = iterative_cluster(flat)
    turned = permuted(flat, np.arange(len(flat.pt)))
    turned.phi[:] = (flat.phi + 1 + np.pi) % (2 * np.pi) - np.pi
    names = [name for name in ALL if "phi" not in name]
    before, after = features(flat, sequence, names), features(turned, sequence, names)
    # A neighbour exactly at the edge of a cone may fall to either side.
    assert np.mean(np.abs(after - before) > 1e-3) < 1e-6


def test_neighbours_are_seen_across_pi():
    flat = flat_of([[(5.0, 0.0, 3.1, 0), (1.0, 0.0, -3.1, -1)]])
    names = ["hard_pt_0.1", "nearest_hard_dr", "cluster_dr"]
    table = features(flat, iterative_cluster(flat), names)
    gap = 2 * np.pi - 6.2
    np.testing.assert_allclose(table[1], [np.log(6.0), gap, gap], rtol=1e-5)


def test_a_candidate_is_not_its_own_neighbour_but_its_double_is():
    twins = [(2.0, 0.3, 0.3, 0), (2.0, 0.3, 0.3, 0)]
    names = ["hard_count_0.1", "nearest_hard_dr", "hard_ptdr_0.1"]
    alone, both = flat_of([twins[:1]]), flat_of([twins])
    np.testing.assert_allclose(features(alone, iterative_cluster(alone), names), [[0, 0.8, 0]])
    np.testing.assert_allclose(
        features(both, iterative_cluster(both), names)[0], [np.log(2), 0, np.log(201)], rtol=1e-6
    )


@pytest.mark.parametrize(
    "events",
    [
        [],
        [[]],
        [[], []],
        [[(1.0, 0.0, 0.0, -1)]],
        [[(1.0, 0.0, 0.0, 0)]],
        [[], [(1.0, 0.0, 0.0, 1)]],
    ],
)
def test_empty_and_single_candidate_events_have_inputs(events):
    flat = flat_of(events)
    table = features(flat, iterative_cluster(flat), ALL)
    assert table.shape == (len(flat.pt), len(ALL))
    assert np.isfinite(table).all()


@given(st.lists(st.lists(strange, max_size=25), max_size=3))
@settings(max_examples=60, deadline=None)
def test_inputs_of_strange_events_are_finite(events):
    flat = flat_of(events)
    table = features(flat, iterative_cluster(flat), ALL)
    assert np.isfinite(table).all()


def test_a_mass_that_is_no_number_counts_as_none():
    flat = flat_of([[(1.0, 0.0, 0.0, 0)]])
    flat.mass[:] = np.nan
    assert features(flat, iterative_cluster(flat), ["energy"]) == 0.0


def test_unknown_names_are_refused_by_name(crowd):
    with pytest.raises(UnknownFeature, match=r"'hard_pt_0\.3', 'colour'") as caught:
        features(crowd, iterative_cluster(crowd), ["pt", "hard_pt_0.3", "colour"])
    assert isinstance(caught.value, PumaCoffeaError)


def test_every_input_is_described():
    assert set(PAPER) <= set(FEATURES)
    assert all(len(text) > 5 for text in FEATURES.values())

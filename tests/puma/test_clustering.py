"""IterativeCluster: the literal recursion and walk, whatever the input's order and oddities."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from puma import oracles
from puma.events import flat_of, one_event, permuted

from puma_coffea.flat import flatten
from puma_coffea.puma.clustering import iterative_cluster
from puma_coffea.puma.kmeans import split_recursively
from puma_coffea.puma.ordering import greedy_walk

# Coordinates that meet: ties in pT, in direction and in distance are the rule.
coarse = st.sampled_from([-3.0, -1.5, -0.5, 0.0, 0.5, 1.5, 3.0])
candidate = st.tuples(st.sampled_from([0.5, 1.0, 2.0, 40.0]), coarse, coarse, st.integers(-1, 2))


def check_is_a_sequence(flat, sequence, size):
    for start, stop in zip(flat.offsets[:-1], flat.offsets[1:], strict=True):
        order, cluster = sequence.order[start:stop], sequence.cluster[sequence.order[start:stop]]
        assert sorted(order) == list(range(start, stop))
        np.testing.assert_array_equal(sequence.position[order], np.arange(stop - start))
        if stop > start:
            assert cluster[0] == 0
            assert set(np.diff(cluster)) <= {0, 1}
            assert np.bincount(cluster).max() < size
        falling = flat.pt[order][1:] <= flat.pt[order][:-1]
        assert falling[np.diff(cluster) == 0].all()


@pytest.mark.parametrize(("size", "branches"), [(10, 4), (10, 2), (25, 5)])
def test_sequence_equals_the_literal_recursion_and_walk_on_real_events(ttbar, size, branches):
    _, _, flat = flatten(ttbar[:2])
    sequence = iterative_cluster(flat, size, branches)
    check_is_a_sequence(flat, sequence, size)
    for number in range(2):
        event, here = one_event(flat, number)
        order, cluster = oracles.sequence(event, size, branches)
        np.testing.assert_array_equal(sequence.order[here] - here.start, order)
        np.testing.assert_array_equal(sequence.cluster[here], cluster)


def test_permuting_the_candidates_permutes_the_sequence(ttbar):
    _, _, flat = flatten(ttbar[:1])
    shuffle = np.random.default_rng(1).permutation(len(flat.pt))
    plain, mixed = iterative_cluster(flat), iterative_cluster(permuted(flat, shuffle))
    np.testing.assert_array_equal(shuffle[mixed.order], plain.order)
    np.testing.assert_array_equal(mixed.cluster, plain.cluster[shuffle])


def test_an_event_does_not_depend_on_its_neighbours(ttbar):
    _, _, together = flatten(ttbar[:3])
    _, _, alone = flatten(ttbar[2:3])
    here = slice(together.offsets[2], together.offsets[3])
    both, single = iterative_cluster(together), iterative_cluster(alone)
    np.testing.assert_array_equal(both.position[here], single.position)
    np.testing.assert_array_equal(both.cluster[here], single.cluster)


@given(st.lists(st.lists(candidate, max_size=60), max_size=3), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_strange_events_give_a_sequence_that_ignores_the_order(events, random):
    flat = flat_of(events)
    sequence = iterative_cluster(flat)
    check_is_a_sequence(flat, sequence, 10)
    mixed = [random.sample(event, len(event)) for event in events]
    again = flat_of(mixed)
    order = iterative_cluster(again).order
    for name in ("pt", "eta", "phi", "vertex"):  # identical candidates may change places
        np.testing.assert_array_equal(
            getattr(flat, name)[sequence.order], getattr(again, name)[order]
        )


@given(st.lists(st.tuples(coarse, coarse, coarse), min_size=1, max_size=80), st.integers(2, 5))
@settings(max_examples=100, deadline=None)
def test_clusters_equal_the_literal_recursion_ties_included(points, branches):
    points = np.array(points)
    members, bounds = split_recursively(*points.T.copy(), 10, branches)
    expected = oracles.split(points.astype(np.float32), np.arange(len(points)), 10, branches)
    found = [members[low:high].tolist() for low, high in itertools.pairwise(bounds)]
    assert found == sorted(cluster.tolist() for cluster in expected)


def test_a_point_halfway_between_two_centres_stays_with_the_first():
    eta = np.repeat([-4.0, 0.0, 2.0], [5, 5, 10])  # centres at -2 and 2
    _, bounds = split_recursively(np.zeros(20), np.ones(20), eta, 11, 2)
    assert np.diff(bounds).tolist() == [10, 10]


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0]), coarse, coarse), min_size=1, max_size=150))
@settings(max_examples=100, deadline=None)
def test_walk_over_cells_equals_the_plain_search_ties_included(clusters):
    total, eta, phi = (np.array(column) for column in zip(*clusters, strict=True))
    np.testing.assert_array_equal(greedy_walk(total, eta, phi), oracles.walk(total, eta, phi))


@pytest.mark.parametrize("spread", [1e-6, 0.1, 5.0])
def test_walk_over_cells_equals_the_plain_search_for_any_spread(spread):
    rng = np.random.default_rng(3)
    total, eta = rng.exponential(size=700), rng.normal(size=700) * spread
    phi = rng.uniform(-np.pi, np.pi, 700)
    np.testing.assert_array_equal(greedy_walk(total, eta, phi), oracles.walk(total, eta, phi))


def test_walk_goes_on_across_pi():
    walk = greedy_walk(np.array([3.0, 1.0, 1.0]), np.zeros(3), np.array([3.1, 2.0, -3.1]))
    assert walk.tolist() == [0, 2, 1]


def test_one_direction_is_chopped_by_decreasing_pt():
    flat = flat_of([[(float(pt), 1.0, 2.0, -1) for pt in range(1, 101)]])
    sequence = iterative_cluster(flat)
    check_is_a_sequence(flat, sequence, 10)
    np.testing.assert_array_equal(flat.pt[sequence.order][:9], np.arange(100, 91, -1))
    assert sequence.cluster.max() + 1 == 12  # 100 candidates in pieces of 9


@pytest.mark.parametrize("count", [0, 1, 2, 9, 10])
def test_small_events_have_a_sequence(count):
    flat = flat_of([[(1.0 + i, 0.1 * i, 0.2 * i, 0) for i in range(count)]])
    check_is_a_sequence(flat, iterative_cluster(flat), 10)


def test_thirty_thousand_candidates_have_a_sequence(ttbar):
    _, _, flat = flatten(ttbar[:4])
    flat = permuted(flat, np.arange(len(flat.pt)), offsets=[0, len(flat.pt)])
    assert len(flat.pt) > 30_000
    check_is_a_sequence(flat, iterative_cluster(flat), 10)


def test_every_split_makes_smaller_clusters_of_points_a_grid_step_apart():
    eta = np.arange(50) * 2.0**-20
    members, bounds = split_recursively(np.zeros(50), np.ones(50), eta, 10, 4)
    assert sorted(members) == list(range(50))
    assert np.diff(bounds).max() < 10


@pytest.mark.parametrize(("size", "branches"), [(1, 4), (10, 1)])
def test_impossible_settings_are_refused(size, branches):
    with pytest.raises(ValueError, match="at least 2"):
        iterative_cluster(flat_of([]), size, branches)

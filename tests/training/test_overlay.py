"""An overlaid event holds the hard event's and the pile-up's momentum, and nothing else."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest

from puma_coffea import sample_path
from puma_coffea.training.data import _event
from puma_coffea.training.overlay import overlay


@pytest.fixture(scope="module")
def events():
    full = ak.from_parquet(sample_path("zvv_pu140.parquet"))
    hard = ak.from_parquet(sample_path("vbfhinv_pu0.parquet"))
    return _event(full[0]), _event(hard[3])


def hard_neutral_pt(event):
    neutral = event["vertex"] < 0
    return np.sum((event["pt"] * event["y"])[neutral])


def test_hard_momentum_is_that_of_the_hard_event(events):
    pileup, hard = events
    made = overlay(pileup, hard, turn=7, reflect=True)
    assert hard_neutral_pt(made) == pytest.approx(hard_neutral_pt(hard), rel=1e-9)
    assert np.sum(made["pt"][made["vertex"] == 0]) == pytest.approx(
        np.sum(hard["pt"][hard["vertex"] == 0])
    )


def test_pileup_is_that_of_the_other_event(events):
    pileup, hard = events
    made = overlay(pileup, hard, turn=0, reflect=False)
    assert np.sum(made["vertex"] > 0) == np.sum(pileup["vertex"] > 0)
    soft = (made["pt"] * (1 - made["y"]))[made["vertex"] < 0].sum()
    before = (pileup["pt"] * (1 - pileup["y"]))[pileup["vertex"] < 0].sum()
    assert soft == pytest.approx(before, rel=5e-3)  # towers below threshold are gone


def test_towers_of_one_cell_are_merged(events):
    pileup, hard = events
    made = overlay(pileup, hard, turn=0, reflect=False)
    shared = (made["y"] > 0) & (made["y"] < 1) & (made["vertex"] < 0)
    assert 0 < shared.sum() < 100
    assert ((made["y"] >= 0) & (made["y"] <= 1)).all()
    assert len(made["pt"]) < len(pileup["pt"]) + len(hard["pt"])


def test_turning_and_reflecting_moves_the_hard_event_only(events):
    pileup, hard = events
    plain, turned = (overlay(pileup, hard, t, r) for t, r in ((0, False), (9, True)))
    tracks = [e["eta"][e["vertex"] == 0] for e in (plain, turned)]
    np.testing.assert_allclose(tracks[0], -tracks[1])
    soft = [np.sort(e["phi"][e["vertex"] > 0]) for e in (plain, turned)]
    np.testing.assert_allclose(*soft)


def test_the_true_missing_momentum_turns_with_the_hard_event(events):
    pileup, hard = events
    made = overlay(pileup, hard, turn=9, reflect=True)
    x, y = hard["true_met"]
    assert np.hypot(x, y) > 10
    np.testing.assert_allclose(made["true_met"], (-y, x), atol=1e-9)

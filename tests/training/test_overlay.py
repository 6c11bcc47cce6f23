"""An overlaid event holds the hard event's and the pile-up's momentum, and nothing else."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest

from puma_coffea import read_candidates, read_truth, sample_path
from puma_coffea.evaluate import evaluate
from puma_coffea.exceptions import BadOutput, NoEvents, NotParquetSample
from puma_coffea.training.data import _event, _rows, write_overlaid
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


def test_the_truth_turns_with_the_hard_event(events):
    pileup, hard = events
    plain, turned = (overlay(pileup, hard, t, r) for t, r in ((0, False), (9, True)))
    x, y = plain["true_met"]
    np.testing.assert_allclose(turned["true_met"], (-y, x))
    assert turned["boson_pt"] == plain["boson_pt"]
    quarter = turned["boson_phi"] - plain["boson_phi"] - np.pi / 2
    assert np.remainder(quarter + np.pi, 2 * np.pi) == pytest.approx(np.pi)
    np.testing.assert_allclose(turned["genjet_eta"], -plain["genjet_eta"])
    quarter = turned["genjet_phi"] - plain["genjet_phi"] - np.pi / 2
    np.testing.assert_allclose(np.remainder(quarter + np.pi, 2 * np.pi), np.pi)


def test_visible_products_of_the_boson_turn_along(events):
    pileup, hard = events
    product = {"pt": 40.0, "eta": 1.0, "phi": 0.5, "mass": 0.1, "charge": -1.0}
    with_muon = hard | {f"boson_products_{k}": np.array([v]) for k, v in product.items()}
    made = overlay(pileup, with_muon, turn=9, reflect=True)
    turned = {k: made[f"boson_products_{k}"][0] for k in product}
    assert turned == product | {"eta": -1.0, "phi": pytest.approx(0.5 + np.pi / 2)}
    nobody = hard | {f"boson_products_{k}": np.zeros(0) for k in product}
    rows = _rows([overlay(pileup, nobody, 0, False)] * 2)
    assert str(rows["boson_products_pt"].type) == "2 * var * float64"


def test_overlaid_events_become_a_sample_that_can_be_evaluated(tmp_path):
    made = tmp_path / "over.parquet"
    hard, full = (sample_path(f"{n}.parquet") for n in ("vbfhinv_pu0", "zvv_pu140"))
    assert write_overlaid([hard], [full], made, count=7, skip=3) == 7
    assert list(tmp_path.iterdir()) == [made]
    true, given = read_truth(made), read_truth(hard)[3:10]
    np.testing.assert_allclose(true.met.pt, given.met.pt, rtol=1e-5)
    np.testing.assert_allclose(true.boson.pt, given.boson.pt, rtol=1e-5)
    assert ak.almost_equal(true.jets.pt, given.jets.pt, rtol=1e-5)
    pf = read_candidates(made)
    assert ak.all((pf.charge == 0) == (pf.vertex < 0))
    # With perfect weights only the hard event is left, whose recoil balances the boson.
    figures = evaluate([f"over={made}"], methods=["truth"])["over"]
    assert figures["truth"]["events"] == 7
    assert figures["truth"]["met_xy"]["value"] < 0.5 * figures["puppi"]["met_xy"]["value"]


def test_hard_samples_that_know_different_things_make_one_sample(tmp_path):
    hard, full = (sample_path(f"{n}.parquet") for n in ("vbfhinv_pu0", "zvv_pu140"))
    less = ak.from_parquet(sample_path("zvv_pu0.parquet"))
    less = less[[name for name in less.fields if not name.startswith("genjet")]]
    ak.to_parquet(less, tmp_path / "less.parquet", extensionarray=False)
    made = tmp_path / "over.parquet"
    assert write_overlaid([hard, str(tmp_path / "less.parquet")], [full], made, count=60) == 60
    true = read_truth(made)
    assert "jets" not in true.fields
    assert ak.all(true.boson.pt > 0)


def test_an_overlay_that_cannot_be_made_leaves_nothing(tmp_path):
    with pytest.raises(NoEvents, match=r"No file matches 'absent.parquet'"):
        write_overlaid(["absent.parquet"], ["absent.parquet"], tmp_path / "a.parquet", count=1)
    sample, text = sample_path("zvv_pu0.parquet"), __file__
    for hard, full in ((text, sample), (sample, text)):
        with pytest.raises(NotParquetSample, match="cannot be read as a Parquet file"):
            write_overlaid([hard], [full], tmp_path / "a.parquet", count=1)
    empty = tmp_path / "empty.parquet"
    ak.to_parquet(ak.from_parquet(sample)[:0], empty, extensionarray=False)
    for hard, full in ((str(empty), sample), (sample, str(empty))):
        with pytest.raises(NoEvents, match=r"There are no .*empty\.parquet"):
            write_overlaid([hard], [full], tmp_path / "a.parquet", count=1)
    empty.unlink()
    with pytest.raises(BadOutput, match="cannot be written"):
        write_overlaid([sample], [sample], tmp_path / "no" / "a.parquet", count=1)
    assert list(tmp_path.iterdir()) == []

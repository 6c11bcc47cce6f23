"""Which events train and which judge: parts of the overlaid ones differ, and judges are others."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest

from puma_coffea import sample_path
from puma_coffea.exceptions import BadConfig
from puma_coffea.training import samples
from puma_coffea.training.config import Config
from puma_coffea.training.data import overlaid

PILEUP, HARD = sample_path("zvv_pu140.parquet"), sample_path("vbfhinv_pu0.parquet")
DATA = {"files": [PILEUP], "hard_files": [HARD], "validation": [PILEUP], "overlays": 6}


def config(**data):
    return Config.model_validate(
        {
            "name": "few",
            "data": DATA | data,
            "inputs": ["pt"],
            "tokens": {"neutral_pt_min": 3.0, "pileup_pt_min": 9.0},
        }
    )


def hard_events(count, before):
    """True pTmiss of the hard events that were laid over pile-up."""
    rows = ak.concatenate(list(overlaid([PILEUP], [HARD], count, 1, None, before=before)))
    return np.hypot(rows["gen_met_x"], rows["gen_met_y"]).to_numpy()


def test_each_part_of_the_overlays_takes_the_next_hard_events():
    truth = ak.from_parquet(HARD)
    all_of_them = np.hypot(truth["gen_met_x"], truth["gen_met_y"]).to_numpy()
    first, second, again = (hard_events(3, before) for before in (0, 3, len(truth) - 1))
    np.testing.assert_allclose(first, all_of_them[:3], rtol=1e-5)
    np.testing.assert_allclose(second, all_of_them[3:6], rtol=1e-5)
    np.testing.assert_allclose(again, all_of_them[[-1, 0, 1]], rtol=1e-5)


def test_parts_are_the_same_on_any_number_of_cores(monkeypatch, tmp_path):
    monkeypatch.setattr(samples, "SHARD", 2)
    found = []
    for cores in (1, 2):
        monkeypatch.setattr(samples.os, "sched_getaffinity", lambda _, n=cores: range(n))
        found.append(samples.training_stores(config(overlays=3), tmp_path / str(cores)))
    for real, *made in found:
        assert len(real) == 48
        assert [len(store) for store in made] == [2, 1]
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one.x, two.x)


def test_simulated_events_train_and_do_not_judge(tmp_path):
    simulated = sample_path("vbfhinv_pu140.parquet")
    with_them = config(simulated=[simulated])
    real, overlays, more = samples.training_stores(with_them, tmp_path)
    assert [len(store) for store in (real, overlays, more)] == [48, 6, 60]
    assert len(samples.judging_stores(with_them, tmp_path)["held_out"]) == 12
    true = ak.from_parquet(simulated)
    weights = (true["vertex"] == 0) * true["pt"]
    base = -ak.sum(weights * np.cos(true["phi"]), axis=1) - true["gen_met_x"]
    np.testing.assert_allclose(more.base[:, 0], base, atol=1e-3)


def test_overlaid_events_judge_too(tmp_path):
    judges = samples.judging_stores(config(validation_overlays=4), tmp_path)
    assert {name: len(store) for name, store in judges.items()} == {
        "held_out": 12,
        "validation": 60,
        "overlaid": 4,
    }
    assert np.isfinite(judges["overlaid"].base).all()


def test_something_must_judge(tmp_path):
    with pytest.raises(BadConfig, match="Nothing to validate on"):
        samples.judging_stores(config(held_out=0, validation=[]), tmp_path)

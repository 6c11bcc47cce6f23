"""The teacher speaks of events it has not seen, and the first phase listens."""

from __future__ import annotations

import numpy as np
import pytest

from puma_coffea import sample_path
from puma_coffea.exceptions import MissingExtra
from puma_coffea.training import teacher
from puma_coffea.training.alone import Singles
from puma_coffea.training.config import Config
from puma_coffea.training.data import read_batches
from puma_coffea.training.store import store_for

CONFIG = Config.model_validate({
    "name": "taught", "data": {"files": ["unused"]},
    "inputs": ["pt", "abs_eta", "is_photon", "hard_pt_0.2", "hard_max_0.2", "nearest_hard_dr"],
    "tokens": {"neutral_pt_min": 1.0},
    "recipe": {"singles": 500, "teacher": 0.75},
})  # fmt: skip


@pytest.fixture
def singles(tmp_path):
    rows = read_batches([sample_path("zvv_pu140.parquet")], keep=lambda index: index < 30)
    return Singles([store_for(rows, CONFIG.card(), tmp_path, "thirty")], CONFIG.recipe)


def test_weights_are_out_of_fold_and_kept(singles, monkeypatch):
    seen = []
    grow = teacher.grow

    def spy(these, chosen, threads):
        seen.append(set(these.events()[chosen].tolist()))
        return grow(these, chosen, threads)

    monkeypatch.setattr(teacher, "grow", spy)
    weights = teacher.out_of_fold(singles)
    assert seen[0].isdisjoint(seen[1])
    assert seen[0] | seen[1] == set(singles.events().tolist())
    assert ((weights >= 0) & (weights <= 1)).all()
    _, y, _ = singles.take(np.arange(len(singles)))
    assert weights[y > 0.9].mean() > 2 * weights[y < 0.1].mean()
    np.testing.assert_array_equal(teacher.out_of_fold(singles), weights)
    assert len(seen) == 2  # read from disk the second time


def test_targets_are_mixed_with_the_teachers(singles):
    before = singles(4).target
    singles.teach(np.full(len(singles), 0.5, dtype=np.float32))
    np.testing.assert_allclose(singles(4).target, 0.25 * before + 0.75 * 0.5, rtol=1e-6)


def test_without_lightgbm_the_remedy_is_named(singles, monkeypatch):
    monkeypatch.setattr(teacher, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="pip install lightgbm"):
        teacher.out_of_fold(singles)

"""What a batch holds: crops around hard neutrals, weighed fairly, turned as physics allows."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest

from puma_coffea import sample_path
from puma_coffea.training.alone import Singles
from puma_coffea.training.batches import Crops, draw
from puma_coffea.training.config import Config
from puma_coffea.training.data import overlaid, read_batches
from puma_coffea.training.store import COLUMNS, NEUTRAL, chance, store_for

INPUTS = ("pt", "eta", "phi", "abs_eta", "cos_phi_4", "sin_phi_4", "cos_eta_4", "sin_eta_4")
CONFIG = Config.model_validate({
    "name": "batches", "data": {"files": ["unused"]}, "inputs": INPUTS,
    "recipe": {"crops": 16, "crop": 64, "singles": 4000, "pt_cap": 20.0},
})  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rows = read_batches([sample_path("zvv_pu140.parquet")], keep=lambda index: index < 6)
    return store_for(rows, CONFIG.card(), tmp_path_factory.mktemp("cache"), "six events")


def crops(store, **changes):
    recipe = CONFIG.recipe.model_copy(update=changes)
    return Crops([store], recipe, edge=15, inputs=INPUTS)


def test_turning_keeps_all_but_phi_and_the_sign_of_eta(store):
    plain, turned = (crops(store, augment=on)(3) for on in (False, True))
    for same in (0, 3):
        assert (plain.x[:, :, same] == turned.x[:, :, same]).all()
    assert (plain.x[:, :, 1].abs() == turned.x[:, :, 1].abs()).all()
    steps = []
    for before, after in zip(plain.x[:, :, 2].numpy(), turned.x[:, :, 2].numpy(), strict=True):
        assert np.abs(after).max() <= np.pi
        # One angle for the whole crop, with or without the reflection.
        spread = [np.abs(np.exp(1j * (after - sign * before)).mean()) for sign in (1, -1)]
        assert max(spread) == pytest.approx(1, abs=1e-5)
        steps.append((after - before)[0])
    # Waves go with the angles they are made of.
    for angle, column in (("phi", 4), ("eta", 6)):
        values = turned.x[:, :, INPUTS.index(angle)].numpy() * 4
        for wave, which in ((np.cos, column), (np.sin, column + 1)):
            np.testing.assert_allclose(turned.x[:, :, which], wave(values), atol=0.02)  # float16
    assert np.std(steps) > 0.5


def test_edges_and_tracks_do_not_enter_the_loss(store):
    batch = crops(store)(0)
    inside = batch.weight[:, 15:-15]
    assert (inside > 0).any(dim=1).all()
    first = batch.x[:, 0, 0].numpy()
    starts = np.isin(first, store.x[store.offsets[:-1], 0].astype(np.float32))
    assert (batch.weight[~starts][:, :15] == 0).all()


def test_crops_add_up_to_the_weight_of_each_neutral(store):
    """Drawn often or rarely, a neutral's part of the loss is pT^2 in the end."""
    draw = crops(store, crops=2000, crop=64, augment=False)
    total: dict[float, float] = {}
    for step in range(4):
        batch = draw(step)
        keys = (batch.x[:, :, 0] * 1000 + batch.x[:, :, 3]).numpy().ravel()
        for key, weight in zip(keys, batch.weight.numpy().ravel(), strict=True):
            total[key] = total.get(key, 0.0) + weight
    neutral = store.columns["kind"][:] == NEUTRAL
    pt = np.asarray(store.columns["pt"])
    names = np.asarray(store.x[:, 0], np.float32) * 1000 + np.asarray(store.x[:, 3], np.float32)
    ratios = {}
    for low, high in ((3, 6), (6, 12), (12, 20)):
        chosen = np.flatnonzero(neutral & (pt > low) & (pt < high))
        ratios[low] = sum(total.get(names[i], 0.0) for i in chosen) / np.sum(pt[chosen] ** 2)
    mean = np.mean(list(ratios.values()))
    assert all(abs(ratio / mean - 1) < 0.35 for ratio in ratios.values()), ratios


def test_drawn_neutrals_follow_their_chance(store):
    pt = store.columns["pt"][store.columns["kind"][:] == NEUTRAL]
    expected = chance(pt).sum()
    assert abs(len(store.columns["drawn"]) - expected) < 5 * np.sqrt(expected)
    drawn = store.columns["drawn"]
    for name in ("x", "y", "pt"):
        np.testing.assert_array_equal(store.columns[f"drawn_{name}"], store.columns[name][drawn])


def test_singles_weigh_by_pt_squared_over_their_chance(store):
    x, y, weight = Singles([store, store], CONFIG.recipe).take(np.arange(40))
    pt = store.columns["drawn_pt"][:40]
    expected = np.minimum(pt, 20) ** 2 / chance(pt)
    np.testing.assert_allclose(weight / weight[0], expected / expected[0], rtol=1e-5)
    np.testing.assert_array_equal(x, store.columns["drawn_x"][:40].astype(np.float32))
    assert ((y >= 0) & (y <= 1)).all()


def test_a_store_is_read_from_disk_and_not_into_memory(store):
    mapped = [store.columns[name] for name in COLUMNS]
    assert all(isinstance(column, np.memmap) for column in mapped)


def test_overlays_are_as_many_as_asked_and_the_same_for_the_same_seed():
    hard = [sample_path("zvv_pu0.parquet"), sample_path("vbfhinv_pu0.parquet")]
    files = [sample_path("zvv_pu140.parquet")]
    events = list(overlaid(files, hard, 7, 1, lambda index: index < 5))
    assert [len(rows) for rows in events] == [5, 2]
    again = list(overlaid(files, hard, 7, 1, lambda index: index < 5))
    assert all(ak.array_equal(a, b) for a, b in zip(events, again, strict=True))


def test_a_share_of_each_batch_comes_from_the_samples_themselves():
    sizes = np.array([100, 300, 600])
    for real, expected in ((None, 0.1), (0.4, 0.4)):
        drawn = draw(np.random.default_rng(1), sizes, real, 20_000)
        assert np.mean(drawn < 100) == pytest.approx(expected, abs=0.02)
        assert np.mean((drawn >= 100) & (drawn < 400)) == pytest.approx(
            (1 - expected) / 3, abs=0.02
        )
        assert drawn.min() >= 0
        assert drawn.max() < 1000

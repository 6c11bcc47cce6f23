"""The last phase: the loss is the event's residual, thinning changes nothing, processes add up."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from training.small import RECIPE, SMALL

from puma_coffea.puma.card import HardNeutrals
from puma_coffea.training.alone import attends, silence_attention, wake_attention
from puma_coffea.training.batches import Batch
from puma_coffea.training.config import Config
from puma_coffea.training.logits import logits
from puma_coffea.training.loop import Trainer
from puma_coffea.training.phases import learning_rate, phase_of
from puma_coffea.training.physics import component_width, missing_momentum, unchanged, weigher
from puma_coffea.training.whole import FLOOR, OUTLIER, UNIT, Events, Whole, event_loss, thin

PHASES = {"alone_steps": 30, "event_steps": 30, "singles": 2048, "events": 8, "event_rate": 1e-3}
WHOLE = SMALL | {"recipe": RECIPE | PHASES}


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    """A training just before its last phase."""
    threads = torch.get_num_threads()
    made = Trainer(Config.model_validate(WHOLE), tmp_path_factory.mktemp("training"))
    torch.set_num_threads(threads)
    while made.step < 30:
        made._step()
        made.step += 1
    return made


def one_event(rest, weight=0.0):
    """A single neutral of 10 GeV along x, all of it hard, in an event with this rest."""
    one = torch.ones(1, 1)
    batch = Batch(one[..., None], one.bool(), one, weight * one)
    momenta = torch.tensor([[[10.0, 0.0]]])
    return Events(batch, momenta, torch.zeros(1, 1).long(), torch.tensor([rest]))


def test_the_loss_is_the_square_of_what_is_left():
    half = torch.full((1, 1), 0.5)
    # 10 - 5 GeV are left along x, and 3 along y.
    expected = (25 + 9) / UNIT**2 / 2
    assert float(event_loss(half, one_event([10.0, 3.0]))) == pytest.approx(expected)
    # A neutral's own error of 0.5 comes on top.
    with_own = float(event_loss(half, one_event([10.0, 3.0], weight=4.0)))
    assert with_own == pytest.approx(expected + 0.25 * 4 / 2)


def test_beyond_an_outlier_the_loss_grows_linearly():
    none = torch.zeros(1, 1)
    near, at, far, further = (
        float(event_loss(none, one_event([0.0, y]))) for y in (OUTLIER - 1e-3, OUTLIER, 80.0, 100.0)
    )
    assert near == pytest.approx(at, rel=1e-4)
    assert further - far == pytest.approx(OUTLIER * 20 / UNIT**2)


@pytest.mark.parametrize("raised", [unchanged, HardNeutrals(raise_from=3, raise_to=9)])
def test_thinned_events_have_the_residual_of_whole_ones(trainer, tmp_path, raised):
    store, weigh = trainer.stores[0], weigher(trainer.average)
    thinned = thin(store, weigh, tmp_path / "thinned", raised)
    for event in (0, 7, len(store) - 1):
        momenta = store.momenta(event)
        weights = raised(weigh(store.features(event)), np.hypot(*momenta))
        tokens, rest = thinned.event(event)
        here = tokens - store.offsets[event]
        assert 0 < len(here) < np.count_nonzero(weights)
        assert (weights[here] >= FLOOR).all()
        left = rest - momenta[:, here] @ weights[here]
        np.testing.assert_allclose(left, store.base[event] - momenta @ weights, atol=1e-4)


def test_hard_neutrals_are_raised_in_the_loss_and_in_the_figure_of_merit(trainer):
    store = trainer.stores[0]
    all_kept = HardNeutrals(raise_from=0, raise_to=1e-9)
    one = [store.base[e] - store.momenta(e).sum(axis=1) for e in range(len(store))]
    found = missing_momentum(weigher(trainer.average), store, len(store), all_kept)
    assert found.width == pytest.approx(component_width(np.array(one)))
    config = trainer.config.model_copy(update={"hard_neutrals": all_kept})
    raising = copy.copy(trainer)
    raising.config, raising.whole = config, Whole(trainer.stores, trainer.recipe, 8)
    raising.step = 30
    events = raising.whole(3)
    kept = float(event_loss((events.momenta.norm(dim=-1) > 0).float(), events)) / 8
    assert float(raising._loss(3).detach()) == pytest.approx(kept, rel=1e-4)


def test_whole_sequences_and_thinned_ones_give_the_same_residuals(trainer, tmp_path):
    network = trainer.average.eval()
    assert not attends(network)
    found = []
    thinned = [thin(trainer.stores[0], weigher(network), tmp_path / "thinned")]
    for whole in (Whole(trainer.stores, trainer.recipe, 8, t) for t in (thinned, None)):
        events = whole(3)
        with torch.no_grad():
            weights = torch.sigmoid(logits(network, events.batch)) * events.batch.mask
        bare = events._replace(batch=events.batch._replace(weight=0 * events.batch.weight))
        found.append(float(event_loss(weights, bare)))
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_the_parts_of_two_processes_add_up(trainer):
    whole = Whole(trainer.stores, trainer.recipe, 8)

    def loss(rank, world):
        events = whole(5, rank, world)
        return float(event_loss(events.batch.mask * 0.1, events))

    assert loss(0, 2) + loss(1, 2) == pytest.approx(loss(0, 1), rel=1e-5)


def test_the_last_phase_improves_the_residual(trainer):
    before = trainer.average.state_dict()["decode.weight"].clone()
    losses = []
    while trainer.step < 60:
        losses.append(trainer._step())
        trainer.step += 1
    assert (trainer.folder / "thinned").is_dir()
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    assert not attends(trainer.network)
    assert not torch.equal(before, trainer.average.state_dict()["decode.weight"])


def test_attention_is_noticed():
    from puma_coffea.puma.network import NetworkConfig, PumaNetwork

    network = PumaNetwork(NetworkConfig(inputs=3, layers=2, groups=2))
    assert attends(network)
    silence_attention(network)
    assert not attends(network)
    wake_attention(network, seed=1)
    assert attends(network)


def test_attention_speaks_in_the_last_steps(tmp_path):
    more = {"steps": 12, "alone_steps": 4, "event_steps": 4, "attend_steps": 4, "attend_events": 2}
    recipe = WHOLE["recipe"] | more | {"validate_every": 4}
    made = Trainer(Config.model_validate(WHOLE | {"recipe": recipe}), tmp_path)
    spoke = []
    made.run(lambda state, _: spoke.append(attends(state.network)))
    assert spoke == [False] * 8 + [True] * 4
    again = Trainer(Config.model_validate(WHOLE | {"recipe": recipe}), tmp_path)
    assert again.step == 12
    assert attends(again.average)


class Killed(Exception):
    """The training ends here."""


@pytest.mark.parametrize("last", [7, 9])
def test_a_training_killed_on_whole_events_goes_on_as_if_nothing_had_happened(last, tmp_path):
    more = {"steps": 12, "alone_steps": 4, "event_steps": 4, "attend_steps": 4, "attend_events": 2}
    recipe = WHOLE["recipe"] | more | {"validate_every": 2}
    config, cache = Config.model_validate(WHOLE | {"recipe": recipe}), tmp_path / "cache"
    Trainer(config, tmp_path / "straight", cache).run()

    def kill(state, _):
        if state.step == last:
            raise Killed

    with pytest.raises(Killed):
        Trainer(config, tmp_path / "killed", cache).run(kill)
    again = Trainer(config, tmp_path / "killed", cache)
    assert again.step == last - 1
    again.run()
    straight, killed = (
        np.genfromtxt(tmp_path / name / "log.csv", delimiter=",", names=True)
        for name in ("straight", "killed")
    )
    for column in ("step", "loss", "held_out"):
        np.testing.assert_allclose(killed[column], straight[column], rtol=1e-5)


def test_each_phase_has_its_own_rise_and_fall():
    changes = {"steps": 120, "schedule": "cosine", "together_rate": 5e-4, "attend_steps": 20}
    recipe = Config.model_validate(WHOLE).recipe.model_copy(update=changes)
    names = [phase_of(recipe, step).name for step in (0, 29, 30, 69, 70, 99, 100, 119)]
    assert names == [name for name in ("alone", "crops", "whole", "attend") for _ in range(2)]
    peaks = {"alone": 3e-3, "crops": 5e-4, "whole": 1e-3, "attend": 1e-3}
    for name, peak in peaks.items():
        rates = [learning_rate(recipe, s) for s in range(120) if phase_of(recipe, s).name == name]
        assert 0.8 * peak < max(rates) <= peak
        assert rates[0] < 0.5 * peak
        assert rates[-1] < 0.1 * peak
    assert phase_of(recipe.model_copy(update={"attend_rate": 7.0}), 100).rate == 7

"""A training learns, survives a kill without a trace, and is the same on two processes."""

from __future__ import annotations

import csv
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import torch
from scipy.special import logit
from training.small import SMALL

from puma_coffea import Puma, candidates, open_events, sample_path
from puma_coffea.exceptions import BadConfig, MissingExtra
from puma_coffea.training.alone import alone_logits
from puma_coffea.training.calibration import fit_calibration
from puma_coffea.training.command import export_model
from puma_coffea.training.config import Config, Recipe, make_config
from puma_coffea.training.log import Log
from puma_coffea.training.loop import Trainer, release_memory
from puma_coffea.training.phases import learning_rate
from puma_coffea.training.physics import weigher
from puma_coffea.training.samples import held_out_store

PHASES = {
    "alone_steps": 20, "event_steps": 10, "attend_steps": 10, "singles": 1024, "events": 8, "attend_events": 4,
}  # fmt: skip
WHOLE = SMALL | {
    "data": SMALL["data"] | {"simulated": SMALL["data"]["files"]},  # a second store
    "recipe": SMALL["recipe"] | PHASES | {"steps": 40, "teacher": 0.5},
}

PROGRAM = """
import json, pathlib, sys
from puma_coffea.training.config import Config
from puma_coffea.training.loop import Trainer
config = Config.model_validate(json.loads(sys.argv[1]))
Trainer(config, pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])).run()
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def straight(tmp_path_factory, cache):
    """A training from beginning to end in one process."""
    threads = torch.get_num_threads()
    folder = tmp_path_factory.mktemp("straight")
    trainer = Trainer(Config.model_validate(SMALL), folder, cache)
    trainer.run()
    torch.set_num_threads(threads)
    return folder


def curve(folder):
    with (folder / "log.csv").open() as file:
        return {
            int(r["step"]): (float(r["loss"]), float(r["held_out"])) for r in csv.DictReader(file)
        }


def test_the_loss_falls_and_the_physics_improves(straight):
    rows = curve(straight)
    assert len(rows) == 6
    assert rows[60][0] < 0.7 * rows[10][0]
    assert rows[60][1] < rows[10][1]


def test_tensorboard_shows_what_the_log_says_and_a_resumed_training_goes_on(tmp_path, cache):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in (10, 20):
        config = Config.model_validate(SMALL | {"recipe": SMALL["recipe"] | {"steps": steps}})
        Trainer(config, tmp_path, cache, tensorboard=True).run()
    shown = EventAccumulator(str(tmp_path / "tensorboard"))
    shown.Reload()
    for column, name in enumerate(("loss", "held_out")):
        values = {each.step: each.value for each in shown.Scalars(name)}
        assert values == {s: pytest.approx(row[column]) for s, row in curve(tmp_path).items()}
        assert set(values) == {10, 20}


def test_a_log_for_tensorboard_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr("puma_coffea.training.log.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="pip install tensorboard"):
        Log(tmp_path, tensorboard=True)


def command(folder, cache, config=SMALL):
    import json

    return ["-c", PROGRAM, json.dumps(config), str(folder), str(cache)]


def test_a_killed_training_goes_on_as_if_nothing_had_happened(straight, tmp_path, cache):
    program = subprocess.Popen([sys.executable, *command(tmp_path, cache)])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (
        not (tmp_path / "log.csv").exists() or len(curve(tmp_path)) < 2
    ):
        time.sleep(0.02)
    program.kill()
    program.wait()
    assert 2 <= len(curve(tmp_path)) < 6
    subprocess.run([sys.executable, *command(tmp_path, cache)], check=True)
    resumed, whole = curve(tmp_path), curve(straight)
    assert set(resumed) == set(whole)
    for step, (loss, figure) in whole.items():
        assert resumed[step] == (pytest.approx(loss, rel=1e-5), pytest.approx(figure, rel=1e-5))


def torchrun(script, *arguments):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [sys.executable, *launcher, str(script), *arguments],
        check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("config", [SMALL, WHOLE], ids=["crops", "whole events"])
def test_two_processes_give_the_curve_of_one(config, straight, tmp_path, cache):
    if config is WHOLE:
        straight = tmp_path / "one"
        subprocess.run([sys.executable, *command(straight, cache, config)], check=True)
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    _, _, *arguments = command(tmp_path / "out", cache, config)
    run = torchrun(script, *arguments)
    assert run.returncode == 0, run.stderr
    both, one = curve(tmp_path / "out"), curve(straight)
    assert set(both) == set(one)
    for step, (loss, figure) in one.items():
        assert both[step] == (pytest.approx(loss, rel=1e-3), pytest.approx(figure, rel=1e-3))


THREADS = """
import atexit, pathlib, torch
from puma_coffea.training.processes import Processes
def threads():
    names = pathlib.Path("/proc/self/task").glob("*/comm")
    return [name for name in (each.read_text() for each in names) if "gloo" in name]
processes = Processes.join()
torch.optim.AdamW([torch.zeros(1, requires_grad=True)]).step()  # imports much of torch
processes.wait()
assert threads()
atexit._run_exitfuncs()
assert not threads(), threads()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks up threads in /proc")
def test_no_thread_of_several_processes_is_left_to_the_interpreter(tmp_path):
    (tmp_path / "program.py").write_text(THREADS)
    run = torchrun(tmp_path / "program.py")
    assert run.returncode == 0, run.stderr


def test_the_exported_model_is_the_one_that_was_judged_best(straight, tmp_path):
    model = Puma.load(export_model(straight, tmp_path / "model"))
    assert model.card.training["steps"] == 60
    assert model.card.training["samples"] == ["zvv_pu140.parquet"]
    pf = candidates(open_events(sample_path("zvv_pu140")))[:2]
    weights = model(pf)
    neutral = pf.vertex < 0
    assert ak.all(weights[neutral & (pf.pt < 2)] == 0)
    near, far = (
        ak.mean(weights[neutral & (pf.pt > 5) & (pf.hard_fraction > 0.5) == side])
        for side in (True, False)
    )
    assert near > far


def test_a_folder_of_another_network_is_refused(straight, cache):
    other = Config.model_validate(SMALL | {"network": SMALL["network"] | {"width": 8}})
    with pytest.raises(BadConfig, match="made with another 'network'"):
        Trainer(other, straight, cache)


def test_a_folder_without_a_training_is_refused(tmp_path):
    with pytest.raises(BadConfig, match=r"checkpoint\.pt; name the folder of a training"):
        export_model(tmp_path, tmp_path / "model")


@pytest.mark.parametrize("keep", [0, 2, 5000])
def test_something_else_than_a_checkpoint_is_refused(keep, straight, tmp_path, cache):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes((straight / "checkpoint.pt").read_bytes()[:keep])
    with pytest.raises(BadConfig, match=f"{path} is no checkpoint of a training, or damaged"):
        export_model(tmp_path, tmp_path / "model")
    with pytest.raises(BadConfig, match=f"{path} is no checkpoint of a training, or damaged"):
        Trainer(Config.model_validate(SMALL), tmp_path, cache)
    assert path.stat().st_size == keep


def test_another_file_of_torch_is_no_checkpoint(tmp_path):
    torch.save([torch.zeros(3)], tmp_path / "checkpoint.pt")
    with pytest.raises(BadConfig, match="no checkpoint of a training"):
        export_model(tmp_path, tmp_path / "model")


def test_a_checkpoint_of_another_version_says_what_differs(straight, tmp_path):
    state = torch.load(straight / "checkpoint.pt", weights_only=True)
    state["config"]["recipe"]["future"] = 1
    torch.save(state, tmp_path / "checkpoint.pt")
    with pytest.raises(BadConfig, match=r"another version of puma-coffea: recipe: .*'future'"):
        export_model(tmp_path, tmp_path / "model")


def test_schedules():
    flat = Recipe(steps=1000, warm_up=9, learning_rate=1.0)
    assert [round(learning_rate(flat, s), 3) for s in (0, 9, 500, 950, 999)] == [
        0.1,
        1,
        1,
        0.5,
        0.01,
    ]
    cosine = flat.model_copy(update={"schedule": "cosine"})
    assert [round(learning_rate(cosine, s), 2) for s in (0, 250, 500, 999)] == [
        0.1,
        0.85,
        0.5,
        0.01,
    ]
    two = cosine.model_copy(update={"alone_steps": 500, "together_rate": 0.2})
    assert [round(learning_rate(two, s), 2) for s in (0, 250, 499, 500, 750)] == [
        0.1,
        0.5,
        0.01,
        0.02,
        0.1,
    ]
    cycle = Recipe(schedule="cyclical", cycle=100, learning_rate=1.0, cycle_decay=0.97)
    assert learning_rate(cycle, 50) == pytest.approx(1)
    assert learning_rate(cycle, 150) == pytest.approx(0.97)
    assert learning_rate(cycle, 25) == pytest.approx(0.5)


def test_single_candidates_come_first_and_attention_starts_from_there(tmp_path, cache):
    recipe = SMALL["recipe"] | {"steps": 40, "alone_steps": 20, "singles": 512}
    trainer = Trainer(Config.model_validate(SMALL | {"recipe": recipe}), tmp_path, cache)
    batch = trainer.crops(0)
    trainer.recipe = trainer.recipe.model_copy(update={"steps": 20})
    trainer.run()
    trainer.network.eval()
    with torch.no_grad():
        alone = alone_logits(trainer.network, batch)[batch.mask]
        together = trainer.network.logits(batch.x, batch.mask)[batch.mask]
    torch.testing.assert_close(alone, together)
    trainer.recipe = trainer.recipe.model_copy(update={"steps": 40})
    trainer.run()
    assert any(layer.attention_out.weight.abs().max() > 0 for layer in trainer.network.layers)


def test_a_shift_is_added_to_every_logit(straight, tmp_path):
    plain = Puma.load(export_model(straight, tmp_path / "plain"))
    model = Puma.load(export_model(straight, tmp_path / "model", shift=0.3))
    assert model.card.training["shift"] == 0.3
    assert "shift" not in plain.card.training
    pf = candidates(open_events(sample_path("zvv_pu140")))[:1]
    tokens = (pf.vertex < 0) & (pf.pt > 2)
    before, after = (ak.to_numpy(each(pf)[tokens][0]).astype(float) for each in (plain, model))
    np.testing.assert_allclose(logit(after) - logit(before), 0.3, atol=2e-3)


def test_a_training_begins_with_the_numbers_of_a_model_and_judges_it_first(
    straight, tmp_path, cache
):
    model = export_model(straight, tmp_path / "model")
    content = {key: SMALL[key] for key in ("name", "data")} | {"start": str(model)}
    recipe = SMALL["recipe"] | PHASES | {"alone_steps": 0, "event_steps": 0, "steps": 10}
    config = make_config(content | {"recipe": recipe}, "fine-tune")
    trainer = Trainer(config, tmp_path / "tuned", cache)
    for name, value in Puma.load(model).network().state_dict().items():
        torch.testing.assert_close(trainer.network.state_dict()[name], value, rtol=0, atol=0)
    trainer.run()
    found, before = curve(tmp_path / "tuned"), curve(straight)
    assert set(found) == {0, 10}
    assert found[0][1] == pytest.approx(min(figure for _, figure in before.values()), rel=1e-6)
    assert found[10][1] != found[0][1]
    assert trainer.found_better == (found[10][1] < found[0][1])


def test_a_calibration_narrows_the_residual_of_the_events_it_is_fitted_to(
    straight, tmp_path, cache
):
    config = Config.model_validate(SMALL)
    model = Puma.load(export_model(straight, tmp_path / "model", calibrate=cache))
    plain = Puma.load(export_model(straight, tmp_path / "plain"))
    store = held_out_store(config, cache)
    calibration, before, after = fit_calibration(weigher(plain.network()), store, config.inputs)
    assert model.card.calibration == calibration
    assert after < before
    pf = candidates(open_events(sample_path("zvv_pu140")))[:1]
    neutral = pf.vertex < 0
    expected = calibration(ak.to_numpy(plain(pf)[neutral][0]), abs(ak.to_numpy(pf.eta[neutral][0])))
    assert model(pf)[neutral][0].to_list() == pytest.approx(expected.tolist())


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc keeps gaps")
def test_memory_between_blocks_in_use_is_given_back():
    def held():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    blocks = [os.urandom(100_000) for _ in range(2000)]
    del blocks[:-1]  # the last one is above them all
    before = held()
    release_memory()
    assert held() < before - 1e8
    assert len(blocks) == 1

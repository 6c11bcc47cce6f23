"""A training's configuration is strict: a mistake is named by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from puma_coffea import Puma
from puma_coffea.exceptions import BadConfig, BadModelCard
from puma_coffea.puma.network import NetworkConfig, PumaNetwork
from puma_coffea.training.config import PRESETS, STRONG, read_config


def written(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


MINIMAL = "name: mine\ndata:\n  files: [a.parquet]\n"


def test_a_minimal_file_takes_the_rest_from_the_preset(tmp_path):
    config = read_config(written(tmp_path, MINIMAL))
    assert config.inputs == STRONG
    assert config.card().name == "mine"


def test_the_paper_preset_is_the_papers_network(tmp_path):
    config = read_config(written(tmp_path, MINIMAL), "paper")
    network = PumaNetwork(NetworkConfig(inputs=len(config.inputs), **config.network.model_dump()))
    assert sum(p.numel() for p in network.parameters()) == 127_063
    assert (config.recipe.schedule, config.recipe.learning_rate, config.recipe.cycle_decay) == (
        "cyclical",
        1e-3,
        0.97,
    )
    assert config.recipe.alpha == 2


def test_settings_override_single_keys_of_the_preset(tmp_path):
    config = read_config(written(tmp_path, MINIMAL + "network:\n  width: 32\n"))
    assert config.network.width == 32
    assert config.network.layers == PRESETS["default"]["network"]["layers"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: x\n", "data: Field required"),
        (
            MINIMAL + "recipe:\n  learningrate: 1\n",
            "recipe: unknown key 'learningrate'; did you mean 'learning_rate'",
        ),
        (
            MINIMAL + "hard_neutrals:\n  raise_form: 90\n",
            "hard_neutrals: unknown key 'raise_form'; did you mean 'raise_from'",
        ),
        (MINIMAL + "colour: blue\n", "config.yaml: unknown key 'colour'; known are name, "),
        ("name: x\ndata:\n  fils: [a.parquet]\n", "data: unknown key 'fils'; did you mean 'files'"),
        (MINIMAL + "recipe:\n  steps: many\n", "recipe.steps: Input should be a valid integer"),
        (MINIMAL + "recipe:\n  steps: 500\n", "recipe: Value error, steps .500. must hold alone"),
        (MINIMAL + "inputs: [pt, colour]\n", "inputs: Value error, unknown inputs colour"),
        ("- a\n", "must be a mapping"),
        (MINIMAL + "start: pumma\n", "There is no model 'pumma'"),
        (MINIMAL + "start: puma\n", "recipe.alone_steps must be 0 with 'start'.*fine-tune"),
        (
            MINIMAL + "start: puma\nnetwork:\n  layers: 3\n",
            "network: the model 'puma'.*leave it out",
        ),
        (MINIMAL + "start: puma\ninputs: [pt]\n", "inputs: the model 'puma'"),
        (MINIMAL + "start: 3\n", "start: Input should be a valid string"),
        ("name: [\n", "not valid YAML"),
    ],
)
def test_mistakes_are_named_by_their_key(tmp_path, text, sentence):
    with pytest.raises((BadConfig, BadModelCard), match=sentence) as error:
        read_config(written(tmp_path, text))
    assert "\n" not in str(error.value)


def test_unknown_presets_and_files_are_refused(tmp_path):
    with pytest.raises(BadConfig, match="choose one of default, fine-tune, paper"):
        read_config(written(tmp_path, MINIMAL), "papper")
    with pytest.raises(BadConfig, match="cannot be read"):
        read_config(tmp_path / "absent.yaml")


def test_a_fine_tuning_has_the_shape_of_the_model_it_starts_with(tmp_path):
    config = read_config(written(tmp_path, MINIMAL + "network:\n  layers: 6\n"), "fine-tune")
    shipped = Puma.load("puma").card
    for key in ("inputs", "ordering", "tokens", "network", "hard_neutrals"):
        assert getattr(config, key) == getattr(shipped, key)
    assert config.recipe.attend_steps == config.recipe.steps == 2000
    short = "start: puma-paper\nrecipe:\n  steps: 30\n"
    paper = read_config(written(tmp_path, MINIMAL + short), "fine-tune")
    assert paper.recipe.attend_steps == paper.recipe.steps == 30
    assert "attend_steps" not in PRESETS["fine-tune"]["recipe"]
    assert paper.network == Puma.load("puma-paper").card.network


@pytest.mark.parametrize(
    ("name", "preset"), [("train_puma", "default"), ("train_puma_paper", "paper")]
)
def test_the_examples_configurations_are_valid_and_those_of_the_shipped_models(name, preset):
    config = read_config(Path(__file__).parents[2] / "examples" / f"{name}.yaml", preset)
    shipped = Puma.load(config.name).card
    assert config.inputs == shipped.inputs
    assert config.network == shipped.network
    assert config.tokens == shipped.tokens

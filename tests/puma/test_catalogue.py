"""``puma-coffea models``: lists, shows and verifies."""

from __future__ import annotations

import json

import pytest
from puma.models import untrained
from typer.testing import CliRunner

import puma_coffea.puma.model as model_module
from puma_coffea.cli import app
from puma_coffea.exceptions import BadModelCard, ModelHashMismatch
from puma_coffea.puma.card import CARD, SCRIPT, WEIGHTS, Metric
from puma_coffea.puma.catalogue import list_models, show_model, verify_model
from puma_coffea.puma.model import Puma


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the only shipped model, trained for the sake of its card."""
    monkeypatch.setattr(model_module, "SHIPPED", tmp_path)
    model = untrained()
    metric = Metric(sample="zvv", quantity="width", value=12.5, error=0.4, command="make it")
    card = model.card.model_copy(update={"metrics": (metric,), "training": {"events": 7}})
    return Puma(card, model._weights).save(tmp_path / "tiny")


def answer(*arguments):
    result = CliRunner().invoke(app, ["models", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_list_has_the_shipped_models(folder):
    (model,) = list_models()
    assert model["name"] == folder.name
    assert model["trained"]
    assert model["metrics"][0]["value"] == 12.5
    assert json.loads(answer("list", "--json")) == json.loads(answer("--json")) == [model]
    assert "tiny" in answer()
    assert "tiny" in answer("list")


def test_a_card_is_shown_whole(folder):
    shown = show_model("tiny")
    assert shown == json.loads((folder / CARD).read_text())
    assert json.loads(answer("show", folder, "--json")) == shown
    text = answer("show", "tiny")
    for part in ("hard_ptdr_0.2", "12.5 ± 0.4", "make it", "events 7", "BSD-3-Clause"):
        assert part in text
    assert show_model(str(folder / SCRIPT))["inputs"] == shown["inputs"]


def test_a_shown_card_says_each_command_once_as_a_shell_takes_it():
    card = show_model("puma")
    text = answer("show", "puma")
    (command,) = {metric["command"] for metric in card["metrics"]}
    _, shown = text.split("Made by:\n")
    assert shown.replace("\\\n", "").split() == command.split()
    figures = {(each["sample"], each["quantity"]): each["value"] for each in card["metrics"]}
    width = figures["val_ttbar_pu140", "pTmiss width over tuned PUPPI"]
    assert f"{width:.3g} ±" in text
    assert "raise_to 200.0" in text


def test_an_intact_model_is_verified(folder):
    verified = verify_model("tiny")
    assert verified["files"] == [CARD, SCRIPT, WEIGHTS]
    assert verified["identity"] == Puma.load(folder).identity
    assert json.loads(answer("verify", folder, "--json")) == verified
    assert "Model 'tiny' is intact" in answer("verify", "tiny")
    assert verify_model(str(folder / SCRIPT))["files"] == [SCRIPT]
    (folder / SCRIPT).unlink()
    assert verify_model(str(folder))["files"] == [CARD, WEIGHTS]


def test_an_altered_model_is_not(folder):
    (folder / SCRIPT).write_bytes(b"another")
    with pytest.raises(ModelHashMismatch, match=r"model\.pt is not the file"):
        verify_model("tiny")


@pytest.mark.parametrize("question", [show_model, verify_model])
def test_an_unknown_model_is_refused_with_the_known_ones(folder, question):
    with pytest.raises(
        BadModelCard, match=f"neither a folder nor one of the shipped {folder.name}"
    ):
        question("other")

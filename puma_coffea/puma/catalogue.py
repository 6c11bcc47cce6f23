"""What ``puma-coffea models`` shows: the shipped models, a card, a verdict on a folder."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from puma_coffea.puma.card import Card, parse_card, read_card
from puma_coffea.puma.model import Puma, find_folder, shipped_names

# What batch normalisation keeps of the data: numbers of the file, but no parameters.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
#: Of a card, a row each.
SECTIONS = ("ordering", "tokens", "network", "calibration", "hard_neutrals", "training")


def list_models() -> list[dict[str, Any]]:
    """Name, description, inputs and metrics of each shipped model."""
    cards = [find_card(name) for name in shipped_names()]
    return [
        {
            "name": card.name,
            "description": card.description,
            "licence": card.licence,
            "inputs": len(card.inputs),
            "layers": card.network.layers,
            "trained": bool(card.training),
            "metrics": [metric.model_dump() for metric in card.metrics],
        }
        for card in cards
    ]


def show_model(name_or_path: str) -> dict[str, Any]:
    """The whole card of a model, read from a shipped name, a folder or a ``.pt`` file."""
    return find_card(name_or_path).model_dump(mode="json")


def find_card(name_or_path: str) -> Card:
    """Card of a model; neither its numbers nor torch are needed for a name or a folder."""
    if name_or_path.endswith(".pt"):
        from puma_coffea.puma.export import read_script

        return parse_card(read_script(Path(name_or_path))[0], name_or_path)
    return read_card(find_folder(name_or_path)[0])


def verify_model(name_or_path: str) -> dict[str, Any]:
    """Check a model: schema and seal of the card, hash of each file, numbers that fit the card.

    Returns
    -------
    dict
        ``name``, ``identity`` (SHA-256 of all that decides a weight), ``parameters`` (their
        number) and ``files``, those whose hash was found right.

    Raises
    ------
    BadModelCard, ModelHashMismatch
        What is wrong, in one sentence.
    """
    model = Puma.load(name_or_path)
    files = [Path(name_or_path).name]
    if not name_or_path.endswith(".pt"):
        folder, _ = find_folder(name_or_path)
        files = sorted(name for name in model.card.hashes if (folder / name).is_file())
    return {
        "name": model.card.name,
        "identity": model.identity,
        "parameters": sum(v.size for k, v in model.tensors().items() if not k.endswith(STATISTICS)),
        "files": files,
    }


def models_table(models: list[dict[str, Any]]) -> Table:
    """The list of models for a terminal."""
    table = Table()
    for heading in ("model", "description", "inputs", "layers", "trained"):
        table.add_column(heading, justify="right" if heading in ("inputs", "layers") else "left")
    for model in models:
        trained = "yes" if model["trained"] else "no"
        numbers = str(model["inputs"]), str(model["layers"])
        table.add_row(model["name"], model["description"], *numbers, trained)
    return table


def card_page(card: dict[str, Any]) -> Group:
    """A card for a terminal: settings by their names, the figures, the commands that make them."""
    settings = Table(show_header=False, title=card["name"])
    settings.add_column(no_wrap=True)
    settings.add_column(overflow="fold")
    for key in ("description", "licence"):
        settings.add_row(key, card[key])
    settings.add_row("inputs", ", ".join(card["inputs"]))
    sections = {key: card[key] or {} for key in SECTIONS}
    sections["training"] = {k: v for k, v in sections["training"].items() if k != "recipe"}
    sections["recipe"] = card["training"].get("recipe", {})
    for name, section in sections.items():
        texts = (_setting(key, value) for key, value in section.items())
        settings.add_row(name, ", ".join(filter(None, texts)) or "none")
    if not card["metrics"]:
        return Group(settings)
    commands = dict.fromkeys(metric["command"] for metric in card["metrics"])
    made_by = "\n".join(["Made by:", *map(_shell_lines, commands)])
    return Group(settings, _figures(card["metrics"]), Text(made_by))


def _setting(key: str, value: Any) -> str:
    """A setting in words; nothing of one that is not set."""
    if value is None or value == []:
        return ""
    return f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"


def _figures(metrics: list[dict[str, Any]]) -> Table:
    """A row for each sample, a column for each quantity."""
    figures = {(each["sample"], each["quantity"]): _figure(each) for each in metrics}
    samples, quantities = (dict.fromkeys(names) for names in zip(*figures, strict=True))
    table = Table(Column("sample", no_wrap=True), box=SIMPLE_HEAD)
    for quantity in quantities:
        widest = max(len(figures.get((sample, quantity), "")) for sample in samples)
        table.add_column(quantity, min_width=widest)
    for sample in samples:
        table.add_row(sample, *(figures.get((sample, quantity), "") for quantity in quantities))
    return table


def _figure(metric: dict[str, Any]) -> str:
    error = "" if metric["error"] is None else f" ± {metric['error']:.2g}"
    return f"{metric['value']:.3g}{error}"


def _shell_lines(command: str) -> str:
    """A command broken into lines that a shell takes as one."""
    return " \\\n  ".join(wrap(command, 74, break_long_words=False, break_on_hyphens=False))


def verdict(verified: dict[str, Any]) -> str:
    """The result of :func:`verify_model` in a sentence."""
    return (
        f"Model '{verified['name']}' is intact: {', '.join(verified['files'])}; "
        f"{verified['parameters']:,} parameters, identity {verified['identity'][:12]}."
    )

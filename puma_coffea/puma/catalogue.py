"""What ``puma-coffea models`` shows: the shipped models, a card, a verdict on a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from puma_coffea.puma.card import Card, parse_card, read_card
from puma_coffea.puma.model import Puma, find_folder, shipped_names

# What batch normalisation keeps of the data: numbers of the file, but no parameters.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


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


def card_table(card: dict[str, Any]) -> Table:
    """A card for a terminal: settings by their names, then the metrics with their commands."""
    table = Table(show_header=False, title=card["name"])
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key in ("description", "licence"):
        table.add_row(key, card[key])
    table.add_row("inputs", ", ".join(card["inputs"]))
    for section in ("ordering", "tokens", "network", "training"):
        text = ", ".join(f"{key} {value}" for key, value in card[section].items())
        table.add_row(section, text or "none")
    for metric in card["metrics"]:
        error = "" if metric["error"] is None else f" ± {metric['error']:g}"
        table.add_row(
            f"{metric['sample']} {metric['quantity']}",
            f"{metric['value']:g}{error}   {metric['command']}",
        )
    return table


def verdict(verified: dict[str, Any]) -> str:
    """The result of :func:`verify_model` in a sentence."""
    return (
        f"Model '{verified['name']}' is intact: {', '.join(verified['files'])}; "
        f"{verified['parameters']:,} parameters, identity {verified['identity'][:12]}."
    )

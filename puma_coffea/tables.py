"""The table of a run: one row per method, response beside every width."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

#: The first columns, as they fit into a terminal of 80 characters.
SHORT = ("pTmiss width", "half 68 %", "bias x, y", "response", "U_perp")


def component_width(row: dict[str, Any]) -> tuple[float, float]:
    """Width of the pTmiss residual per component, from x and y together, and its error (GeV)."""
    x, y = row["met_x"], row["met_y"]
    width = _both(row, "width")
    if not width > 0:
        return width, 0.0
    error = math.hypot(x["width"] * x["width_error"], y["width"] * y["width_error"]) / (2 * width)
    return width, error


def rows(result: dict[str, Any], dataset: str) -> list[tuple[str, ...]]:
    """The table's cells as text: method, then the columns."""
    found = []
    for method, row in result["summary"][dataset].items():
        found.append((method, *(_text(value(row)) for _, value in COLUMNS)))
    return found


def summary_tables(result: dict[str, Any]) -> list[Table]:
    """A rich table for each dataset, of the columns that fit into a terminal."""
    tables = []
    for dataset in result["summary"]:
        events = result["record"].get(dataset, {}).get("events", 0)
        table = Table(title=f"{dataset}: {events} events (GeV)")
        table.add_column("method", overflow="fold")
        for heading in SHORT:
            table.add_column(heading, justify="right", no_wrap=True)
        for row in rows(result, dataset):
            table.add_row(*row[: len(SHORT) + 1])
        tables.append(table)
    return tables


def evaluation_tables(results: dict[str, Any], reference: str) -> list[Table]:
    """A rich table for each dataset of an evaluation."""
    tables = []
    for dataset, methods in results.items():
        events = next(iter(methods.values()))["events"]
        # No vertical lines: most names of models fit into 80 columns; longer ones are folded, numbers never.
        table = Table(
            title=f"{dataset}: {events} events (GeV)", box=SIMPLE_HEAD, collapse_padding=True,
            caption=f"ratio: of the pTmiss width to that of {reference}",
        )  # fmt: skip
        table.add_column("method", overflow="fold")
        for heading in ("pTmiss width", "ratio", "response", "U_perp", "AUC"):
            table.add_column(heading, justify="right", no_wrap=True)
        for name, row in methods.items():
            ratio = row["met_xy_ratio"]
            area = row["neutral_auc"]
            table.add_row(
                name,
                _text((row["met_xy"]["value"], row["met_xy"]["error"])),
                f"{ratio['value']:.3f} ± {ratio['error']:.3f}",
                f"{row['response']:.2f}",
                _text((row["u_perp"]["value"], row["u_perp"]["error"])),
                "-" if area is None else f"{area:.3f}",
            )
        tables.append(table)
    return tables


def write_evaluation(results: dict[str, Any], methods: list[str], command: str, path: Path) -> None:
    """All figures as JSON; for one model among the methods, its card's metrics too."""
    from puma_coffea.evaluate import card_metrics
    from puma_coffea.outputs import jsonable

    content: dict[str, Any] = {"command": command, "results": results}
    models = [name for name in methods if name.split(":")[0] == "puma"]
    if len(models) == 1:
        content["metrics"] = card_metrics(results, models[0], command)
    path.write_text(json.dumps(jsonable(content), indent=1) + "\n", encoding="utf-8")


def _both(row: dict[str, Any], name: str) -> float:
    return math.sqrt((row["met_x"][name] ** 2 + row["met_y"][name] ** 2) / 2)


def _pair(entry: dict[str, Any], name: str) -> tuple[float, float]:
    return entry[name], entry[f"{name}_error"]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    number, error = value
    if number is None or not math.isfinite(number):
        return "-"
    digits = 1 if abs(number) >= 10 else 2
    text = f"{number:.{digits}f}"
    return text if error is None or not math.isfinite(error) else f"{text} ± {error:.{digits}f}"


#: Heading, and the number with its error, of each column after the method's name.
COLUMNS = (
    ("pTmiss width (GeV)", component_width),
    ("half of 68 % (GeV)", lambda row: (_both(row, "half_68"), None)),
    ("bias x, y (GeV)", lambda row: f"{row['met_x']['mean']:+.1f}, {row['met_y']['mean']:+.1f}"),
    ("response", lambda row: (row["recoil"]["response"], None)),
    ("corrected U_perp (GeV)", lambda row: _pair(row["recoil"], "resolution")),
    ("dijet mass width (GeV)", lambda row: _pair(row["dijet_mass"], "width")),
    # Beside the width: a few events in which another pair of jets leads decide that one.
    ("dijet mass half of 68 % (GeV)", lambda row: (row["dijet_mass"]["half_68"], None)),
    ("jet response width", lambda row: _pair(row["jet_response"], "width")),
    ("pile-up jets", lambda row: (row["pileup_jets"]["mean"], row["pileup_jets"]["mean_error"])),
)

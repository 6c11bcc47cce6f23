"""The one table that ``puma-coffea bench`` prints."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table


def bench_table(found: dict[str, Any]) -> Table:
    """All rows, subject by subject, with the machine above and the versions below."""
    about = found["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    table = Table(
        title=f"{about['cpu']}, {about['cores']} cores, one thread; times per event",
        caption=versions,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("")
    table.add_column("measured", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("to")
    for subject in found["subjects"]:
        table.add_section()
        table.add_row(f"[bold]{subject['title']}[/]")
        for row in subject["rows"]:
            if row["missing"]:
                table.add_row(row["name"], "", "", f"[yellow]{escape(row['missing'])}[/]")
            else:
                value = "" if row["value"] is None else f"{_short(row['value'])} {row['unit']}"
                ratio = "" if row["ratio"] is None else _short(row["ratio"])
                table.add_row(row["name"], value.strip(), ratio, row["against"])
    return table


def _short(number: float) -> str:
    """Three digits.

    >>> [_short(n) for n in (0.01234, 1.2345, 12.345, 1234.5)]
    ['0.0123', '1.23', '12.3', '1234']
    """
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.3g}"

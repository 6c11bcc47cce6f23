"""The subjects in the order of the table, and one of them measured."""

from __future__ import annotations

from importlib import import_module
from typing import Any

SUBJECTS = (
    "network", "clustering", "models", "classical", "stages", "scaling", "workers", "starting",
)  # fmt: skip


def measured(subject: str, quick: bool) -> dict[str, Any]:
    """Title and rows of a subject, measured in this process."""
    module = import_module(f"puma_coffea.benchmarks.{subject}")
    rows = [row.as_dict() for row in module.measure(quick)]
    return {"subject": subject, "title": module.TITLE, "rows": rows}

"""A measured figure: one row of the table, one entry of the JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """A figure with its unit, its ratio to another row, or the reason why there is none."""

    name: str
    value: float | None = None
    unit: str = ""
    ratio: float | None = None
    against: str = ""
    """What the ratio is taken to, or its meaning."""
    missing: str = ""
    """Why it was not measured, and what to install."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def milliseconds(name: str, seconds: float, ratio: float | None = None, against: str = "") -> Row:
    """A time per event, in milliseconds."""
    return Row(name, 1e3 * seconds, "ms", ratio, against)

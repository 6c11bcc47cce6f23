"""PUMA as a method: ``"puma"`` is the shipped model, ``"puma:NAME"`` another model or a folder."""

from __future__ import annotations

from typing import Any

from puma_coffea.exceptions import MissingExtra


def preset(name: str | None) -> Any:
    """The model of that name or folder; ``None`` is the default one."""
    try:
        from puma_coffea.puma.model import Puma
    except ImportError as error:
        msg = f"PUMA needs the package {error.name}: pip install 'puma-coffea[puma]'."
        raise MissingExtra(msg) from None
    return Puma.load(name)

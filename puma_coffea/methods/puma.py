"""PUMA as a method: ``"puma"`` is the shipped model, ``"puma:NAME"`` another model or a folder."""

from __future__ import annotations

from puma_coffea.puma.model import Puma


def preset(name: str | None) -> Puma:
    """The model of that name or folder; ``None`` is the default one."""
    return Puma.load(name)

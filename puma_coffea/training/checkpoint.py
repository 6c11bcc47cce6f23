"""The checkpoint of a training: written whole or not at all; one that cannot be read is named."""

from __future__ import annotations

import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from pydantic import ValidationError

from puma_coffea.exceptions import BadConfig
from puma_coffea.training.config import Config, first_mistake

CHECKPOINT = "checkpoint.pt"


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Save a state; the one before stays until the new one is complete."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    torch.save(state, scratch)
    scratch.replace(path)


def read_checkpoint(path: Path, device: torch.device) -> dict[str, Any]:
    """The state of a training."""
    try:
        state: Any = torch.load(path, weights_only=True, map_location=device)
        if not isinstance(state, dict) or not {"config", "step", "average"} <= state.keys():
            raise ValueError
    except (OSError, EOFError, RuntimeError, ValueError, UnpicklingError) as error:
        msg = f"{path} is no checkpoint of a training, or damaged; without it the training begins anew."
        raise BadConfig(msg) from error
    return dict(state)


def config_of(state: dict[str, Any], path: Path) -> Config:
    """The configuration that a training was begun with."""
    try:
        return Config.model_validate(state["config"])
    except ValidationError as error:
        msg = f"{path} was made by another version of puma-coffea: {first_mistake(error)}"
        raise BadConfig(msg) from error

"""Forms of a model for others: safetensors, TorchScript with the card inside, torch.export."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from puma_coffea.exceptions import BadModelCard
from puma_coffea.opening import first_line
from puma_coffea.puma.card import CARD, WEIGHTS, Card
from puma_coffea.puma.network import PumaNetwork


def weights_bytes(network: torch.nn.Module) -> bytes:
    """The network's numbers as safetensors, one order for one state."""
    state = {name: tensor.contiguous().cpu() for name, tensor in network.state_dict().items()}
    return save(dict(sorted(state.items())))


def script_bytes(network: PumaNetwork, card: Card) -> bytes:
    """The network as TorchScript, with the card as an extra file, sealed for its numbers."""
    inside = card.sealed({WEIGHTS: weights_bytes(network)})
    with warnings.catch_warnings():
        # Deprecated by torch; coffea's torch_wrapper and CMSSW read nothing else.
        warnings.filterwarnings("ignore", message=r".*torch\.jit.*", category=DeprecationWarning)
        scripted = torch.jit.script(network.eval())
        buffer = io.BytesIO()
        torch.jit.save(scripted, buffer, _extra_files={CARD: inside.to_json()})
    return buffer.getvalue()


def read_script(path: Path) -> tuple[bytes, bytes]:
    """Card and numbers of a TorchScript file made by :func:`script_bytes`."""
    extra = {CARD: ""}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message=r".*torch\.jit.*", category=DeprecationWarning
            )
            module = torch.jit.load(str(path), map_location="cpu", _extra_files=extra)
    except (RuntimeError, OSError, ValueError, zipfile.BadZipFile) as error:
        msg = f"{path} cannot be read as TorchScript ({first_line(error)})."
        raise BadModelCard(msg) from error
    card: Any = extra[CARD]
    if not card:
        msg = f"{path} carries no {CARD}; load the model's folder instead."
        raise BadModelCard(msg)
    text = card if isinstance(card, bytes) else card.encode()
    return text, weights_bytes(module)


def export_program(network: PumaNetwork) -> Any:
    """The network as ``torch.export.ExportedProgram`` for one event of any length.

    Call it with features of shape (1, tokens, inputs).
    """
    example = (torch.zeros(1, 100, network.config.inputs),)
    any_length = {1: torch.export.Dim.DYNAMIC}
    return torch.export.export(network.eval(), example, dynamic_shapes=(any_length,))

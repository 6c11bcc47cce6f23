"""The network as it is trained on a CPU: the same parameters and numbers, with faster parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from puma_coffea.puma.network import PumaNetwork
from puma_coffea.training.alone import alone_logits
from puma_coffea.training.attention import banded_attention
from puma_coffea.training.batches import Batch
from puma_coffea.training.pointwise import add_norm, gelu


def logits(network: PumaNetwork, batch: Batch, alone: bool = False) -> Tensor:
    """Logits of a batch.

    Equal to rounding to :meth:`PumaNetwork.logits` or :func:`alone_logits`, which are called on
    other devices. In training mode dropout applies.

    Parameters
    ----------
    network, batch
        Both on the same device.
    alone
        Without attention, for a batch of single candidates.

    Returns
    -------
    torch.Tensor
        (B, N); logits of padding mean nothing.
    """
    x, mask = batch.x, batch.mask
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return alone_logits(network, batch) if alone else network.logits(x, mask)
    x = x.masked_fill(~mask.unsqueeze(-1), 0.0)  # padding may hold anything, even NaN
    h = network.embed_norm(torch.relu(network.embed(network.input_norm(x, mask))), mask)
    drop = network.config.dropout if network.training else 0.0
    parts = _parts(network, mask, alone)
    if network.config.norm == "pre":
        # A sum is normalised for the part that comes next, while it is at hand.
        norms: list[Any] = [*(norm for norm, _ in parts), network.final_norm]
        normal = norms[0](h)
        for (_, part), norm in zip(parts, norms[1:], strict=True):
            h, normal = add_norm(h, part(normal), norm, drop)
        h = normal
    else:
        for norm, part in parts:
            _, h = add_norm(h, part(h), norm, drop)
    out: Tensor = network.decode(h).squeeze(-1)
    return out


def _parts(
    network: PumaNetwork, mask: Tensor, alone: bool
) -> list[tuple[Any, Callable[[Tensor], Tensor]]]:
    """What is added to the sequence, one after the other, with the LayerNorm of each."""
    parts: list[tuple[Any, Callable[[Tensor], Tensor]]] = []
    layers: list[Any] = list(network.layers)
    for layer in layers:
        attend = torch.zeros_like if alone else partial(_attend, layer, mask)
        both = [(layer.attention_norm, attend), (layer.feed_norm, partial(_feed, layer))]
        parts += both[alone and layer.pre :] * layer.repeats
    return parts


def _attend(layer: Any, mask: Tensor, h: Tensor) -> Any:
    mixed = banded_attention(layer.query_key_value(h), mask, layer.heads, layer.band)
    return layer.attention_out(mixed)


def _feed(layer: Any, h: Tensor) -> Any:
    return layer.feed_out(gelu(layer.feed(h)))

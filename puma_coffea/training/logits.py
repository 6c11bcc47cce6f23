"""The network as it is trained on a CPU: the same parameters and numbers, with faster parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from puma_coffea.puma.network import PumaNetwork
from puma_coffea.training.alone import alone_logits
from puma_coffea.training.attention import banded_attention
from puma_coffea.training.batches import Batch
from puma_coffea.training.half import half_linear
from puma_coffea.training.pointwise import add_norm, gelu

Linear = Callable[[Any, Tensor], Tensor]


def logits(network: PumaNetwork, batch: Batch, alone: bool = False, half: bool = False) -> Tensor:
    """Logits of a batch.

    Equal to rounding to :meth:`PumaNetwork.logits` or :func:`alone_logits`, which are called on
    other devices. In training mode dropout applies.

    Parameters
    ----------
    network, batch
        Both on the same device.
    alone
        Without attention, for a batch of single candidates.
    half
        The layers' matrix products in bfloat16 (see :func:`half_is_fast`); on a CPU only.

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
    parts = _parts(network, mask, alone, half_linear if half else nn.Module.__call__)
    if network.config.norm == "pre":
        # A sum is normalised for the part that comes next, while it is at hand.
        norms: list[Any] = [*(norm for norm, _ in parts), network.final_norm]
        normal = norms[0](h)
        kinds = [torch.bfloat16 if half else torch.float32] * (len(parts) - 1) + [torch.float32]
        for (_, part), norm, kind in zip(parts, norms[1:], kinds, strict=True):
            h, normal = add_norm(h, part(normal), norm, drop, kind)
        h = normal
    else:
        for norm, part in parts:
            _, h = add_norm(h, part(h), norm, drop)
    out: Tensor = network.decode(h).squeeze(-1)
    return out


def _parts(
    network: PumaNetwork, mask: Tensor, alone: bool, linear: Linear
) -> list[tuple[Any, Callable[[Tensor], Tensor]]]:
    """What is added to the sequence, one after the other, with the LayerNorm of each."""
    parts: list[tuple[Any, Callable[[Tensor], Tensor]]] = []
    layers: list[Any] = list(network.layers)
    for layer in layers:
        attend = torch.zeros_like if alone else partial(_attend, layer, linear, mask)
        both = [(layer.attention_norm, attend), (layer.feed_norm, partial(_feed, layer, linear))]
        parts += both[alone and layer.pre :] * layer.repeats
    return parts


def _attend(layer: Any, linear: Linear, mask: Tensor, h: Tensor) -> Tensor:
    qkv = linear(layer.query_key_value, h)
    return linear(layer.attention_out, banded_attention(qkv, mask, layer.heads, layer.band))


def _feed(layer: Any, linear: Linear, h: Tensor) -> Tensor:
    return linear(layer.feed_out, gelu(linear(layer.feed, h)))

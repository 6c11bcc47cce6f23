"""The network as it is trained on a CPU: the same parameters and numbers, with faster parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from puma_coffea.puma.network import PumaNetwork
from puma_coffea.training.attention import banded_attention
from puma_coffea.training.pointwise import add_norm, gelu


def logits(network: PumaNetwork, x: Tensor, mask: Tensor) -> Tensor:
    """What :meth:`PumaNetwork.logits` gives, to rounding; on other devices it is called.

    Parameters
    ----------
    network
        In training mode dropout applies.
    x
        Features, float32 (B, N, F).
    mask
        bool (B, N), False for padding.

    Returns
    -------
    torch.Tensor
        (B, N); logits of padding mean nothing.
    """
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return network.logits(x, mask)
    x = x.masked_fill(~mask.unsqueeze(-1), 0.0)  # padding may hold anything, even NaN
    h: Any = network.embed_norm(torch.relu(network.embed(network.input_norm(x, mask))), mask)
    uses = [layer for layer in network.layers for _ in range(layer.repeats)]  # type: ignore[arg-type]
    if network.config.norm == "pre":
        # Each sum is normalised for the part that comes next.
        following = [*(layer.attention_norm for layer in uses[1:]), network.final_norm]
        normal = uses[0].attention_norm(h)  # type: ignore[operator]
        for layer, norm in zip(uses, following, strict=True):
            h, normal = _add(layer, h, _attend(layer, normal, mask), layer.feed_norm)
            h, normal = _add(layer, h, _feed(layer, normal), norm)
        h = normal
    else:
        for layer in uses:
            _, h = _add(layer, h, _attend(layer, h, mask), layer.attention_norm)
            _, h = _add(layer, h, _feed(layer, h), layer.feed_norm)
    out: Tensor = network.decode(h).squeeze(-1)
    return out


def _attend(layer: Any, h: Tensor, mask: Tensor) -> Any:
    mixed = banded_attention(layer.query_key_value(h), mask, layer.heads, layer.band)
    return layer.attention_out(mixed)


def _feed(layer: Any, h: Tensor) -> Any:
    return layer.feed_out(gelu(layer.feed(h)))


def _add(layer: Any, h: Tensor, x: Tensor, norm: Any) -> tuple[Tensor, Tensor]:
    return add_norm(h, x, norm, layer.dropout.p if layer.training else 0.0)

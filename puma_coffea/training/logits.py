"""The network as it is trained on a CPU: the same parameters and numbers, with faster parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from puma_coffea.puma.network import PumaNetwork
from puma_coffea.training.attention import banded_attention


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
    h = network.embed_norm(torch.relu(network.embed(network.input_norm(x, mask))), mask)
    for layer in network.layers:
        for _ in range(layer.repeats):  # type: ignore[arg-type]
            h = _layer(layer, h, mask)
    out: Tensor = network.decode(network.final_norm(h)).squeeze(-1)
    return out


def _layer(layer: Any, h: Tensor, mask: Tensor) -> Tensor:
    def attend(h: Tensor) -> Any:
        mixed = banded_attention(layer.query_key_value(h), mask, layer.heads, layer.band)
        return layer.dropout(layer.attention_out(mixed))

    def feed(h: Tensor) -> Any:
        return layer.dropout(layer.feed_through(h))

    if layer.pre:
        h = h + attend(layer.attention_norm(h))
        h = h + feed(layer.feed_norm(h))
    else:
        h = layer.attention_norm(h + attend(h))
        h = layer.feed_norm(h + feed(h))
    return h

"""The figure of merit of a training: width of the pTmiss residual over that of tuned PUPPI."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from puma_coffea.training.data import NEUTRAL, TokenStore


class Figure(NamedTuple):
    """Widths per component (GeV) and their ratio."""

    ratio: float
    width: float
    puppi: float


@torch.inference_mode()
def missing_momentum(network: nn.Module, store: TokenStore, limit: int) -> Figure:
    """Width of the network's pTmiss residual on whole events, and its ratio to PUPPI's.

    At most ``limit`` events are judged, spread over the store.
    """
    network.eval()
    chosen = np.unique(np.linspace(0, len(store) - 1, min(limit, len(store))).astype(np.int64))
    residual = np.array(store.base)
    for event in chosen:
        here = slice(store.offsets[event], store.offsets[event + 1])
        x = torch.from_numpy(np.asarray(store.x[here], np.float32))[None]
        weights = network(x)[0].numpy() if x.shape[1] else np.zeros(0)
        pt = (
            np.where(store.columns["kind"][here] == NEUTRAL, store.columns["pt"][here], 0) * weights
        )
        phi = store.columns["phi"][here]
        residual[event] -= [np.sum(pt * np.cos(phi)), np.sum(pt * np.sin(phi))]
    width, puppi = component_width(residual[chosen]), component_width(store.puppi[chosen])
    return Figure(width / puppi, width, puppi)


def component_width(residual: Any) -> float:
    """Standard deviation per component of residuals of shape (events, 2)."""
    return float(np.sqrt(residual.var(axis=0).mean()))

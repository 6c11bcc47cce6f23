"""The figure of merit of a training: width of the pTmiss residual over that of tuned PUPPI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from puma_coffea.puma.fast import NumbaEngine
from puma_coffea.puma.network import PumaNetwork
from puma_coffea.training.processes import ALONE, Processes
from puma_coffea.training.store import TokenStore

Weigh = Callable[[NDArray[np.float32]], NDArray[Any]]
"""Weights of one event's tokens from their features, (tokens, inputs)."""
Raise = Callable[[Any, Any], Any]
"""Weights as they are used from the network's weights and pT, as ``Config.raised``."""


class Figure(NamedTuple):
    """Widths per component (GeV) and their ratio."""

    ratio: float
    width: float
    puppi: float


def weigher(network: PumaNetwork) -> Weigh:
    """The network as it will run in an analysis: the CPU's engine, several times as fast as torch."""
    tensors = {name: value.numpy(force=True) for name, value in network.state_dict().items()}
    engine = NumbaEngine(network.config, tensors)
    return lambda x: engine([x])[0]


def unchanged(weights: Any, pt: Any) -> Any:  # noqa: ARG001
    """Weights that are used as the network gives them."""
    return weights


def missing_momentum(
    weigh: Weigh,
    store: TokenStore,
    limit: int,
    raised: Raise = unchanged,
    processes: Processes = ALONE,
) -> Figure:
    """Width of the pTmiss residual on whole events, and its ratio to PUPPI's.

    At most ``limit`` events are judged, spread over the store; several processes share them, and
    all get the same figure.
    """
    chosen = np.unique(np.linspace(0, len(store) - 1, min(limit, len(store))).astype(np.int64))
    found = np.zeros((len(chosen), 2))
    for place in range(processes.rank, len(chosen), processes.world):
        weights, momenta = used_weights(weigh, store, chosen[place], raised)
        found[place] = store.base[chosen[place]] - momenta @ weights
    found = processes.add_up(torch.from_numpy(found)).numpy(force=True)
    width, puppi = component_width(found), component_width(store.puppi[chosen])
    return Figure(width / puppi, width, puppi)


def used_weights(weigh: Weigh, store: TokenStore, event: int, raised: Raise) -> tuple[Any, Any]:
    """Weights of an event's tokens as they are used, and the tokens' momenta."""
    momenta = store.momenta(event)
    return raised(weigh(store.features(event)), np.hypot(*momenta)), momenta


def component_width(residual: Any) -> float:
    """Standard deviation per component of residuals of shape (events, 2)."""
    return float(np.sqrt(residual.var(axis=0).mean()))

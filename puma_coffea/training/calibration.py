"""Fitting the card's calibration: least squares on the vector sums of held-out events."""

from __future__ import annotations

from typing import Any

import numpy as np

from puma_coffea.puma.card import Calibration
from puma_coffea.training.physics import Raise, Weigh, component_width, unchanged
from puma_coffea.training.store import TokenStore

RIDGE = 0.02  # pull of each parameter towards 0, in units of the number of events


def fit_calibration(
    weigh: Weigh, store: TokenStore, inputs: tuple[str, ...], raised: Raise = unchanged
) -> tuple[Calibration, float, float]:
    """The calibration, and the width of the pTmiss residual (GeV) before and after it.

    Each event's residual is linear in the parameters; those that minimise the sum of its squares
    over the store are taken. ``raised`` acts after the calibration.
    """
    edges = Calibration().edges
    eta = inputs.index("abs_eta") if "abs_eta" in inputs else inputs.index("eta")
    terms = np.zeros((len(store), 2, len(edges) + 3))
    residual = np.array(store.base)
    for event in range(len(store)):
        x, momenta = store.features(event), store.momenta(event)
        w = weigh(x).astype(np.float64)
        region = np.searchsorted(edges, np.abs(x[:, eta]), side="right")
        spread = w * (1 - w)
        basis = [w * (region == r) for r in range(len(edges) + 1)]
        basis += [spread, spread * (1 - 2 * w)]
        pt = np.hypot(*momenta)
        free = 1 - raised(np.zeros_like(w), pt)  # what raising leaves to the network
        residual[event] -= momenta @ raised(w, pt)
        terms[event] = (momenta * free) @ np.stack(basis, axis=1)
    return _solve(residual, terms, edges)


def _solve(residual: Any, terms: Any, edges: Any) -> tuple[Calibration, float, float]:
    design, target = terms.reshape(-1, terms.shape[2]), residual.reshape(-1)
    scale = np.sqrt((design**2).mean(axis=0)) + 1e-12
    scaled = design / scale
    normal = scaled.T @ scaled + RIDGE * len(residual) * np.eye(scaled.shape[1])
    theta = np.linalg.solve(normal, scaled.T @ target) / scale
    after = residual - (terms @ theta)
    *c, a, b = (float(round(value, 5)) for value in theta)
    return (
        Calibration(edges=edges, c=tuple(c), a=a, b=b),
        component_width(residual),
        component_width(after),
    )

"""``hist`` objects from the exact sums: a method axis, a dataset axis, and the quantity's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from puma_coffea.accumulation import ALL
from puma_coffea.exact import ExactSums
from puma_coffea.quantities import BOSON_PT_EDGES, QUANTITIES, Quantity


def histograms(sums: Mapping[str, ExactSums], methods: Sequence[str]) -> dict[str, Any]:
    """A ``hist.Hist`` with weighted storage for each quantity.

    Parameters
    ----------
    sums
        Exact sums by dataset.
    methods
        The names on the method axis, in this order.
    """
    return {quantity.name: _build(quantity, sums, methods) for quantity in QUANTITIES}


def _build(quantity: Quantity, sums: Mapping[str, ExactSums], methods: Sequence[str]) -> Any:
    import hist

    axes: list[Any] = [
        hist.axis.StrCategory(sorted(sums), name="dataset", growth=True),
        hist.axis.StrCategory(list(methods), name="method"),
    ]
    if quantity.against_boson:
        # The open last bin is the axis's overflow.
        axes.append(
            hist.axis.Variable(BOSON_PT_EDGES, name="boson_pt", label="true boson pT (GeV)")
        )
    label = f"{quantity.label} ({quantity.unit})" if quantity.unit else quantity.label
    axes.append(
        hist.axis.Regular(
            quantity.bins, quantity.low, quantity.high, name=quantity.name, label=label
        )
    )
    histogram = hist.Hist(*axes, storage=hist.storage.Weight())
    view = histogram.view(flow=True)
    places = {name: i for i, name in enumerate(methods)}
    for d, dataset in enumerate(sorted(sums)):
        for key in sums[dataset]:
            kind, method, *rest = key
            if kind not in ("count", "variance") or rest[0] != quantity.name:
                continue
            _, b, c = rest
            inner = (b + 1, c + 1) if quantity.against_boson else (c + 1,)
            field = "value" if kind == "count" else "variance"
            view[field][(d, places[method], *inner)] = sums[dataset].value(key)
    return histogram


def central_half_width(sums: ExactSums, method: str, quantity: Quantity) -> float:
    """Half of the interval between the 16 % and 84 % quantiles; NaN without events.

    Read off the fine histogram, linear inside a cell; a quantile beyond the axis is its edge.
    """
    bins = range(len(BOSON_PT_EDGES)) if quantity.against_boson else (ALL,)
    counts = np.array(
        [
            sum(sums.value(("count", method, quantity.name, b, c)) for b in bins)
            for c in range(-1, quantity.bins + 1)
        ]
    )
    total = counts.sum()
    if total <= 0:
        return float("nan")
    # Cells at the ends have no width: what lies outside counts as the edge itself.
    edges = np.linspace(quantity.low, quantity.high, quantity.bins + 1)
    edges = np.concatenate(([quantity.low], edges, [quantity.high]))
    cumulative = np.concatenate(([0.0], np.cumsum(counts)))
    low, high = (_quantile(cumulative, edges, q * total) for q in (0.16, 0.84))
    return (high - low) / 2


def _quantile(cumulative: Any, edges: Any, target: float) -> float:
    i = int(np.searchsorted(cumulative, target, side="left"))
    i = min(max(i, 1), len(cumulative) - 1)
    below, above = cumulative[i - 1], cumulative[i]
    share = (target - below) / (above - below) if above > below else 0.0
    return float(edges[i - 1] + share * (edges[i] - edges[i - 1]))

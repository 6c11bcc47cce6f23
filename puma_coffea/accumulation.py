"""Numbers of a chunk added up: exact moments and histogram counts, whose merge is associative.

The sums of a dataset are one :class:`puma_coffea.exact.ExactSums` with the keys

* ``("moment", method, quantity, bin, k)``: sum of w x^k, k = 0..4, and k = "w2": sum of w^2;
* ``("cross", method, bin)``: sum of w x boson pT, beside the recoil's moments;
* ``("count", method, quantity, bin, i)`` and ``("variance", ...)``: sums of w and w^2 in cell i of
  the quantity's axis (-1 below, n above).

``bin`` counts the boson's pT bins for the quantities measured against it; ALL is the whole
sample. w is the event weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puma_coffea.exact import ExactSums
from puma_coffea.quantities import QUANTITIES, Quantity, boson_bin

ALL = -1
POWERS = (0, 1, 2, 3, 4)


def add_numbers(sums: ExactSums, method: str, numbers: dict[str, Any], event_weights: Any) -> None:
    """Add a chunk's numbers (from :func:`puma_coffea.quantities.measure`) to the sums.

    Event weights are in any unit; numbers that are NaN do not count.
    """
    bins = boson_bin(numbers["boson_pt"])
    for quantity in QUANTITIES:
        if quantity.name in numbers:
            values = numbers[quantity.name]
            usable = np.isfinite(values)
            _add(sums, method, quantity, values[usable], event_weights[usable], bins[usable])
    cross = (event_weights * numbers["boson_pt"]).tolist()
    sums.add((("cross", method, b) for b in bins.tolist()), cross)
    sums.add((("cross", method, ALL) for _ in cross), cross)


def cell(quantity: Quantity, values: Any) -> Any:
    """Index of the cell of the quantity's axis: -1 below, ``quantity.bins`` above."""
    scaled = (values - quantity.low) / (quantity.high - quantity.low) * quantity.bins
    return np.clip(np.floor(scaled), -1, quantity.bins).astype(np.int64)


def _add(
    sums: ExactSums, method: str, quantity: Quantity, values: Any, weights: Any, bins: Any
) -> None:
    name, cells = quantity.name, cell(quantity, values).tolist()
    where = bins.tolist() if quantity.against_boson else [ALL] * len(cells)
    for kind, terms in (("count", weights), ("variance", weights**2)):
        sums.add(((kind, method, name, b, c) for b, c in zip(where, cells, strict=True)), terms)
    moments: dict[Any, Any] = {k: weights * values**k for k in POWERS}
    moments["w2"] = weights**2
    for k, terms in moments.items():
        listed = terms.tolist()
        sums.add((("moment", method, name, ALL, k) for _ in listed), listed)
        if quantity.against_boson:
            sums.add((("moment", method, name, b, k) for b in where), listed)

"""No mitigation: every candidate counts."""

from __future__ import annotations

import awkward as ak
import numpy as np

from puma_coffea.flat import weigh


def none(candidates: ak.Array) -> ak.Array:
    """Weight 1 for every physical candidate, charged pile-up included."""
    return weigh(candidates, lambda flat: np.ones(len(flat.pt), dtype=np.float32))

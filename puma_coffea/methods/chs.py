"""Charged-hadron subtraction: tracks of pile-up vertices are dropped, neutrals stay."""

from __future__ import annotations

import awkward as ak

from puma_coffea.flat import weigh


def chs(candidates: ak.Array) -> ak.Array:
    """Weight 1 for neutrals and for tracks of the hard vertex, 0 for other tracks."""
    return weigh(candidates, lambda flat: flat.by_vertex(1.0))

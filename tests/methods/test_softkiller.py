"""SoftKiller is the median cut of its definition."""

from __future__ import annotations

import awkward as ak
import literal

from puma_coffea.methods.softkiller import softkiller


def test_weights_equal_the_literal_version_on_real_events(ttbar):
    weights = softkiller(ttbar)
    for event in range(2):
        expected = literal.softkiller(literal.column_dict(ttbar[event]))
        assert weights[event].to_list() == expected.tolist()


def test_half_of_the_cells_are_emptied_of_neutrals(ttbar):
    kept = ttbar[(softkiller(ttbar) == 1) & (ttbar.vertex < 0)]
    dropped = ttbar[(softkiller(ttbar) == 0) & (ttbar.vertex < 0)]
    assert ak.all(ak.min(kept.pt, axis=1) > ak.max(dropped.pt, axis=1))


def test_an_almost_empty_event_keeps_everything(ttbar_pu0):
    assert ak.all(softkiller(ttbar_pu0)[ttbar_pu0.vertex <= 0] == 1)

"""The processor does nothing twice: columns are read once, jets clustered once per method."""

from __future__ import annotations

import awkward as ak
import fastjet
import pytest
from coffea.nanoevents import NanoEventsFactory

from puma_coffea import DelphesSchema, sample_path
from puma_coffea.methods import method
from puma_coffea.processors import PileupProcessor

METHODS = ("none", "chs", "puppi", "truth")


@pytest.fixture
def opened():
    """Two events as coffea's runner hands them out, and the log of what was read of them."""
    log = []
    events = NanoEventsFactory.from_root(
        {sample_path("ttbar_pu140"): "Delphes"},
        schemaclass=DelphesSchema,
        metadata={"dataset": "ttbar", "filename": "ttbar.root"},
        mode="virtual",
        entry_stop=2,
        access_log=log,
    ).events()
    return events, log


def test_each_column_is_read_once(opened):
    events, log = opened
    PileupProcessor(METHODS).process(events)
    read = [entry.branch for entry in log]
    assert len(read) > 20
    assert len(read) == len(set(read))


def test_jets_are_clustered_once_per_method_from_particles_with_weight(opened, monkeypatch):
    events, _ = opened
    counts = []
    original = fastjet.ClusterSequence

    def counted(momenta, definition):
        counts.append(int(ak.count(momenta["px"])))
        return original(momenta, definition)

    monkeypatch.setattr(fastjet, "ClusterSequence", counted)
    weighed = {}

    def kept(name):
        def weigh(pf):
            weights = method(name)(pf)
            weighed[name] = int(ak.sum(weights > 0))
            return weights

        return weigh

    processor = PileupProcessor(METHODS)
    processor.weighers = {name: kept(name) for name in METHODS}
    processor.process(events)
    assert counts == [weighed[name] for name in METHODS]

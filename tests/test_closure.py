"""Nothing is lost between the file and the observables: Delphes's own sums come out again."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest

from puma_coffea import candidates, jets, met, method, open_events, sample_path

SHARED_FILES = [
    f"delphes_{name}.root"
    for name in (
        "dijet_pu140",
        "ttbar_pu0",
        "ttbar_pu140",
        "ttbar_pu140_genpu",
        "ttbar_pu140_pfc",
        "vbfhinv_pu0",
        "vbfhinv_pu140",
        "zvv_pu0",
        "zvv_pu140",
    )
]
EMBEDDED = ["ttbar_pu0", "ttbar_pu140", "vbfhinv_pu0", "vbfhinv_pu140", "zvv_pu0", "zvv_pu140"]


def assert_same_met(events):
    pf = candidates(events)
    ours = met(pf, method("none")(pf))
    theirs = events.MissingET
    dx = ours.px - theirs.MET * np.cos(theirs.Phi)
    dy = ours.py - theirs.MET * np.sin(theirs.Phi)
    assert ak.max(np.hypot(dx, dy) / theirs.MET) < 1e-4


def assert_same_jets(events):
    pf = candidates(events)
    ours = jets(pf, method("none")(pf))
    ours, theirs = ours[ours.pt > 30], events.Jet[events.Jet.PT > 30]
    assert ak.num(ours).to_list() == ak.num(theirs.PT).to_list()
    assert ak.sum(ak.num(ours)) > 0
    assert ak.max(abs(ours.pt / theirs.PT - 1)) < 1e-5
    assert ak.max(abs(ours.eta - theirs.Eta)) < 1e-4


@pytest.mark.parametrize("name", EMBEDDED)
def test_unit_weights_give_delphes_missing_et_and_jets_on_embedded_files(name):
    events = open_events(sample_path(name))
    assert_same_met(events)
    assert_same_jets(events)


@pytest.mark.shared
@pytest.mark.parametrize("name", SHARED_FILES)
def test_unit_weights_give_delphes_missing_et(shared, name):
    assert_same_met(open_events(shared / "root" / name))


@pytest.mark.shared
@pytest.mark.parametrize("name", [name for name in SHARED_FILES if "pu0" in name])
def test_unit_weights_give_delphes_jets_without_pileup(shared, name):
    assert_same_jets(open_events(shared / "root" / name))


@pytest.mark.parametrize("name", ["ttbar_pu0", "vbfhinv_pu0", "zvv_pu0"])
def test_true_fractions_are_one_without_pileup(name):
    pf = candidates(open_events(sample_path(name)))
    assert ak.all(method("truth")(pf) == 1)

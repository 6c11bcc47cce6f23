"""True pTmiss, boson and fractions, from files with all, few or no generated particles."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest

from puma_coffea import candidates, open_events, sample_path, truth
from puma_coffea.exceptions import MissingCollection


def test_invisible_higgs_is_the_boson_not_the_z_it_decays_to():
    true = truth(open_events(sample_path("vbfhinv_pu140")))
    assert true.boson.pt[:2].to_list() == pytest.approx([35.843, 94.950], abs=1e-3)
    assert ak.all(ak.num(true.boson_products) == 0)


def test_z_and_true_missing_momentum_differ_by_heavy_flavour_neutrinos_only():
    true = truth(open_events(sample_path("zvv_pu140")))
    difference = np.hypot(true.boson.px - true.met.px, true.boson.py - true.met.py)
    assert ak.sum(difference < 0.01) >= 8
    assert ak.max(difference) < 20


def test_two_w_bosons_are_no_boson():
    true = truth(open_events(sample_path("ttbar_pu140")))
    assert ak.all(ak.is_none(true.boson.pt))
    assert ak.all(true.met.pt > 0)


def test_summed_neutrinos_equal_gen_missing_et():
    events = open_events(sample_path("ttbar_pu140"))
    stored, summed = truth(events).met, truth(events[["Particle", "GenJet"]]).met
    assert ak.max(np.hypot(stored.px - summed.px, stored.py - summed.py)) < 1e-3


def test_dark_matter_counts_as_invisible():
    particles = ak.zip(
        {"PID": [[1000022, 12]], "Status": [[1, 1]], "IsPU": [[0, 0]], "PT": [[30.0, 40.0]],
         "Phi": [[0.0, np.pi / 2]], "Eta": [[0.0, 0.0]], "Mass": [[100.0, 0.0]], "M1": [[-1, -1]],
         "Charge": [[0, 0]]}
    )  # fmt: skip
    neutrinos_only = ak.zip({"MET": [40.0], "Phi": [np.pi / 2]})
    events = ak.zip({"Particle": particles, "GenMissingET": neutrinos_only}, depth_limit=1)
    assert float(truth(events).met.pt[0]) == pytest.approx(50.0)


def test_leptons_and_their_radiation_are_products_of_the_boson():
    # 0: Z, 1: mu-, 2: photon radiated by it, 3: mu+, 4 and 5: photon and pion of the rest
    particles = ak.zip(
        {"PID": [[23, 13, 22, -13, 22, 211]], "Status": [[62, 1, 1, 1, 1, 1]], "IsPU": [[0] * 6],
         "PT": [[50.0, 30.0, 1.0, 25.0, 9.0, 2.0]], "Phi": [[0.0] * 6], "Eta": [[0.0] * 6],
         "Mass": [[91.0, 0.1, 0.0, 0.1, 0.0, 0.1]], "M1": [[-1, 0, 1, 0, 99, 99]], "Charge": [[0, -1, 0, 1, 0, 1]]}
    )  # fmt: skip
    true = truth(ak.zip({"Particle": particles}, depth_limit=1))
    assert true.boson_products.pt.to_list() == [[30.0, 1.0, 25.0]]
    assert true.boson.pt.to_list() == [50.0]


def test_fractions_stand_in_the_candidates_order():
    events = open_events(sample_path("zvv_pu140"))
    assert ak.all(truth(events).hard_fraction == candidates(events).hard_fraction)


def test_a_file_without_generator_information_is_refused_by_name():
    events = open_events(sample_path("zvv_pu140"))
    with pytest.raises(MissingCollection, match="neither 'GenMissingET' nor 'Particle'"):
        truth(events[["EFlowTrack", "MissingET"]])


def test_gen_missing_et_alone_is_enough():
    events = open_events(sample_path("zvv_pu140"))
    true = truth(events[["GenMissingET", "GenJet"]])
    assert ak.all(ak.is_none(true.boson.pt))
    assert ak.all(true.met.pt == ak.values_astype(events.GenMissingET.MET, np.float64))

"""Observables agree with hand-worked examples and never turn a zero weight into a NaN."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest

from puma_coffea import (
    dijet_mass,
    jets,
    leading_jet_response,
    met,
    method,
    open_events,
    pileup_jets,
    recoil,
    sample_path,
    truth,
)
from puma_coffea.exceptions import MissingCollection
from puma_coffea.truth import momentum2d, momentum4d


def particles(*rows, **more):
    keys = ("pt", "eta", "phi", "mass", "charge", "vertex")
    return ak.Array([[dict(zip(keys, row, strict=True)) | more for row in rows]])


def test_missing_momentum_ignores_unphysical_and_zero_weight_candidates():
    pf = particles(
        (5, 0, 0, 0, 0, -1), (np.nan, 0, 0, 0, 0, -1), (7, 999.9, 0, 0, 0, -1), (9, 0, 0, 0, 0, -1)
    )
    missing = met(pf, ak.Array([[1.0, 1.0, 1.0, 0.0]]))
    assert missing.px.to_list() == [-5]


def test_recoil_points_against_the_boson():
    # boson of 40 GeV at phi = pi/2, recoil (3, -35): parallel -35, across the axis -3
    pf = particles((3, 0, 0, 0, 1, 0), (35, 1, -np.pi / 2, 0, 0, -1))
    boson = momentum2d([40.0], [np.pi / 2])
    true = ak.zip({"met": momentum2d([1.0], [0.0]), "boson": boson}, depth_limit=1)
    u = recoil(pf, ak.ones_like(pf.pt), true)
    assert u.parallel[0] == pytest.approx(-35)
    assert u.perpendicular[0] == pytest.approx(-3)
    assert u.boson_pt[0] == 40


def test_recoil_without_a_boson_is_measured_along_the_true_missing_momentum():
    pf = particles((10, 0, np.pi, 0, 0, -1))
    none = ak.mask(momentum2d([0.0], [0.0]), [False])
    true = ak.zip({"met": momentum2d([12.0], [0.0]), "boson": none}, depth_limit=1)
    u = recoil(pf, ak.ones_like(pf.pt), true)
    assert (u.parallel[0], u.boson_pt[0]) == (pytest.approx(-10), 12)


def test_visible_decay_products_of_the_boson_are_left_out():
    # Z -> mu mu: the muons and the photon beside one of them go, the hadron beside stays
    pf = particles(
        (30, 0.5, 0.3, 0.1, -1, 0), (31, -0.5, -0.3, 0.1, 1, 0), (2, 0.5, 0.32, 0, 0, -1),
        (4, 0.51, 0.3, 0.14, 1, 1), (60, 0.0, np.pi, 0, 0, -1),
    )  # fmt: skip
    products = momentum4d(
        [[30.1, 30.9, 2.1]], [[0.5, -0.5, 0.501]], [[0.3, -0.3, 0.321]], [[0.1, 0.1, 0]]
    )
    products = ak.with_field(products, [[-1, 1, 0]], "charge")
    boson = momentum2d([60.0], [0.0])
    true = ak.zip({"met": boson, "boson": boson, "boson_products": products}, depth_limit=1)
    u = recoil(pf, ak.ones_like(pf.pt), true)
    assert u.parallel[0] == pytest.approx(-60 + 4 * np.cos(0.3), rel=1e-6)


def test_jets_are_weighted_sums_ordered_in_pt():
    pf = particles(
        (30, 0, 0, 0, 0, -1), (20, 0.1, 0, 0, 0, -1), (90, 0, np.pi, 0, 0, -1), (50, 2, 1, 0, 0, -1)
    )
    found = jets(pf, ak.Array([[1.0, 1.0, 1.0, 0.0]]))
    assert found.pt[0].to_list() == pytest.approx([90, 50], rel=1e-3)
    assert jets(pf, ak.Array([[0.5, 0.5, 0.0, 0.0]])).pt[0].to_list() == pytest.approx(
        [25], rel=1e-3
    )


def test_events_without_jets_give_empty_lists_never_nan(ttbar):
    nothing = jets(ttbar, ak.zeros_like(ttbar.pt))
    assert ak.num(nothing).to_list() == [0] * 12
    mixed = ak.concatenate([ttbar[:1], ttbar[:1, :0], ttbar[1:2]])
    found = jets(mixed, ak.ones_like(mixed.pt))
    assert ak.num(found)[1] == 0
    assert ak.all(found.pt[0] == jets(ttbar[:1], ak.ones_like(ttbar[:1].pt)).pt[0])
    assert dijet_mass(nothing).to_list() == [None] * 12
    assert jets(ttbar[:0], ak.ones_like(ttbar[:0].pt)).to_list() == []


def test_dijet_mass_of_two_massless_jets_back_to_back():
    two = momentum4d(
        [[50.0, 40.0, 30.0]], [[1.0, -1.0, 0.0]], [[0.0, np.pi, 1.0]], [[0.0, 0.0, 0.0]]
    )
    expected = np.sqrt(2 * 50 * 40 * (np.cosh(2) + 1))
    assert dijet_mass(two)[0] == pytest.approx(expected)


def test_response_is_that_of_the_jet_at_the_leading_generator_jet():
    found = momentum4d(
        [[80.0, 45.0], [30.0], []],
        [[2.0, 0.1], [1.0], []],
        [[0.0, 3.1], [0.0], []],
        [[8.0, 5.0], [1.0], []],
    )
    generated = momentum4d([[20.0, 50.0], [30.0], [40.0]], [[2.0, 0.0], [-1.0], [0.0]], [[0.0, -3.1], [0.0], [0.0]], [[5.0, 10.0], [1.0], [1.0]])  # fmt: skip
    response = leading_jet_response(found, generated)
    assert response.pt.to_list() == [pytest.approx(0.9), None, None]
    assert response.mass.to_list() == [pytest.approx(0.5), None, None]


def test_a_massless_generator_jet_has_a_response_in_pt_only():
    found = momentum4d([[40.0]], [[0.0]], [[0.0]], [[5.0]])
    response = leading_jet_response(found, momentum4d([[50.0]], [[0.0]], [[0.0]], [[0.0]]))
    assert response.to_list() == [{"pt": pytest.approx(0.8), "mass": None}]


def test_events_without_generator_jets_have_no_response():
    found = momentum4d([[80.0]], [[2.0]], [[0.0]], [[8.0]])
    none = momentum4d([[]], [[]], [[]], [[]])
    assert leading_jet_response(found, none).pt.to_list() == [None]


def test_pileup_jets_are_those_far_from_every_generator_jet():
    found = momentum4d(
        [[80.0, 45.0, 25.0], []], [[2.0, 0.0, 4.0], []], [[0.0, 3.1, 0.0], []], [[0.0] * 3, []]
    )
    generated = momentum4d([[70.0], [50.0]], [[2.1], [0.0]], [[0.1], [0.0]], [[0.0], [0.0]])
    assert pileup_jets(found, generated).to_list() == [1, 0]


def test_perfect_weights_remove_pileup_jets_from_real_events(ttbar):
    generated = truth(open_events(sample_path("ttbar_pu140"))).jets
    rate = {
        n: ak.mean(pileup_jets(jets(ttbar, method(n)(ttbar)), generated))
        for n in ("chs", "puppi", "truth")
    }
    assert rate["truth"] < rate["puppi"] + 0.1
    assert rate["puppi"] < rate["chs"]
    response = leading_jet_response(jets(ttbar, method("truth")(ttbar)), generated)
    assert np.mean(ak.drop_none(response.pt)) == pytest.approx(0.95, abs=0.1)


def test_weights_of_other_candidates_are_refused(ttbar):
    with pytest.raises(MissingCollection, match="differ in layout"):
        met(ttbar, ak.ones_like(ttbar.pt)[:, 1:])

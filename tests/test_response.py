"""Widths, errors and the response correction agree with examples worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from puma_coffea.accumulation import ALL, add_numbers, cell
from puma_coffea.exact import ExactSums
from puma_coffea.histograms import central_half_width, histograms
from puma_coffea.quantities import QUANTITIES
from puma_coffea.response import recoil_bins, recoil_in, spread

MET_X = QUANTITIES[0]


def filled(weights=None, **columns):
    n = len(next(iter(columns.values())))
    numbers = {name: np.zeros(n) for name in ("met_x", "u_parallel", "u_perpendicular", "boson_pt")}
    numbers |= {name: np.asarray(values, float) for name, values in columns.items()}
    sums = ExactSums()
    add_numbers(sums, "m", numbers, np.ones(n) if weights is None else np.asarray(weights, float))
    return sums


def test_response_correction_worked_by_hand():
    # 50 and 55 GeV in the bin 40-60, recoil -40 and -44: alpha = 52.5 / 42 = 1.25;
    # U_perp 3 and -4: RMS sqrt(12.5)
    sums = filled(boson_pt=[50, 55, 110], u_parallel=[-40, -44, -100], u_perpendicular=[3, -4, 5])
    first, second = recoil_bins(sums, "m")
    assert (first.low, first.high, first.events) == (40, 60, 2)
    assert first.alpha == pytest.approx(1.25)
    assert first.response == pytest.approx(0.8)
    assert first.resolution == pytest.approx(1.25 * np.sqrt(12.5))
    assert abs(first.closure) < 1e-15
    assert (second.alpha, second.resolution) == (pytest.approx(1.1), pytest.approx(5.5))


def test_all_events_together_are_one_bin_more():
    sums = filled(boson_pt=[50, 150], u_parallel=[-40, -120], u_perpendicular=[6, -8])
    whole = recoil_in(sums, "m", ALL)
    assert whole.alpha == pytest.approx(1.25)
    assert whole.resolution == pytest.approx(1.25 * np.sqrt(50))


def test_mean_width_and_their_errors():
    rng = np.random.default_rng(3)
    values = rng.normal(2, 10, 4000)
    found = spread(filled(met_x=values), "m", "met_x")
    assert found.mean == pytest.approx(values.mean(), rel=1e-12)
    assert found.width == pytest.approx(values.std(), rel=1e-12)
    assert found.width_error == pytest.approx(10 / np.sqrt(2 * 4000), rel=0.05)
    assert found.half_68 == pytest.approx(10, rel=0.05)


def test_event_weights_are_honoured():
    doubled = spread(filled(met_x=[1, 5, 5], boson_pt=[1, 1, 1]), "m", "met_x")
    weighted = spread(filled(met_x=[1, 5], boson_pt=[1, 1], weights=[1, 2]), "m", "met_x")
    assert (weighted.mean, weighted.width) == (
        pytest.approx(doubled.mean),
        pytest.approx(doubled.width),
    )
    assert weighted.events == pytest.approx(9 / 5)


def test_large_offsets_do_not_cancel():
    values = 1e4 + np.array([-1.0, 1.0])
    assert spread(filled(met_x=values), "m", "met_x").width == pytest.approx(1, rel=1e-7)


def test_numbers_that_are_missing_do_not_count():
    assert spread(filled(met_x=[1, np.nan, 3]), "m", "met_x").events == 2
    assert spread(filled(met_x=[np.nan]), "m", "met_x").events == 0


def test_quantiles_beyond_the_axis_stop_at_its_edge():
    assert central_half_width(filled(met_x=[-1000, 1000]), "m", MET_X) == pytest.approx(300)


def test_histograms_hold_counts_and_flow():
    built = histograms(
        {"d": filled(met_x=[0.1, 0.2, 1e4], boson_pt=[5, 5, 1e5], u_parallel=[1, 2, 3])}, ["m"]
    )
    h = built["met_x"][{"dataset": "d", "method": "m"}]
    assert h.sum(flow=True).value == 3
    assert h.sum().value == 2
    assert h.view(flow=True)["value"][-1] == 1
    plane = built["u_parallel"][{"dataset": "d", "method": "m"}]
    assert plane.sum().value == 2  # the third boson is in the open bin
    assert plane.sum(flow=True).value == 3


def test_cells_are_half_open():
    assert cell(MET_X, np.array([-300.0, -300.1, 299.99, 300.0, 0.0])).tolist() == [
        0,
        -1,
        1199,
        1200,
        600,
    ]


def test_a_recoil_that_does_not_point_against_the_boson_has_no_resolution():
    whole = recoil_in(filled(boson_pt=[50], u_parallel=[5], u_perpendicular=[3]), "m", ALL)
    assert whole.response == pytest.approx(-0.1)
    assert np.isnan(whole.resolution)

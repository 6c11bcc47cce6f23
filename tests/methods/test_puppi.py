"""PUPPI is the algorithm of its definition, and reaches the physics of a literal version."""

from __future__ import annotations

import awkward as ak
import literal
import numpy as np
import pytest
from scipy import stats

from puma_coffea import candidates, met, method, read_candidates, read_truth, recoil
from puma_coffea.methods._puppi_kernel import _chi2_quantile
from puma_coffea.methods.puppi import PRESETS, puppi


@pytest.mark.parametrize("preset", PRESETS)
def test_weights_equal_the_literal_version_on_real_events(ttbar, preset):
    for event in range(2):
        expected = literal.puppi(literal.column_dict(ttbar[event]), PRESETS[preset])
        actual = ak.to_numpy(puppi(ttbar[event : event + 1], PRESETS[preset])[0])
        np.testing.assert_allclose(actual, expected, atol=2e-6)
        assert 5 < np.sum((actual > 0) & (ak.to_numpy(ttbar.vertex[event]) < 0)) < 1500


@pytest.mark.parametrize("preset", PRESETS)
def test_an_event_without_pileup_is_left_alone(ttbar_pu0, preset):
    assert ak.all(puppi(ttbar_pu0, PRESETS[preset]) == 1)


def test_pileup_without_any_hard_track_nearby_gives_no_neutral_a_weight():
    # 40 pile-up tracks spread over the detector, none of the hard vertex, soft neutrals
    rng = np.random.default_rng(1)
    n = 80
    event = {
        "pt": rng.uniform(0.6, 3, n), "eta": rng.uniform(-3.9, 3.9, n), "phi": rng.uniform(-3, 3, n),
        "mass": np.zeros(n), "charge": [1] * 40 + [0] * 40, "pid": [211] * 40 + [22] * 40,
        "vertex": [1] * 40 + [-1] * 40, "npv": [20] * n,
    }  # fmt: skip
    pf = ak.Array({k: [v] for k, v in event.items()})
    pf = ak.zip({k: pf[k] for k in pf.fields})
    assert ak.all(puppi(pf) == 0)


def test_hard_neutrals_are_raised_linearly_between_20_and_200_gev(ttbar):
    lone = ttbar[:1, :0]
    row = {"eta": 1.0, "phi": 0.0, "mass": 0.0, "charge": 0, "pid": 0, "vertex": -1, "npv": 140}
    pileup = row | {"charge": 1, "pid": 211, "vertex": 1, "pt": 1.0, "phi": 2.0}
    assert len(lone[0]) == 0
    pf = ak.Array([[row | {"pt": p} for p in (19.0, 110.0, 300.0)] + [pileup]])
    assert puppi(pf)[0].to_list() == pytest.approx([0, 0.5, 1, 0])


@pytest.mark.parametrize("probability", [1e-6, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_quantile_of_chi2_equals_scipy(probability):
    assert _chi2_quantile(probability) == pytest.approx(stats.chi2.ppf(probability, 1), rel=1e-9)


def residuals(path, name):
    pf, true = read_candidates(path), read_truth(path)
    weights = method(name)(pf)
    missing = met(pf, weights)
    dx, dy = missing.px - true.met.px, missing.py - true.met.py
    u = recoil(pf, weights, true)
    width = np.sqrt((np.var(dx) + np.var(dy)) / 2)
    return width, (np.mean(dx), np.mean(dy)), -np.mean(u.parallel) / np.mean(u.boson_pt)


# Largest accepted width per component (GeV), and the response of the literal version.
TUNED = [
    ("val/val_ttbar_pu140", 21.6, None),
    ("eval/eval_zvv_pu140", 12.6, 0.95),
    ("eval/eval_vbfhinv_pu140", 21.1, 0.92),
    ("eval/eval_ttbar_pu60", 20.6, None),
    ("eval/eval_ttbar_pu200", 20.8, None),
]


@pytest.mark.shared
@pytest.mark.parametrize(("sample", "limit", "response"), TUNED)
def test_tuned_preset_reaches_the_reference_width(shared, sample, limit, response):
    width, bias, measured = residuals(shared / f"{sample}.parquet", "puppi")
    assert width <= limit
    assert max(map(abs, bias)) < 5
    if response is not None:
        assert measured == pytest.approx(response, rel=0.03)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("sample", "limit"),
    [
        ("val/val_ttbar_pu140", 23.0),
        ("eval/eval_zvv_pu140", 12.7),
        ("eval/eval_vbfhinv_pu140", 21.2),
    ],
)
def test_delphes_preset_reaches_the_reference_width(shared, sample, limit):
    assert residuals(shared / f"{sample}.parquet", "puppi:delphes-phase2")[0] <= limit


@pytest.mark.shared
@pytest.mark.filterwarnings("ignore:Missing cross-reference index:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:Branch Photon_.* already exists:RuntimeWarning")
@pytest.mark.parametrize("vertexing", ["puppi", "dz"])
def test_cms_weights_come_out_of_cms_events(shared, vertexing):
    from coffea.nanoevents import NanoAODSchema, NanoEventsFactory

    events = NanoEventsFactory.from_root(
        {str(shared / "root" / "pfnano.root"): "Events"}, schemaclass=NanoAODSchema
    ).events()
    pf = candidates(events, vertexing=vertexing)
    neutral = pf.charge == 0
    ours = ak.to_numpy(ak.flatten(method("puppi:cms-run2")(pf)[neutral]))
    theirs = ak.to_numpy(ak.flatten(events.PFCands.puppiWeight[neutral]))
    eta = abs(ak.to_numpy(ak.flatten(pf.eta[neutral])))
    for low, high in ((0, 2.5), (2.5, 3), (3, 10)):
        here = (eta >= low) & (eta < high)
        assert np.corrcoef(ours[here], theirs[here])[0, 1] > 0.95
    assert np.mean((ours > 0.5) == (theirs > 0.5)) > 0.99

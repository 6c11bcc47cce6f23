"""The small detector does to particles what Delphes does."""

from __future__ import annotations

from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot

from puma_coffea.simulation.calorimeters import flow
from puma_coffea.simulation.card import ECAL, HCAL, track_efficiency
from puma_coffea.simulation.detector import detect, set_seed
from puma_coffea.simulation.propagation import leave
from puma_coffea.simulation.tracks import find_tracks

REGIONS = ((0, 1.5), (1.5, 3), (3, 4), (4, 5))
NAMES = ("PID", "Charge", "Px", "Py", "Pz", "E", "X", "Y", "Z")


def particles(event, names=NAMES):
    """Stable particles of a Delphes event; lengths in metres."""
    stable = event["Particle.Status"] == 1
    columns = [np.asarray(event[f"Particle.{name}"][stable], np.float64) for name in names]
    columns[:2] = [column.astype(np.int64) for column in columns[:2]]
    columns[6:9] = [column * 1e-3 for column in columns[6:9]]
    return [*columns, np.asarray(event["Particle.IsPU"][stable]) > 0]


def simulated_and_delphes(path: Path, repeats: int):
    """Rows of tracks, photons and hadrons: simulated several times, and Delphes's own."""
    tree = uproot.open(path)["Delphes"]
    events = tree.arrays([f"Particle.{name}" for name in (*NAMES, "Status", "IsPU")])
    set_seed(1)
    made = [detect(*particles(event)) for _ in range(repeats) for event in events]
    mine = [np.concatenate([each[k] for each in made])[:, :2] for k in range(3)]
    theirs = [
        np.stack([ak.to_numpy(ak.flatten(tree[f"{name}.{c}"].array())) for c in (pt, "Eta")], 1)
        for name, pt in (("EFlowTrack", "PT"), ("EFlowPhoton", "ET"), ("EFlowNeutralHadron", "ET"))
    ]
    return mine, theirs


@pytest.mark.shared
def test_candidates_at_140_interactions_are_as_many_and_as_hard_as_in_delphes(shared):
    mine, theirs = simulated_and_delphes(shared / "root" / "delphes_ttbar_pu140_genpu.root", 4)
    for kind in range(3):
        for low, high in REGIONS[: 3 if kind == 0 else 4]:
            made, true = (
                rows[kind][(np.abs(rows[kind][:, 1]) >= low) & (np.abs(rows[kind][:, 1]) < high)]
                for rows in (mine, theirs)
            )
            assert len(made) / 4 == pytest.approx(len(true), rel=0.01, abs=3 * np.sqrt(len(true)))
            error = float(np.sqrt((true[:, 0] ** 2).sum()))
            assert made[:, 0].sum() / 4 == pytest.approx(true[:, 0].sum(), abs=3 * error)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["ttbar", "zvv", "vbfhinv"])
def test_hard_events_without_pileup_have_the_momentum_that_delphes_gives_them(shared, name):
    mine, theirs = simulated_and_delphes(shared / "root" / f"delphes_{name}_pu0.root", 20)
    for made, true in zip(mine, theirs, strict=True):
        error = float(np.sqrt((true[:, 0] ** 2).sum()))
        assert made[:, 0].sum() / 20 == pytest.approx(true[:, 0].sum(), abs=2 * error)
        assert len(made) / 20 == pytest.approx(len(true), abs=3 * np.sqrt(len(true)))


def test_a_neutral_flies_straight_and_a_charge_on_a_circle():
    assert leave(0, 1.0, 0.0, 1.0, 0.1, 0.0, 0.5, 1.29, 3.0) == pytest.approx((1.29, 0.0, 1.69))
    # pT = 0.3 B r: 1.13924 GeV turn with a radius of 1 m at 3.8 T, clockwise for positive charge.
    x, y, z = leave(1, 1.139211, 0.0, 0.0, 0.0, 0.0, 0.0, 1.29, 3.0)
    assert np.hypot(x, y) == pytest.approx(1.29)
    assert np.hypot(x, y + 1) == pytest.approx(1.0, abs=1e-4)
    assert y < 0 < x
    assert leave(-1, 1.139211, 0.0, 0.0, 0.0, 0.0, 0.0, 1.29, 3.0) == pytest.approx((x, -y, z))


def test_a_soft_charge_curls_up_and_leaves_through_the_end():
    x, y, z = leave(1, 0.3, 0.0, -0.3, 0.0, 0.0, 0.0, 1.29, 3.0)
    assert z == pytest.approx(-3.0)
    assert np.hypot(x, y) < 1.29


@pytest.mark.parametrize(
    ("pid", "pt", "eta", "chance"),
    [(211, 0.1, 0, 0), (211, 0.5, 0, 0.48), (211, 5, -2, 0.87), (11, 5, 2, 0.87), (11, 50, 3, 0.85),
     (13, 50, 3, 0.95), (13, 0.5, 1, 0.5), (211, 50, 4.1, 0)],
)  # fmt: skip
def test_tracks_are_found_as_often_as_the_card_says(pid, pt, eta, chance):
    assert track_efficiency(pid, pt, eta) == pytest.approx(chance)


def one(pid, charge, pt, eta=0.1, phi=0.1):
    """Columns of a single particle from the centre."""
    px, py, pz = pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)
    zero = np.zeros(1)
    momentum = [np.array([each]) for each in (px, py, pz, pt * np.cosh(eta))]
    return [np.array([pid]), np.array([charge]), *momentum, zero, zero, zero, np.array([False])]


def test_photons_make_photons_pions_tracks_and_kaons_hadrons():
    set_seed(2)
    found = {
        name: [np.mean([len(rows) for rows in kind]) for kind in zip(*(detect(*one(*what)) for _ in range(300)), strict=True)]
        for name, what in {"photon": (22, 0, 50), "pion": (211, 1, 50), "kaon": (130, 0, 50), "neutrino": (12, 0, 50)}.items()
    }  # fmt: skip
    assert found["photon"] == [0, 1, 0]
    assert found["kaon"] == pytest.approx([0, 0, 1], abs=0.01)
    assert found["neutrino"] == [0, 0, 0]
    tracks, photons, hadrons = found["pion"]
    assert tracks == pytest.approx(0.97, abs=0.03)
    assert photons == 0
    # Without a track it is a hadron; with one only where the calorimeter sees far too much.
    assert 0.03 < hadrons < 0.3


def test_energy_is_kept_on_average():
    set_seed(3)
    for what, kind in (((22, 0, 50), 1), ((130, 0, 200), 2), ((13, -1, 50), 0)):
        pt = [detect(*one(*what))[kind][:, 0].sum() for _ in range(500)]
        assert np.mean(pt) == pytest.approx(what[2], rel=0.03)


def test_two_tracks_of_one_pixel_are_one():
    both = [np.repeat(column, 2) for column in one(211, 1, 20.0)]
    both[2][1] *= 0.999
    set_seed(4)
    particle, _ = find_tracks(*both[:9], np.array([0.1, 0.1]))
    assert list(particle) in ([0], [])
    apart = [
        np.concatenate(pair)
        for pair in zip(one(13, -1, 20.0), one(13, -1, 20.0, phi=1.0), strict=True)
    ]
    assert len(find_tracks(*apart[:9], np.array([0.1, 0.1]))[0]) == 2


def test_the_hard_share_of_a_tower_is_that_of_what_has_no_track():
    # A hard and a pile-up photon of 3 and 1 shares of the energy in one cell.
    pid, energy, pileup = np.array([22, 22]), np.array([60.0, 20.0]), np.array([False, True])
    eta, phi = np.full(2, 0.005), np.full(2, 0.005)
    set_seed(5)
    nothing = np.zeros(0, np.int64), np.zeros((0, 5))
    towers = flow(True, ECAL, pid, energy, eta, phi, pileup, np.zeros(2, np.bool_), *nothing)
    assert towers.shape == (1, 4)
    assert towers[0, 3] == pytest.approx(0.75)
    assert towers[0, 0] == pytest.approx(80, rel=0.1)


def test_cells_are_those_of_the_card():
    for edges, divisions in (ECAL, HCAL):
        assert (edges[0], edges[-1]) == (-5, 5)
        assert divisions[np.searchsorted(edges, 3.0)] == 36
        assert np.diff(edges).min() > 0.005
    assert ECAL[1][np.searchsorted(ECAL[0], 1.0)] == 360
    assert HCAL[1][np.searchsorted(HCAL[0], 1.0)] == 72
    assert HCAL[1][np.searchsorted(HCAL[0], 2.0)] == 90

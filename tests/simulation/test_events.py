"""Simulated samples can be read like others, and are the same for the same seed."""

from __future__ import annotations

from importlib.resources import files

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest

from puma_coffea import jets, met, method, read_candidates, read_truth
from puma_coffea.benchmarks.simulation import markdown, per_event
from puma_coffea.cli import app
from puma_coffea.exceptions import BadConfig, BadOutput
from puma_coffea.simulation.events import mean_range, write_simulated
from puma_coffea.simulation.generator import PROCESSES, generate, process_named

SAMPLE = files("puma_coffea.sample")


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """103 events of two processes at some ten interactions."""
    path = tmp_path_factory.mktemp("simulated") / "sample.parquet"
    assert write_simulated(["zvv", "ttbar"], path, 103, (5, 15), interactions=50) == 103
    return path


def test_a_simulated_sample_has_the_layout_of_the_others(sample):
    pf, true = read_candidates(sample), read_truth(sample)
    assert len(pf) == len(true) == 103
    n_pu = pq.read_table(sample)["n_pu"].to_numpy()
    assert n_pu.mean() == pytest.approx(10, abs=1.5)
    assert ak.all(pf.npv == n_pu + 1)
    neutral = pf.vertex < 0
    assert ak.all(pf.hard_fraction[~neutral] == (pf.vertex[~neutral] == 0))
    assert ak.all((pf.hard_fraction >= 0) & (pf.hard_fraction <= 1))
    assert ak.all((pf.charge == 0) == neutral)
    assert ak.all((abs(pf.eta) < 5.01) & (pf.pt > 0))
    # zvv comes first, a hundred events of it, and has a boson; its recoil balances it.
    assert list(ak.is_none(true.boson)) == [False] * 100 + [True] * 3
    missing = met(pf, method("truth")(pf))
    assert np.std(ak.to_numpy(missing.px - true.met.px)) < 10 < np.std(ak.to_numpy(true.met.px))
    assert ak.all(np.cos(true.boson.phi - true.met.phi)[:100] > 0)


def test_events_at_140_interactions_are_like_those_of_delphes(tmp_path):
    path = tmp_path / "zvv.parquet"
    write_simulated(["zvv"], path, 30, interactions=3000, workers=2)
    mine, delphes = (read_candidates(each) for each in (path, SAMPLE / "zvv_pu140.parquet"))
    for pf in (mine, delphes):
        assert ak.mean(ak.firsts(pf.npv)) == pytest.approx(141, abs=6)
    for kind in (
        lambda pf: pf.vertex >= 0,
        lambda pf: (pf.vertex < 0) & (pf.pid == 22),
        lambda pf: pf.pid == 0,
    ):
        for low, high in ((0, 1.5), (1.5, 3), (3, 4)):
            (n, pt), (true_n, true_pt) = (
                (len(chosen) / ak.sum(ak.firsts(pf.npv)), ak.mean(chosen))
                for pf in (mine, delphes)
                for chosen in [
                    ak.flatten(pf.pt[kind(pf) & (abs(pf.eta) >= low) & (abs(pf.eta) < high)])
                ]
            )
            assert n == pytest.approx(true_n, rel=0.06)
            assert pt == pytest.approx(true_pt, rel=0.06)


def test_generator_jets_are_those_of_the_hard_collision(sample):
    pf, true = read_candidates(sample), read_truth(sample)
    found, leading = jets(pf, method("truth")(pf)), ak.firsts(true.jets)
    near = ak.any(
        (abs(found.eta - leading.eta) < 0.2) & (np.cos(found.phi - leading.phi) > 0.98), axis=1
    )
    hard = ak.fill_none((leading.pt > 40) & (abs(leading.eta) < 4), False)
    assert ak.sum(hard) > 30
    assert ak.mean(near[hard]) > 0.9


def test_the_sample_depends_on_the_seed_and_not_on_the_number_of_workers(tmp_path):
    made = []
    for name, options in {"one": {}, "two": {"workers": 2}, "other": {"seed": 2}}.items():
        path = tmp_path / name
        write_simulated(["zvv"], path, 110, (1, 1), interactions=5, **options)
        made.append(path.read_bytes())
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize("name", PROCESSES)
def test_every_process_can_be_generated(name):
    made = generate(process_named(name), 2, 1)
    assert len(made) == 2
    assert np.isfinite(made.boson).all() == bool(PROCESSES[name].boson)
    total = np.sum(made.columns["energy"])
    assert total == pytest.approx(2 * 14000, rel=0.01)


def test_processes_of_ones_own(tmp_path):
    settings = tmp_path / "mine.cmnd"
    settings.write_text("! dijets\nHardQCD:all = on\nPhaseSpace:pTHatMin = 100.\n")
    assert len(generate(process_named(str(settings)), 1, 1)) == 1
    settings.write_text("HardQCD:al = on\n")
    with pytest.raises(BadConfig, match="does not understand the setting 'HardQCD:al = on'"):
        generate(process_named(str(settings)), 1, 1)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("ttbarr", "did you mean 'ttbar'"),
        ("nothing.cmnd", "cannot be read"),
        ("xyz", "choose from"),
    ],
)
def test_unknown_processes_are_refused_by_name(wrong, sentence, tmp_path):
    with pytest.raises(BadConfig, match=sentence):
        write_simulated([wrong], tmp_path / "out.parquet", 1)


def test_a_sample_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(BadOutput, match="cannot be written"):
        write_simulated(["zvv"], tmp_path / "missing" / "out.parquet", 1, (0, 0))


def test_ranges_of_pileup():
    assert mean_range("60-200") == (60, 200)
    for wrong in ("200-60", "x", "-3", "", "1-2-3"):
        with pytest.raises(BadConfig, match="number or a range"):
            mean_range(wrong)


def test_the_command_simulates(tmp_path):
    from typer.testing import CliRunner

    path = tmp_path / "dijet.parquet"
    options = ["--events", "2", "--pileup", "0", "--workers", "1", "-o", str(path)]
    result = CliRunner().invoke(app, ["simulate", "dijet", *options])
    assert result.exit_code == 0, result.output
    assert "2 events" in result.output
    assert len(read_candidates(path)) == 2


def test_the_comparison_finds_a_sample_equal_to_itself_and_half_of_it_different():
    pf = read_candidates(SAMPLE / "zvv_pu140.parquet")
    table = markdown(per_event(pf), per_event(pf)).splitlines()
    assert len(table) == 2 + 16
    assert "| photons | 1.5 to 3.0 | 1.000 ±" in "\n".join(table)
    thinned = per_event(pf[ak.local_index(pf.pt) % 2 == 0])
    number, _ = thinned["neutral hadrons", 3.0]["number"]
    assert number / per_event(pf)["neutral hadrons", 3.0]["number"][0] == pytest.approx(0.5, 0.05)

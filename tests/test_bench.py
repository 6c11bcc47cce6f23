"""``puma-coffea bench`` runs, and says what it could not measure. No timing is asserted."""

from __future__ import annotations

import json
import math
import sys

import pytest
from typer.testing import CliRunner

from puma_coffea.benchmarks import clustering, network
from puma_coffea.benchmarks.events import NETWORK
from puma_coffea.benchmarks.rows import Row
from puma_coffea.benchmarks.subjects import SUBJECTS
from puma_coffea.benchmarks.table import bench_table
from puma_coffea.cli import app
from puma_coffea.puma.network import PRESETS


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The figures of a quick run, read from its file."""
    path = tmp_path_factory.mktemp("bench") / "bench.json"
    answer = CliRunner().invoke(app, ["bench", "--quick", "--json", str(path)])
    assert answer.exit_code == 0, answer.output
    assert "matrix products alone" in answer.output
    return json.loads(path.read_text())


def test_every_subject_has_rows_and_every_row_a_figure_or_a_reason(found):
    assert [subject["subject"] for subject in found["subjects"]] == list(SUBJECTS)
    for subject in found["subjects"]:
        assert subject["rows"], subject["title"]
        for row in subject["rows"]:
            figures = [row[name] for name in ("value", "ratio") if row[name] is not None]
            assert bool(figures) != bool(row["missing"]), row
            assert "did not run" not in row["missing"], row


def test_figures_are_positive_and_finite(found):
    rows = [row for subject in found["subjects"] for row in subject["rows"]]
    # A difference of two times of a moment each may come out below zero.
    differences = ("reading", "other quantities", "exponent", "two workers, waiting")
    for row in rows:
        for figure in (row["value"], row["ratio"]):
            if figure is not None:
                assert math.isfinite(figure), row
                assert figure > 0 or row["name"].startswith(differences), row


def test_machine_threads_and_versions_are_stated(found):
    about = found["machine"]
    assert about["cpu"]
    assert about["threads"] == 1
    assert {"python", "numpy", "numba", "puma-coffea"} <= about["versions"].keys()


def test_the_network_that_is_measured_is_the_preset():
    preset = PRESETS["paper"]
    assert NETWORK.model_dump() == {name: getattr(preset, name) for name in NETWORK.model_dump()}


def test_a_peer_that_is_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    assert clustering.measure(quick=True)[-1].missing == "pip install scikit-learn"
    monkeypatch.setitem(sys.modules, "puma_coffea.benchmarks.torch_peers", None)
    found, missing = network._peers(network.one_event(quick=True), quick=False)
    assert not found
    assert {row.name: row.missing for row in missing} == {
        name: f"pip install {packages}" for name, (_, packages) in network.PEERS.items()
    }


def test_the_table_shows_reasons_as_they_are(capsys):
    from rich.console import Console

    rows = [Row("jets", missing="pip install 'puma-coffea[jets]'").as_dict()]
    about = {"cpu": "CPU", "cores": 2, "versions": {"python": "3"}}
    table = bench_table({"machine": about, "subjects": [{"title": "Jets", "rows": rows}]})
    Console(width=100).print(table)
    assert "pip install 'puma-coffea[jets]'" in capsys.readouterr().out

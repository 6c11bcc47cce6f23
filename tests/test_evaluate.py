"""The evaluation's figures are those of the run, with errors and ratios on the same events."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from puma_coffea import sample_path
from puma_coffea.evaluate import card_metrics, evaluate
from puma_coffea.running import prepare, run
from puma_coffea.tables import component_width, evaluation_tables, write_evaluation


@pytest.fixture(scope="module")
def results():
    return evaluate([f"zvv={sample_path('zvv_pu140')}"], ["chs", "truth"])


def test_figures_equal_those_of_a_run(results, tmp_path):
    ran = run(
        [f"zvv={sample_path('zvv_pu140')}"], tmp_path, methods=("puppi", "truth"), status=False
    )
    for name in ("puppi", "truth"):
        mine, theirs = results["zvv"][name], ran["summary"]["zvv"][name]
        assert mine["met_xy"]["value"] == pytest.approx(component_width(theirs)[0])
        assert mine["u_perp"]["value"] == pytest.approx(theirs["recoil"]["resolution"])
        assert mine["response"] == pytest.approx(theirs["recoil"]["response"])
        assert mine["dijet_mass"]["width"] == pytest.approx(theirs["dijet_mass"]["width"])
        assert [b["value"] for b in mine["u_perp_bins"]] == pytest.approx(
            [b["resolution"] for b in theirs["recoil_bins"]], nan_ok=True
        )


def test_ratios_are_paired(results):
    table = results["zvv"]
    assert table["puppi"]["met_xy_ratio"] == {"value": 1, "error": 0}
    ratio = table["truth"]["met_xy_ratio"]
    assert ratio["value"] == pytest.approx(
        table["truth"]["met_xy"]["value"] / table["puppi"]["met_xy"]["value"]
    )
    assert 0 < ratio["error"] < 0.2
    half = table["truth"]["jet_response_half_68_ratio"]
    assert half["value"] == pytest.approx(
        table["truth"]["jet_response"]["half_68"] / table["puppi"]["jet_response"]["half_68"]
    )


def test_perfect_weights_separate_perfectly(results):
    assert results["zvv"]["truth"]["neutral_auc"] == pytest.approx(1)
    assert results["zvv"]["truth"]["neutral_mse"] == pytest.approx(0, abs=1e-9)
    assert results["zvv"]["chs"]["neutral_auc"] == pytest.approx(0.5)


def test_the_same_events_as_root_and_parquet_give_the_same_figures(results, tmp_path):
    made = prepare([f"zvv={sample_path('zvv_pu140')}"], tmp_path, chunksize=5, status=False)
    assert made["events"] == 12
    again = prepare([f"zvv={sample_path('zvv_pu140')}"], tmp_path, chunksize=5, status=False)
    assert again == made
    other = evaluate([f"zvv={path}" for path in sorted(made["files"])], ["truth"])
    for name in ("puppi", "truth"):
        assert other["zvv"][name]["met_xy"]["value"] == pytest.approx(
            results["zvv"][name]["met_xy"]["value"], rel=1e-5
        )


def test_a_cards_metrics_carry_their_command(results, tmp_path):
    metrics = card_metrics(results, "truth", "puma-coffea evaluate ...")
    assert {m["quantity"] for m in metrics} >= {"pTmiss width over tuned PUPPI", "recoil response"}
    assert all(m["command"] == "puma-coffea evaluate ..." for m in metrics)
    write_evaluation(results, ["chs"], "command", tmp_path / "e.json")
    assert json.loads((tmp_path / "e.json").read_text())["results"]["zvv"]["chs"]["events"] == 12


def test_long_names_of_methods_are_folded_and_no_number_is_cut(results):
    name, row = "puma:trainings/of-this-week/the-third-model", results["zvv"]["truth"]
    (table,) = evaluation_tables({"zvv": {name: row}}, name)
    numbers = [next(iter(column.cells)) for column in table.columns[1:]]
    console = Console(width=80)
    with console.capture() as shown:
        console.print(table)
    text = shown.get()
    assert all(number in text for number in numbers)
    below, _, caption = text.rpartition("─")[2].partition("ratio:")
    assert "".join(caption.split()).endswith(name)
    assert "".join(line.split()[0] for line in below.splitlines() if line.strip()) == name

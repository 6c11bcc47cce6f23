"""The report shows every dataset, method and loss, and stands alone."""

from __future__ import annotations

import re

import pytest

from puma_coffea import sample_path
from puma_coffea.reporting import write_report
from puma_coffea.running import run


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    inputs = [f"zvv={sample_path('zvv_pu140')}", f"ttbar={sample_path('ttbar_pu140')}"]
    return run(inputs, tmp_path_factory.mktemp("run"), methods=("chs", "puppi"), status=False)


def test_every_dataset_has_its_table_and_five_figures(result, tmp_path):
    page = write_report(result, tmp_path).read_text()
    for dataset in ("zvv", "ttbar"):
        assert f"<h2>{dataset}</h2>" in page
        for name in ("met_x", "met", "dijet_mass", "jet_response", "recoil"):
            for ending in ("png", "pdf"):
                assert (tmp_path / f"{dataset}_{name}.{ending}").stat().st_size > 5000
    assert page.count("data:image/png;base64,") == 10
    assert "All files were read completely." in page


def test_the_page_refers_to_nothing_outside_of_itself(result, tmp_path):
    page = write_report(result, tmp_path).read_text()
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []


def test_numbers_on_the_page_are_those_of_the_summary(result, tmp_path):
    page = write_report(result, tmp_path).read_text()
    response = result["summary"]["zvv"]["puppi"]["recoil"]["response"]
    assert f"<td>{response:.2f}</td>" in page


def test_losses_are_named_with_their_fraction(result, tmp_path):
    record = {**result["record"]}
    record["zvv"] = {**record["zvv"], "lost": {"bad.root": {"events": 0, "reasons": {"it is cut"}}}}
    page = write_report({**result, "record": record}, tmp_path).read_text()
    assert "Lost: 1 of 3 files (33.3%)" in page
    assert "<code>bad.root</code>: it is cut" in page

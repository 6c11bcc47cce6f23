"""The event display: what is drawn, where it goes, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from puma.models import untrained

from puma_coffea import method, sample_path
from puma_coffea.display import display, draw_event, read_event
from puma_coffea.exceptions import BadConfig, BadOutput, MissingExtra

FILE = sample_path("zvv_pu140")
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def puma(tmp_path_factory):
    return f"puma:{untrained().save(tmp_path_factory.mktemp('model') / 'tiny')}"


def titles(figure):
    return [axis.get_title() for axis in figure.axes if axis.get_title()]


def test_three_panels_show_clusters_truth_and_weights(ttbar):
    pf = ttbar[:1]
    figure = draw_event(pf, method("puppi")(pf), "puppi", "an event")
    headings = titles(figure)
    assert [heading.split("\n")[0] for heading in headings] == [
        "IterativeCluster",
        "True weights (hard energy fraction)",
        "PUPPI weights",
    ]
    assert "2,137 clusters" in headings[0]
    assert "an event: 9,185 candidates" in figure.get_suptitle()
    labels = [axis.get_xlabel() for axis in figure.axes]
    assert sum("place of the cluster" in label for label in labels) == 1
    assert sum("weight (1: hard collision" in label for label in labels) == 2
    assert [text.get_text() for text in figure.legends[0].texts] == [
        "1 GeV",
        "5 GeV",
        "20 GeV",
        "100 GeV",
    ]


def test_markers_stand_at_the_candidates_with_area_by_pt_and_colour_by_weight(ttbar):
    pf = ttbar[:1]
    weights = method("puppi")(pf)
    drawn = draw_event(pf, weights, "puppi", "an event").axes[2].collections[0]
    assert len(drawn.get_offsets()) == 9185
    place = int(np.argmax(drawn.get_sizes()))
    hardest = int(np.argmax(pf.pt[0]))
    np.testing.assert_allclose(drawn.get_offsets()[place], [pf.eta[0, hardest], pf.phi[0, hardest]])
    assert drawn.get_array()[place] == weights[0, hardest]
    assert drawn.get_clim() == (0, 1)


def test_a_file_without_fractions_has_no_truth_panel_and_says_so(data):
    pf = read_event(str(data / "older_delphes.root"), 0)
    figure = draw_event(pf, method("puppi")(pf), "puppi:cms-run2", "old")
    assert [heading.split("\n")[0] for heading in titles(figure)] == [
        "IterativeCluster",
        "PUPPI cms-run2 weights",
    ]
    assert "no true weights" in figure.get_suptitle()


def test_an_empty_event_is_drawn_too(ttbar):
    empty = ttbar[:1][:, :0]
    assert len(titles(draw_event(empty, method("puppi")(empty), "puppi", "empty"))) >= 2


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_the_picture_is_where_it_was_asked_for(tmp_path, puma, ending):
    made = display(FILE, 3, tmp_path / f"picture.{ending}", method_name=puma)
    assert made.read_bytes()[:4] == (PNG if ending == "png" else b"%PDF")
    assert list(tmp_path.iterdir()) == [made]


def test_parquet_events_are_those_of_the_sample():
    pf = read_event(sample_path("zvv_pu140.parquet"), 5)
    assert len(pf) == 1
    with pytest.raises(BadConfig, match="has no event 60: its events are 0 to 59"):
        read_event(sample_path("zvv_pu140.parquet"), 60)


def test_what_cannot_be_drawn_is_refused(tmp_path, monkeypatch):
    with pytest.raises(BadConfig, match="has no event 12: its events are 0 to 11"):
        display(FILE, 12, tmp_path / "x.png", method_name="puppi")
    with pytest.raises(BadConfig, match="has no event -1"):
        display(FILE, -1, tmp_path / "x.png", method_name="puppi")
    with pytest.raises(BadOutput, match=r"x\.txyz cannot be written"):
        display(FILE, 0, tmp_path / "x.txyz", method_name="puppi")
    with pytest.raises(BadOutput, match="cannot be written"):
        display(FILE, 0, tmp_path / "absent" / "x.png", method_name="puppi")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match="needs matplotlib"):
        display(FILE, 0, tmp_path / "x.png", method_name="puppi")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_where_the_picture_is(tmp_path):
    program = str(Path(sys.executable).with_name("puma-coffea"))
    ran = subprocess.run(
        [program, "display", FILE, "--event", "2", "--method", "puppi"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "Picture: zvv_pu140_event2.png"
    assert (tmp_path / "zvv_pu140_event2.png").read_bytes()[:4] == PNG

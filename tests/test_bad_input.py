"""Bad input gets one clear sentence that names what was found and what to do."""

from __future__ import annotations

from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot

from puma_coffea import candidates, met, method, open_events, sample_path
from puma_coffea.exceptions import (
    LazyInput,
    MissingCollection,
    NoEvents,
    NoTarget,
    NotDelphesFile,
    PumaCoffeaError,
    UnknownVertexing,
)


def sentence_of(error):
    text = str(error.value)
    assert isinstance(error.value, PumaCoffeaError)
    assert "\n" not in text
    assert len(text) < 1000
    return text


def test_a_missing_file(tmp_path):
    with pytest.raises(NotDelphesFile) as error:
        open_events(tmp_path / "absent.root")
    assert "There is no file" in sentence_of(error)


def test_a_text_file(tmp_path):
    path = tmp_path / "text.root"
    path.write_text("this is not a ROOT file\n" * 100)
    with pytest.raises(NotDelphesFile) as error:
        open_events(path)
    assert "text.root cannot be read as a ROOT file" in sentence_of(error)


def test_an_empty_file(tmp_path):
    (tmp_path / "empty.root").touch()
    with pytest.raises(NotDelphesFile) as error:
        open_events(tmp_path / "empty.root")
    assert "empty.root" in sentence_of(error)


def test_a_folder(tmp_path):
    with pytest.raises(NotDelphesFile) as error:
        open_events(tmp_path)
    assert f"is a folder; name the files in it, for instance '{tmp_path}/*.root'" in sentence_of(
        error
    )


@pytest.mark.parametrize("fraction", [0.0001, 0.1, 0.5, 0.99])
def test_a_truncated_file(tmp_path, fraction):
    content = Path(sample_path("zvv_pu0")).read_bytes()
    path = tmp_path / "cut.root"
    path.write_bytes(content[: int(len(content) * fraction)])
    with pytest.raises(NotDelphesFile) as error:
        open_events(path)
    assert "copied completely" in sentence_of(error)


def test_a_root_file_without_a_delphes_tree(tmp_path):
    with uproot.recreate(tmp_path / "other.root") as file:
        file.mktree("Events", {"x": np.float32}).extend({"x": np.zeros(3, np.float32)})
    with pytest.raises(NotDelphesFile) as error:
        open_events(tmp_path / "other.root")
    assert "no tree 'Delphes' (it holds Events)" in sentence_of(error)


def test_a_file_without_events(data):
    with pytest.raises(NoEvents) as error:
        open_events(data / "zero_events.root")
    assert "without events" in sentence_of(error)


def test_a_file_without_eflow_branches(data):
    with pytest.raises(MissingCollection) as error:
        candidates(open_events(data / "no_eflow.root"))
    text = sentence_of(error)
    assert "GenJet" in text
    assert "EFlowTrack + EFlowPhoton + EFlowNeutralHadron" in text
    assert "TreeWriter" in text


def test_reconstructed_vertexing_of_an_older_file(data):
    with pytest.raises(UnknownVertexing) as error:
        candidates(open_events(data / "older_delphes.root"), vertexing="reco")
    assert "IsRecoPU" in sentence_of(error)


def test_an_older_file_without_generated_particles(data):
    events = open_events(data / "older_delphes.root")
    with pytest.raises(MissingCollection) as error:
        candidates(events[["EFlowTrack", "EFlowPhoton", "EFlowNeutralHadron"]])
    assert "'Particle' is missing" in sentence_of(error)


def test_an_unknown_vertexing():
    with pytest.raises(UnknownVertexing) as error:
        candidates(open_events(sample_path("zvv_pu0")), vertexing="perfect")
    assert "choose 'truth', 'reco', 'reference'" in sentence_of(error)


def test_perfect_weights_of_a_file_without_fractions(data):
    with pytest.raises(NoTarget) as error:
        method("truth")(candidates(open_events(data / "older_delphes.root")))
    assert "HardEnergyFraction" in sentence_of(error)


def test_perfect_weights_of_a_card_that_never_filled_the_fractions(ttbar):
    unfilled = ak.with_field(
        ttbar, ak.where(ttbar.charge == 0, 0, ttbar.hard_fraction), "hard_fraction"
    )
    with pytest.raises(NoTarget) as error:
        method("truth")(unfilled)
    assert "SimpleCalorimeter" in sentence_of(error)


def test_candidates_that_lack_a_column(ttbar):
    with pytest.raises(MissingCollection) as error:
        method("puppi")(ttbar[["pt", "eta", "phi"]])
    assert "lack mass, pid, vertex, npv" in sentence_of(error)


@pytest.mark.parametrize("name", ["chs", "puppi", "softkiller", "truth", "puma"])
def test_masked_candidates(ttbar, name):
    pf = ttbar[:2]
    for masked in (ak.mask(pf, np.array([True, False])), ak.mask(pf, pf.pt > 1)):
        with pytest.raises(MissingCollection, match="hold None; choose events and candidates"):
            method(name)(masked)
    nothing_missing = ak.mask(pf, np.array([True, True]))
    assert ak.array_equal(method(name)(nothing_missing), method(name)(pf))


def test_a_dask_awkward_array_is_a_type_error():
    lazy = type("Array", (), {"__module__": "dask_awkward.lib.core"})()
    for call in (candidates, method("none"), method("puppi"), lambda a: met(a, a)):
        with pytest.raises(LazyInput) as error:
            call(lazy)
        assert isinstance(error.value, TypeError)
        assert "dask-awkward" in sentence_of(error)


def test_references_into_a_filtered_list_of_particles_are_not_followed():
    events = open_events(sample_path("ttbar_pu140"))
    leptons = events.Particle[abs(events.Particle.PID) < 20]
    filtered = ak.with_field(
        events[["EFlowTrack", "EFlowPhoton", "EFlowNeutralHadron"]], leptons, "Particle"
    )
    with pytest.raises(MissingCollection) as error:
        candidates(filtered, vertexing="reference")
    assert "filtered" in sentence_of(error)

"""Everything a user may name becomes the same plain fileset; a typo gets a sentence."""

from __future__ import annotations

import json

import pytest

from puma_coffea.exceptions import BadConfig, NoEvents
from puma_coffea.filesets import read_fileset


def names(datasets):
    return {name: list(dataset.files) for name, dataset in datasets.items()}


def test_files_globs_and_names(tmp_path):
    for name in ("a1.root", "a2.root", "b.parquet"):
        (tmp_path / name).touch()
    found = read_fileset([f"{tmp_path}/a*.root", f"other={tmp_path}/b.parquet"])
    assert names(found) == {
        "events": [f"{tmp_path}/a1.root", f"{tmp_path}/a2.root"],
        "other": [f"{tmp_path}/b.parquet"],
    }
    assert set(found["events"].files.values()) == {"Delphes"}


def test_remote_paths_are_not_touched():
    paths = ["root://host//store/a=b/x*.root", "https://host/y.root?z=1"]
    assert names(read_fileset(paths)) == {"events": paths}


def test_text_files_list_paths_and_names(tmp_path):
    (tmp_path / "list.txt").write_text("# my files\nx.root\nzvv=y.root  # another\n\n")
    assert names(read_fileset([f"{tmp_path}/list.txt"])) == {
        "events": ["x.root"],
        "zvv": ["y.root"],
    }
    assert names(read_fileset([f"vbf={tmp_path}/list.txt"])) == {
        "vbf": ["x.root"],
        "zvv": ["y.root"],
    }


def test_coffea_filesets_in_all_their_forms(tmp_path):
    fileset = {
        "plain": ["a.root"],
        "named": {"files": {"b.root": "Other"}, "metadata": {"xsec": 3}},
        "preprocessed": {"files": {"c.root": {"object_path": "Delphes", "steps": None}}},
        "treename": {"files": ["d.root"], "treename": "T"},
        "gold": {"files": ["e.root"], "metadata": {"gold_standard_of": "plain"}},
    }
    (tmp_path / "f.json").write_text(json.dumps(fileset))
    found = read_fileset([f"{tmp_path}/f.json"])
    assert {name: dataset.files for name, dataset in found.items()} == {
        "plain": {"a.root": "Delphes"},
        "named": {"b.root": "Other"},
        "preprocessed": {"c.root": "Delphes"},
        "treename": {"d.root": "T"},
        "gold": {"e.root": "Delphes"},
    }
    assert found["named"].metadata == {"xsec": 3}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"d": {"file": ["a.root"]}}', "unknown key 'file'; did you mean 'files'"),
        ('{"d": {"files": ["a.root"], "metadata": {"gold_standart_of": "d"}}}', "did you mean 'gold_standard_of'"),
        ('{"d": {"files": ["a.root"], "metadata": {"gold_standard_of": "e"}}}', "'e', which is not in the fileset"),
        ('{"d": "a.root"}', "expected a list of files"),
        ('["a.root"]', "must map dataset names"),
        ('{"d": ', "is not valid JSON"),
        ('{"d": {"metadata": {}}}', "'files' is missing"),
    ],
)  # fmt: skip
def test_typos_in_a_fileset_are_named(tmp_path, content, sentence):
    (tmp_path / "f.json").write_text(content)
    with pytest.raises(BadConfig, match=sentence):
        read_fileset([f"{tmp_path}/f.json"])


@pytest.mark.parametrize("inputs", [[], ["{}.txt"], ["{}/*.root"], ["{}.json"]])
def test_an_empty_list_is_refused(tmp_path, inputs):
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(NoEvents):
        read_fileset([each.format(tmp_path / "empty") for each in inputs])


def test_a_list_that_is_not_there(tmp_path):
    with pytest.raises(BadConfig, match=r"absent\.txt cannot be read"):
        read_fileset([f"{tmp_path}/absent.txt"])

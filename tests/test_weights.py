"""Weights written to files are those of the library, collection by collection, in order."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import awkward as ak
import pyarrow.parquet as pq
import pytest
import uproot
from puma.models import untrained

from puma_coffea import candidates, method, open_events, read_candidates, sample_path
from puma_coffea.exceptions import BadConfig, NoEvents, NotDelphesFile, NotParquetSample
from puma_coffea.layouts import PARTICLE_FLOW
from puma_coffea.weights_io import read_chunks, tree_names, write_weights

EFLOW = ("EFlowTrack", "EFlowPhoton", "EFlowNeutralHadron")
FILE = sample_path("zvv_pu140")


@pytest.fixture(scope="module")
def puma(tmp_path_factory):
    folder = untrained().save(tmp_path_factory.mktemp("model") / "tiny")
    return f"puma:{folder}"


@pytest.fixture(scope="module")
def written(puma, tmp_path_factory):
    """Outputs of two methods in chunks that do not divide the file evenly."""
    out = tmp_path_factory.mktemp("weights")
    write_weights([f"zvv={FILE}"], out, methods=["puppi", puma], chunksize=5)
    return out / "zvv"


def test_parquet_rows_are_the_events_in_their_order(written, puma):
    table = pq.read_table(written / "zvv_pu140.weights.parquet")
    assert table.column_names == ["dataset", "file", "entry", "puppi", "puma_tiny"]
    assert table["entry"].to_pylist() == list(range(12))
    assert set(table["dataset"].to_pylist()) == {"zvv"}
    assert set(table["file"].to_pylist()) == {FILE}
    pf = candidates(open_events(FILE))
    for column, name in (("puppi", "puppi"), ("puma_tiny", puma)):
        found = ak.from_arrow(table[column])
        assert ak.all(ak.num(found) == ak.num(pf))
        assert ak.all(found == method(name)(pf))


def test_friend_trees_align_with_each_collection(written, puma):
    events = open_events(FILE)
    pf = candidates(events)
    with (
        uproot.open(FILE) as original,
        uproot.open(written / "zvv_pu140.weights.root") as friends,
    ):
        assert friends.keys(cycle=False) == ["puppi", "puma_tiny"]
        for tree, name in (("puppi", "puppi"), ("puma_tiny", puma)):
            friend = friends[tree].arrays()
            assert len(friend) == original["Delphes"].num_entries
            parts = [friend[f"{collection}_weight"] for collection in EFLOW]
            for collection, part in zip(EFLOW, parts, strict=True):
                eta = original[f"Delphes/{collection}/{collection}.Eta"].array()
                assert ak.all(ak.num(part) == ak.num(eta))
            assert ak.all(ak.concatenate(parts, axis=1) == method(name)(pf))
            assert ak.all(friend["EFlowPhoton_weight"] == method(name)(pf)[pf.pid == 22])


def test_the_single_collection_has_one_branch(data, tmp_path, monkeypatch):
    path = data / "particle_flow.root"  # which has the EFlow collections too
    monkeypatch.setattr("puma_coffea.weights_io.LAYOUTS", (PARTICLE_FLOW,))
    (made,) = write_weights([str(path)], tmp_path, methods=["puppi"], form="root")
    with uproot.open(made) as friends:
        found = friends["puppi"].arrays()
    assert found.fields == ["nParticleFlowCandidate_weight", "ParticleFlowCandidate_weight"]
    pf = candidates(open_events(path), layout=PARTICLE_FLOW)
    assert ak.all(found["ParticleFlowCandidate_weight"] == method("puppi")(pf))
    assert list(made.parent.iterdir()) == [made]


def test_parquet_samples_get_parquet_weights(tmp_path):
    path = sample_path("zvv_pu140.parquet")
    (made,) = write_weights([path], tmp_path, methods=["puppi"], chunksize=7)
    found = ak.from_arrow(pq.read_table(made)["puppi"])
    assert ak.all(found == method("puppi")(read_candidates(path)))
    assert pq.read_table(made)["entry"].to_pylist() == list(range(60))
    with pytest.raises(BadConfig, match="nothing to be friends with"):
        write_weights([path], tmp_path, methods=["puppi"], form="root")


@pytest.mark.parametrize("size", [1, 5, 100])
def test_no_chunk_is_larger_than_asked(size):
    chunks = list(read_chunks(FILE, size))
    assert max(len(chunk.candidates) for chunk in chunks) == min(size, 12)
    assert [chunk.start for chunk in chunks] == list(range(0, 12, size))


def test_finished_files_are_left_alone_until_something_changes(tmp_path):
    here = Path(shutil.copy(FILE, tmp_path / "here.root"))
    calls = []

    def go(**options):
        calls.clear()
        return write_weights(
            [str(here)], tmp_path / "out", progress=lambda *call: calls.append(call), **options
        )

    made = go(methods=["chs"])
    assert calls == [(str(here), 12, 12)]
    assert go(methods=["chs"]) == made
    assert calls == []
    go(methods=["chs"], vertexing="reco")
    assert len(calls) == 1
    go(methods=["chs"], vertexing="reco", form="parquet", chunksize=6)
    assert len(calls) == 2
    shutil.copy(sample_path("zvv_pu0"), here)
    go(methods=["chs"], vertexing="reco", form="parquet")
    assert len(calls) == 1
    made[0].unlink()
    go(methods=["chs"], vertexing="reco", form="parquet")
    assert len(calls) == 1


def test_nothing_half_written_is_left_behind(tmp_path):
    content = Path(FILE).read_bytes()
    broken = tmp_path / "broken.root"
    # The baskets of the last events are destroyed; the header and the first ones are not.
    broken.write_bytes(
        content[: len(content) // 3] + b"\0" * 200_000 + content[len(content) // 3 + 200_000 :]
    )
    with pytest.raises(NotDelphesFile, match=r"broken\.root"):
        write_weights([str(broken)], tmp_path / "out", methods=["chs"], chunksize=4)
    assert list((tmp_path / "out" / "events").iterdir()) == []


def test_files_of_the_same_name_do_not_overwrite_each_other(tmp_path):
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()
        shutil.copy(FILE, place / "same.root")
    made = write_weights(
        [str(place / "same.root") for place in places],
        tmp_path / "out",
        methods=["chs"],
        form="parquet",
    )
    assert [path.name for path in made] == ["same.weights.parquet", "same_2.weights.parquet"]


def test_what_cannot_be_done_is_refused(tmp_path, data):
    with pytest.raises(BadConfig, match="Unknown format 'csv'"):
        write_weights([FILE], tmp_path, methods=["chs"], form="csv")
    with pytest.raises(BadConfig, match="chunksize must be at least 1"):
        write_weights([FILE], tmp_path, methods=["chs"], chunksize=0)
    with pytest.raises(NoEvents, match="without events"):
        write_weights([str(data / "zero_events.root")], tmp_path, methods=["chs"])
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(NotParquetSample):
        write_weights([str(tmp_path / "text.parquet")], tmp_path, methods=["chs"])
    with pytest.raises(BadConfig, match="both be written as 'puma_b'"):
        tree_names(["puma:a/b", "puma:c/b"])


def test_the_command_writes_and_says_where(tmp_path, puma):
    program = str(Path(sys.executable).with_name("puma-coffea"))
    arguments = ["weights", FILE, "--method", f"chs,{puma}", "--output", "out", "--format", "root"]
    ran = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "Weights: out/events/zvv_pu140.weights.root"
    with uproot.open(tmp_path / "out" / "events" / "zvv_pu140.weights.root") as friends:
        assert friends.keys(cycle=False) == ["chs", "puma_tiny"]

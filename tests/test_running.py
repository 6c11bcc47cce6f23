"""A run gives the same bits on every executor and chunking, survives a kill, and loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import awkward as ak
import numpy as np
import pytest

from puma_coffea import candidates, met, method, open_events, sample_path, truth
from puma_coffea.exceptions import (
    BadConfig,
    BadOutput,
    NoEvents,
    NoScheduler,
    NoTarget,
    NotDelphesFile,
    PumaCoffeaError,
    UnknownMethod,
    UnknownVertexing,
)
from puma_coffea.outputs import read_output
from puma_coffea.running import prepare, run

METHODS = ("chs", "puppi", "truth")
FILES = [f"zvv={sample_path('zvv_pu140')}", f"vbf={sample_path('vbfhinv_pu140.parquet')}"]


def quick(inputs, output, **options):
    settings = {"methods": METHODS, "status": False, "max_events": 12} | options
    return run(inputs, output, **settings)


def assert_same_output(first, second):
    assert first["sums"] == second["sums"]
    assert first["summary"] == second["summary"]
    assert first["record"] == second["record"]
    for name, histogram in first["histograms"].items():
        assert histogram == second["histograms"][name]
        assert (
            histogram.view(flow=True).tobytes()
            == second["histograms"][name].view(flow=True).tobytes()
        )


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return quick(FILES, tmp_path_factory.mktemp("reference"), chunksize=3)


def test_chunk_sizes_change_no_bit(reference, tmp_path):
    assert_same_output(quick(FILES, tmp_path, chunksize=10), reference)


def test_processes_change_no_bit(reference, tmp_path):
    result = quick(FILES, tmp_path, chunksize=5, executor="futures", workers=2)
    assert_same_output(result, reference)


@pytest.fixture
def cluster(tmp_path):
    """Address of a scheduler and its two workers, each a program of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    address = tmp_path / "scheduler.json"
    common = ["--scheduler-file", str(address)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    dask = [sys.executable, "-m"]
    programs = [
        subprocess.Popen(
            [*dask, "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", *common],
            **quiet,
        )
    ]
    programs += [
        subprocess.Popen(
            [
                *dask,
                "distributed.cli.dask_worker",
                "--nthreads",
                "1",
                "--no-nanny",
                "--no-dashboard",
                *common,
            ],
            **quiet,
        )
        for _ in range(2)
    ]
    deadline = time.monotonic() + 60
    while not address.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    yield json.loads(address.read_text())["address"], programs[1:]
    for program in programs:
        program.kill()
        program.wait()


@contextmanager
def killed_in_mid_run(worker, output):
    """Kill a worker as soon as the run has finished a chunk; it must have died of that."""

    def kill():
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if any(output.glob("checkpoints/*.chunk")):
                worker.send_signal(signal.SIGKILL)
                return
            time.sleep(0.02)

    killer = Thread(target=kill)
    killer.start()
    yield
    killer.join()
    assert worker.wait(timeout=10) == -signal.SIGKILL


def test_a_dask_cluster_that_loses_a_worker_changes_no_bit(reference, cluster, tmp_path):
    address, workers = cluster
    with killed_in_mid_run(workers[0], tmp_path / "out"):
        result = quick(FILES, tmp_path / "out", chunksize=3, executor="dask", scheduler=address)
    assert_same_output(result, reference)


STOPPED = """
import sys
from puma_coffea.running import run
run(sys.argv[2:], sys.argv[1], methods=("chs", "puppi", "truth"), chunksize=3, status=False, max_events=12)
"""


def test_a_run_that_is_killed_goes_on_where_it_stopped(reference, tmp_path):
    out = tmp_path / "out"
    program = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(out), *FILES], stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while len(list(out.glob("checkpoints/*.chunk"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    program.kill()
    program.wait()
    done = {path: path.stat().st_mtime_ns for path in out.glob("checkpoints/*.chunk")}
    assert 2 <= len(done) < 8
    assert not (out / "output.coffea").exists()
    result = quick(FILES, out, chunksize=3)
    assert_same_output(result, reference)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert len(list(out.glob("checkpoints/*.chunk"))) == 8


def test_other_settings_do_not_reuse_finished_chunks(tmp_path):
    files = FILES[:1]
    quick(files, tmp_path, methods=("chs",))
    first = set(tmp_path.glob("checkpoints/*.chunk"))
    other = quick(files, tmp_path, methods=("puppi",))
    reco = quick(files, tmp_path, methods=("puppi",), vertexing="reco")
    assert len(first) == 1
    assert len(set(tmp_path.glob("checkpoints/*.chunk"))) == 3
    assert list(other["summary"]["zvv"]) == ["puppi"]
    assert other["summary"] != reco["summary"]


def test_a_damaged_checkpoint_is_computed_again(tmp_path):
    first = quick(FILES[:1], tmp_path)
    (chunk,) = tmp_path.glob("checkpoints/*.chunk")
    content = chunk.read_bytes()
    chunk.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert_same_output(quick(FILES[:1], tmp_path), first)


def test_numbers_are_those_of_the_library(reference):
    events = open_events(sample_path("zvv_pu140"))
    pf, true = candidates(events), truth(events)
    residual = np.asarray(met(pf, method("puppi")(pf)).px - true.met.px)
    found = reference["summary"]["zvv"]["puppi"]["met_x"]
    assert found["mean"] == pytest.approx(residual.mean(), rel=1e-9)
    assert found["width"] == pytest.approx(residual.std(), rel=1e-9)
    counts = reference["histograms"]["met_x"][{"dataset": "zvv", "method": "puppi"}]
    assert counts.sum(flow=True).value == 12


def test_the_corrected_recoil_closes_in_every_bin(reference):
    for dataset in reference["summary"].values():
        for row in dataset.values():
            assert len(row["recoil_bins"]) > 2
            closures = [b["closure"] for b in row["recoil_bins"] if b["closure"] is not None]
            assert len(closures) > 2
            assert max(map(abs, closures)) < 1e-6


@pytest.mark.shared
@pytest.mark.parametrize(
    ("sample", "response", "resolution"), [("zvv", 0.95, 11.7), ("vbfhinv", 0.92, 18.7)]
)
def test_reference_recoil_of_tuned_puppi(shared, tmp_path, sample, response, resolution):
    path = shared / "eval" / f"eval_{sample}_pu140.parquet"
    result = run([f"d={path}"], tmp_path, methods=("puppi",), status=False)
    whole = result["summary"]["d"]["puppi"]["recoil"]
    assert whole["response"] == pytest.approx(response, rel=0.03)
    assert whole["resolution"] == pytest.approx(resolution, rel=0.03)


def test_the_paired_sample_appears_as_gold_standard(tmp_path):
    fileset = {
        "zvv": {"files": [sample_path("zvv_pu140.parquet")]},
        "pu0": {"files": [sample_path("zvv_pu0.parquet")], "metadata": {"gold_standard_of": "zvv"}},
    }
    (tmp_path / "f.json").write_text(json.dumps(fileset))
    result = run([str(tmp_path / "f.json")], tmp_path / "out", methods=("puppi",), status=False)
    rows = result["summary"]["zvv"]
    assert list(result["summary"]) == ["zvv"]
    assert rows["no pile-up"]["met_x"]["events"] == 60
    assert rows["no pile-up"]["met_x"]["width"] < rows["puppi"]["met_x"]["width"]
    assert result["record"]["pu0"]["events"] == 60


def test_outputs_can_be_read_elsewhere(reference, tmp_path):
    import uhi.io.json
    import uproot
    from coffea.util import load

    quick(FILES, tmp_path, root=True)
    assert_same_output(load(str(tmp_path / "output.coffea")), reference)
    portable = json.loads(
        (tmp_path / "histograms.json").read_text(), object_hook=uhi.io.json.object_hook
    )
    import hist

    assert hist.Hist(portable["met_x"]).sum(flow=True).value == 12 * 2 * len(METHODS)
    with uproot.open(tmp_path / "histograms.root") as file:
        assert file["zvv/puppi/met_x"].values(flow=True).sum() == 12
    numbers = json.loads((tmp_path / "summary.json").read_text())
    assert numbers["summary"]["zvv"]["puppi"]["met_x"]["events"] == 12


def test_a_method_of_ones_own_travels_to_other_processes(tmp_path):
    from puma_coffea import register_method

    register_method("halved", lambda pf: ak.ones_like(pf.pt) * 0.5)
    result = quick(FILES[:1], tmp_path, methods=("none", "halved"), executor="futures", chunksize=6)
    rows = result["summary"]["zvv"]
    assert rows["halved"]["u_parallel"]["mean"] == pytest.approx(
        rows["none"]["u_parallel"]["mean"] / 2, rel=1e-6
    )


def truncated(tmp_path):
    content = Path(sample_path("zvv_pu0")).read_bytes()
    path = tmp_path / "cut.root"
    path.write_bytes(content[: len(content) // 2])
    return str(path)


def damaged_inside(tmp_path):
    """A file that opens, but whose columns cannot be decompressed."""
    content = bytearray(Path(sample_path("zvv_pu140")).read_bytes())
    content[20_000:1_400_000] = b"\x55" * 1_380_000
    path = tmp_path / "rotten.root"
    path.write_bytes(content)
    return str(path)


def test_skipped_files_are_named_and_the_rest_is_complete(reference, tmp_path):
    good, bad = sample_path("zvv_pu140"), truncated(tmp_path)
    rotten = damaged_inside(tmp_path)
    result = quick(
        [f"zvv={good}", f"zvv={bad}", f"zvv={rotten}"],
        tmp_path / "out",
        skip_bad_files=True,
        max_events=None,
    )
    assert result["sums"]["zvv"] == reference["sums"]["zvv"]
    lost = result["record"]["zvv"]["lost"]
    assert set(lost) == {bad, rotten}
    assert lost[rotten]["events"] == 12
    assert "cannot be read" in next(iter(lost[rotten]["reasons"]))
    numbers = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert set(numbers["record"]["zvv"]["lost"]) == {bad, rotten}


@pytest.mark.parametrize("executor", ["iterative", "futures"])
def test_a_file_damaged_inside_stops_the_run_by_name(tmp_path, executor):
    with pytest.raises(NotDelphesFile, match=r"rotten\.root: events 0 to 12 cannot be read"):
        quick([damaged_inside(tmp_path)], tmp_path / "out", executor=executor)


def test_refusals_come_before_any_work_and_leave_nothing(tmp_path, data):
    good = sample_path("zvv_pu0")
    text = tmp_path / "text.root"
    text.write_text("no")
    cases = [
        (NotDelphesFile, [str(text)], {}),
        (NotDelphesFile, [truncated(tmp_path)], {}),
        (NotDelphesFile, [str(tmp_path / "absent.root")], {}),
        (NoEvents, [str(data / "zero_events.root")], {}),
        (NoEvents, [], {}),
        (UnknownMethod, [good], {"methods": ("pupi",)}),
        (UnknownMethod, [good], {"methods": ("no_such_module:f",)}),
        (BadConfig, [good], {"executor": "spark"}),
        (BadConfig, [good], {"chunksize": 0}),
    ]
    for number, (kind, inputs, options) in enumerate(cases):
        out = tmp_path / f"out{number}"
        with pytest.raises(kind) as error:
            quick(inputs, out, **options)
        assert "\n" not in str(error.value)
        assert not (out / "output.coffea").exists()


@pytest.mark.parametrize("executor", ["iterative", "futures"])
def test_refusals_inside_of_workers_keep_their_sentence(tmp_path, data, executor):
    with pytest.raises(NoTarget, match="HardEnergyFraction"):
        quick([str(data / "older_delphes.root")], tmp_path, executor=executor)
    with pytest.raises(PumaCoffeaError, match="No particle-flow candidates"):
        quick([str(data / "no_eflow.root")], tmp_path, executor=executor)


def test_parquet_samples_know_one_vertex_association(tmp_path):
    with pytest.raises(UnknownVertexing, match="'reco' cannot be had"):
        quick(FILES[1:], tmp_path, vertexing="reco")


def test_preparing_what_is_prepared_is_refused(tmp_path):
    with pytest.raises(BadConfig, match="is a Parquet file already"):
        prepare([sample_path("zvv_pu0.parquet")], tmp_path)


def test_a_scheduler_that_does_not_answer(tmp_path):
    with pytest.raises(NoScheduler, match=r"127\.0\.0\.1:9 within 10 s"):
        quick(FILES[:1], tmp_path, executor="dask", scheduler="tcp://127.0.0.1:9")


def test_an_output_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadOutput, match="cannot be written"):
        quick(FILES[:1], tmp_path / "file" / "out")


def test_reading_something_else_as_output(tmp_path):
    with pytest.raises(BadOutput, match=r"holds no output\.coffea"):
        read_output(tmp_path)
    (tmp_path / "output.coffea").write_text("no")
    with pytest.raises(BadOutput, match="cannot be read as a coffea output"):
        read_output(tmp_path)
    shutil.rmtree(tmp_path)

"""PUMA through the runner: the same bits everywhere, an altered model refused by every worker."""

from __future__ import annotations

import signal
import time
from threading import Thread

import pytest
from puma.models import untrained
from test_running import FILES, assert_same_output, cluster, quick  # noqa: F401

import puma_coffea.puma.model as model_module
from puma_coffea.exceptions import ModelHashMismatch
from puma_coffea.puma.card import WEIGHTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return untrained().save(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def reference(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("reference")
    return quick(FILES, out, chunksize=3, methods=("chs", f"puma:{folder}"))


def test_chunk_sizes_change_no_bit(reference, folder, tmp_path):
    result = quick(FILES, tmp_path, chunksize=10, methods=("chs", f"puma:{folder}"))
    assert_same_output(result, reference)
    rows = result["summary"]["zvv"]
    assert rows[f"puma:{folder}"] != rows["chs"]


def test_processes_change_no_bit(reference, folder, tmp_path):
    methods = ("chs", f"puma:{folder}")
    result = quick(FILES, tmp_path, chunksize=5, methods=methods, executor="futures", workers=2)
    assert_same_output(result, reference)


def test_a_dask_cluster_that_loses_a_worker_changes_no_bit(reference, folder, cluster, tmp_path):  # noqa: F811
    address, workers = cluster
    checkpoints = tmp_path / "out" / "checkpoints"

    def kill_one():
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if checkpoints.is_dir() and any(checkpoints.glob("*.chunk")):
                workers[0].send_signal(signal.SIGKILL)
                return
            time.sleep(0.02)

    killer = Thread(target=kill_one)
    killer.start()
    methods = ("chs", f"puma:{folder}")
    result = quick(
        FILES, tmp_path / "out", chunksize=3, methods=methods, executor="dask", scheduler=address
    )
    killer.join()
    assert workers[0].wait(timeout=10) == -signal.SIGKILL
    assert_same_output(result, reference)

"""PUMA through the runner: the same bits everywhere, an altered model refused by every worker."""

from __future__ import annotations

import re
import shutil

import cloudpickle
import pytest
from coffea.processor import IterativeExecutor, Runner
from distributed import Client
from puma.models import untrained
from test_running import FILES, assert_same_output, cluster, killed_in_mid_run, quick  # noqa: F401

import puma_coffea.puma.model as model_module
from puma_coffea import DelphesSchema, Puma, sample_path
from puma_coffea.exceptions import ModelHashMismatch
from puma_coffea.processors import PileupProcessor
from puma_coffea.puma.card import WEIGHTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return untrained().save(tmp_path_factory.mktemp("model") / "tiny")


def puma_run(model, output, **options):
    return quick(FILES[:1], output, methods=("chs", f"puma:{model}"), **options)


@pytest.fixture(scope="module")
def reference(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("reference")
    return puma_run(folder, out, chunksize=3)


def test_chunk_sizes_change_no_bit(reference, folder, tmp_path):
    result = puma_run(folder, tmp_path, chunksize=5)
    assert_same_output(result, reference)
    rows = result["summary"]["zvv"]
    assert rows[f"puma:{folder}"] != rows["chs"]


def test_processes_change_no_bit(reference, folder, tmp_path):
    result = puma_run(folder, tmp_path, chunksize=4, executor="futures", workers=2)
    assert_same_output(result, reference)


def test_a_dask_cluster_that_loses_a_worker_changes_no_bit(reference, folder, cluster, tmp_path):  # noqa: F811
    address, workers = cluster
    with killed_in_mid_run(workers[0], tmp_path / "out"):
        result = puma_run(folder, tmp_path / "out", chunksize=2, executor="dask", scheduler=address)
    assert_same_output(result, reference)


@pytest.fixture
def worker_has(folder, tmp_path, monkeypatch):
    """Give workers another folder of shipped models than the one this process plans with."""
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(folder, here / "tiny")
    shutil.copytree(folder, there / "tiny")
    monkeypatch.setattr(model_module, "SHIPPED", here)
    monkeypatch.setattr(model_module, "_SHIPPED", {})

    def unpickled_at_worker(models, *sent):
        import puma_coffea.puma.model as module

        module.SHIPPED = models
        return module._shipped_model(*sent)

    plain = Puma.__reduce__
    monkeypatch.setattr(
        Puma, "__reduce__", lambda model: (unpickled_at_worker, (there, *plain(model)[1]))
    )
    return there / "tiny"


def alter_one_byte(model):
    content = (model / WEIGHTS).read_bytes()
    (model / WEIGHTS).write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])


ALTERED = r"Model 'tiny': .*weights\.safetensors is not the file its card was made for"


def test_shipped_models_of_workers_give_the_same_bits(worker_has, reference, tmp_path):
    result = puma_run("tiny", tmp_path / "out")
    assert worker_has.parent == model_module.SHIPPED
    found = result["summary"]["zvv"]["puma:tiny"]
    assert found in reference["summary"]["zvv"].values()


@pytest.mark.parametrize("executor", ["iterative", "futures"])
def test_an_altered_model_file_is_refused_by_name(worker_has, tmp_path, executor):
    alter_one_byte(worker_has)
    with pytest.raises(ModelHashMismatch, match=ALTERED):
        puma_run("tiny", tmp_path / "out", executor=executor, workers=1)
    assert not (tmp_path / "out" / "output.coffea").exists()


def test_every_dask_worker_refuses_an_altered_model_file(worker_has, cluster, tmp_path):  # noqa: F811
    alter_one_byte(worker_has)
    with pytest.raises(ModelHashMismatch, match=ALTERED):
        puma_run("tiny", tmp_path / "out", executor="dask", scheduler=cluster[0])
    sent = cloudpickle.dumps(Puma.load("tiny"))
    with Client(cluster[0]) as client:
        client.wait_for_workers(2, timeout=60)
        answers = client.run(cloudpickle.loads, sent, on_error="return")
    assert len(answers) == 2
    for answer in answers.values():
        assert isinstance(answer, ModelHashMismatch)
        assert re.match(ALTERED, str(answer))


def test_another_version_at_the_worker_is_refused_by_name(worker_has, tmp_path):
    untrained(seed=5).save(worker_has)
    with pytest.raises(ModelHashMismatch, match="Model 'tiny' of this worker is not the one"):
        puma_run("tiny", tmp_path / "out")


def test_a_folder_altered_after_planning_cannot_change_a_run(folder, reference, tmp_path):
    # Its numbers travel with the processor; a new run refuses the folder.
    mine = tmp_path / "tiny"
    shutil.copytree(folder, mine)
    processor = PileupProcessor(["chs", f"puma:{mine}"])
    alter_one_byte(mine)
    run = Runner(IterativeExecutor(status=False), schema=DelphesSchema)
    result = run({"zvv": {"files": {sample_path("zvv_pu140"): "Delphes"}}}, processor)
    found = result["summary"]["zvv"][f"puma:{mine}"]
    assert found in reference["summary"]["zvv"].values()
    with pytest.raises(ModelHashMismatch, match=ALTERED):
        puma_run(mine, tmp_path / "out")


def test_the_processor_travels_in_a_few_kilobytes(worker_has, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(model_module, "SHIPPED", worker_has.parent)
    assert len(cloudpickle.dumps(PileupProcessor(["chs", "puppi", "puma:tiny"]))) < 3000


def test_another_model_does_not_reuse_finished_chunks(folder, tmp_path):
    mine = tmp_path / "tiny"
    shutil.copytree(folder, mine)
    first = puma_run(mine, tmp_path / "out")
    untrained(seed=9).save(mine)
    second = puma_run(mine, tmp_path / "out")
    assert first["summary"] != second["summary"]

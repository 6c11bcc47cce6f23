"""Every example runs as a user would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from puma.models import untrained

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("plain_analysis.py", "12 events"),
        ("own_method.py", "near-hard-track"),
        ("dask_cluster.py", "12 events on a local cluster"),
    ],
)
def test_script_runs_and_prints_its_result(script, expected):
    ran = subprocess.run(
        [sys.executable, EXAMPLES / script], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert expected in ran.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(untrained().save(tmp_path_factory.mktemp("model") / "tiny"))


def output_of(*command):
    ran = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("add_puma.py", "12 events; pTmiss is"),
        ("puma_on_dask.py", "12 events on the cluster; the same in this process: True"),
    ],
)
def test_puma_script_runs_with_a_model_folder(script, expected, model):
    assert expected in output_of(EXAMPLES / script, model)


@pytest.mark.parametrize("script", ["add_puma.py", "torch_wrapper.py"])
def test_puma_script_runs_with_the_shipped_model(script):
    assert "events" in output_of(EXAMPLES / script)


def test_torchscript_through_coffea_agrees_with_the_package(model):
    shown = output_of(EXAMPLES / "torch_wrapper.py", model)
    assert "3 events" in shown
    assert float(shown.split("Puma.load(): ")[1]) < 1e-5


@pytest.mark.shared
def test_pfnano_script_runs(shared, model):
    shown = output_of(EXAMPLES / "pfnano.py", shared / "root" / "pfnano.root", model)
    assert "10 events" in shown
    assert "CMS PUPPI          26.2" in shown


def test_the_samples_of_the_training_are_of_all_processes(tmp_path):
    from puma_coffea.simulation.generator import PROCESSES

    calls, stub = tmp_path / "calls", tmp_path / "puma-coffea"
    stub.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    stub.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    script = ["bash", str(EXAMPLES / "simulate_samples.sh"), str(tmp_path / "samples")]
    subprocess.run(script, check=True, env=os.environ | {"PATH": path})
    lines = [line.removeprefix("simulate ").split(" --") for line in calls.read_text().splitlines()]
    assert len({line[-1] for line in lines}) == len(lines) == 32
    assert {name for line in lines for name in line[0].split()} == set(PROCESSES)
    assert {line[2] for line in lines} == {"pileup 140", "pileup 0-220"}


def test_adding_puma_is_the_three_lines_of_its_docstring(tmp_path):
    source = (EXAMPLES / "add_puma.py").read_text()
    docstring, code = source.split('"""', 2)[1:]
    marked = [line[4:] for line in docstring.splitlines() if line[4:5] in ("+", "-")]
    added = [line[1:] for line in marked if line[0] == "+"]
    removed = [line[1:] for line in marked if line[0] == "-"]
    assert len(added) == 3
    # Undone, they leave an analysis that runs without PUMA.
    for line in added:
        assert code.count(f"{line}\n") == 1
    before = code.replace(f"{added[0]}\n", f"{removed[0]}\n")
    before = before.replace(f"{added[1]}\n{added[2]}\n", f"{removed[1]}\n")
    assert "Puma" not in before
    (tmp_path / "before.py").write_text(before)
    assert "12 events; pTmiss is" in output_of(tmp_path / "before.py")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_notebook_runs_from_top_to_bottom():
    notebook = nbformat.read(EXAMPLES / "first_look.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = "".join(str(cell.get("outputs", "")) for cell in notebook.cells)
    assert "response" in outputs
    assert "image/png" in outputs

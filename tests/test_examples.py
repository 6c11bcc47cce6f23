"""Every example runs as a user would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_notebook_runs_from_top_to_bottom():
    notebook = nbformat.read(EXAMPLES / "first_look.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = "".join(str(cell.get("outputs", "")) for cell in notebook.cells)
    assert "response" in outputs
    assert "image/png" in outputs

"""Compiled kernels are kept where they can be, and never outlive the sources they were made of."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import puma_coffea.kernels

INNER = "from kernels import kernel\n\n@kernel\ndef inner(x):\n    return x + {}\n"
OUTER = "from inner import inner\nfrom kernels import kernel\n\n@kernel\ndef outer(x):\n    return inner(x)\n"
PROGRAM = "from outer import outer; print(outer(1.0), len(outer.stats.cache_hits))"


@pytest.fixture
def folder(tmp_path):
    """A small package of kernels of two files, one of which calls the other's."""
    shutil.copy(puma_coffea.kernels.__file__, tmp_path / "kernels.py")
    (tmp_path / "inner.py").write_text(INNER.format(1))
    (tmp_path / "outer.py").write_text(OUTER)
    return tmp_path


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_second_process_finds_the_kernels(folder):
    assert run(folder).stdout.split() == ["2.0", "0"]
    assert run(folder).stdout.split() == ["2.0", "1"]


def test_a_kernel_is_compiled_again_when_one_that_it_calls_has_changed(folder):
    assert run(folder).stdout.split() == ["2.0", "0"]
    (folder / "inner.py").write_text(INNER.format(2))
    assert run(folder).stdout.split() == ["3.0", "0"]


def test_kernels_work_where_nothing_can_be_written(folder):
    # A file in place of each folder: unlike permissions, this stops the superuser too.
    (folder / "__pycache__").write_text("")
    (folder / "home").write_text("")
    nowhere = str(folder / "home")
    answer = run(folder, HOME=nowhere, XDG_CACHE_HOME=nowhere)
    assert answer.stdout.split() == ["2.0", "0"]
    assert "Set NUMBA_CACHE_DIR" in answer.stderr


def test_files_of_inner_loops_count_as_sources_of_kernels():
    found = puma_coffea.kernels.kernel_files()
    inner = {"puma/vectors.py", "puma/fast_vectors.py", "training/attention_vectors.py"}
    assert inner < set(found)
    assert "puma/card.py" not in found

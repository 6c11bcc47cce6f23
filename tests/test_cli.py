"""The command line: a sentence and exit code 2 for every refusal, a result otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from puma_coffea import sample_path


def puma_coffea(*arguments, cwd=None):
    program = [str(Path(sys.executable).with_name("puma-coffea")), *map(str, arguments)]
    return subprocess.run(program, capture_output=True, text=True, check=False, cwd=cwd)


def test_run_and_report_end_with_their_paths(tmp_path):
    out = tmp_path / "out"
    ran = puma_coffea(
        "run", sample_path("zvv_pu140"), "-o", out, "--methods", "chs,puppi", "--max-events", 4
    )
    assert ran.returncode == 0, ran.stderr
    assert "puppi" in ran.stdout
    reported = puma_coffea("report", out)
    assert reported.returncode == 0, reported.stderr
    assert "index.html" in reported.stdout
    assert (out / "report" / "index.html").is_file()


def test_a_method_in_the_users_folder_is_found(tmp_path):
    (tmp_path / "mine.py").write_text("def hard(pf):\n    return (pf.vertex == 0) | (pf.pt > 5)\n")
    ran = puma_coffea(
        "run", sample_path("zvv_pu0"), "-o", "out", "--methods", "mine:hard", cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert "mine:hard" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "absent.root", "-o", "out"], "There is no file absent.root."),
        (["run", "*.root", "-o", "out"], "No file matches"),
        (["run", "{zvv}", "-o", "out", "--methods", "pupi"], "There is no method 'pupi'"),
        (["run", "{zvv}", "-o", "out", "--vertexing", "perfect"], "Unknown vertexing 'perfect'"),
        (["run", "{zvv}", "-o", "/proc/nowhere"], "cannot be written"),
        (["run", "{zvv}", "-o", "out", "--executor", "spark"], "Unknown executor 'spark'"),
        (["report", "nothing-here"], "holds no output.coffea"),
    ],
)
def test_refusals_are_one_sentence_and_exit_code_2(tmp_path, arguments, sentence):
    filled = [each.format(zvv=sample_path("zvv_pu0")) for each in arguments]
    refused = puma_coffea(*filled, cwd=tmp_path)
    assert refused.returncode == 2
    assert sentence in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "out" / "output.coffea").exists()


def test_help_lists_the_commands():
    shown = puma_coffea("--help")
    assert shown.returncode == 0
    for command in ("demo", "run", "report"):
        assert command in shown.stdout

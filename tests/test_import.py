"""Importing the package is light, and its public names are the documented ones."""

from __future__ import annotations

import subprocess
import sys

import puma_coffea


def test_import_pulls_in_no_heavy_package():
    code = (
        "import sys, puma_coffea; heavy = {'torch', 'matplotlib', 'numba', 'coffea', 'dask', 'fastjet'}"
        "; print(sorted(heavy & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_weights_on_a_machine_without_gpu_import_no_torch():
    code = (
        "import sys, pathlib; exists = pathlib.Path.exists\n"
        "pathlib.Path.exists = lambda p: not str(p).startswith('/dev/') and exists(p)\n"
        "from puma_coffea import candidates, method, open_events, sample_path\n"
        "method('puma')(candidates(open_events(sample_path('zvv_pu140'), entry_stop=1)))\n"
        "print('torch' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


def test_public_names_exist_and_are_sorted():
    assert puma_coffea.__all__ == sorted(puma_coffea.__all__)
    for name in puma_coffea.__all__:
        assert callable(getattr(puma_coffea, name)), name


def test_version_is_the_installed_one():
    from importlib.metadata import version

    assert puma_coffea.__version__ == version("puma-coffea")

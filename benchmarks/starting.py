"""A new process: the import, and the first weights with kernels from the cache."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from puma_coffea.benchmarks.rows import Row
from puma_coffea.benchmarks.timing import best_times

TITLE = "A new process"
FIRST = """
from puma_coffea import candidates, method, open_events, sample_path
method("{}")(candidates(open_events(sample_path("zvv_pu140"), entry_stop=1)))
"""
PROGRAMS = {
    "Python alone": "pass",
    "import puma_coffea": "import puma_coffea",
    "first weights of PUPPI, file opened": FIRST.format("puppi"),
    "first weights of PUMA, file opened": FIRST.format("puma"),
}


def measure(quick: bool) -> list[Row]:
    """Seconds from the start of the process to its end; a first run fills the cache of kernels."""
    runs = {name: partial(_run, program) for name, program in PROGRAMS.items()}
    times = best_times(runs, 1 if quick else 3)
    return [Row(name, seconds, "s") for name, seconds in times.items()]


def _run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)

"""A new process: the import, and the first weights with kernels from the cache."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from puma_coffea.benchmarks.rows import Row
from puma_coffea.benchmarks.timing import seconds

TITLE = "A new process, kernels cached"
FIRST = """
from puma_coffea import candidates, method, open_events, sample_path
method("{}")(candidates(open_events(sample_path("zvv_pu140"), entry_stop=1)))
"""
PROGRAMS = {
    "Python alone": "pass",
    "import puma_coffea": "import puma_coffea",
    "to the first weights of PUPPI": FIRST.format("puppi"),
    "to the first weights of PUMA": FIRST.format("puma"),
}


def measure(quick: bool) -> list[Row]:
    """Seconds from the start of a process to its end; the first one fills the cache of kernels."""
    runs = {name: partial(_run, program) for name, program in PROGRAMS.items()}
    times = {name: [seconds(run) for _ in range(1 if quick else 3)] for name, run in runs.items()}
    return [Row(name, min(spent), "s") for name, spent in times.items()]


def _run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)

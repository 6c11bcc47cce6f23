"""All subjects, one after the other, each in a process with one thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from puma_coffea.benchmarks.machine import ONE_THREAD, machine
from puma_coffea.benchmarks.rows import Row
from puma_coffea.benchmarks.subjects import SUBJECTS


def bench(quick: bool = False, progress: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Measure everything on the embedded events.

    Parameters
    ----------
    quick
        One turn on two events, to see that it runs; the figures mean little.
    progress
        Called with the name of each subject when it begins.

    Returns
    -------
    dict
        ``machine``, and ``subjects``: title and rows of each (see :class:`Row`).
    """
    found = []
    for subject in SUBJECTS:
        progress(subject)
        found.append(_in_own_process(subject, quick))
    return {"quick": quick, "machine": machine(), "subjects": found}


def _in_own_process(subject: str, quick: bool) -> dict[str, Any]:
    # Libraries count their threads when they are loaded, and peak memory is that of a process.
    with TemporaryDirectory() as folder:
        answer = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "puma_coffea.benchmarks", subject, str(answer)]
        ended = subprocess.run(
            [*command, *(["quick"] if quick else [])],
            env=os.environ | ONE_THREAD,
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.is_file():
            rows: dict[str, Any] = json.loads(answer.read_text())
            return rows
    said = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
    row = Row(subject, missing=f"did not run: {said[:200]}")
    return {"subject": subject, "title": subject, "rows": [row.as_dict()]}

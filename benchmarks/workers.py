"""Dask: two workers of one thread each against one, on the same job; their peak memory."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coffea.processor import DaskExecutor, Runner

from puma_coffea import DelphesSchema, sample_path
from puma_coffea.benchmarks.events import SAMPLE
from puma_coffea.benchmarks.rows import Row
from puma_coffea.benchmarks.scaling import peak_memory
from puma_coffea.benchmarks.timing import seconds
from puma_coffea.filesets import read_fileset
from puma_coffea.processors import PileupProcessor
from puma_coffea.processors.pileup import DEFAULT_METHODS
from puma_coffea.running import plan_chunks

TITLE = "Dask workers, ttbar files, all methods"
FILES = 10  # copies of the embedded file, a chunk of twelve events each


def measure(quick: bool) -> list[Row]:
    """Events per second of one and of two workers, start-up and compilation left out."""
    try:
        from distributed import Client
    except ImportError:
        return [Row("dask", missing="pip install 'puma-coffea[dask]'")]
    files, turns, methods = (2, 1, ("none", "chs")) if quick else (FILES, 2, DEFAULT_METHODS)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        for number in range(files):
            shutil.copy(sample_path(SAMPLE), folder / f"{number}.root")
        items = plan_chunks(read_fileset([f"{folder}/*.root"]), 100, None, False).items
        events = sum(item.entrystop - item.entrystart for item in items)
        clients = {
            number: stack.enter_context(
                Client(n_workers=number, threads_per_worker=1, dashboard_address=None)
            )
            for number in (1, 2)
        }
        spent: dict[int, list[float]] = {1: [], 2: []}
        for number, client in clients.items():
            client.run(_warm_up, items[0].filename, methods)
            _job(client, items[:number], methods)
        before = clients[2].run(_ran_and_waited)
        for _ in range(turns):
            for number, client in clients.items():
                spent[number].append(seconds(partial(_job, client, items, methods)))
        after = clients[2].run(_ran_and_waited)
        peak = max(clients[2].run(peak_memory).values())
    one, two = (events / min(spent[number]) for number in (1, 2))
    ran, waited = (sum(after[w][i] - before[w][i] for w in after) for i in (0, 1))
    rows = [
        Row("one worker", one, "events/s"),
        Row("two workers", two, "events/s", two / one, "one worker"),
        Row("peak memory of a worker", peak / 1e9, "GB"),
    ]
    if ran == 0:
        return rows
    # Above a few percent, other programs had the cores, and the ratio says little about dask.
    busy = Row("two workers, waiting for a core", ratio=waited / (ran + waited), against="not idle")
    return [*rows, busy]


def _job(client: Any, items: list[Any], methods: Sequence[str]) -> None:
    executor = DaskExecutor(client=client, status=False)
    Runner(executor, schema=DelphesSchema, format="root")(items, PileupProcessor(methods))


def _ran_and_waited() -> tuple[float, float]:
    """Seconds that this process ran, and that it could have run but for others; 0 where unknown."""
    ran, waited = 0, 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        first, second, _ = file.read_text().split()
        ran, waited = ran + int(first), waited + int(second)
    return ran / 1e9, waited / 1e9


def _warm_up(file: str, methods: Sequence[str]) -> None:
    """Load the kernels and the model of a worker."""
    from puma_coffea import candidates, jets, method, open_events

    pf = candidates(open_events(file, entry_stop=1))
    for name in methods:
        jets(pf, method(name)(pf))

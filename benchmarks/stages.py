"""The whole processor on one core, stage by stage: the embedded Parquet sample as one chunk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import awkward as ak
import numpy as np

from puma_coffea import DelphesSchema, candidates, method, sample_path, truth
from puma_coffea.accumulation import add_numbers
from puma_coffea.benchmarks.events import SAMPLE
from puma_coffea.benchmarks.rows import Row, milliseconds
from puma_coffea.benchmarks.timing import best_times, seconds
from puma_coffea.exact import ExactSums
from puma_coffea.observables import Weighted
from puma_coffea.parquet import candidates_of, truth_of
from puma_coffea.processors import PileupProcessor
from puma_coffea.processors.pileup import DEFAULT_METHODS
from puma_coffea.quantities import measure as quantities

TITLE = "Processor, all methods, 60 events of Z + jets"
PARQUET = "zvv_pu140.parquet"


def measure(quick: bool) -> list[Row]:
    """Events per second of the whole, and milliseconds per event of each stage."""
    events, turns = (2, 1) if quick else (60, 3)
    processor = PileupProcessor()
    processor.process(parquet_rows(2))  # loads the kernels
    stages, wholes = [], []
    for _ in range(turns):
        stages.append(_stages(events))
        wholes.append(seconds(lambda: processor.process(parquet_rows(events))))
    whole = min(wholes) / events
    best = {name: min(turn[name] for turn in stages) / events for name in stages[0]}
    rows = [Row("the whole", 1 / whole, "events/s")]
    rows += [milliseconds(name, spent, spent / whole, "the whole") for name, spent in best.items()]
    return [*rows, *_delphes(quick)]


def _delphes(quick: bool) -> list[Row]:
    """The same of a Delphes file, whose opening costs as much as several events."""
    events = 2 if quick else 12

    def read() -> None:
        opened = delphes_events(events)
        candidates(opened), truth(opened)

    opening = best_times({"open": lambda: delphes_events(events), "read": read}, 1 if quick else 3)
    each = (opening["read"] - opening["open"]) / events
    return [
        Row("opening a Delphes file", 1e3 * opening["open"], "ms per file"),
        milliseconds("reading it: candidates and truth", each),
    ]


def parquet_rows(events: int) -> ak.Array:
    """Rows of the Parquet sample as coffea's runner hands them out: nothing is read yet."""
    from coffea.nanoevents import BaseSchema, NanoEventsFactory

    return NanoEventsFactory.from_parquet(
        sample_path(PARQUET),
        schemaclass=BaseSchema,
        metadata={"dataset": "zvv", "filename": PARQUET},
        mode="virtual",
        entry_stop=events,
    ).events()


def delphes_events(events: int) -> ak.Array:
    """Events of the ttbar file, likewise."""
    from coffea.nanoevents import NanoEventsFactory

    return NanoEventsFactory.from_root(
        {sample_path(SAMPLE): "Delphes"},
        schemaclass=DelphesSchema,
        metadata={"dataset": SAMPLE, "filename": SAMPLE},
        mode="virtual",
        entry_stop=events,
    ).events()


def _stages(events: int) -> dict[str, float]:
    """Seconds of one chunk by stage, in the order of the processor."""
    spent: dict[str, float] = {}
    stage = _stopwatch(spent)
    with stage("reading"):
        rows = parquet_rows(events)
        candidates_of(rows), truth_of(rows)
    with stage("candidates and truth"):
        pf, true = candidates_of(rows), truth_of(rows)
    # The first time, the columns were read too.
    spent["reading"] -= spent["candidates and truth"]
    sums, ones = ExactSums(), np.ones(len(pf))
    for name in DEFAULT_METHODS:
        weigh = method(name)
        with stage(f"method {name}"):
            weights = weigh(pf)
        weighted = Weighted(pf, weights)
        with stage(f"jets of {name}"):
            weighted.jets()
        with stage("other quantities, all methods"):
            numbers = quantities(pf, weights, true)
        spent["other quantities, all methods"] -= spent[f"jets of {name}"]
        with stage("filling, all methods"):
            add_numbers(sums, name, numbers, ones)
    jets = sum(spent.pop(f"jets of {name}") for name in DEFAULT_METHODS)
    return spent | {"jets, all methods": jets}


def _stopwatch(spent: dict[str, float]) -> Callable[[str], AbstractContextManager[None]]:
    @contextmanager
    def stage(name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - start

    return stage

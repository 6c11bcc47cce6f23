"""The whole processor on one core, stage by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import awkward as ak
import numpy as np

from puma_coffea import DelphesSchema, candidates, jets, method, sample_path, truth
from puma_coffea.accumulation import add_numbers
from puma_coffea.benchmarks.events import SAMPLE
from puma_coffea.benchmarks.rows import Row, milliseconds
from puma_coffea.benchmarks.timing import seconds
from puma_coffea.exact import ExactSums
from puma_coffea.processors import PileupProcessor
from puma_coffea.processors.pileup import DEFAULT_METHODS
from puma_coffea.quantities import measure as quantities

TITLE = "Processor on a Delphes file, all methods"


def measure(quick: bool) -> list[Row]:
    """Events per second of the whole, and milliseconds per event of each stage."""
    events, turns = (2, 1) if quick else (12, 5)
    processor = PileupProcessor()
    stages: list[dict[str, float]] = []
    wholes: list[float] = []
    for _ in range(1 + turns):
        stages.append(_stages(events))
        wholes.append(seconds(lambda: processor.process(_opened(events))))
    # The first turn loaded the kernels.
    whole = min(wholes[1:]) / events
    best = {name: min(turn[name] for turn in stages[1:]) / events for name in stages[0]}
    rows = [milliseconds(name, spent, spent / whole, "the whole") for name, spent in best.items()]
    return [Row("the whole", 1 / whole, "events per second and core"), *rows]


def _opened(events: int) -> ak.Array:
    from coffea.nanoevents import NanoEventsFactory

    return NanoEventsFactory.from_root(
        {sample_path(SAMPLE): "Delphes"},
        schemaclass=DelphesSchema,
        metadata={"dataset": SAMPLE, "filename": SAMPLE},
        mode="virtual",
        entry_stop=events,
    ).events()


def _stages(stop: int) -> dict[str, float]:
    """Seconds of one chunk by stage, in the order of the processor."""
    spent: dict[str, float] = {}

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - start

    with stage("opening and reading"):
        events = _opened(stop)
        candidates(events), truth(events)
    with stage("candidates and truth"):
        pf, true = candidates(events), truth(events)
    # The first time, the columns were read too.
    spent["opening and reading"] -= spent["candidates and truth"]
    sums, ones = ExactSums(), np.ones(len(pf))
    for name in DEFAULT_METHODS:
        weigh = method(name)
        with stage(f"method {name}"):
            weights = weigh(pf)
        with stage("jets, all methods"):
            jets(pf, weights)
        with stage("other quantities, all methods"):
            numbers = quantities(pf, weights, true)
        with stage("filling, all methods"):
            add_numbers(sums, name, numbers, ones)
    spent["other quantities, all methods"] -= spent["jets, all methods"]
    return spent

"""PUMA (preset ``paper``) against the number of candidates of an event: time and memory."""

from __future__ import annotations

import resource
import sys
import tracemalloc
from collections.abc import Iterable, Sequence
from functools import partial

import awkward as ak
import numpy as np

from puma_coffea.benchmarks.events import (
    CARD,
    NETWORK,
    flat_events,
    overlaid,
    paper_model,
    random_tensors,
)
from puma_coffea.benchmarks.rows import Row, milliseconds
from puma_coffea.benchmarks.timing import best_times
from puma_coffea.candidates import COLUMNS, assemble
from puma_coffea.flat import Flat
from puma_coffea.puma.fast import NumbaEngine
from puma_coffea.puma.inputs import prepare

TITLE = "PUMA of preset paper by candidates"
SIZES = (2000, 4000, 8000, 15_000, 30_000)


def measure(quick: bool) -> list[Row]:
    """Times by size, fitted exponents, and the peak memory of the process."""
    sizes, flat = SIZES[:2] if quick else SIZES, flat_events(quick)
    events = [overlaid(flat, size) for size in sizes]
    model = paper_model()
    chunks = [_candidates(event) for event in events]
    turns = 1 if quick else 5
    whole = best_times({str(len(pf[0])): partial(model, pf) for pf in chunks}, turns)
    inputs = best_times({str(len(e.pt)): partial(prepare, e, CARD) for e in events}, 3 * turns)
    peak = peak_memory()
    memory = [_network_memory(event) for event in events]
    span = f"time, {sizes[0]} to {sizes[-1]}"
    rows = [milliseconds(f"PUMA, {n} candidates", spent) for n, spent in whole.items()]
    return [
        *rows,
        Row("exponent of PUMA", ratio=exponent(sizes, whole.values()), against=span),
        Row("exponent of its inputs", ratio=exponent(sizes, inputs.values()), against=span),
        Row(
            "exponent of the network's memory",
            memory[-1] / 1e6,
            "MB",
            exponent(sizes, memory),
            "memory, same range",
        ),
        Row("peak memory of this process", peak / 1e9, "GB"),
    ]


def exponent(sizes: Sequence[int], values: Iterable[float]) -> float:
    """Slope of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(list(values)), 1)[0])


def peak_memory() -> float:
    """Largest resident memory of this process so far, bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def _candidates(event: Flat) -> ak.Array:
    """Back from flat columns to candidates; the charge does not matter here."""
    columns = {n: getattr(event, n) for n in COLUMNS if n != "charge"}
    return assemble(event.offsets, columns | {"charge": np.zeros(len(event.pt))})


def _network_memory(event: Flat) -> float:
    """Largest memory of arrays that the network holds at a time, bytes."""
    engine = NumbaEngine(NETWORK, random_tensors())
    tokens = [prepare(event, CARD).event(0)[1]]
    tracemalloc.start()
    engine(tokens)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(peak)

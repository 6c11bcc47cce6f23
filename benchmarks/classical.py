"""PUPPI, SoftKiller and jets, against a fixed set of matrix products.

Delphes's C++ RunPUPPI takes 0.77 times these products on the same core and the same events:
through them it can be compared with on any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from puma_coffea import jets, method
from puma_coffea.benchmarks.events import embedded
from puma_coffea.benchmarks.rows import Row, milliseconds
from puma_coffea.benchmarks.timing import best_times
from puma_coffea.exceptions import MissingExtra

TITLE = "PUPPI, SoftKiller and jets"
DELPHES = 0.77  # RunPUPPI over the products, both measured on one core
PRODUCTS = "matrix products"


def measure(quick: bool) -> list[Row]:
    """Times per event and ratios to the products."""
    pf = embedded(quick)
    names = ("puppi", "puppi:cms-phase2", "puppi:cms-run2", "softkiller", "chs")
    runs: dict[str, Callable[[], Any]] = {PRODUCTS: anchor()}
    runs |= {name: partial(method(name), pf) for name in names}
    for name in ("chs", "puppi"):
        runs[f"jets of {name}"] = partial(jets, pf, method(name)(pf))
    rows = []
    try:
        jets(pf[:1], method("chs")(pf[:1]))
    except MissingExtra as error:
        runs = {name: run for name, run in runs.items() if not name.startswith("jets")}
        rows = [Row("jets", missing=str(error))]
    times = best_times(runs, 1 if quick else 7)
    unit = times.pop(PRODUCTS)
    each = {name: seconds / len(pf) for name, seconds in times.items()}
    found = [milliseconds(f"{PRODUCTS}, 8320 candidates", unit)]
    found += [milliseconds(n, s, s / unit, PRODUCTS) for n, s in each.items()]
    implied = DELPHES * unit
    delphes = "Delphes's RunPUPPI, implied"
    return [*found, milliseconds(delphes, implied, implied / each["puppi"], "puppi here"), *rows]


def anchor() -> Callable[[], None]:
    """The products of a 12-layer network of width 64 on 8320 candidates, in float32."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8320, 64)).astype(np.float32)
    wide, square = (rng.normal(size=(64, n)).astype(np.float32) for n in (192, 64))

    def run() -> None:
        for _ in range(12):
            x @ wide
            for _ in range(3):
                x @ square

    return run

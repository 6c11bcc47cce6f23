"""The network (preset ``paper``) on one event, against its matrix products and against peers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puma_coffea.benchmarks import engine_parts
from puma_coffea.benchmarks.events import CARD, NETWORK, flat_events, random_tensors
from puma_coffea.benchmarks.rows import Row, milliseconds
from puma_coffea.benchmarks.timing import best_times
from puma_coffea.puma.fast import NumbaEngine
from puma_coffea.puma.inputs import prepare

TITLE = "Network of preset paper, one event"
TYPICAL = 8320  # candidates of an event at 140 interactions
PRODUCTS, THIS = "matrix products alone", "this package"

# By name: the function of torch_peers.py that makes it, and the packages it needs.
PEERS = {
    "torch, eager": ("eager", "torch"),
    "torch, TorchScript": ("script", "torch"),
    "torch.compile": ("compiled", "torch"),
    "AOTInductor": ("ahead_of_time", "torch"),
    "onnxruntime": ("onnx", "torch onnx onnxscript onnxruntime"),
    "Longformer layers (transformers)": ("longformer", "torch transformers"),
    "torch, blocked SDPA with a mask": ("blocked", "torch"),
    "torch, dense with a mask": ("dense", "torch"),
}
SLOW_TO_BUILD = ("compiled", "ahead_of_time", "onnx")


def measure(quick: bool) -> list[Row]:
    """Times of one event, and ratios to the matrix products."""
    x = one_event(quick)
    engine = NumbaEngine(NETWORK, random_tensors())
    runs: dict[str, Callable[[], Any]] = {
        PRODUCTS: matrix_products(len(x)),
        THIS: lambda: engine([x])[0],
    }
    found, missing = _peers(x, quick)
    scale = {name: peer.scale for name, peer in found.items()}
    parts = {} if quick else engine_parts.functions(engine, len(x))  # compiled for ten seconds
    runs |= {name: peer.run for name, peer in found.items()} | parts
    times = best_times(runs, 1 if quick else 7)
    shares = engine_parts.shares({name: times.pop(name) for name in parts}) if parts else {}
    unit = times[PRODUCTS]
    rows = [milliseconds(n, s, s / unit, PRODUCTS) for n, s in times.items() if n not in scale]
    rows += [milliseconds(f"  {n}", s, s / unit, PRODUCTS) for n, s in shares.items()]
    for name, factor in scale.items():
        seconds = times[name] * factor
        rows.append(milliseconds(name, seconds, seconds / times[THIS], THIS))
    return rows + missing


def one_event(quick: bool) -> NDArray[np.float32]:
    """Features of the event whose length is nearest to TYPICAL."""
    inputs = prepare(flat_events(quick), CARD)
    lengths = np.diff(inputs.offsets)
    return inputs.event(int(np.argmin(np.abs(lengths - TYPICAL))))[1]


def matrix_products(length: int) -> Callable[[], None]:
    """The products of the layers in numpy's BLAS, and nothing else."""
    rng = np.random.default_rng(0)
    width, feed = NETWORK.width, NETWORK.feed_forward
    x, y = (rng.normal(size=(length, n)).astype(np.float32) for n in (width, feed))
    shapes = [(width, 3 * width), (width, width), (width, feed), (feed, width)]
    weights = [rng.normal(size=shape).astype(np.float32) for shape in shapes]

    def run() -> None:
        for _ in range(NETWORK.layers):
            for source, weight in zip((x, x, x, y), weights, strict=True):
                source @ weight

    return run


def _peers(x: NDArray[np.float32], quick: bool) -> tuple[dict[str, Any], list[Row]]:
    """Other ways to compute the event, and rows for those that cannot run here."""
    found, missing = {}, []
    for name, (function, packages) in PEERS.items():
        if quick and function in SLOW_TO_BUILD:
            missing.append(Row(name, missing="left out of a quick run"))
            continue
        try:
            module = import_module("puma_coffea.benchmarks.torch_peers")
            found[name] = getattr(module, function)(x)
        except ImportError:
            missing.append(Row(name, missing=f"pip install {packages}"))
        except Exception as error:  # noqa: BLE001 (a peer that fails is a row, not the end)
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            missing.append(Row(name, missing=f"does not run here: {first[:100]}"))
    return found, missing

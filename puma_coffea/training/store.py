"""Samples as tokens on disk: clustering and features are computed once, then memory-mapped.

A :class:`TokenStore` is a folder of flat binary files, written as events stream by. Training reads
crops from it and the operating system keeps what is hot, so 200,000 events need the memory of a few.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from puma_coffea.exceptions import NoEvents
from puma_coffea.flat import HARD, Flat, flatten
from puma_coffea.methods.puppi import puppi
from puma_coffea.observables import met
from puma_coffea.parquet import candidates_of, truth_of
from puma_coffea.puma.card import Card
from puma_coffea.puma.inputs import prepare

logger = logging.getLogger(__name__)

NEUTRAL, TRACK = 0, 1
PT_HALF = 6.0  # GeV: a neutral is drawn with the chance min(1, (pT / 6)^2)

# Type and width (0: a plain column; None: the number of inputs) of every file of a store.
COLUMNS: dict[str, tuple[Any, int | None]] = {
    # Of each token.
    "x": (np.float16, None), "y": (np.float16, 0), "pt": (np.float32, 0), "phi": (np.float32, 0),
    "kind": (np.int8, 0),
    # Of each event.
    "counts": (np.int64, 0), "base": (np.float64, 2), "puppi": (np.float64, 2),
    # Of each drawn neutral: its token, and a copy, so that random draws read neighbouring rows.
    "drawn": (np.int64, 0), "drawn_x": (np.float16, None), "drawn_y": (np.float16, 0),
    "drawn_pt": (np.float32, 0),
}  # fmt: skip


class TokenStore:
    """Tokens of many events: features ``x`` (tokens, inputs), targets ``y``, and offsets.

    ``base`` is, per event, the pTmiss residual (GeV, x and y) of the candidates that are no
    tokens or charged: the network's neutrals are added to it. ``puppi`` is the residual of the
    tuned PUPPI on the same event. ``drawn`` are neutrals thinned by pT (:func:`chance`).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        inputs = json.loads((folder / "done").read_text())["inputs"]
        self.columns = {name: _mapped(folder, name, inputs) for name in COLUMNS}
        self.x = self.columns["x"]
        self.base, self.puppi = (np.array(self.columns[name]) for name in ("base", "puppi"))
        self.offsets = np.concatenate(([0], np.cumsum(self.columns["counts"])))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def tokens(self, event: int) -> slice:
        """Where an event's tokens stand."""
        return slice(self.offsets[event], self.offsets[event + 1])

    def features(self, event: int) -> NDArray[np.float32]:
        """Features of an event's tokens, (tokens, inputs)."""
        return np.asarray(self.x[self.tokens(event)], np.float32)

    def momenta(self, event: int) -> NDArray[np.float64]:
        """px and py (GeV) of an event's neutral tokens, 0 for tracks, (2, tokens)."""
        return self.momenta_of(self.tokens(event))

    def momenta_of(self, tokens: slice | NDArray[np.int64]) -> NDArray[np.float64]:
        """The same of any tokens."""
        kind, pt, phi = (self.columns[name][tokens] for name in ("kind", "pt", "phi"))
        pt = np.where(kind == NEUTRAL, pt, 0).astype(np.float64)
        return np.stack([pt * np.cos(phi), pt * np.sin(phi)])


def chance(pt: Any) -> Any:
    """How likely a neutral is drawn: few candidates carry the physics, and they are hard."""
    return np.minimum(1, (pt / PT_HALF) ** 2)


def store_for(events: Iterator[ak.Array], card: Card, cache: Path, key: str) -> TokenStore:
    """The store of these events, made unless the cache has it already."""
    # What decides tokens and features; the network may change.
    settings = card.model_dump_json(include={"inputs", "ordering", "tokens"})
    digest = hashlib.sha256(f"{key}|{settings}".encode()).hexdigest()[:20]
    folder = cache / digest
    if not (folder / "done").exists():
        scratch = folder.with_name(f".{digest}.{os.getpid()}")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        _write(events, card, scratch)
        (scratch / "done").write_text(json.dumps({"inputs": len(card.inputs), "key": key}))
        shutil.rmtree(folder, ignore_errors=True)
        scratch.replace(folder)
    return TokenStore(folder)


def _mapped(folder: Path, name: str, inputs: int) -> NDArray[Any]:
    dtype, width = COLUMNS[name]
    path = folder / f"{name}.bin"
    # A file of length zero cannot be mapped.
    values = np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)
    return values if width == 0 else values.reshape(-1, inputs if width is None else width)


def _write(events: Iterator[ak.Array], card: Card, folder: Path) -> None:
    done = tokens = 0
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.bin").open("wb")) for name in COLUMNS}
        for number, rows in enumerate(events):
            made = _tokens(candidates_of(rows), truth_of(rows), card)
            made |= _drawn(made, number, tokens)
            for name, file in files.items():
                np.asarray(made[name], COLUMNS[name][0]).tofile(file)
            tokens += len(made["y"])
            done += len(rows)
            if done // 500 > (done - len(rows)) // 500:
                logger.info("%d events prepared", done)
    if done == 0:
        msg = "The training samples hold no events."
        raise NoEvents(msg)


def _drawn(made: dict[str, Any], seed: int, before: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    drawn = (rng.random(len(made["pt"])) < chance(made["pt"])) & (made["kind"] == NEUTRAL)
    copies = {f"drawn_{name}": made[name][drawn] for name in ("x", "y", "pt")}
    return {"drawn": before + np.flatnonzero(drawn), **copies}


def _tokens(pf: ak.Array, true: ak.Array, card: Card) -> dict[str, Any]:
    _, _, flat = flatten(pf)
    assert flat.hard_fraction is not None  # read_batches asks for the column
    inputs = prepare(flat, card)
    index, neutral = inputs.index, flat.neutral
    # Weights of all that the network does not decide: charged by vertex, unseen neutrals 0.
    fixed = np.where(neutral, 0.0, flat.vertex == HARD)
    true_met = np.stack([true["met"].px, true["met"].py], axis=1)
    tuned = met(pf, puppi(pf))
    return {
        "x": inputs.x,
        "y": flat.hard_fraction[index],
        "pt": flat.pt[index],
        "phi": flat.phi[index],
        "kind": np.where(neutral[index], NEUTRAL, TRACK),
        "counts": np.diff(inputs.offsets),
        "base": -_event_sums(flat, fixed) - true_met,
        "puppi": np.stack([tuned.px, tuned.py], axis=1) - true_met,
    }


def _event_sums(flat: Flat, weights: NDArray[np.float64]) -> Any:
    event = np.repeat(np.arange(len(flat.offsets) - 1), np.diff(flat.offsets))
    pt = flat.pt * weights
    n = len(flat.offsets) - 1
    sums = [np.bincount(event, pt * f(flat.phi), minlength=n) for f in (np.cos, np.sin)]
    return np.stack(sums, axis=1)

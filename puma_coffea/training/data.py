"""Samples as tokens on disk: clustering and features are computed once, then memory-mapped.

A :class:`TokenStore` is a folder of flat ``.npy`` files. Training reads crops from it and the
operating system keeps what is hot, so 200,000 events need the memory of a few.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from glob import glob
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from puma_coffea.exceptions import NoEvents, NoTarget
from puma_coffea.flat import HARD, Flat, flatten
from puma_coffea.methods.puppi import puppi
from puma_coffea.observables import met
from puma_coffea.parquet import candidates_of, truth_of
from puma_coffea.puma.card import Card
from puma_coffea.puma.inputs import prepare
from puma_coffea.training.overlay import COLUMNS, Event, overlay

logger = logging.getLogger(__name__)

BATCH = 50  # events that are read and prepared together

# Per token, besides the features: what the loss and the physics metric need.
TOKEN_COLUMNS = {"y": np.float16, "pt": np.float32, "phi": np.float32, "kind": np.int8}
NEUTRAL, TRACK = 0, 1


class TokenStore:
    """Tokens of many events: ``x`` (tokens, inputs) in float16, targets, and offsets.

    ``base`` is, per event, the pTmiss residual (GeV, x and y) of the candidates that are no
    tokens or charged: the network's neutrals are added to it. ``puppi`` is the residual of the
    tuned PUPPI on the same event.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.offsets = np.load(folder / "offsets.npy")
        self.base = np.load(folder / "base.npy")
        self.puppi = np.load(folder / "puppi.npy")
        self.x = np.load(folder / "x.npy", mmap_mode="r")
        self.columns = {n: np.load(folder / f"{n}.npy", mmap_mode="r") for n in TOKEN_COLUMNS}

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
        kind, pt, phi = (self.columns[n][self.tokens(event)] for n in ("kind", "pt", "phi"))
        pt = np.where(kind == NEUTRAL, pt, 0).astype(np.float64)
        return np.stack([pt * np.cos(phi), pt * np.sin(phi)])


def expand(patterns: Iterable[str]) -> list[str]:
    """Files of paths and globs, each pattern matching something."""
    files: list[str] = []
    for pattern in patterns:
        found = sorted(glob(pattern))
        if not found:
            msg = f"No file matches {pattern!r}."
            raise NoEvents(msg)
        files += found
    return files


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
        (scratch / "done").write_text(key)
        shutil.rmtree(folder, ignore_errors=True)
        scratch.replace(folder)
    return TokenStore(folder)


def key_of(files: list[str], **more: Any) -> str:
    """Text that changes whenever the files or the other settings do."""
    stamps = [(Path(f).name, Path(f).stat().st_size, Path(f).stat().st_mtime_ns) for f in files]
    return json.dumps([stamps, more], sort_keys=True)


def read_batches(files: list[str], keep: Any = None) -> Iterator[ak.Array]:
    """Rows of the files, ``BATCH`` events at a time; ``keep(index in file)`` chooses events."""
    import pyarrow.parquet as pq

    for file in files:
        start = 0
        with pq.ParquetFile(file) as parquet:
            if "y" not in parquet.schema_arrow.names:
                msg = f"{file} has no column 'y': there is no target to train on."
                raise NoTarget(msg)
            for batch in parquet.iter_batches(batch_size=BATCH):
                rows = ak.from_arrow(batch)
                index = np.arange(start, start + len(rows))
                start += len(rows)
                chosen = rows if keep is None else rows[keep(index)]
                if len(chosen):
                    yield chosen


def overlaid(
    files: list[str], hard_files: list[str], count: int, seed: int, keep: Any
) -> Iterator[ak.Array]:
    """``count`` events: hard events of some files over the pile-up of others, at random."""
    rng = np.random.default_rng(seed)
    hard = ak.concatenate(list(read_batches(hard_files)))
    made = 0
    while made < count:
        for rows in read_batches(list(rng.permutation(files)), keep):
            chosen = rng.integers(0, len(hard), len(rows))
            events = [
                overlay(
                    _event(rows[i]), _event(hard[j]), int(rng.integers(36)), bool(rng.integers(2))
                )
                for i, j in enumerate(chosen)
            ]
            yield _rows(events)
            made += len(events)
            if made >= count:
                return


def _event(row: Any) -> Event:
    event: Event = {
        n: np.asarray(row[n], np.float64) for n in ("pt", "eta", "phi", "pid", "vertex", "y")
    }
    event["mass"], event["npv"] = np.zeros_like(event["pt"]), int(row["npv"])
    return event


def _rows(events: list[Event]) -> ak.Array:
    """Overlaid events in the Parquet layout; their true pTmiss is not known, and not needed."""
    counts = [len(event["pt"]) for event in events]
    joined = {n: np.concatenate([event[n] for event in events]) for n in COLUMNS}
    columns = {n: ak.unflatten(joined[n], counts) for n in ("pt", "eta", "phi", "y")}
    columns |= {n: ak.unflatten(joined[n].astype(np.int32), counts) for n in ("pid", "vertex")}
    columns["charge"] = ak.unflatten((joined["vertex"] >= 0).astype(np.int8), counts)
    columns["npv"] = np.array([event["npv"] for event in events])
    zero = np.zeros(len(events))
    return ak.Array({**columns, "gen_met_x": zero, "gen_met_y": zero})


def _write(events: Iterator[ak.Array], card: Card, folder: Path) -> None:
    parts: dict[str, list[Any]] = {name: [] for name in (*TOKEN_COLUMNS, "base", "puppi", "counts")}
    total = 0
    with (folder / "x.raw").open("wb") as raw:
        for rows in events:
            pf = candidates_of(rows)
            tokens = _tokens(pf, truth_of(rows), card)
            tokens.pop("x").tofile(raw)
            for name, values in tokens.items():
                parts[name].append(values)
            total += len(rows)
            if total % 500 == 0:
                logger.info("%d events prepared", total)
    if total == 0:
        msg = "The training samples hold no events."
        raise NoEvents(msg)
    joined = {name: np.concatenate(values) for name, values in parts.items()}
    offsets = np.concatenate(([0], np.cumsum(joined.pop("counts"))))
    np.save(folder / "offsets.npy", offsets)
    for name, values in joined.items():
        np.save(folder / f"{name}.npy", values)
    shape = (int(offsets[-1]), len(card.inputs))
    source = np.memmap(folder / "x.raw", np.float16, "r", shape=shape)
    target = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float16, shape)
    for start in range(0, shape[0], 1_000_000):
        target[start : start + 1_000_000] = source[start : start + 1_000_000]
    del source, target
    (folder / "x.raw").unlink()


def _tokens(pf: ak.Array, true: ak.Array, card: Card) -> dict[str, Any]:
    _, _, flat = flatten(pf)
    assert flat.hard_fraction is not None  # read_batches asks for the column
    inputs = prepare(flat, card)
    index = inputs.index
    neutral = flat.neutral
    seen = np.zeros(len(flat.pt), dtype=np.bool_)
    seen[index] = True
    # Weights of all that the network does not decide: charged by vertex, unseen neutrals 0.
    fixed = np.where(neutral, 0.0, flat.vertex == HARD)
    residual = np.stack([true["met"].px, true["met"].py], axis=1)
    tuned = met(pf, puppi(pf))
    return {
        "x": inputs.x.astype(np.float16),
        "y": flat.hard_fraction[index].astype(np.float16),
        "pt": flat.pt[index].astype(np.float32),
        "phi": flat.phi[index].astype(np.float32),
        "kind": np.where(neutral[index], NEUTRAL, TRACK).astype(np.int8),
        "counts": np.diff(inputs.offsets),
        "base": -_event_sums(flat, fixed) - residual,
        "puppi": np.stack([tuned.px, tuned.py], axis=1) - residual,
    }


def _event_sums(flat: Flat, weights: NDArray[np.float64]) -> Any:
    event = np.repeat(np.arange(len(flat.offsets) - 1), np.diff(flat.offsets))
    pt = flat.pt * weights
    n = len(flat.offsets) - 1
    sums = [np.bincount(event, pt * f(flat.phi), minlength=n) for f in (np.cos, np.sin)]
    return np.stack(sums, axis=1)

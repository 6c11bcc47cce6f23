"""Per-candidate weights of whole files: Parquet tables and ROOT friend trees.

``FILE.weights.parquet`` has one row per event: ``dataset``, ``file``, ``entry`` (number of the
event in the file) and, for each method, a list of weights in the order of
:func:`puma_coffea.candidates`. ``FILE.weights.root`` has one tree per method, entry by entry
beside the original's: a branch ``COLLECTION_weight`` for each collection, in its order.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from puma_coffea.candidates import candidates
from puma_coffea.exceptions import BadConfig, NotDelphesFile
from puma_coffea.filesets import is_parquet, read_fileset
from puma_coffea.layouts import LAYOUTS
from puma_coffea.methods import Weigher, method
from puma_coffea.opening import count_events, first_line, open_events, unreadable
from puma_coffea.outputs import prepare_folder
from puma_coffea.parquet import candidates_of, count_rows

FORMATS = ("parquet", "root", "both")
RECORD = "weights.json"

#: Weights of a chunk by collection, or by None where all candidates are one list.
Pieces = dict[str | None, ak.Array]


@dataclass(frozen=True)
class Chunk:
    """Candidates of consecutive events of a file, and how many each collection has in an event."""

    start: int
    candidates: ak.Array
    counts: dict[str, Any]

    def split(self, weights: ak.Array) -> dict[str, ak.Array]:
        """Weights of each collection, from those of all candidates."""
        interleaved = np.stack(list(self.counts.values()), axis=1).ravel()
        pieces = ak.unflatten(ak.flatten(weights), interleaved)
        return {name: pieces[i :: len(self.counts)] for i, name in enumerate(self.counts)}


def write_weights(
    inputs: Sequence[str],
    output: str | os.PathLike[str],
    *,
    methods: Sequence[str] = ("puma",),
    vertexing: str = "truth",
    form: str = "both",
    chunksize: int = 100,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Path]:
    """Write every candidate's weights beside its file's name, a chunk of events at a time.

    Parameters
    ----------
    inputs
        Files, globs, lists or filesets, as for :func:`puma_coffea.filesets.read_fileset`.
    output
        Folder; each dataset has a folder of its own in it. A file is written under its name
        when it is complete. Running again with the same settings leaves finished files alone.
    methods, vertexing
        As for :func:`puma_coffea.method` and :func:`puma_coffea.candidates`.
    form
        ``"parquet"``, ``"root"`` (friend trees, for ROOT files only) or ``"both"``.
    chunksize
        Events in memory at a time.
    progress
        Called after each chunk with the file, events done and events in all.

    Returns
    -------
    list of pathlib.Path
        The files written or found complete.
    """
    if form not in FORMATS:
        msg = f"Unknown format {form!r}; choose one of {', '.join(FORMATS)}."
        raise BadConfig(msg)
    if chunksize < 1:
        msg = f"chunksize must be at least 1, not {chunksize}."
        raise BadConfig(msg)
    weighers = {name: method(name) for name in methods}
    trees = tree_names(methods)
    folder = prepare_folder(Path(output))
    record = _Record.read(folder, _settings(weighers, vertexing))
    written: list[Path] = []
    for name, dataset in read_fileset(inputs).items():
        stems = _stems(list(dataset.files))
        for file, stem in zip(dataset.files, stems, strict=True):
            target = prepare_folder(folder / name) / stem
            paths = {kind: target.with_name(f"{stem}.weights.{kind}") for kind in _kinds(file, form)}
            if not record.complete(file, paths.values()):
                chunks = read_chunks(file, chunksize, vertexing, progress)
                with ExitStack() as open_files:
                    sinks = [
                        open_files.enter_context(_SINKS[kind](path, name, file, trees))
                        for kind, path in paths.items()
                    ]
                    for chunk in chunks:
                        weights = {each: weigh(chunk.candidates) for each, weigh in weighers.items()}
                        for write in sinks:
                            write(chunk, weights)
                record.add(file, paths.values())
            written += paths.values()
    return written


def read_chunks(
    file: str,
    chunksize: int,
    vertexing: str = "truth",
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[Chunk]:
    """The candidates of a ROOT or Parquet file, at most ``chunksize`` events at a time."""
    total = count_rows(file) if is_parquet(file) else count_events(file)
    pieces = _parquet_chunks(file, chunksize) if is_parquet(file) else None
    bounds = [*range(0, total, chunksize), total]
    for start, stop in pairwise(bounds):
        yield _root_chunk(file, start, stop, vertexing) if pieces is None else next(pieces)
        if progress is not None:
            progress(file, stop, total)

"""Per-candidate weights of whole files: Parquet tables and ROOT friend trees.

``NAME.weights.parquet`` has one row per event: ``dataset``, ``file``, ``entry`` (the event's
number in its file) and, for each method, a list of weights in the order of
:func:`puma_coffea.candidates`. ``NAME.weights.root`` has one tree per method, entry by entry
beside the original: a branch ``COLLECTION_weight`` for each collection, in its order. Columns
and trees are named after the methods, by :func:`tree_names`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from puma_coffea.candidates import candidates
from puma_coffea.checkpoints import settings_hash
from puma_coffea.exceptions import BadConfig, NoEvents, NotDelphesFile, PumaCoffeaError
from puma_coffea.filesets import is_parquet, read_fileset
from puma_coffea.layouts import LAYOUTS
from puma_coffea.methods import Weigher, method
from puma_coffea.opening import TREE, count_events, first_line, open_events, unreadable
from puma_coffea.outputs import prepare_folder
from puma_coffea.parquet import candidates_of, count_rows

FORMATS = {"parquet": ("parquet",), "root": ("root",), "both": ("parquet", "root")}
RECORD = "weights.json"

Progress = Callable[[str, int, int], None]
Weights = dict[str, ak.Array]


@dataclass(frozen=True)
class Chunk:
    """Candidates of consecutive events of a file."""

    start: int
    """The first event's number in the file."""
    candidates: ak.Array
    counts: dict[str, Any]
    """Candidates of each event in each collection; empty if there are no collections."""

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
    progress: Progress | None = None,
) -> list[Path]:
    """Write every candidate's weights, file by file.

    Parameters
    ----------
    inputs
        Files, globs, lists or filesets, as for :func:`puma_coffea.filesets.read_fileset`.
    output
        Folder; each dataset has a folder of its own in it. A file appears under its name when
        it is complete. Running again with the same settings leaves finished files alone.
    methods, vertexing
        As for :func:`puma_coffea.method` and :func:`puma_coffea.candidates`.
    form
        ``"parquet"``, ``"root"`` (for ROOT files only) or ``"both"``.
    chunksize
        Events in memory at a time.
    progress
        Called with a file, its events done and its events in all.

    Returns
    -------
    list of pathlib.Path
        The files written, or found complete.
    """
    if form not in FORMATS:
        msg = f"Unknown format {form!r}; choose one of {', '.join(FORMATS)}."
        raise BadConfig(msg)
    if chunksize < 1:
        msg = f"chunksize must be at least 1, not {chunksize}."
        raise BadConfig(msg)
    trees = tree_names(methods)
    weighers = {name: method(name) for name in methods}
    datasets = read_fileset(inputs)
    folder = prepare_folder(Path(output))
    record = _Record(folder / RECORD, settings_hash(weighers, vertexing=vertexing))
    written: list[Path] = []
    for name, dataset in datasets.items():
        for file, stem in zip(dataset.files, _stems(list(dataset.files)), strict=True):
            place = prepare_folder(folder / name.replace("/", "_"))
            paths = {kind: place / f"{stem}.weights.{kind}" for kind in _kinds(file, form)}
            if not record.has(file, paths.values()):
                chunks = read_chunks(file, chunksize, vertexing)
                _write_file(chunks, weighers, _sinks(paths, name, file, trees), file, progress)
                record.add(file, paths.values())
            written += paths.values()
    return written


def tree_names(methods: Sequence[str]) -> dict[str, str]:
    """Name of each method's tree and column: letters, digits and underscores.

    >>> tree_names(["puppi:cms-run2", "puma:models/mine/"])
    {'puppi:cms-run2': 'puppi_cms_run2', 'puma:models/mine/': 'puma_mine'}
    """
    names: dict[str, str] = {}
    for each in methods:
        base, _, preset = each.partition(":")
        name = re.sub(r"\W+", "_", "_".join(filter(None, (base, Path(preset).name))))
        if name in names.values():
            msg = f"Two methods would both be written as '{name}'; write one of them elsewhere."
            raise BadConfig(msg)
        names[each] = name
    return names


def read_chunks(file: str, chunksize: int, vertexing: str = "truth") -> Iterator[Chunk]:
    """Candidates of a ROOT or Parquet file, at most ``chunksize`` events at a time."""
    if is_parquet(file):
        yield from _parquet_chunks(file, chunksize)
        return
    total = count_events(file)
    if total == 0:
        msg = f"{file} has a tree '{TREE}' without events; leave it out of the list."
        raise NoEvents(msg)
    for start in range(0, total, chunksize):
        stop = min(start + chunksize, total)
        try:
            events = open_events(file, entry_start=start, entry_stop=stop)
            layout = next((each for each in LAYOUTS if each.present_in(events)), None)
            pf = candidates(events, vertexing=vertexing, layout=layout)
            names = [] if layout is None else [each.name for each in layout.collections]
            counts = {name: _count(events[name]) for name in names}
        except PumaCoffeaError:
            raise
        except unreadable() as error:
            msg = f"{file}: events {start} to {stop} cannot be read ({first_line(error)}); copy it again."
            raise NotDelphesFile(msg) from error
        yield Chunk(start, pf, counts)


def _count(collection: Any) -> Any:
    return ak.to_numpy(ak.num(collection[collection.fields[0]], axis=1))


def _parquet_chunks(file: str, chunksize: int) -> Iterator[Chunk]:
    import pyarrow.parquet as pq

    count_rows(file)  # refuses what is no sample
    start = 0
    with pq.ParquetFile(file) as rows:
        for batch in rows.iter_batches(chunksize):
            yield Chunk(start, candidates_of(ak.from_arrow(batch)), {})
            start += batch.num_rows


def _write_file(
    chunks: Iterator[Chunk],
    weighers: dict[str, Weigher],
    sinks: list[AbstractContextManager[_Write]],
    file: str,
    progress: Progress | None,
) -> None:
    total = count_rows(file) if is_parquet(file) else count_events(file)
    with ExitStack() as stack:
        writers = [stack.enter_context(sink) for sink in sinks]
        for chunk in chunks:
            weights = {name: weigh(chunk.candidates) for name, weigh in weighers.items()}
            for write in writers:
                write(chunk, weights)
            if progress is not None:
                progress(file, chunk.start + len(chunk.candidates), total)


_Write = Callable[[Chunk, Weights], None]


def _sinks(
    paths: dict[str, Path], dataset: str, file: str, trees: dict[str, str]
) -> list[AbstractContextManager[_Write]]:
    made: list[AbstractContextManager[_Write]] = []
    if "parquet" in paths:
        made.append(_parquet_sink(paths["parquet"], dataset, file, trees))
    if "root" in paths:
        made.append(_root_sink(paths["root"], trees))
    return made


@contextmanager
def _parquet_sink(path: Path, dataset: str, file: str, names: dict[str, str]) -> Iterator[_Write]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    lists = [(column, pa.list_(pa.float32())) for column in names.values()]
    schema = pa.schema(
        [("dataset", pa.string()), ("file", pa.string()), ("entry", pa.int64()), *lists]
    )

    def write(chunk: Chunk, weights: Weights) -> None:
        size = len(chunk.candidates)
        columns = [[dataset] * size, [file] * size, np.arange(chunk.start, chunk.start + size)]
        columns += [_arrow_lists(weights[name]) for name in names]
        sink.write_table(pa.table(dict(zip(schema.names, columns, strict=True)), schema))

    with _appearing(path) as scratch, pq.ParquetWriter(scratch, schema) as sink:
        yield write


def _arrow_lists(weights: ak.Array) -> Any:
    import pyarrow as pa

    offsets = np.concatenate(([0], np.cumsum(ak.to_numpy(ak.num(weights, axis=1)))))
    return pa.ListArray.from_arrays(offsets.astype(np.int32), ak.to_numpy(ak.flatten(weights)))


@contextmanager
def _root_sink(path: Path, trees: dict[str, str]) -> Iterator[_Write]:
    import uproot

    def write(chunk: Chunk, weights: Weights) -> None:
        for name, tree in trees.items():
            branches = {f"{key}_weight": part for key, part in chunk.split(weights[name]).items()}
            if chunk.start == 0:
                sink.mktree(tree, dict.fromkeys(branches, "var * float32"), title=name)
            sink[tree].extend(branches)

    with _appearing(path) as scratch, uproot.recreate(scratch) as sink:
        yield write


@contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """A file that gets its name when all went well, and vanishes otherwise."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield scratch
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _kinds(file: str, form: str) -> tuple[str, ...]:
    if not is_parquet(file):
        return FORMATS[form]
    if form == "root":
        msg = (
            f"{file} is no ROOT file, so there is nothing to be friends with; use format 'parquet'."
        )
        raise BadConfig(msg)
    return ("parquet",)


def _stems(files: list[str]) -> list[str]:
    """Names without ending, made different where they are the same."""
    stems: list[str] = []
    for file in files:
        plain = stem = Path(file).stem
        number = 1
        while stem in stems:
            number += 1
            stem = f"{plain}_{number}"
        stems.append(stem)
    return stems


class _Record:
    """Which files are done, with which settings: ``weights.json`` of the output folder."""

    def __init__(self, path: Path, settings: str) -> None:
        self.path, self.settings = path, settings
        try:
            self.done: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self.done = {}

    def has(self, file: str, outputs: Any) -> bool:
        """Whether these outputs of a file exist and were made with these settings."""
        return self.done.get(file) == self._entry(file, outputs) and all(
            path.is_file() for path in outputs
        )

    def add(self, file: str, outputs: Any) -> None:
        """Note a finished file."""
        self.done[file] = self._entry(file, outputs)
        with _appearing(self.path) as scratch:
            scratch.write_text(json.dumps(self.done, indent=1), encoding="utf-8")

    def _entry(self, file: str, outputs: Any) -> dict[str, Any]:
        path = Path(file)
        stamp = [path.stat().st_size, path.stat().st_mtime_ns] if path.is_file() else []
        names = [str(each.relative_to(self.path.parent)) for each in outputs]
        return {"settings": self.settings, "stamp": stamp, "outputs": names}

"""From a fileset to a finished output folder, on one core, all cores or a dask cluster."""

from __future__ import annotations

import ast
import hashlib
import logging
import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from coffea.processor import (
    DaskExecutor,
    FuturesExecutor,
    IterativeExecutor,
    Runner,
    accumulate,
)
from coffea.processor.executor import WorkItem

from puma_coffea import exceptions
from puma_coffea.checkpoints import Checkpoints, settings_hash
from puma_coffea.exceptions import BadConfig, NoEvents, NoScheduler, PumaCoffeaError
from puma_coffea.filesets import Dataset, is_parquet, read_fileset
from puma_coffea.opening import count_events
from puma_coffea.outputs import prepare_folder, write_output
from puma_coffea.parquet import count_rows
from puma_coffea.processors.parquet import ParquetWriter
from puma_coffea.processors.pileup import DEFAULT_METHODS, PileupProcessor

logger = logging.getLogger(__name__)

EXECUTORS = ("iterative", "futures", "dask")


@dataclass(frozen=True)
class Plan:
    """What will be processed, and what already is known to be lost."""

    items: list[WorkItem]
    lost: dict[str, Any]


def run(
    inputs: Sequence[str],
    output: str | Path,
    *,
    methods: Sequence[str] = DEFAULT_METHODS,
    vertexing: str = "truth",
    executor: str = "iterative",
    workers: int = 2,
    scheduler: str | None = None,
    client: Any = None,
    chunksize: int = 100,
    max_events: int | None = None,
    skip_bad_files: bool = False,
    root: bool = False,
    status: bool = True,
) -> dict[str, Any]:
    """Process a fileset and write the output folder.

    Parameters
    ----------
    inputs
        Files, globs, lists or filesets, as for :func:`puma_coffea.filesets.read_fileset`.
    output
        Folder for the result and the checkpoints. Running again with the same settings goes
        on where a stopped run ended.
    methods, vertexing
        As for the processor.
    executor, workers
        ``"iterative"``, ``"futures"`` (``workers`` processes) or ``"dask"``.
    scheduler, client
        Address of a running dask scheduler, or a client; default a local cluster.
    chunksize
        Largest number of events in a chunk: 100 events of 8300 candidates need 0.7 GB per worker.
    max_events
        Largest number of events per dataset.
    skip_bad_files
        Leave out what cannot be read; the output's record says what was lost.
    root
        Write the histograms as ROOT file too.
    status
        Show progress bars.

    Returns
    -------
    dict
        The processor's output.
    """
    for name, value in (("chunksize", chunksize), ("workers", workers), ("max_events", max_events)):
        if value is not None and value < 1:
            msg = f"{name} must be at least 1, not {value}."
            raise BadConfig(msg)
    processor = PileupProcessor(methods, vertexing, skip_damaged=skip_bad_files)
    datasets = read_fileset(inputs)
    folder = prepare_folder(Path(output))
    plan = plan_chunks(datasets, chunksize, max_events, skip_bad_files)
    key = settings_hash(processor.weighers, vertexing=vertexing, skip_bad_files=skip_bad_files)
    checkpoints = Checkpoints(folder / "checkpoints", key)
    with _progress(status), _executor(executor, workers, scheduler, client, status) as engine:
        raw = _process(plan.items, processor, engine, checkpoints)
    raw["record"] = accumulate([raw["record"], plan.lost])
    result: dict[str, Any] = processor.postprocess(raw)
    write_output(result, folder, root=root)
    return result


def prepare(
    inputs: Sequence[str],
    output: str | Path,
    *,
    vertexing: str = "truth",
    executor: str = "iterative",
    workers: int = 2,
    scheduler: str | None = None,
    chunksize: int = 100,
    max_events: int | None = None,
    status: bool = True,
) -> dict[str, Any]:
    """Write Delphes files as Parquet samples, a file per chunk; parameters as for :func:`run`.

    Files that are there already are not written again.

    Returns
    -------
    dict
        ``events``, their number, and ``files``, the set of paths.
    """
    datasets = read_fileset(inputs)
    already = [file for dataset in datasets.values() for file in dataset.files if is_parquet(file)]
    if already:
        msg = f"{already[0]} is a Parquet file already; prepare takes Delphes ROOT files."
        raise BadConfig(msg)
    folder = prepare_folder(Path(output))
    plan = plan_chunks(datasets, chunksize, max_events, skip_bad_files=False)
    with _progress(status), _executor(executor, workers, scheduler, None, status) as engine:
        return _run_items(plan.items, ParquetWriter(folder, vertexing), engine, "root", None)


def plan_chunks(
    datasets: dict[str, Dataset], chunksize: int, max_events: int | None, skip_bad_files: bool
) -> Plan:
    """Chunks of all files that can be opened, none larger than ``chunksize``.

    Raises the first file's sentence unless ``skip_bad_files``.
    """
    items: list[WorkItem] = []
    lost: dict[str, Any] = {}
    for name, dataset in datasets.items():
        left = max_events
        for file, sizes in zip(dataset.files, _inspect(list(dataset.files)), strict=True):
            if isinstance(sizes, PumaCoffeaError):
                if not skip_bad_files:
                    raise sizes
                logger.warning("skipped: %s", sizes)
                entry = {"events": 0, "reasons": {str(sizes)}}
                lost.setdefault(name, {"lost": {}})["lost"][file] = entry
                continue
            events = sizes if left is None else min(sizes, left)
            left = None if left is None else left - events
            items += _chunks(name, file, dataset, events, chunksize)
    if not items:
        msg = "None of the files has events that can be read."
        raise NoEvents(msg)
    return Plan(items, lost)


def _inspect(files: list[str]) -> list[int | PumaCoffeaError]:
    """Number of events of each file, or why it cannot be read."""

    def size(file: str) -> int | PumaCoffeaError:
        try:
            return count_rows(file) if is_parquet(file) else _some(file)
        except PumaCoffeaError as error:
            return error

    with ThreadPoolExecutor(8) as pool:  # opening remote files is waiting
        return list(pool.map(size, files))


def _some(file: str) -> int:
    events = count_events(file)
    if events == 0:
        msg = f"{file} has a tree without events; leave it out of the list."
        raise NoEvents(msg)
    return events


def _chunks(
    name: str, file: str, dataset: Dataset, events: int, chunksize: int
) -> Iterator[WorkItem]:
    pieces = math.ceil(events / chunksize)
    bounds = [events * i // pieces for i in range(pieces + 1)] if pieces else []
    for start, stop in pairwise(bounds):
        yield WorkItem(
            name, file, dataset.files[file], start, stop, _uuid(file), dict(dataset.metadata)
        )


def _uuid(file: str) -> bytes:
    """Sixteen bytes that change with the file: its name, size and time of change."""
    path = Path(file)
    stamp = (path.stat().st_size, path.stat().st_mtime_ns) if path.is_file() else ()
    return hashlib.sha256(repr((file, stamp)).encode()).digest()[:16]


def _process(
    items: list[WorkItem], processor: PileupProcessor, engine: Any, checkpoints: Checkpoints
) -> dict[str, Any]:
    parts = []
    for format_ in ("root", "parquet"):
        mine = [item for item in items if is_parquet(item.filename) == (format_ == "parquet")]
        if mine:
            found = _run_items(mine, processor, engine, format_, checkpoints)
            parts.append({name: found[name] for name in ("sums", "record")})
    merged: dict[str, Any] = accumulate(parts)
    return merged


def _run_items(
    items: list[WorkItem],
    processor: Any,
    engine: Any,
    format_: str,
    checkpoints: Checkpoints | None,
) -> dict[str, Any]:
    """The processor's output over files of one format, with the package's own refusals."""
    from coffea.nanoevents import BaseSchema

    from puma_coffea.schema import DelphesSchema

    schema = DelphesSchema if format_ == "root" else BaseSchema
    runner = Runner(engine, schema=schema, format=format_, checkpointer=checkpoints)
    try:
        found: dict[str, Any] = runner(items, processor)
    except Exception as error:
        raise _own_refusal(error) from error
    return found


def _own_refusal(error: BaseException) -> BaseException:
    """The package's own sentence inside the executor's exception, else the exception itself.

    coffea wraps what a processor raises into ``Exception("... The error was: Kind('...').")``;
    the cause itself does not survive the way from another process.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, PumaCoffeaError):
            return seen
        wrapped = re.search(r"The error was: (\w+)\((.*)\)\.$", str(seen), re.DOTALL)
        kind = getattr(exceptions, wrapped[1], None) if wrapped else None
        if wrapped and kind is not None:
            return cast(PumaCoffeaError, kind(ast.literal_eval(wrapped[2])))
        seen = seen.__cause__ or seen.__context__
    return error


@contextmanager
def _progress(status: bool) -> Iterator[None]:
    """Progress bars on standard error, or none at all: coffea draws some whatever its flag says."""
    from coffea.util import coffea_console

    before = coffea_console.quiet, coffea_console.stderr
    coffea_console.quiet, coffea_console.stderr = not status, True
    try:
        yield
    finally:
        coffea_console.quiet, coffea_console.stderr = before


@contextmanager
def _executor(
    name: str, workers: int, scheduler: str | None, client: Any, status: bool
) -> Iterator[Any]:
    if name not in EXECUTORS:
        msg = f"Unknown executor {name!r}; choose one of {', '.join(EXECUTORS)}."
        raise BadConfig(msg)
    if name == "iterative":
        yield IterativeExecutor(status=status)
    elif name == "futures":
        yield FuturesExecutor(workers=workers, status=status)
    elif client is not None:
        yield DaskExecutor(client=client, status=status, retries=1)
    else:
        with _dask_client(workers, scheduler) as own:
            yield DaskExecutor(client=own, status=status, retries=1)


def _dask_client(workers: int, scheduler: str | None) -> Any:
    try:
        from distributed import Client
    except ImportError:
        msg = "The dask executor needs dask: pip install 'puma-coffea[dask]'."
        raise BadConfig(msg) from None
    if scheduler is None:
        # A client made this way owns its cluster, and closes it.
        return Client(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
    try:
        return Client(scheduler, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        msg = (
            f"No dask scheduler answers at {scheduler} within 10 s ({error}); is the address right?"
        )
        raise NoScheduler(msg) from error

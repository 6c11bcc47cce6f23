"""Events to train on, a few at a time: rows of Parquet files, and overlaid ones."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from glob import glob
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from puma_coffea.exceptions import BadOutput, NoEvents, NoTarget, PumaCoffeaError
from puma_coffea.parquet import opened
from puma_coffea.training.overlay import COLUMNS, TRUE, Event, overlay

BATCH = 50  # events that are read and prepared together


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


def key_of(files: list[str], **more: Any) -> str:
    """Text that changes whenever the files or the other settings do."""
    stamps = [(Path(f).name, Path(f).stat().st_size, Path(f).stat().st_mtime_ns) for f in files]
    return json.dumps([stamps, more], sort_keys=True)


def read_batches(files: list[str], keep: Any = None) -> Iterator[ak.Array]:
    """Rows of the files, ``BATCH`` events at a time; ``keep(index in file)`` chooses events."""
    for file in files:
        start = 0
        with opened(file) as parquet:
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
    files: list[str], hard_files: list[str], count: int, seed: int, keep: Any, before: int = 0
) -> Iterator[ak.Array]:
    """``count`` events: hard events of some files over the pile-up of others.

    ``before`` is the number of events made elsewhere: this part of them takes other hard events,
    until all were used.
    """
    rng = np.random.default_rng((seed, before))
    hard = _endless(hard_files, rng, before)
    made, before_pass = 0, -1
    while made < count:
        if made == before_pass:
            msg = f"There are no events in {', '.join(files)} whose pile-up could be used."
            raise NoEvents(msg)
        before_pass = made
        for rows in read_batches(list(rng.permutation(files)), keep):
            wanted = min(len(rows), count - made)
            events = [
                overlay(_event(row), next(hard), int(rng.integers(36)), bool(rng.integers(2)))
                for row in rows[:wanted]
            ]
            yield _rows(events)
            made += len(events)
            if made == count:
                return


def _endless(files: list[str], rng: np.random.Generator, before: int) -> Iterator[Event]:
    """Events of the files for ever, each time the next one of a file chosen at random.

    What only some of the files know is left out: events of one sample have the same columns.
    """
    sizes, known = np.zeros(len(files)), set(TRUE)
    for number, file in enumerate(files):
        with opened(file) as parquet:
            sizes[number] = parquet.metadata.num_rows
            known.intersection_update(parquet.schema_arrow.names)
    if sizes.sum() == 0:
        msg = f"There are no hard events in {', '.join(files)}."
        raise NoEvents(msg)
    share = sizes / sizes.sum()
    readers = [
        _again(file, int(before * part) % max(int(size), 1))
        for file, part, size in zip(files, share, sizes, strict=True)
    ]
    while True:
        event = next(readers[int(rng.choice(len(files), p=share))])
        yield {name: value for name, value in event.items() if name not in TRUE or name in known}


def _again(file: str, start: int) -> Iterator[Event]:
    """Events of a file from one on, and then from its beginning, for ever."""
    for rows in read_batches([file], lambda index: index >= start):
        yield from map(_event, rows)
    while True:
        for rows in read_batches([file]):
            yield from map(_event, rows)


def _event(row: Any) -> Event:
    event: Event = {
        n: np.asarray(row[n], np.float64) for n in ("pt", "eta", "phi", "pid", "vertex", "y")
    }
    event["mass"], event["npv"] = np.zeros_like(event["pt"]), int(row["npv"])
    event["true_met"] = (float(row["gen_met_x"]), float(row["gen_met_y"]))
    return event | {n: np.asarray(row[n], np.float64) for n in TRUE if n in row.fields}


def _rows(events: list[Event]) -> ak.Array:
    """Overlaid events in the Parquet layout."""
    counts = [len(event["pt"]) for event in events]
    joined = {n: np.concatenate([event[n] for event in events]) for n in COLUMNS}
    columns = {n: ak.unflatten(joined[n], counts) for n in ("pt", "eta", "phi", "y")}
    columns |= {n: ak.unflatten(joined[n].astype(np.int32), counts) for n in ("pid", "vertex")}
    columns["charge"] = ak.unflatten(_charge(joined["pid"], joined["vertex"]), counts)
    columns["npv"] = np.array([event["npv"] for event in events])
    x, y = np.array([event["true_met"] for event in events]).T
    for name in (n for n in TRUE if n in events[0]):
        values = [event[name] for event in events]
        one_each = values[0].ndim == 0  # else a list, which may be empty in all events
        columns[name] = np.array(values) if one_each else _lists(values)
    return ak.Array({**columns, "gen_met_x": x, "gen_met_y": y})


def _lists(values: list[Any]) -> ak.Array:
    return ak.unflatten(np.concatenate(values), [len(each) for each in values])


def _charge(pid: Any, vertex: Any) -> Any:
    """Of tracks by their id: leptons count negative."""
    lepton = np.isin(np.abs(pid), [11, 13])
    sign = np.where(lepton, -np.sign(pid), np.sign(pid))
    return np.where(vertex < 0, 0, sign).astype(np.int8)


def _single(rows: ak.Array) -> ak.Array:
    """Rows with float32 in place of float64."""
    whole = {"pid", "charge", "vertex", "npv"}
    return ak.Array(
        {n: rows[n] if n in whole else ak.values_astype(rows[n], np.float32) for n in rows.fields}
    )


def write_overlaid(
    hard_files: Iterable[str],
    pileup_files: Iterable[str],
    output: Path,
    count: int,
    skip: int = 0,
    seed: int = 1,
) -> int:
    """Write overlaid events as a Parquet sample; their number.

    Parameters
    ----------
    hard_files, pileup_files
        Parquet samples, paths or globs: hard events without pile-up, and events whose pile-up is used.
    output
        The new sample; it appears once it is complete.
    count
        Number of events.
    skip
        Hard events that are left out at the beginning of each file, in proportion to its size.
    seed
        Of what is laid over what, and how it is turned.
    """
    import pyarrow.parquet as pq

    rows = overlaid(expand(pileup_files), expand(hard_files), count, seed, None, before=skip)
    scratch, written = output.with_name(f".{output.name}.{os.getpid()}"), 0
    try:
        with ExitStack() as stack:
            writer: Any = None
            for part in rows:
                table = ak.to_arrow_table(_single(part), extensionarray=False)
                writer = writer or stack.enter_context(pq.ParquetWriter(scratch, table.schema))
                writer.write_table(table)
                written += len(part)
        scratch.replace(output)
    except PumaCoffeaError:
        raise  # of the samples that are read
    except OSError as error:
        msg = f"{output} cannot be written ({error.strerror})."
        raise BadOutput(msg) from error
    finally:
        scratch.unlink(missing_ok=True)
    return written

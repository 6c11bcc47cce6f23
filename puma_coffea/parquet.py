"""Candidates and truth from Parquet samples: one row per event, lists per candidate.

The columns are ``pt, eta, phi, pid, charge, vertex`` and optionally ``y`` (hard energy
fraction) per candidate, ``npv``, ``gen_met_x, gen_met_y``, ``boson_pt, boson_phi`` (NaN:
none) per event, and ``genjet_pt, genjet_eta, genjet_phi, genjet_mass``. ``docs/input.md``
describes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from glob import glob, has_magic
from os import PathLike, fspath
from typing import Any

import awkward as ak
import numpy as np

from puma_coffea.candidates import assemble
from puma_coffea.exceptions import NoEvents, NotParquetSample
from puma_coffea.layouts import mass_of
from puma_coffea.truth import momentum2d, momentum4d, no_products

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]

_CANDIDATES = ("pt", "eta", "phi", "pid", "charge", "vertex", "npv")
_TRUTH = ("gen_met_x", "gen_met_y")
_BOSON = ("boson_pt", "boson_phi")
_PRODUCTS = tuple(f"boson_products_{name}" for name in ("pt", "eta", "phi", "mass", "charge"))
_GENJETS = ("genjet_pt", "genjet_eta", "genjet_phi", "genjet_mass")


def read_candidates(path: Paths) -> ak.Array:
    """Candidates of a Parquet sample (path, glob or list of them), as from ``candidates()``."""
    return candidates_of(_read(path, _CANDIDATES, ("y",)))


def read_truth(path: Paths) -> ak.Array:
    """Truth of a Parquet sample (path, glob or list of them), as from ``truth()``."""
    return truth_of(_read(path, _TRUTH, (*_BOSON, *_PRODUCTS, *_GENJETS, "y")))


def is_sample_rows(events: ak.Array) -> bool:
    """Whether these events are rows of a Parquet sample and not NanoEvents of a detector."""
    return all(name in events.fields for name in (*_CANDIDATES, *_TRUTH))


def candidates_of(rows: ak.Array) -> ak.Array:
    """Candidates of rows that were already read, for example by coffea's runner."""
    counts = ak.to_numpy(ak.num(rows["pt"], axis=1))
    offsets = np.concatenate(([0], np.cumsum(counts)))
    columns = {n: ak.to_numpy(ak.flatten(rows[n])) for n in _CANDIDATES if n != "npv"}
    columns["mass"] = mass_of(columns["pid"])
    columns["npv"] = np.repeat(ak.to_numpy(rows["npv"]), counts)
    if "y" in rows.fields:
        columns["hard_fraction"] = ak.to_numpy(ak.flatten(rows["y"]))
    return assemble(offsets, columns)


def truth_of(rows: ak.Array) -> ak.Array:
    """Truth of rows that were already read, for example by coffea's runner."""
    x, y = (ak.to_numpy(rows[n]).astype(np.float64) for n in _TRUTH)
    pt, phi = (
        ak.to_numpy(rows[n]) if n in rows.fields else np.full(len(rows), np.nan, np.float32)
        for n in _BOSON
    )
    fields: dict[str, Any] = {
        "met": momentum2d(np.hypot(x, y), np.arctan2(y, x)),
        "boson": ak.mask(momentum2d(pt, phi), np.isfinite(pt)),
        "boson_products": no_products(len(rows)),
    }
    if all(n in rows.fields for n in _PRODUCTS):
        *momentum, charge = (rows[n] for n in _PRODUCTS)
        fields["boson_products"] = ak.with_field(momentum4d(*momentum), charge, "charge")
    if all(n in rows.fields for n in _GENJETS):
        fields["jets"] = momentum4d(*(rows[n] for n in _GENJETS))
    if "y" in rows.fields:
        fields["hard_fraction"] = rows["y"]
    return ak.zip(fields, depth_limit=1)


def rows_of(events: ak.Array, candidates: ak.Array, truth: ak.Array) -> ak.Array:
    """Rows of the Parquet layout from NanoEvents, their candidates and their truth."""
    columns: dict[str, Any] = {n: candidates[n] for n in _CANDIDATES if n != "npv"}
    # npv stands at each candidate; an event without candidates has no vertex to speak of.
    columns["npv"] = ak.fill_none(ak.firsts(candidates["npv"]), 1)
    if "hard_fraction" in candidates.fields:
        columns["y"] = candidates["hard_fraction"]
    columns |= {
        f"gen_met_{c}": ak.values_astype(getattr(truth["met"], f"p{c}"), np.float32) for c in "xy"
    }
    for name in ("pt", "phi"):
        columns[f"boson_{name}"] = ak.fill_none(
            ak.values_astype(truth["boson"][name], np.float32), np.nan
        )
    products = truth["boson_products"]
    columns |= {name: products[name.removeprefix("boson_products_")] for name in _PRODUCTS}
    if "jets" in truth.fields:
        columns |= {name: truth["jets"][name.removeprefix("genjet_")] for name in _GENJETS}
    if "Event" in events.fields:
        columns["event"] = events["Event"]["Number"]
        columns["weight"] = events["Event"]["Weight"]
    return ak.to_packed(ak.zip(columns, depth_limit=1))


def _read(path: Paths, needed: tuple[str, ...], optional: tuple[str, ...]) -> ak.Array:
    chunks = [_read_one(name, needed, optional) for name in _expand(path)]
    return chunks[0] if len(chunks) == 1 else ak.concatenate(chunks)


def _expand(path: Paths) -> list[str]:
    given = [path] if isinstance(path, (str, PathLike)) else path
    names: list[str] = []
    for each in (fspath(one) for one in given):
        found = sorted(glob(each)) if has_magic(each) else [each]
        if not found:
            msg = f"No file matches {each!r}."
            raise NoEvents(msg)
        names += found
    if not names:
        msg = "The list of Parquet files is empty."
        raise NoEvents(msg)
    return names


def count_rows(path: str | PathLike[str]) -> int:
    """Number of events of a Parquet sample, after checking that it is one."""
    with opened(fspath(path)) as file:
        return int(file.metadata.num_rows)


def read_rows(path: str | PathLike[str], start: int, stop: int) -> ak.Array:
    """A range of rows of a Parquet sample, reading only the row groups that hold them."""
    with opened(fspath(path)) as file:
        first, groups, skipped = 0, [], 0
        for group in range(file.metadata.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            if first < stop and first + size > start:
                groups.append(group)
            elif first + size <= start:
                skipped += size
            first += size
        return ak.from_arrow(file.read_row_groups(groups))[start - skipped : stop - skipped]


def _read_one(name: str, needed: tuple[str, ...], optional: tuple[str, ...]) -> ak.Array:
    with opened(name, needed) as file:
        present = set(file.schema_arrow.names)
        columns = [column for column in (*needed, *optional) if column in present]
        return ak.from_arrow(file.read(columns))


@contextmanager
def opened(name: str, needed: tuple[str, ...] = (*_CANDIDATES, *_TRUTH)) -> Iterator[Any]:
    """A Parquet file that has the needed columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(name) as file:
            present = set(file.schema_arrow.names)
            missing = [column for column in needed if column not in present]
            if missing:
                msg = (
                    f"{name} lacks the column(s) {', '.join(missing)}; "
                    f"it has {', '.join(sorted(present))}."
                )
                raise NotParquetSample(msg)
            yield file
    except FileNotFoundError:
        msg = f"There is no file {name}."
        raise NotParquetSample(msg) from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, NotParquetSample):
            raise
        msg = f"{name} cannot be read as a Parquet file ({error})."
        raise NotParquetSample(msg) from error

"""Particle-flow candidates of a chunk of events, as one jagged record array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import awkward as ak
import numpy as np
import vector

from puma_coffea.exceptions import LazyInput, MissingCollection, UnknownVertexing
from puma_coffea.layouts import LAYOUTS, Collection, Layout, Source, mass_of
from puma_coffea.vertexing import estimate_npv

vector.register_awkward()

#: Columns of every candidates array and their types.
COLUMNS: dict[str, Any] = {
    "pt": np.float32,
    "eta": np.float32,
    "phi": np.float32,
    "mass": np.float32,
    "charge": np.int8,
    "pid": np.int32,
    "vertex": np.int32,
    "npv": np.int32,
}


def candidates(
    events: ak.Array,
    vertexing: str | Callable[[Any], Any] = "truth",
    layout: Layout | None = None,
) -> ak.Array:
    """Particle-flow candidates of NanoEvents, in the file's order.

    Parameters
    ----------
    events
        NanoEvents (eager or virtual), for example from :func:`puma_coffea.open_events`,
        with ``EFlowTrack`` + ``EFlowPhoton`` + ``EFlowNeutralHadron``, with
        ``ParticleFlowCandidate``, with a single ``PF`` branch, or with PFNano's ``PFCands``.
    vertexing
        Which vertex a charged candidate belongs to. Delphes: ``"truth"`` (``IsPU``; perfect,
        as in the PUMA paper), ``"reco"`` (``IsRecoPU``), ``"reference"`` (the generated
        particle). PFNano: ``"dz"`` (``|dz| < 0.2`` cm) or ``"puppi"`` (CMS's own decision).
        Or a function ``collection -> vertex``: 0 hard, 1 and above pile-up.
    layout
        Where the fields stand; found out from ``events`` by default.

    Returns
    -------
    awkward.Array
        ``var * Momentum4D`` per event with ``pt, mass`` (GeV), ``eta, phi``, ``charge``,
        ``pid``, ``vertex`` (0 hard, 1.. pile-up, -1 neutral), ``npv`` (number of vertices of
        the event) and, where the file has it, ``hard_fraction``, the truth that only the
        method ``truth`` may read.

    Examples
    --------
    >>> from puma_coffea import candidates, open_events, sample_path
    >>> pf = candidates(open_events(sample_path("zvv_pu140")))
    >>> len(pf), len(pf[0])
    (12, 8999)
    >>> int(pf.npv[0, 0])
    151
    """
    refuse_lazy(events)
    chosen = _find_layout(events) if layout is None else _require(layout, events)
    parts = [_read(events, collection, vertexing) for collection in chosen.collections]
    offsets, columns = _merge(parts)
    npv = chosen.npv(events) if chosen.npv is not None else None
    per_event = (
        estimate_npv(columns["pt"], columns["eta"], columns["vertex"], offsets)
        if npv is None
        else np.maximum(ak.to_numpy(npv), 1)
    )
    columns["npv"] = np.repeat(per_event, np.diff(offsets))
    return assemble(offsets, columns)


def assemble(offsets: Any, columns: dict[str, Any]) -> ak.Array:
    """A candidates array from flat columns and the events' offsets."""
    names = [*COLUMNS, *(["hard_fraction"] if "hard_fraction" in columns else [])]
    contents = [
        ak.contents.NumpyArray(np.ascontiguousarray(columns[n], dtype=COLUMNS.get(n, np.float32)))
        for n in names
    ]
    record = ak.contents.RecordArray(contents, names, parameters={"__record__": "Momentum4D"})
    index = ak.index.Index64(np.asarray(offsets, dtype=np.int64))
    return ak.Array(ak.contents.ListOffsetArray(index, record))


def physical(candidates: ak.Array) -> ak.Array:
    """Mask of the candidates with a usable momentum: finite, pT > 0, |eta| <= 10.

    All others (a tower along the beam line has eta = 999.9) get weight 0 from every method
    and do not enter any observable.

    >>> import awkward as ak
    >>> physical(ak.Array([[{"pt": 1.0, "eta": 999.9, "phi": 0.0}, {"pt": 1.0, "eta": 2.0, "phi": 0.0}]])).to_list()
    [[False, True]]
    """
    pt, eta, phi = candidates["pt"], candidates["eta"], candidates["phi"]
    # Comparisons with NaN are False, so NaN fails each of them.
    return (pt > 0) & (pt < np.inf) & (abs(eta) <= 10) & (abs(phi) < np.inf)


def refuse_lazy(array: Any) -> None:
    """Raise LazyInput for a dask-awkward collection."""
    if type(array).__module__.split(".")[0] == "dask_awkward":
        msg = (
            "This is a dask-awkward array; puma_coffea works on eager or virtual arrays. "
            "Read with mode='virtual', or map the function over partitions."
        )
        raise LazyInput(msg)


def _find_layout(events: ak.Array) -> Layout:
    for layout in LAYOUTS:
        if layout.present_in(events):
            return layout
    wanted = "; ".join(" + ".join(c.name for c in layout.collections) for layout in LAYOUTS)
    found = ", ".join(sorted(name for name in events.fields if "." not in name)) or "nothing"
    msg = (
        f"No particle-flow candidates: the events hold {found}. Needed is one of: {wanted}. "
        "Turn the EFlow branches on in the Delphes card's TreeWriter, or pass a layout."
    )
    raise MissingCollection(msg)


def _require(layout: Layout, events: ak.Array) -> Layout:
    for collection in layout.collections:
        if collection.name not in events.fields:
            found = ", ".join(sorted(name for name in events.fields if "." not in name))
            msg = f"Layout '{layout.name}' needs '{collection.name}'; the events hold {found}."
            raise MissingCollection(msg)
    return layout


def _read(
    events: ak.Array, collection: Collection, vertexing: str | Callable[[Any], Any]
) -> tuple[Any, dict[str, Any]]:
    """Counts per event and flat columns of one collection."""
    content = events[collection.name]
    counts = ak.to_numpy(ak.num(content[content.fields[0]], axis=1))
    size = int(counts.sum())

    def column(source: Source, kind: str) -> Any:
        return _flat(_take(content, source, collection.name), size, COLUMNS.get(kind, np.float32))

    columns = {n: column(getattr(collection, n), n) for n in ("pt", "eta", "phi", "charge", "pid")}
    mass = collection.mass
    if mass is None or (isinstance(mass, str) and mass not in content.fields):
        columns["mass"] = mass_of(columns["pid"])
    else:
        columns["mass"] = column(mass, "mass")
    columns["vertex"] = _vertex(events, content, collection, vertexing, columns["charge"])
    fraction = collection.hard_fraction
    if fraction is not None and (not isinstance(fraction, str) or fraction in content.fields):
        columns["hard_fraction"] = column(fraction, "hard_fraction")
    return counts, columns


def _vertex(
    events: ak.Array,
    content: Any,
    collection: Collection,
    vertexing: str | Callable[[Any], Any],
    charge: Any,
) -> Any:
    neutral = charge == 0
    if neutral.all() and not collection.vertexing:
        return np.full(len(charge), -1, dtype=np.int32)
    if callable(vertexing):
        found = vertexing(content)
    elif vertexing in collection.vertexing:
        found = collection.vertexing[vertexing](events, content)
    else:
        known = ", ".join(repr(name) for name in collection.vertexing)
        msg = f"Unknown vertexing {vertexing!r} for '{collection.name}'; choose {known} or a function."
        raise UnknownVertexing(msg)
    vertex = _flat(found, len(charge), np.int32)
    vertex[neutral] = -1
    return vertex


def _take(content: Any, source: Source, name: str) -> Any:
    if not isinstance(source, str):
        return source(content) if callable(source) else source
    if source not in content.fields:
        msg = f"'{name}' has no branch '{source}'; it has {', '.join(content.fields)}."
        raise MissingCollection(msg)
    return content[source]


def _flat(values: Any, size: int, dtype: Any) -> Any:
    if isinstance(values, (int, float)):
        return np.full(size, values, dtype=dtype)
    flat = ak.to_numpy(ak.flatten(values, axis=None)).astype(dtype)
    if len(flat) != size:
        msg = f"A field has {len(flat)} values for {size} candidates."
        raise MissingCollection(msg)
    return flat


def _merge(parts: list[tuple[Any, dict[str, Any]]]) -> tuple[Any, dict[str, Any]]:
    """Offsets and flat columns of the collections joined event by event."""
    total = np.sum([counts for counts, _ in parts], axis=0, dtype=np.int64)
    offsets = np.concatenate(([0], np.cumsum(total)))
    names = set.intersection(*(set(columns) for _, columns in parts))
    merged = {n: np.empty(offsets[-1], dtype=COLUMNS.get(n, np.float32)) for n in names}
    start = offsets[:-1].copy()
    for counts, columns in parts:
        inner = np.concatenate(([0], np.cumsum(counts)))
        place = np.repeat(start - inner[:-1], counts) + np.arange(inner[-1])
        for n in names:
            merged[n][place] = columns[n]
        start += counts
    return offsets, merged

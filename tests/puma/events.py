"""Flat columns for the tests: from tuples, of one event, in another order."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np

from puma_coffea.flat import Flat

COLUMNS = [field.name for field in fields(Flat) if field.name not in ("offsets", "hard_fraction")]


def flat_of(events):
    """Events as lists of (pt, eta, phi, vertex); neutrals are photons."""
    rows = np.array([row for event in events for row in event], dtype=np.float64).reshape(-1, 4)
    vertex = rows[:, 3].astype(np.int32)
    return Flat(
        offsets=np.concatenate(([0], np.cumsum([len(event) for event in events], dtype=np.int64))),
        pt=rows[:, 0].copy(),
        eta=rows[:, 1].copy(),
        phi=rows[:, 2].copy(),
        mass=np.where(vertex < 0, 0.0, 0.14),
        pid=np.where(vertex < 0, 22, 211).astype(np.int32),
        vertex=vertex,
        npv=np.full(len(rows), 140, dtype=np.int32),
        hard_fraction=None,
    )


def one_event(flat, number):
    """Columns of one event as attributes, and its slice of the flat arrays."""
    here = slice(int(flat.offsets[number]), int(flat.offsets[number + 1]))
    return SimpleNamespace(**{name: getattr(flat, name)[here] for name in COLUMNS}), here


def permuted(flat, chosen, offsets=None):
    """The chosen candidates in the chosen order."""
    columns = {name: getattr(flat, name)[chosen] for name in COLUMNS}
    offsets = flat.offsets if offsets is None else np.asarray(offsets, dtype=np.int64)
    return replace(flat, offsets=offsets, hard_fraction=None, **columns)

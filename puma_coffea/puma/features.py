"""What the network is told about a candidate: the paper's eleven inputs, and more by name.

A model names its inputs; :func:`features` computes those and no others. Sums of pT and counts
enter as log(1 + x), so that all inputs are of order one before the network's own normalisation.

Names of local sums are KIND_WHAT_RADIUS. KIND: ``hard`` and ``pileup`` (charged candidates of the
hard vertex and of others), ``photon``, ``hadron`` (neutrals), ``kept`` (all neutrals, each with the
share of its pT that PUPPI keeps: a first guess of what is hard nearby). WHAT: ``pt`` (sum of pT), ``count``,
``ptdr`` (sum of pT / dR), ``ptdr2`` (sum of (pT / dR)^2), ``max`` (largest pT). RADIUS: of the cone
around the candidate, which is itself left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puma_coffea.exceptions import PumaCoffeaError
from puma_coffea.flat import HARD, Flat
from puma_coffea.puma import clustering
from puma_coffea.puma.clusters import CLUSTER_QUANTITIES, set_cluster_quantities
from puma_coffea.puma.neighbours import QUANTITIES, local_sums

KINDS = {
    "hard": "charged candidates of the hard vertex",
    "pileup": "charged candidates of pile-up vertices",
    "photon": "photons",
    "hadron": "neutral hadrons",
}
KEPT = "neutrals, their pT times PUPPI's weight"
RADII = (0.05, 0.1, 0.2, 0.4, 0.8)
WAVES = (1, 4, 16)  # of the directions as waves
NEAREST_REACH = 0.8  # a nearest neighbour is looked for within this distance
RING = 0.5  # width in eta of the rings whose density is an input
LARGEST = 1e30  # of any sum, so that float32 never overflows

#: The eleven inputs of the paper's table, in its order.
PAPER = (
    "pt",
    "eta",
    "phi",
    "energy",
    "particle",
    "vertex",
    "cluster",
    "cluster_dr",
    "cluster_hard_pt",
    "cluster_neutral_pt",
    "npv",
)


class UnknownFeature(PumaCoffeaError, LookupError):
    """A model asks for an input that this version of the package does not know."""


def features(
    flat: Flat,
    sequence: clustering.Sequence,
    names: Sequence[str] = PAPER,
    of: NDArray[np.int64] | None = None,
) -> NDArray[np.float32]:
    """The named inputs of every candidate, or of chosen ones.

    Permuting the candidates permutes the rows, to the last bit: sums run along the sequence,
    never in the order of the input. All values are finite.

    Parameters
    ----------
    flat
        Columns and offsets of a chunk, as from :func:`puma_coffea.flat.flatten`.
    sequence
        The same candidates' :func:`~puma_coffea.puma.clustering.iterative_cluster`.
    names
        Keys of ``FEATURES``, in the order of the columns.
    of
        Index of the chosen candidates; the others still count in sums. Default: all.

    Returns
    -------
    numpy.ndarray
        float32, shape (candidates, names), in the order of ``flat`` or of ``of``.

    Raises
    ------
    UnknownFeature
        A name that is not in ``FEATURES``.

    Examples
    --------
    >>> from puma_coffea import candidates, open_events, sample_path
    >>> from puma_coffea.flat import flatten
    >>> _, _, flat = flatten(candidates(open_events(sample_path("ttbar_pu140")))[:1])
    >>> sequence = clustering.iterative_cluster(flat)
    >>> features(flat, sequence).shape
    (9185, 11)
    >>> features(flat, sequence, ["pt", "hard_pt_0.2", "nearest_hard_dr"])[sequence.order[0]]
    array([4.435..., 5.102..., 0.0096...], dtype=float32)
    """
    unknown = [name for name in names if name not in FEATURES]
    if unknown:
        msg = (
            f"Unknown input {', '.join(map(repr, unknown))}; puma_coffea.puma.features.FEATURES "
            "lists the known ones. A model made by a newer version needs that version."
        )
        raise UnknownFeature(msg)
    columns = np.zeros((len(names), len(flat.pt)), dtype=np.float32)
    place = {name: column for column, name in enumerate(names)}
    for name in place.keys() & OWN.keys():
        columns[place[name]] = OWN[name][1](flat)
    kept = _kept(flat) if any(name.startswith(("puppi", "kept")) for name in names) else None
    if "puppi" in place:
        columns[place["puppi"]] = kept
    for name in place.keys() & EVENT.keys():
        columns[place[name]] = np.minimum(EVENT[name][1](flat, sequence.order), LARGEST)
    _fill_clusters(columns, place, flat, sequence)
    _fill_local(columns, place, flat, sequence, of, kept)
    columns = columns if of is None else columns[:, of]
    for name in place.keys() & LOGARITHMIC:
        row = columns[place[name]]
        np.log(np.minimum(row, np.float32(LARGEST)) + np.float32(1), out=row)
    if len(place) < len(names):  # a name given twice
        columns = columns[[place[name] for name in names]]
    return np.ascontiguousarray(columns.T)


def kinds(flat: Flat) -> NDArray[np.int8]:
    """Kind of each candidate: index into KINDS."""
    neutral = np.where(flat.pid == 22, 2, 3)
    charged = np.where(flat.vertex == HARD, 0, 1)
    return np.where(flat.vertex < 0, neutral, charged).astype(np.int8)


def _kept(flat: Flat) -> NDArray[np.float32]:
    """PUPPI's weights, preset ``tuned``."""
    from puma_coffea.methods.puppi import PRESETS, flat_weights

    return flat_weights(flat, PRESETS["tuned"])


def _wave(flat: Flat, function: Any, angle: str, number: int) -> NDArray[np.float64]:
    values: NDArray[np.float64] = function(number * getattr(flat, angle))
    return values


def _is(flat: Flat, kind: str) -> Any:
    return kinds(flat) == list(KINDS).index(kind)


def _particle(flat: Flat) -> NDArray[np.float64]:
    code = np.abs(flat.pid)
    charged = np.where(code == 11, 1.0, np.where(code == 13, 2.0, 0.0))
    neutral = np.where(code == 22, 3.0, 4.0)
    return np.where(flat.vertex < 0, neutral, charged)


def _log_energy(flat: Flat) -> NDArray[np.float64]:
    mass = np.where(np.isfinite(flat.mass), flat.mass, 0.0)
    return np.log(np.hypot(flat.pt * np.cosh(flat.eta), mass))


def _spread(flat: Flat, per_event: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.repeat(per_event, np.diff(flat.offsets))


def _event_sum(
    flat: Flat, order: NDArray[np.int64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sums over each event, taken along the sequence."""
    n = len(flat.offsets) - 1
    event = np.repeat(np.arange(n), np.diff(flat.offsets))
    return np.bincount(event, weights=values[order], minlength=n).astype(np.float64)


def _hard_vector(flat: Flat, order: NDArray[np.int64]) -> NDArray[np.float64]:
    pt = np.where(flat.vertex == HARD, flat.pt, 0.0)
    x = _event_sum(flat, order, pt * np.cos(flat.phi))
    return _spread(flat, np.hypot(x, _event_sum(flat, order, pt * np.sin(flat.phi))))


def _event(chosen: Callable[[Flat], Any]) -> Callable[[Flat, Any], Any]:
    return lambda flat, order: _spread(flat, _event_sum(flat, order, chosen(flat) * 1.0))


def _ring(chosen: Callable[[Flat], Any]) -> Callable[[Flat, Any], Any]:
    def density(flat: Flat, order: NDArray[np.int64]) -> Any:
        ring = _ring_number(flat)
        weights = np.where(chosen(flat), flat.pt, 0.0)
        total = np.bincount(ring[order], weights=weights[order])
        return total[ring] / (2 * np.pi * RING)

    return density


def _ring_number(flat: Flat) -> NDArray[np.int64]:
    rings = int(20 / RING) + 1
    event = np.repeat(np.arange(len(flat.offsets) - 1), np.diff(flat.offsets))
    return event * rings + ((flat.eta + 10) / RING).astype(np.int64)


def _ring_rank(flat: Flat, _order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of strictly harder candidates, so that equal ones have equal ranks."""
    group = _ring_number(flat) * len(KINDS) + kinds(flat)
    order = np.lexsort((-flat.pt, group))
    place = np.arange(len(order))
    new_group = np.diff(group[order], prepend=-1) != 0
    new_pt = new_group | (np.diff(flat.pt[order], prepend=0) != 0)
    rank = np.empty(len(order), dtype=np.int64)
    first, begin = (np.maximum.accumulate(np.where(new, place, 0)) for new in (new_pt, new_group))
    rank[order] = first - begin
    return rank


OWN: dict[str, tuple[str, Callable[[Flat], Any]]] = {
    "pt": ("log of pT / GeV", lambda flat: np.log(flat.pt)),
    "eta": ("pseudorapidity", lambda flat: flat.eta),
    "phi": ("azimuth in [-pi, pi]", lambda flat: flat.phi),
    "energy": ("log of E / GeV", _log_energy),
    "particle": (
        "0 charged hadron, 1 electron, 2 muon, 3 photon, 4 neutral hadron",
        _particle,
    ),
    "vertex": (
        "-1 neutral, 0 hard vertex, 1 any other vertex",
        lambda flat: np.clip(flat.vertex, -1, 1),
    ),
    "npv": ("number of vertices / 100", lambda flat: flat.npv / 100),
    "abs_eta": ("absolute pseudorapidity", lambda flat: np.abs(flat.eta)),
    # Products of waves are waves of the difference: attention can tell how far two candidates are.
    **{
        f"{function.__name__}_{angle}_{k}": (
            f"{function.__name__}({k} {angle})",
            partial(_wave, function=function, angle=angle, number=k),
        )
        for function in (np.cos, np.sin)
        for angle in ("phi", "eta")
        for k in WAVES
    },
    **{f"is_{kind}": (f"1 for {KINDS[kind]}, else 0", partial(_is, kind=kind)) for kind in KINDS},
}

EVENT: dict[str, tuple[str, Callable[[Flat, NDArray[np.int64]], Any]]] = {
    "event_hard_count": (
        "charged-hard candidates of the event",
        _event(lambda flat: flat.vertex == HARD),
    ),
    "event_hard_pt": (
        "their summed pT",
        _event(lambda flat: np.where(flat.vertex == HARD, flat.pt, 0.0)),
    ),
    "event_hard_vector_pt": ("pT of their vector sum", _hard_vector),
    "event_neutral_pt": (
        "summed pT of the event's neutrals",
        _event(lambda flat: np.where(flat.vertex < 0, flat.pt, 0.0)),
    ),
    "ring_neutral_pt": (
        "neutral pT per unit area in the candidate's ring of eta (width 0.5)",
        _ring(lambda flat: flat.vertex < 0),
    ),
    "ring_pileup_pt": (
        "charged pile-up pT per unit area in that ring",
        _ring(lambda flat: flat.vertex > 0),
    ),
    "ring_hard_pt": (
        "charged-hard pT per unit area in that ring",
        _ring(lambda flat: flat.vertex == HARD),
    ),
    "ring_rank": ("number of harder candidates of its kind in that ring", _ring_rank),
}

_WHAT = {
    "pt": "summed pT of",
    "count": "number of",
    "ptdr": "sum of pT / dR (dR at least 0.01) of",
    "ptdr2": "sum of (pT / dR)^2 (dR at least 0.01) of",
    "max": "largest pT of",
}
LOCAL = {
    f"{kind}_{what}_{radius}": (kind, what, radius)
    for kind in (*KINDS, "kept")
    for what in _WHAT
    for radius in RADII
}
RANKS = {f"neutral_rank_{radius}": radius for radius in (0.2, 0.4)}
NEAREST = {
    f"nearest_{kind}_{what}": (kind, f"nearest_{what}")
    for kind in ("hard", "pileup")
    for what in ("dr", "pt")
}


def _fill_clusters(
    columns: NDArray[np.float32],
    place: dict[str, int],
    flat: Flat,
    sequence: clustering.Sequence,
) -> None:
    rows = np.array([place.get(name, -1) for name in CLUSTER_QUANTITIES])
    if rows.max() >= 0:
        set_cluster_quantities(
            flat.offsets,
            sequence.order,
            sequence.cluster,
            flat.pt,
            flat.eta,
            flat.phi,
            flat.vertex,
            rows,
            columns,
        )


def _fill_local(
    columns: NDArray[np.float32],
    place: dict[str, int],
    flat: Flat,
    sequence: clustering.Sequence,
    of: NDArray[np.int64] | None,
    kept: NDArray[np.float32] | None,
) -> None:
    """Local sums, kind by kind, each out to the largest radius asked of it."""
    sums = [(*LOCAL[name], row) for name, row in place.items() if name in LOCAL]
    for name, reach in RANKS.items():
        if name in place:
            sums += [(kind, "harder", reach, place[name]) for kind in ("photon", "hadron")]
    nearest = [
        (*NEAREST[name], NEAREST_REACH, row) for name, row in place.items() if name in NEAREST
    ]
    for _, what, _, row in nearest:
        columns[row] = NEAREST_REACH if what == "nearest_dr" else 0.0
    is_target = np.full(len(flat.pt), of is None)
    if of is not None:
        is_target[of] = True
    sources = _sources(flat, kept) if sums or nearest else {}
    for asked in (sums, nearest):  # apart: the nearest may need a wider reach
        for kind, (is_source, pt) in sources.items():
            wanted = [(what, radius, row) for k, what, radius, row in asked if k == kind]
            if not wanted:
                continue
            radii = sorted({radius for _, radius, _ in wanted})
            rows = np.full((len(QUANTITIES), len(radii)), -1)
            for what, radius, row in wanted:
                rows[QUANTITIES.index(what), radii.index(radius)] = row
            local_sums(
                flat.offsets,
                sequence.order,
                pt,
                flat.eta,
                flat.phi,
                is_source,
                is_target,
                np.array(radii),
                rows,
                columns,
            )


def _sources(flat: Flat, kept: NDArray[np.float32] | None) -> dict[str, tuple[Any, Any]]:
    """Mask and pT of what is summed, by kind."""
    kind_of = kinds(flat)
    found = {kind: (kind_of == code, flat.pt) for code, kind in enumerate(KINDS)}
    if kept is not None:
        found["kept"] = (flat.neutral & (kept > 0), flat.pt * kept)
    return found


#: Every input that a model may name, with what it is.
FEATURES: dict[str, str] = {
    **{name: text for name, (text, _) in OWN.items()},
    **CLUSTER_QUANTITIES,
    **{name: text for name, (text, _) in EVENT.items()},
    "puppi": "PUPPI's weight, preset tuned",
    **{
        name: f"{_WHAT[what]} the {KINDS.get(kind, KEPT)} within {radius}"
        for name, (kind, what, radius) in LOCAL.items()
    },
    **{name: f"number of harder neutrals within {radius}" for name, radius in RANKS.items()},
    **{
        name: f"{what} of the nearest of the {KINDS[kind]} (within {NEAREST_REACH})"
        for name, (kind, what) in NEAREST.items()
    },
}

#: Those that enter as log(1 + x), x in GeV where it is a pT.
LOGARITHMIC = frozenset(FEATURES) - {
    *OWN,
    "puppi",
    "cluster",
    "cluster_dr",
    *(name for name, (_, what) in NEAREST.items() if what == "nearest_dr"),
}

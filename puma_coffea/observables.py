"""Observables: weighted candidates in, missing momentum, recoil and jets out.

Each function takes arrays and returns arrays, one entry per event. Momenta are in GeV. A
weight multiplies the whole four-vector; candidates of weight 0, and unphysical ones, take
no part.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import awkward as ak
import numpy as np

from puma_coffea.candidates import physical, refuse_lazy
from puma_coffea.exceptions import MissingCollection, MissingExtra
from puma_coffea.truth import momentum2d, momentum4d

JET_RADIUS = 0.4
JET_PT_MIN = 20.0
MATCH_RADIUS = 0.2  # half of the jet radius

_banner_shown: set[bool] = set()


def met(candidates: ak.Array, weights: ak.Array) -> ak.Array:
    """Missing transverse momentum: minus the vector sum of the weighted candidates.

    Returns
    -------
    awkward.Array
        Momentum2D per event (``pt``, ``phi``, ``px``, ``py``; GeV).

    Examples
    --------
    >>> import awkward as ak
    >>> pf = ak.Array([[{"pt": 3.0, "eta": 0.0, "phi": 0.0}, {"pt": 8.0, "eta": 0.0, "phi": 1.570796}]])
    >>> missing = met(pf, ak.Array([[1.0, 0.5]]))
    >>> [round(float(value[0]), 3) for value in (missing.px, missing.py, missing.pt)]
    [-3.0, -4.0, 5.0]
    """
    return Weighted(candidates, weights).met()


def recoil(candidates: ak.Array, weights: ak.Array, truth: ak.Array) -> ak.Array:
    """Hadronic recoil along and across the true boson.

    U is the vector sum of the weighted candidates without the boson's visible decay
    products; the axis is the true boson's direction or, where ``truth.boson`` is None (ttbar),
    the true pTmiss. Ideally the parallel component is minus the boson's pT and the
    perpendicular one 0.

    Returns
    -------
    awkward.Array
        Record per event with ``parallel``, ``perpendicular`` and ``boson_pt``, the length of
        the axis (GeV).

    Examples
    --------
    >>> import awkward as ak
    >>> from puma_coffea.truth import momentum2d
    >>> pf = ak.Array([[{"pt": 30.0, "eta": 1.0, "phi": 0.0}, {"pt": 4.0, "eta": 1.0, "phi": 1.570796}]])
    >>> boson = momentum2d([32.0], [3.141593])
    >>> u = recoil(pf, ak.Array([[1.0, 1.0]]), ak.zip({"met": boson, "boson": boson}, depth_limit=1))
    >>> [round(float(value[0]), 3) for value in (u.parallel, u.perpendicular, u.boson_pt)]
    [-30.0, -4.0, 32.0]
    """
    return Weighted(candidates, weights).recoil(truth)


def jets(
    candidates: ak.Array,
    weights: ak.Array,
    radius: float = JET_RADIUS,
    min_pt: float = JET_PT_MIN,
) -> ak.Array:
    """Anti-kt jets of the weighted candidates, by decreasing pT.

    Returns
    -------
    awkward.Array
        ``var * Momentum4D`` per event (``pt, eta, phi, mass``), jets above ``min_pt`` GeV.
    """
    return Weighted(candidates, weights).jets(radius, min_pt)


class Weighted:
    """The candidates that take part, times their weights: what the observables have in common.

    Parameters
    ----------
    candidates, weights
        As from :func:`puma_coffea.candidates` and a method.
    """

    def __init__(self, candidates: ak.Array, weights: ak.Array) -> None:
        refuse_lazy(candidates)
        if len(candidates) != len(weights) or not ak.all(
            ak.num(candidates, axis=1) == ak.num(weights, axis=1)
        ):
            msg = "Weights and candidates differ in layout; weigh the very candidates you pass."
            raise MissingCollection(msg)
        self._given = candidates, weights
        keep = physical(candidates) & (weights != 0)
        self._kept = candidates[keep]
        self._scale = ak.values_astype(weights[keep], np.float64)
        self._pt = self._scale * self._kept["pt"]
        phi = ak.values_astype(self._kept["phi"], np.float64)
        self._px, self._py = self._pt * np.cos(phi), self._pt * np.sin(phi)

    @cached_property
    def sum(self) -> tuple[Any, Any]:
        """Vector sum of each event, x and y (GeV)."""
        return ak.to_numpy(ak.sum(self._px, axis=1)), ak.to_numpy(ak.sum(self._py, axis=1))

    def met(self) -> ak.Array:
        """As :func:`met`."""
        x, y = self.sum
        return momentum2d(np.hypot(x, y), np.arctan2(-y, -x))

    def recoil(self, truth: ak.Array) -> ak.Array:
        """As :func:`recoil`."""
        x, y = self.sum
        if "boson_products" in truth.fields and ak.count(truth["boson_products"]["pt"]) > 0:
            candidates, weights = self._given
            removed = _from_boson(candidates, truth["boson_products"])
            x, y = Weighted(candidates, ak.where(removed, 0, weights)).sum
        boson, missing = truth["boson"], truth["met"]
        absent = ak.to_numpy(ak.is_none(boson["pt"]))
        pt, phi = (
            np.where(absent, ak.to_numpy(missing[n]), ak.to_numpy(ak.fill_none(boson[n], 0)))
            for n in ("pt", "phi")
        )
        cos, sin = np.cos(phi), np.sin(phi)
        return ak.zip(
            {"parallel": x * cos + y * sin, "perpendicular": y * cos - x * sin, "boson_pt": pt}
        )

    def jets(self, radius: float = JET_RADIUS, min_pt: float = JET_PT_MIN) -> ak.Array:
        """As :func:`jets`."""
        try:
            import fastjet
        except ImportError:
            msg = "Jets need the package fastjet: pip install 'puma-coffea[jets]'."
            raise MissingExtra(msg) from None

        eta, mass = (ak.values_astype(self._kept[n], np.float64) for n in ("eta", "mass"))
        pz = self._pt * np.sinh(eta)
        energy = np.sqrt(self._pt**2 + pz**2 + (self._scale * mass) ** 2)
        momenta = ak.to_packed(
            ak.zip({"px": self._px, "py": self._py, "pz": pz, "E": energy}, with_name="Momentum4D")
        )
        if ak.count(momenta["px"]) == 0:  # fastjet takes no array without particles
            empty = momenta["px"]
            return momentum4d(empty, empty, empty, empty)
        definition = fastjet.JetDefinition(fastjet.antikt_algorithm, radius)
        with _banner_on_stderr():
            found = fastjet.ClusterSequence(momenta, definition).inclusive_jets(min_pt)
        found = ak.Array(found, with_name="Momentum4D")
        ordered = found[ak.argsort(found.pt, axis=1, ascending=False, stable=True)]
        return momentum4d(ordered.pt, ordered.eta, ordered.phi, ordered.mass)


@contextmanager
def _banner_on_stderr() -> Iterator[None]:
    """Send FastJet's request to be cited to standard error: standard output is for results.

    FastJet prints it once per process, from C++, at the first clustering.
    """
    if _banner_shown:
        yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        _banner_shown.add(True)


def dijet_mass(jets: ak.Array) -> ak.Array:
    """Invariant mass (GeV) of the two jets of largest pT; None with fewer than two.

    This is the m_jj of VBF events: no further cut on the jets, which
    :func:`puma_coffea.jets` returns above 20 GeV and ordered in pT.
    """
    leading = ak.mask(jets, ak.num(jets, axis=1) >= 2)
    return (leading[:, 0] + leading[:, 1]).mass


def leading_jet_response(jets: ak.Array, generator_jets: ak.Array) -> ak.Array:
    """Response of the jet at the leading generator jet.

    The leading generator jet is the same for all methods, so their responses can be compared
    event by event; its partner is the nearest jet within dR < 0.2.

    Returns
    -------
    awkward.Array
        Record per event: ``pt`` and ``mass`` of the jet over those of the generator jet;
        None without a generator jet or a partner, ``mass`` also for a massless generator jet.
    """
    leading = ak.firsts(generator_jets[ak.argmax(generator_jets["pt"], axis=1, keepdims=True)])
    distance = _delta_r(jets, leading)
    nearest = ak.argmin(distance, axis=1, keepdims=True)
    close = ak.firsts(distance[nearest]) < MATCH_RADIUS
    partner = ak.mask(ak.firsts(jets[nearest]), ak.fill_none(close, False))
    mass = ak.mask(leading["mass"], leading["mass"] > 0)
    return ak.zip({"pt": partner["pt"] / leading["pt"], "mass": partner["mass"] / mass})


def pileup_jets(jets: ak.Array, generator_jets: ak.Array, min_pt: float = 30.0) -> ak.Array:
    """Number of jets above ``min_pt`` GeV without a generator jet within dR < 0.4, per event."""
    hard = jets[jets["pt"] > min_pt]
    pairs = ak.cartesian({"jet": hard, "generator": generator_jets}, axis=1, nested=True)
    matched = ak.any(_delta_r(pairs["jet"], pairs["generator"]) < JET_RADIUS, axis=2)
    return ak.sum(~matched, axis=1)


def _from_boson(candidates: ak.Array, products: ak.Array) -> Any:
    """Mask of the candidates that are a decay product: for each product the nearest within 0.1.

    Charged products are looked for among the tracks of the hard vertex, others among neutrals.
    """
    mask = ak.zeros_like(candidates["pt"], dtype=np.bool_)
    for k in range(int(ak.max(ak.num(products, axis=1)))):
        product = ak.firsts(products[:, k:])
        distance = _delta_r(candidates, product)
        eligible = ak.where(
            product["charge"] != 0, candidates["vertex"] == 0, candidates["vertex"] < 0
        )
        distance = ak.where(eligible & ~mask, distance, np.inf)
        nearest = ak.min(distance, axis=1)
        mask = mask | ak.fill_none((distance == nearest) & (distance < 0.1), False)
    return mask


def _delta_r(first: Any, second: Any) -> Any:
    dphi = first["phi"] - second["phi"]
    dphi = dphi - 2 * np.pi * np.round(dphi / (2 * np.pi))
    return np.hypot(first["eta"] - second["eta"], dphi)

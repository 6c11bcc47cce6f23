"""Properties of a candidate's cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from puma_coffea.kernels import kernel
from puma_coffea.puma.ordering import distance2

CLUSTER_QUANTITIES = {
    "cluster": "place of the cluster in the walk / number of clusters of the event",
    "cluster_dr": "largest distance between two members of the cluster",
    "cluster_hard_pt": "pT of the cluster's charged-hard members",
    "cluster_neutral_pt": "pT of its neutrals",
    "cluster_pileup_pt": "pT of its charged pile-up members",
}


@kernel
def set_cluster_quantities(
    offsets: Any,
    order: Any,
    cluster: Any,
    pt: Any,
    eta: Any,
    phi: Any,
    vertex: Any,
    rows: Any,
    columns: Any,
) -> None:
    """Write CLUSTER_QUANTITIES of each candidate to the given rows of ``columns``; -1: unasked."""
    for event in range(len(offsets) - 1):
        start, stop = offsets[event], offsets[event + 1]
        if start == stop:
            continue
        count = cluster[order[stop - 1]] + 1
        first = start
        while first < stop:
            last = first + 1
            while last < stop and cluster[order[last]] == cluster[order[first]]:
                last += 1
            members = order[first:last]
            hard, neutral, pileup = _sums(members, pt, vertex)
            _write(columns, rows[0], members, cluster[members[0]] / count)
            if rows[1] >= 0:
                _write(columns, rows[1], members, np.sqrt(_largest(members, eta, phi)))
            _write(columns, rows[2], members, hard)
            _write(columns, rows[3], members, neutral)
            _write(columns, rows[4], members, pileup)
            first = last


@kernel
def _sums(members: Any, pt: Any, vertex: Any) -> tuple[float, float, float]:
    hard, neutral, pileup = 0.0, 0.0, 0.0
    for i in members:
        if vertex[i] < 0:
            neutral += pt[i]
        elif vertex[i] == 0:
            hard += pt[i]
        else:
            pileup += pt[i]
    return hard, neutral, pileup


@kernel
def _largest(members: Any, eta: Any, phi: Any) -> float:
    largest = 0.0
    for a in range(1, len(members)):
        i = members[a]
        for b in range(a):
            j = members[b]
            largest = max(largest, distance2(eta[i], phi[i], eta[j], phi[j]))
    return largest


@kernel
def _write(columns: Any, row: int, members: Any, value: float) -> None:
    if row >= 0:
        for i in members:
            columns[row, i] = value

"""IterativeCluster: candidates of an event into one sequence in which neighbours stand together.

Section 3.1 of the PUMA paper (arXiv:2107.02779): k-means on (sin phi, cos phi, eta), repeated
inside each cluster until it has fewer than ``size`` members; then a greedy walk from cluster to
nearest cluster, starting at the hardest one; inside a cluster by decreasing pT. ``kmeans.py``
and ``ordering.py`` hold the loops.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from puma_coffea.flat import Flat
from puma_coffea.kernels import kernel
from puma_coffea.puma.kmeans import split_recursively
from puma_coffea.puma.ordering import canonical_order, centroids, greedy_walk

CLUSTER_SIZE = 10  # w_clust of the paper: a cluster has fewer members
BRANCHES = 4  # k of the paper


class Sequence(NamedTuple):
    """The candidates of all events as sequences, event after event."""

    order: NDArray[np.int64]
    """Candidate (index into the flat arrays) at each place: ``pt[order]`` is the sequence."""
    position: NDArray[np.int64]
    """Place of each candidate, counted from its event's first: the inverse of ``order``."""
    cluster: NDArray[np.int32]
    """Cluster of each candidate, numbered from 0 in each event along the walk."""


def iterative_cluster(flat: Flat, size: int = CLUSTER_SIZE, branches: int = BRANCHES) -> Sequence:
    """Sequence and clusters of the candidates, each event by itself.

    Nothing depends on the order of the input, to the last bit: candidates are first put into
    an order given by their kinematics. Only candidates that are alike in every field can
    change places.

    Parameters
    ----------
    flat
        Columns and offsets of a chunk, as from :func:`puma_coffea.flat.flatten`.
    size
        A cluster is split as long as it has this many members or more; at least 2.
    branches
        k of k-means, the number of parts into which a cluster is split; at least 2.

    Returns
    -------
    Sequence
        ``order``, ``position`` and ``cluster``, one entry per candidate.

    Examples
    --------
    >>> from puma_coffea import candidates, open_events, sample_path
    >>> from puma_coffea.flat import flatten
    >>> _, _, flat = flatten(candidates(open_events(sample_path("ttbar_pu140")))[:1])
    >>> sequence = iterative_cluster(flat)
    >>> int(sequence.cluster.max()) + 1, len(flat.pt)
    (2137, 9185)
    """
    if min(size, branches) < 2:
        msg = f"size and branches must be at least 2, not {size} and {branches}."
        raise ValueError(msg)
    return Sequence(
        *_sequences(
            flat.offsets,
            flat.pt,
            flat.eta,
            flat.phi,
            flat.mass,
            flat.vertex,
            flat.pid,
            size,
            branches,
        )
    )


def pt_order(flat: Flat) -> NDArray[np.int64]:
    """Candidates (indices into the flat arrays) of each event by decreasing pT, for comparison."""
    order = np.empty(len(flat.pt), dtype=np.int64)
    columns = (flat.pt, flat.eta, flat.phi, flat.vertex, flat.pid, flat.mass)
    for start, stop in pairwise(flat.offsets):
        order[start:stop] = start + canonical_order(*(column[start:stop] for column in columns))
    return order


@kernel
def _sequences(
    offsets: Any,
    pt: Any,
    eta: Any,
    phi: Any,
    mass: Any,
    vertex: Any,
    pid: Any,
    size: int,
    branches: int,
) -> tuple[Any, Any, Any]:
    order = np.empty(len(pt), dtype=np.int64)
    position = np.empty(len(pt), dtype=np.int64)
    cluster = np.empty(len(pt), dtype=np.int32)
    for event in range(len(offsets) - 1):
        start, stop = offsets[event], offsets[event + 1]
        if start == stop:
            continue
        here = slice(start, stop)
        members = canonical_order(
            pt[here], eta[here], phi[here], vertex[here], pid[here], mass[here]
        )
        sin, cos = np.sin(phi[here]), np.cos(phi[here])
        leaves, bounds = split_recursively(
            sin[members], cos[members], eta[here][members], size, branches
        )
        members = members[leaves]
        walk = greedy_walk(
            *centroids(pt[here][members], eta[here][members], sin[members], cos[members], bounds)
        )
        place = start
        for rank, c in enumerate(walk):
            for m in range(bounds[c], bounds[c + 1]):
                i = start + members[m]
                order[place] = i
                position[i] = place - start
                cluster[i] = rank
                place += 1
    return order, position, cluster

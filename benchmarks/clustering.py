"""Clustering, ordering and the eleven features, against the same recursion with scikit-learn.

scikit-learn does the k-means only: no ordering, no features.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from puma_coffea.benchmarks.events import CARD, embedded, paper_model
from puma_coffea.benchmarks.rows import Row, milliseconds
from puma_coffea.benchmarks.timing import best_times, seconds
from puma_coffea.flat import Flat, flatten
from puma_coffea.puma.clustering import BRANCHES, CLUSTER_SIZE, iterative_cluster
from puma_coffea.puma.features import features
from puma_coffea.puma.inputs import prepare

TITLE = "Clustering, ordering, eleven features"
REFERENCE_EVENTS = 3  # of half a second each


def measure(quick: bool) -> list[Row]:
    """Times per event, and ratios to scikit-learn and to the whole of PUMA."""
    pf = embedded(quick)
    flat = flatten(pf)[2]
    sequence, model = iterative_cluster(flat), paper_model()
    times = best_times(
        {
            "cluster": lambda: iterative_cluster(flat),
            "features": lambda: features(flat, sequence),
            "prepare": lambda: prepare(flat, CARD),
        },
        1 if quick else 15,
    )
    whole = best_times({"puma": lambda: model(pf)}, 1 if quick else 3)["puma"] / len(pf)
    cluster, eleven, prepared = (
        times[name] / len(pf) for name in ("cluster", "features", "prepare")
    )
    both = cluster + eleven
    rows = [
        milliseconds("clustering and ordering", cluster),
        milliseconds("eleven features", eleven),
        milliseconds("both, as PUMA calls them", prepared, prepared / whole, "PUMA, preset paper"),
    ]
    name = "scikit-learn's recursion, k-means only"
    try:
        reference = _reference(flat, 1 if quick else REFERENCE_EVENTS)
    except ImportError:
        return [*rows, Row(name, missing="pip install scikit-learn")]
    against = "both of the above"
    return [*rows, milliseconds(name, reference, reference / both, against)]


def _reference(flat: Flat, events: int) -> float:
    """Seconds per event of scikit-learn, scaled to the average number of candidates."""
    import sklearn.cluster  # noqa: F401

    total = 0.0
    for number in range(events):
        here = slice(flat.offsets[number], flat.offsets[number + 1])
        phi, eta = flat.phi[here], flat.eta[here]
        points = np.stack([np.sin(phi), np.cos(phi), eta], axis=1)
        everyone = np.arange(len(points))
        total += min(seconds(partial(recursion, points, everyone)) for _ in range(3))
    return float(total / flat.offsets[events] * flat.offsets[-1] / (len(flat.offsets) - 1))


def recursion(points: Any, members: Any) -> list[Any]:
    """Clusters of fewer than CLUSTER_SIZE members, as a user of scikit-learn writes it."""
    from sklearn.cluster import KMeans

    if len(members) < CLUSTER_SIZE:
        return [members]
    found = KMeans(BRANCHES, n_init=1, random_state=0).fit(points[members]).labels_
    parts = [members[found == label] for label in range(BRANCHES)]
    if max(map(len, parts)) == len(members):  # identical directions
        return [members]
    return [cluster for part in parts if len(part) for cluster in recursion(points, part)]

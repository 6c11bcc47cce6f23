"""Times of IterativeCluster, its ordering and the eleven features, on one core.

Against the same recursion with scikit-learn's KMeans, in the same run and on the same events,
and against the number of candidates. scikit-learn does the k-means only: no ordering, no features.

Run it: python benchmarks/clustering.py [SAMPLE.parquet]
"""

import os

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"  # before the libraries start their threads

import argparse
import time
from dataclasses import fields, replace

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans

from puma_coffea import candidates, open_events, read_candidates, sample_path
from puma_coffea.flat import Flat, flatten
from puma_coffea.puma.clustering import BRANCHES, CLUSTER_SIZE, iterative_cluster
from puma_coffea.puma.features import features

SIZES = (2000, 4000, 8000, 15_000, 30_000)
COLUMNS = [field.name for field in fields(Flat) if field.name not in ("offsets", "hard_fraction")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "sample", nargs="?", help="Parquet sample; default the embedded ttbar events"
    )
    parser.add_argument("--events", type=int, default=12, help="events timed")
    parser.add_argument("--reference-events", type=int, default=4, help="of them, by scikit-learn")
    options = parser.parse_args()
    pf = read_candidates(options.sample) if options.sample else _embedded()
    _, _, flat = flatten(pf[: options.events])
    console = Console(width=100)
    console.print(against_scikit_learn(flat, options.reference_events))
    console.print(*scaling(flat))


def _embedded():
    return candidates(open_events(sample_path("ttbar_pu140")))


def against_scikit_learn(flat, reference_events):
    """Table of times per event, and of the ratio to the reference."""
    events = len(flat.offsets) - 1
    sequence = iterative_cluster(flat)
    features(flat, sequence)  # compiled, or read from the cache of kernels
    cluster = best(lambda: iterative_cluster(flat)) / events
    eleven = best(lambda: features(flat, sequence)) / events
    average = len(flat.pt) / events
    # Scaled to the same number of candidates: the reference sees fewer events.
    reference = [seconds_of_reference(flat, i) for i in range(min(reference_events, events))]
    seen = flat.offsets[len(reference)] / len(reference)
    sklearn = np.mean(reference) * average / seen
    table = Table(title=f"{events} events of {average:.0f} candidates on average, one core")
    for heading in ("", "ms per event", "scikit-learn / this"):
        table.add_column(heading, justify="right" if heading else "left")
    rows = {
        "clustering and ordering": cluster,
        "eleven features": eleven,
        "all of it": cluster + eleven,
        "scikit-learn, k-means only": sklearn,
    }
    for name, seconds in rows.items():
        table.add_row(name, f"{1e3 * seconds:.2f}", f"{sklearn / seconds:.0f}")
    return table


def scaling(flat):
    """Table of times by number of candidates, and the exponent between them."""
    rng = np.random.default_rng(1)
    table = Table(title="clustering, ordering and eleven features of one event")
    for heading in ("candidates", "ms", "us per candidate"):
        table.add_column(heading, justify="right")
    seconds = []
    for size in SIZES:
        # Several events laid over each other, thinned to the size.
        event = picked(flat, rng.permutation(len(flat.pt))[:size])
        seconds.append(best(lambda event=event: features(event, iterative_cluster(event)), 9))
        table.add_row(f"{size}", f"{1e3 * seconds[-1]:.2f}", f"{1e6 * seconds[-1] / size:.2f}")
    exponent = np.polyfit(np.log(SIZES), np.log(seconds), 1)[0]
    return table, f"exponent from {SIZES[0]} to {SIZES[-1]} candidates: {exponent:.2f}"


def picked(flat, chosen):
    """Chosen candidates as one event."""
    columns = {name: getattr(flat, name)[chosen] for name in COLUMNS}
    return replace(flat, offsets=np.array([0, len(chosen)]), hard_fraction=None, **columns)


def seconds_of_reference(flat, number):
    """Time (s) of the same recursion with scikit-learn."""
    here = slice(flat.offsets[number], flat.offsets[number + 1])
    phi, eta = flat.phi[here], flat.eta[here]
    points = np.stack([np.sin(phi), np.cos(phi), eta], axis=1)
    return best(lambda: recursion(points, np.arange(len(points))), 3)


def recursion(points, members):
    """Clusters of fewer than CLUSTER_SIZE members."""
    if len(members) < CLUSTER_SIZE:
        return [members]
    found = KMeans(BRANCHES, n_init=1, random_state=0).fit(points[members]).labels_
    parts = [members[found == label] for label in range(BRANCHES)]
    if max(map(len, parts)) == len(members):  # identical directions
        return [members]
    return [cluster for part in parts if len(part) for cluster in recursion(points, part)]


def best(function, repeats=7):
    """Shortest of several times (s): the others measure what else the machine does."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()

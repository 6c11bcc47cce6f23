"""PUPPI and SoftKiller against the time of a fixed set of matrix products, on one core.

Delphes's C++ RunPUPPI takes 0.77 times these products on the same core: a way to compare with it
on any machine. Run it: python benchmarks/puppi.py
"""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import time

import numpy as np

from puma_coffea import candidates, method, open_events, sample_path

DELPHES = 0.77  # of the matrix products, measured with the same events


def seconds(function, repeat=5):
    """Best of several runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def matrix_products():
    """The products of a 12-layer network of width 64 on 8320 candidates, in float32."""
    for _ in range(12):
        X @ WIDE
        for _ in range(3):
            X @ SQUARE


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8320, 64)).astype(np.float32)
    WIDE, SQUARE = (rng.normal(size=(64, n)).astype(np.float32) for n in (192, 64))
    pf = candidates(open_events(sample_path("ttbar_pu140")))
    unit = seconds(matrix_products)
    print(f"matrix products: {unit * 1e3:.1f} ms; one thread, {len(pf)} events")
    for name in ("puppi", "puppi:cms-phase2", "puppi:cms-run2", "softkiller"):
        weigh = method(name)
        weigh(pf)
        each = seconds(lambda weigh=weigh: weigh(pf)) / len(pf)
        against = f", {DELPHES * unit / each:.0f} times faster than RunPUPPI" * name.startswith(
            "puppi"
        )
        print(
            f"{name:18s} {each * 1e3:6.2f} ms per event, {each / unit:.3f} of the products{against}"
        )

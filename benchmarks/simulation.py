"""How close simulated events come to Delphes's: candidates per event by kind and region.

Run it: python -m puma_coffea.benchmarks.simulation SIMULATED.parquet DELPHES.parquet
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import awkward as ak
import numpy as np

from puma_coffea import read_candidates
from puma_coffea.flat import HARD

REGIONS = ((0.0, 1.5), (1.5, 3.0), (3.0, 4.0), (4.0, 5.0))
KINDS: dict[str, Callable[[Any], Any]] = {
    "tracks": lambda pf: pf.vertex >= 0,
    "hard tracks": lambda pf: pf.vertex == HARD,
    "photons": lambda pf: (pf.vertex < 0) & (pf.pid == 22),
    "neutral hadrons": lambda pf: (pf.vertex < 0) & (pf.pid == 0),
}
#: Sums over an event's candidates, from their pT (GeV) and true share.
SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "number": lambda pt, _: ak.num(pt, axis=1),
    "above 5 GeV": lambda pt, _: ak.sum(pt > 5, axis=1),
    "sum of pT (GeV)": lambda pt, _: ak.sum(pt, axis=1),
    "of it hard": lambda pt, share: ak.sum(pt * share, axis=1),
}


def per_event(pf: ak.Array) -> dict[tuple[str, float], dict[str, tuple[float, float]]]:
    """Mean and its error of each sum, by kind and lower edge of the region in |eta|."""
    found = {}
    for kind, is_kind in KINDS.items():
        for low, high in REGIONS:
            chosen = pf[is_kind(pf) & (abs(pf.eta) >= low) & (abs(pf.eta) < high)]
            sums = {
                name: ak.to_numpy(of(chosen.pt, chosen.hard_fraction)).astype(np.float64)
                for name, of in SUMS.items()
            }
            found[kind, low] = {
                name: (float(each.mean()), float(each.std() / np.sqrt(len(each))))
                for name, each in sums.items()
            }
    return found


def markdown(mine: dict[Any, Any], theirs: dict[Any, Any]) -> str:
    """Simulated over Delphes's mean, with the error of the ratio; empty where there is nothing."""
    lines = ["| | abs(eta) | " + " | ".join(SUMS) + " |", "|---" * (2 + len(SUMS)) + "|"]
    for kind, low in mine:
        high = next(top for bottom, top in REGIONS if bottom == low)
        cells = []
        for name in SUMS:
            (a, da), (b, db) = mine[kind, low][name], theirs[kind, low][name]
            error = a / b * np.hypot(da / a, db / b) if a and b else np.inf
            cells.append(f"{a / b:.3f} ± {error:.3f}" if error < 0.2 else "")
        lines.append(f"| {kind} | {low} to {high} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("simulated", help="Parquet sample from puma-coffea simulate")
    parser.add_argument("delphes", nargs="+", help="Parquet samples from Delphes, same process")
    options = parser.parse_args()
    mine, theirs = (
        per_event(read_candidates(each)) for each in (options.simulated, options.delphes)
    )
    sys.stdout.write(markdown(mine, theirs) + "\n")


if __name__ == "__main__":
    main()

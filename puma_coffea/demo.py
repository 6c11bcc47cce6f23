"""The demo: every method on the embedded Z(-> nu nu) + jets events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from puma_coffea.candidates import candidates
from puma_coffea.methods import method
from puma_coffea.observables import met, recoil
from puma_coffea.opening import open_events
from puma_coffea.sample import sample_path
from puma_coffea.truth import truth

METHODS = ("none", "chs", "softkiller", "puppi", "truth")


def compare(sample: str = "zvv_pu140") -> dict[str, Any]:
    """Residuals of pTmiss (GeV, both components) and the recoil, by method."""
    events = open_events(sample_path(sample))
    pf, true = candidates(events), truth(events)
    results = {}
    for name in METHODS:
        weights = method(name)(pf)
        missing, u = met(pf, weights), recoil(pf, weights, true)
        residual = np.ravel([missing.px - true.met.px, missing.py - true.met.py])
        results[name] = (residual, -np.mean(u.parallel) / np.mean(u.boson_pt))
    return results


def table(results: dict[str, Any]) -> Table:
    """Width and bias of pTmiss and response of the recoil, a row per method."""
    rows = Table(title="12 events of Z(vv)+jets at 140 pile-up interactions")
    for heading in ("method", "pTmiss width (GeV)", "bias (GeV)", "recoil response"):
        rows.add_column(heading, justify="left" if heading == "method" else "right")
    for name, (residual, response) in results.items():
        rows.add_row(name, f"{residual.std():.1f}", f"{residual.mean():+.1f}", f"{response:.2f}")
    return rows


def draw(results: dict[str, Any], output: Path) -> Path:
    """Path of a plot of the pTmiss residuals."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 5))
    for name, (residual, _) in results.items():
        axes.hist(residual, bins=30, range=(-150, 150), histtype="step", label=name, lw=1.5)
    axes.set(xlabel="pTmiss residual per component (GeV)", ylabel="entries")
    axes.legend(frameon=False)
    output.mkdir(parents=True, exist_ok=True)
    path = output / "pTmiss.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path

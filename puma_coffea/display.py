"""Event display: candidates in the eta-phi plane by cluster order, by true and by found weight."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from puma_coffea.candidates import candidates
from puma_coffea.exceptions import BadConfig, BadOutput, MissingExtra, NoTarget
from puma_coffea.filesets import is_parquet
from puma_coffea.flat import flatten
from puma_coffea.methods import method
from puma_coffea.observables import met
from puma_coffea.opening import count_events, open_events
from puma_coffea.parquet import read_candidates

AREA = 7.0  # of a marker, in points^2 per GeV
LARGEST = 150.0  # GeV; harder candidates are drawn no larger
LEGEND_PT = (1, 5, 20, 100)  # GeV
FAINT = "#d9d9d9"  # weight 0


def display(
    file: str | os.PathLike[str],
    event: int,
    output: str | os.PathLike[str] | None = None,
    *,
    method_name: str = "puma",
    vertexing: str = "truth",
) -> Path:
    """Draw one event of a file; the path of the picture.

    Parameters
    ----------
    file
        A Delphes ROOT file or a Parquet sample.
    event
        Number of the event in the file, from 0.
    output
        A path whose ending chooses the format (PNG, PDF, SVG); default
        ``NAME_eventN.png`` in the current folder.
    method_name, vertexing
        As for :func:`puma_coffea.method` and :func:`puma_coffea.candidates`.
    """
    name = os.fspath(file)
    target = Path(output) if output is not None else Path(f"{Path(name).stem}_event{event}.png")
    weigher = method(method_name)
    pf = read_event(name, event, vertexing)
    figure = draw_event(pf, weigher(pf), method_name, f"{Path(name).name}, event {event}")
    scratch = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        figure.savefig(scratch, dpi=130)
        scratch.replace(target)
    except (OSError, ValueError) as error:
        msg = f"The picture {target} cannot be written ({error})."
        raise BadOutput(msg) from error
    finally:
        scratch.unlink(missing_ok=True)
    return target


def read_event(file: str, number: int, vertexing: str = "truth") -> ak.Array:
    """Candidates of one event of a file, as an array of length one."""
    if is_parquet(file):
        everything = read_candidates(file)
        total = len(everything)
    else:
        total = count_events(file)
    if not 0 <= number < total:
        msg = f"{file} has no event {number}: its events are 0 to {total - 1}."
        raise BadConfig(msg)
    if is_parquet(file):
        return everything[number : number + 1]
    events = open_events(file, entry_start=number, entry_stop=number + 1)
    return candidates(events, vertexing=vertexing)


def draw_event(pf: ak.Array, weights: ak.Array, name: str, title: str) -> Any:
    """A figure of one event: cluster order, true weights if known, weights of a method.

    Parameters
    ----------
    pf
        Candidates, an array of length one.
    weights
        Their weights by the method.
    name
        The method's name.
    title
        Stands above the figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from puma_coffea.puma.clustering import iterative_cluster

    figure_class = _figure_class()
    _, usable, flat = flatten(pf)
    order = iterative_cluster(flat).cluster
    panels = [(f"{_label(name)} weights", weights)]
    truth = _true_weights(pf)
    if truth is not None:
        panels.insert(0, ("True weights (hard energy fraction)", truth))
    figure = figure_class(figsize=(6.2 * (1 + len(panels)) + 0.4, 6.6), layout="constrained")
    axes = figure.subplots(1, 1 + len(panels), sharex=True, sharey=True)
    _draw_clusters(axes[0], flat, order)
    for axis, (heading, values) in zip(axes[1:], panels, strict=True):
        flat_values = ak.to_numpy(ak.flatten(values))[usable]
        _draw_weights(axis, flat, flat_values, heading, float(met(pf, values).pt[0]))
    _decorate(figure, axes)
    note = (
        "" if truth is not None else "   (no true weights: the file has no hard energy fractions)"
    )
    figure.suptitle(f"{title}: {len(flat.pt):,} candidates{note}", fontsize=13)
    return figure


def _true_weights(pf: ak.Array) -> ak.Array | None:
    try:
        return method("truth")(pf)
    except NoTarget:
        return None


def _label(name: str) -> str:
    base, _, preset = name.partition(":")
    shown = base.upper() if base in ("chs", "puppi", "puma") else base
    return f"{shown} {Path(preset).name}" if preset else shown


def _areas(pt: Any) -> NDArray[np.float64]:
    return np.asarray(AREA * np.minimum(pt, LARGEST) + 0.3)


def _draw_clusters(axis: Any, flat: Any, order: NDArray[np.int32]) -> None:
    # Hard candidates last but half transparent, so that neither hides the other.
    rank = np.argsort(flat.pt)
    drawn = axis.scatter(
        flat.eta[rank],
        flat.phi[rank],
        s=_areas(flat.pt[rank]),
        c=order[rank],
        cmap="turbo",
        alpha=0.75,
        linewidths=0,
        rasterized=True,
    )
    count = int(order.max(initial=-1)) + 1
    axis.set_title(f"IterativeCluster\n{count:,} clusters")
    bar = axis.figure.colorbar(drawn, ax=axis, location="bottom", shrink=0.9, aspect=40, pad=0.02)
    bar.set_label("place of the cluster in the sequence (0: hardest)")
    bar.solids.set_alpha(1)


def _draw_weights(
    axis: Any, flat: Any, weights: NDArray[np.float32], heading: str, missing: float
) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list(
        "weights", [FAINT, "#f6c14e", "#e4632d", "#a01a5b", "#3b0f6f"]
    )
    rank = np.lexsort((flat.pt, weights))
    drawn = axis.scatter(
        flat.eta[rank],
        flat.phi[rank],
        s=_areas(flat.pt[rank]),
        c=weights[rank],
        cmap=colours,
        vmin=0,
        vmax=1,
        alpha=0.85,
        linewidths=0,
        rasterized=True,
    )
    axis.set_title(f"{heading}\n$p_\\mathrm{{T}}^\\mathrm{{miss}}$ = {missing:.1f} GeV")
    bar = axis.figure.colorbar(drawn, ax=axis, location="bottom", shrink=0.9, aspect=40, pad=0.02)
    bar.set_label("weight (1: hard collision, 0: pile-up)")
    bar.solids.set_alpha(1)


def _decorate(figure: Any, axes: Any) -> None:
    for axis in axes:
        axis.set_xlabel(r"$\eta$")
        axis.set_ylim(-np.pi, np.pi)
        axis.set_yticks(np.pi * np.array([-1, -0.5, 0, 0.5, 1]))
        axis.set_yticklabels([r"$-\pi$", r"$-\pi/2$", "0", r"$\pi/2$", r"$\pi$"])
        axis.margins(x=0.01)
    axes[0].set_ylabel(r"$\phi$")
    handles = [
        axes[0].scatter([], [], s=_areas(pt), color="#666666", linewidths=0) for pt in LEGEND_PT
    ]
    figure.legend(
        handles,
        [f"{pt} GeV" for pt in LEGEND_PT],
        title=r"marker area: $p_\mathrm{T}$",
        loc="outside right center",
        frameon=False,
        labelspacing=1.6,
    )


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        msg = "The event display needs matplotlib: pip install 'puma-coffea[plots]'."
        raise MissingExtra(msg) from None
    return Figure

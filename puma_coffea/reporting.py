"""The report of a run: the paper's figures as PNG and PDF, and one HTML page that holds it all."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from puma_coffea.exceptions import MissingExtra
from puma_coffea.outputs import prepare_folder
from puma_coffea.quantities import QUANTITIES, Quantity
from puma_coffea.tables import COLUMNS, rows

# Okabe and Ito's palette, told apart by every kind of eye; the reference last, in grey.
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#0072B2", "#8C6D31")
GREY = "#888888"

PAGE = Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))

DISTRIBUTIONS = ("met_x", "met", "dijet_mass", "jet_response")


def write_report(result: dict[str, Any], folder: Path) -> Path:
    """Path of the HTML page, after drawing all figures into ``folder``.

    Parameters
    ----------
    result
        Output of a run, for example from :func:`puma_coffea.outputs.read_output`.
    folder
        Where the page ``index.html`` and the figures go.
    """
    prepare_folder(folder)
    sections = [_section(result, dataset, folder) for dataset in result["summary"]]
    page = PAGE.substitute(sections="\n".join(sections), losses=_losses(result["record"]))
    path = folder / "index.html"
    path.write_text(page, encoding="utf-8")
    return path


def _section(result: dict[str, Any], dataset: str, folder: Path) -> str:
    figures = []
    for name, caption, figure in _figures(result, dataset):
        stem = f"{dataset}_{name}".replace("/", "_")
        for ending in ("png", "pdf"):
            figure.savefig(folder / f"{stem}.{ending}", dpi=130)
        figure.clear()
        picture = base64.b64encode((folder / f"{stem}.png").read_bytes()).decode()
        label = html.escape(caption)
        figures.append(
            f'<figure><img alt="{label}" src="data:image/png;base64,{picture}">'
            f"<figcaption>{label}</figcaption></figure>"
        )
    record = result["record"].get(dataset, {})
    facts = f"{record.get('events', 0):,} events, {record.get('candidates', 0):,} candidates"
    if record.get("unphysical"):
        facts += f", {record['unphysical']:,} of them unphysical (weight 0)"
    return (
        f"<section><h2>{html.escape(dataset)}</h2><p>{facts}</p>{_table(result, dataset)}"
        f'<div class="figures">{"".join(figures)}</div></section>'
    )


def _table(result: dict[str, Any], dataset: str) -> str:
    head = "".join(f"<th>{html.escape(h)}</th>" for h in ("method", *(h for h, _ in COLUMNS)))
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows(result, dataset)
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _losses(record: dict[str, Any]) -> str:
    """What was skipped, and the fraction of events and files lost."""
    lost = [
        (file, entry)
        for dataset in record.values()
        for file, entry in dataset.get("lost", {}).items()
    ]
    if not lost:
        return "<p>All files were read completely.</p>"
    files = {file for dataset in record.values() for file in dataset.get("files", {})}
    events = sum(dataset.get("events", 0) for dataset in record.values())
    missing = sum(entry["events"] for _, entry in lost)
    items = "".join(
        f"<li><code>{html.escape(file)}</code>: {html.escape('; '.join(sorted(entry['reasons'])))}</li>"
        for file, entry in lost
    )
    whole = {file for file, _ in lost} - files
    total = len(files | whole)
    return (
        f"<p><strong>Lost: {len(whole)} of {total} files ({len(whole) / total:.1%})</strong> could not be "
        f"opened, and {missing} of {events + missing} events in the others could not be read.</p><ul>{items}</ul>"
    )


def _figures(result: dict[str, Any], dataset: str) -> Iterator[tuple[str, str, Any]]:
    """Name, caption and figure of each plot of a dataset."""
    plt = _pyplot()
    methods = list(result["summary"][dataset])
    styles = {m: {"color": COLOURS[i % len(COLOURS)]} for i, m in enumerate(methods)}
    if "no pile-up" in styles:
        styles["no pile-up"] = {"color": GREY, "linestyle": "--"}
    for name in DISTRIBUTIONS:
        quantity = next(q for q in QUANTITIES if q.name == name)
        if any(result["summary"][dataset][m][name]["events"] > 0 for m in methods):
            yield (
                name,
                _caption(quantity),
                _distribution(plt, result, dataset, quantity, styles),
            )
    caption = "Resolution of the hadronic recoil across the boson, corrected for its response, in bins of the true boson pT"
    yield "recoil", caption, _recoil(plt, result["summary"][dataset], dataset, styles)


def _caption(quantity: Quantity) -> str:
    return {
        "met_x": "Residual of the missing transverse momentum, x component",
        "met": "Residual of the missing transverse momentum, magnitude",
        "dijet_mass": "Residual of the mass of the two leading jets",
        "jet_response": "Response at the leading generator jet above 30 GeV",
    }[quantity.name]


def _distribution(
    plt: Any,
    result: dict[str, Any],
    dataset: str,
    quantity: Quantity,
    styles: dict[str, Any],
) -> Any:
    import mplhep

    numbers = {m: row[quantity.name] for m, row in result["summary"][dataset].items()}
    histogram = result["histograms"][quantity.name][{"dataset": dataset}]
    bins = 24 if max(entry["events"] for entry in numbers.values()) < 500 else 40
    step, edges = _binning(quantity, [entry["half_68"] for entry in numbers.values()], bins)
    figure, axes = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    for method, style in styles.items():
        values = histogram[{"method": method}].values()
        if not values.any():
            continue
        merged = values.reshape(-1, step).sum(axis=1) / values.sum()
        entry = numbers[method]
        unit = f" {quantity.unit}" if quantity.unit else ""
        digits = 1 if quantity.unit else 2
        label = f"{method}: {entry['mean']:.{digits}f} ± {entry['width']:.{digits}f}{unit}"
        inside = slice(*np.searchsorted(edges[0], edges[1]))
        mplhep.histplot(
            merged[inside],
            edges[0][inside.start : inside.stop + 1],
            ax=axes,
            label=label,
            yerr=False,
            **style,
        )
    label = f"{quantity.label} [{quantity.unit}]" if quantity.unit else quantity.label
    axes.set(xlabel=label, ylabel="fraction of events", xlim=edges[1])
    axes.set_ylim(0, axes.get_ylim()[1] * 1.45)
    axes.legend(
        frameon=False, fontsize=9, ncols=2, title="mean ± width", title_fontsize=9, loc="upper left"
    )
    axes.set_title(dataset, loc="right", fontsize=10)
    return figure


def _binning(quantity: Quantity, halves: list[float | None], bins: int) -> tuple[int, Any]:
    """Number of fine cells per drawn bin; all drawn edges and the range that is shown."""
    known = sorted(h for h in halves if h)
    if quantity.low < 0:
        reach = 4 * known[len(known) // 3] if known else quantity.high
        low, high = -min(reach, quantity.high), min(reach, quantity.high)
    else:
        low, high = quantity.low, quantity.high / 2
    cell = (quantity.high - quantity.low) / quantity.bins
    wanted = max(1, round((high - low) / bins / cell))
    step = min(
        (d for d in range(1, quantity.bins + 1) if quantity.bins % d == 0),
        key=lambda d: abs(d - wanted),
    )
    edges = np.linspace(quantity.low, quantity.high, quantity.bins // step + 1)
    inside = edges[(edges >= low - 1e-9) & (edges <= high + 1e-9)]
    return step, (edges, (inside[0], inside[-1]))


def _recoil(plt: Any, table: dict[str, Any], dataset: str, styles: dict[str, Any]) -> Any:
    figure, axes = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    shift = np.linspace(-0.15, 0.15, len(styles))
    tops = []
    for offset, (method, style) in zip(shift, styles.items(), strict=True):
        bins = [b for b in table[method]["recoil_bins"] if b["events"] >= 3 and b["resolution"]]
        if not bins:
            continue
        high = [b["high"] if math.isfinite(b["high"]) else 2 * b["low"] for b in bins]
        centre = [
            (b["low"] + h) / 2 + offset * (h - b["low"]) for b, h in zip(bins, high, strict=True)
        ]
        axes.errorbar(
            centre, [b["resolution"] for b in bins], [b["resolution_error"] for b in bins],
            marker="o", markersize=4, linewidth=1.2, capsize=2,
            label=f"{method} (response {table[method]['recoil']['response']:.2f})", **style,
        )  # fmt: skip
        tops.append(max(b["resolution"] + b["resolution_error"] for b in bins))
    axes.set(xlabel="true boson $p_\\mathrm{T}$ [GeV]", ylabel="corrected RMS of $U_\\perp$ [GeV]")
    # Methods without real mitigation may run out of the frame; the good ones must be told apart.
    axes.set_ylim(0, min(1.4 * max(tops), 5 * sorted(tops)[len(tops) // 3]) if tops else 1)
    axes.set_title(dataset, loc="right", fontsize=10)
    figure.legend(fontsize=9, ncols=3, loc="outside upper left", edgecolor="none")
    return figure


def _pyplot() -> Any:
    try:
        import matplotlib as mpl
        import mplhep  # noqa: F401
    except ImportError:
        msg = "The report needs matplotlib and mplhep: pip install 'puma-coffea[plots]'."
        raise MissingExtra(msg) from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.close("all")
    return plt

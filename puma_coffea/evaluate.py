"""Every method's figures on samples, event by event: widths, ratios with paired errors, AUC.

Where a run keeps sums, an evaluation keeps one number per event and quantity, so that ratios of
methods on the same events get their paired bootstrap error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from puma_coffea.candidates import candidates
from puma_coffea.filesets import is_parquet, read_fileset
from puma_coffea.methods import Weigher, method
from puma_coffea.opening import count_events, open_events
from puma_coffea.parquet import candidates_of, count_rows, read_rows, truth_of
from puma_coffea.quantities import BOSON_PT_EDGES, QUANTITIES, boson_bin, measure
from puma_coffea.truth import truth

CHUNK = 50
RESAMPLES = 500
SCORE_BINS = 2000


def evaluate(
    inputs: Sequence[str],
    methods: Sequence[str] = ("puppi", "puma"),
    reference: str = "puppi",
    max_events: int | None = None,
) -> dict[str, Any]:
    """Figures of each method on each dataset.

    Parameters
    ----------
    inputs
        Delphes ROOT and Parquet files, as for ``puma-coffea run``.
    methods
        Names of methods; the reference is added if it is not among them.
    reference
        The method that ratios are taken to.
    max_events
        Events per dataset, at most.

    Returns
    -------
    dict
        dataset -> method -> figures, all plain numbers (GeV where they have a unit). Every event
        counts once: event weights are not used.
    """
    names = list(dict.fromkeys([reference, *methods]))
    weighers = {name: method(name) for name in names}
    results: dict[str, Any] = {}
    for dataset, files in read_fileset(inputs).items():
        numbers, scores = _numbers(_chunks(list(files.files), max_events), weighers)
        draws = np.random.default_rng(1).multinomial(
            len(numbers[reference]["met_x"]), np.full(*_uniform(numbers[reference])), RESAMPLES
        )
        results[dataset] = {
            name: _figures(numbers[name], numbers[reference], draws)
            | _neutral_figures(scores[name])
            for name in names
        }
    return results


def card_metrics(results: dict[str, Any], name: str, command: str) -> list[dict[str, Any]]:
    """A method's main figures in the form of a model card."""
    found = []
    for dataset, table in results.items():
        row = table[name]
        figures = {
            "pTmiss width per component (GeV)": row["met_xy"],
            "pTmiss width over tuned PUPPI": row["met_xy_ratio"],
            "recoil response": {"value": row["response"], "error": None},
            "corrected U_perp (GeV)": row["u_perp"],
        }
        for quantity, figure in figures.items():
            if figure["value"] is not None and math.isfinite(figure["value"]):
                entry = {"sample": dataset, "quantity": quantity, "command": command}
                found.append(entry | {"value": figure["value"], "error": figure["error"]})
    return found


def _uniform(numbers: dict[str, Any]) -> tuple[int, float]:
    events = len(numbers["met_x"])
    return events, 1 / events


def _chunks(files: list[str], limit: int | None) -> Iterator[tuple[ak.Array, ak.Array]]:
    """Candidates and truth, a few events at a time."""
    left = math.inf if limit is None else limit
    for file in files:
        size = min(count_rows(file) if is_parquet(file) else count_events(file), left)
        left -= size
        for start in range(0, int(size), CHUNK):
            stop = int(min(start + CHUNK, size))
            if is_parquet(file):
                rows = read_rows(file, start, stop)
                yield candidates_of(rows), truth_of(rows)
            else:
                events = open_events(Path(file), entry_start=start, entry_stop=stop)
                yield candidates(events), truth(events)


def _numbers(chunks: Any, weighers: dict[str, Weigher]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Per method: each quantity of each event, and the sums that MSE and AUC need."""
    parts: dict[str, list[dict[str, Any]]] = {name: [] for name in weighers}
    scores = {name: _Scores() for name in weighers}
    for pf, true in chunks:
        for name, weigher in weighers.items():
            weights = weigher(pf)
            parts[name].append(measure(pf, weights, true))
            if "hard_fraction" in pf.fields:
                scores[name].add(pf, weights)
    joined = {
        name: {key: np.concatenate([each[key] for each in found]) for key in found[0]}
        for name, found in parts.items()
    }
    return joined, scores


class _Scores:
    """Weighted squared error, and histograms of the weights of hard and pile-up neutrals."""

    def __init__(self) -> None:
        self.squares = self.norm = 0.0
        self.hard, self.soft = np.zeros(SCORE_BINS), np.zeros(SCORE_BINS)

    def add(self, pf: ak.Array, weights: ak.Array) -> None:
        neutral = pf["vertex"] < 0
        y, w, pt = (
            ak.to_numpy(ak.flatten(each[neutral]))
            for each in (pf["hard_fraction"], weights, pf["pt"])
        )
        self.squares += float(np.sum(pt**2 * (w - y) ** 2))
        self.norm += float(np.sum(pt**2))
        place = np.minimum((w * SCORE_BINS).astype(np.int64), SCORE_BINS - 1)
        self.hard += np.bincount(place[y > 0.5], minlength=SCORE_BINS)
        self.soft += np.bincount(place[y <= 0.5], minlength=SCORE_BINS)


def _neutral_figures(scores: _Scores) -> dict[str, Any]:
    if scores.norm == 0 or scores.hard.sum() == 0 or scores.soft.sum() == 0:
        return {"neutral_mse": None, "neutral_auc": None}
    below = np.cumsum(scores.soft) - scores.soft / 2  # half of those in the same bin
    area = float(np.sum(scores.hard * below) / scores.hard.sum() / scores.soft.sum())
    return {"neutral_mse": scores.squares / scores.norm, "neutral_auc": area}


def _figures(numbers: dict[str, Any], reference: dict[str, Any], draws: Any) -> dict[str, Any]:
    figures: dict[str, Any] = {"events": len(numbers["met_x"])}
    for quantity in QUANTITIES:
        if quantity.name in numbers:
            figures[quantity.name] = _spread(numbers[quantity.name], draws)
    figures["met_xy"] = _estimate(_component_width, numbers, draws)
    figures["met_xy_ratio"] = _estimate(
        lambda n, d: _component_width(n, d) / _component_width(reference, d), numbers, draws
    )
    if "jet_response" in numbers:
        for name in ("jet_response", "dijet_mass"):
            for suffix, size in (("ratio", _width), ("half_68_ratio", _half_68)):
                figures[f"{name}_{suffix}"] = _estimate(
                    lambda n, d, k=name, f=size: f(n[k], d) / f(reference[k], d), numbers, draws
                )
    figures["response"] = float(-np.mean(numbers["u_parallel"]) / np.mean(numbers["boson_pt"]))
    figures["u_perp"] = _estimate(_corrected, numbers, draws)
    figures["u_perp_bins"] = _bins(numbers, reference, draws)
    return figures


def _bins(numbers: dict[str, Any], reference: dict[str, Any], draws: Any) -> list[dict[str, Any]]:
    bins = boson_bin(numbers["boson_pt"])
    found = []
    for b in np.unique(bins):
        here = bins == b
        mine, theirs = ({k: v[here] for k, v in n.items()} for n in (numbers, reference))
        low, high = BOSON_PT_EDGES[b], (*BOSON_PT_EDGES, math.inf)[b + 1]
        entry = {"low": low, "high": high, "events": int(here.sum())}
        entry |= _estimate(_corrected, mine, draws[:, here])
        ratio = _estimate(
            lambda n, d, t=theirs: _corrected(n, d) / _corrected(t, d), mine, draws[:, here]
        )
        found.append(entry | {"ratio": ratio["value"], "ratio_error": ratio["error"]})
    return found


def _estimate(figure: Any, numbers: dict[str, Any], draws: Any) -> dict[str, Any]:
    """A figure and its bootstrap error; ``figure(numbers, counts)`` counts each event so often."""
    with np.errstate(all="ignore"):
        once = figure(numbers, np.ones(draws.shape[1]))
        spread = np.nanstd([figure(numbers, counts) for counts in draws])
    return {"value": float(once), "error": float(spread)}


def _spread(values: Any, draws: Any) -> dict[str, Any]:
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return {
            "events": 0,
            "bias": None,
            "bias_error": None,
            "width": None,
            "width_error": None,
            "half_68": None,
        }
    width = _estimate(lambda n, d: _width(n["v"], d), {"v": values}, draws)
    return {
        "events": len(known),
        "bias": float(known.mean()),
        "bias_error": float(known.std() / math.sqrt(len(known))),
        "width": width["value"],
        "width_error": width["error"],
        "half_68": float(_half_68(values, np.ones(len(values)))),
    }


def _width(values: Any, counts: Any) -> Any:
    known = np.isfinite(values)
    v, c = values[known], counts[known]
    mean = np.sum(c * v) / np.sum(c)
    return np.sqrt(np.sum(c * (v - mean) ** 2) / np.sum(c))


def _half_68(values: Any, counts: Any) -> Any:
    """Half of the central 68 %: what a few wrong pairs of jets cannot spoil."""
    known = np.isfinite(values)
    drawn = np.repeat(values[known], counts[known].astype(np.int64))
    low, high = np.quantile(drawn, [0.16, 0.84]) if len(drawn) else (math.nan, math.nan)
    return (high - low) / 2


def _component_width(numbers: dict[str, Any], counts: Any) -> Any:
    return np.hypot(_width(numbers["met_x"], counts), _width(numbers["met_y"], counts)) / np.sqrt(2)


def _corrected(numbers: dict[str, Any], counts: Any) -> Any:
    alpha = -np.sum(counts * numbers["boson_pt"]) / np.sum(counts * numbers["u_parallel"])
    return alpha * np.sqrt(np.sum(counts * numbers["u_perpendicular"] ** 2) / np.sum(counts))

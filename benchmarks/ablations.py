"""What each part of PUMA is worth: a small training for each variant, boosted trees beside them.

Every variant sees the same events for the same number of steps; differences to the full model
come with the error of a paired bootstrap over events. Needs torch and lightgbm.

Run it: python -m puma_coffea.benchmarks.ablations TRAIN.parquet ... --validation VAL.parquet
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puma_coffea.puma.features import PAPER, WAVES
from puma_coffea.training.alone import Singles
from puma_coffea.training.calibration import fit_calibration
from puma_coffea.training.config import STRONG, Config, make_config, merge
from puma_coffea.training.loop import Trainer
from puma_coffea.training.physics import Weigh, component_width, weigher
from puma_coffea.training.store import NEUTRAL, TokenStore
from puma_coffea.training.teacher import grow

logger = logging.getLogger(__name__)

FULL, TREES = "all inputs", "boosted trees on them, no attention"
ELEVEN = "eleven inputs"
RESAMPLES = 500
REGIONS = (0.0, 1.5, 3.0, 4.0, 10.0)  # of abs(eta)

#: Groups of inputs, each left out in turn, by the beginning of their names.
GROUPS = {
    "PUPPI's weight": ("puppi",),
    "sums of what PUPPI keeps": ("kept_",),
    "clusters": ("cluster",),
    "charged-hard sums": ("hard_",),
    "charged pile-up sums": ("pileup_",),
    "neutral sums": ("photon_", "hadron_"),
    "nearest tracks and ranks": ("nearest_", "neutral_rank"),
    "densities and ranks of rings": ("ring_",),
    "event scalars": ("event_",),
}


def variants(steps: int) -> dict[str, dict[str, Any]]:
    """What each variant changes in the configuration.

    Where the inputs hold no sums over neighbours, attention has to find them: there its order and
    its band are compared.
    """
    found: dict[str, dict[str, Any]] = {FULL: {}}
    found[f"{FULL}, no attention"] = {"recipe": {"alone_steps": steps}}
    found[f"{FULL}, pT order"] = {"ordering": {"by": "pt"}}
    eleven = {"inputs": PAPER, "recipe": {"alone_steps": 0}}
    found[ELEVEN] = eleven
    found[f"{ELEVEN}, no attention"] = merge(eleven, {"recipe": {"alone_steps": steps}})
    found[f"{ELEVEN}, pT order"] = merge(eleven, {"ordering": {"by": "pt"}})
    waves = (f"{f}_{a}_{k}" for f in ("cos", "sin") for a in ("phi", "eta") for k in WAVES)
    found[f"{ELEVEN} and directions as waves"] = eleven | {"inputs": (*PAPER, *waves)}
    for band in (1, 5, 30):
        found[f"{ELEVEN}, band {band} instead of 15"] = merge(eleven, {"network": {"band": band}})
    for group, starts in GROUPS.items():
        left = tuple(name for name in STRONG if not name.startswith(starts))
        found[f"without {group}"] = {"inputs": left}
    return found


def train(content: dict[str, Any], folder: Path, cache: Path) -> tuple[Trainer, Weigh]:
    """A finished training (resumed if it was stopped), and its averaged network."""
    trainer = Trainer(make_config(content), folder, cache)
    trainer.run()
    return trainer, weigher(trainer.average)


def boosted_trees(trainer: Trainer) -> Weigh:
    """Trees on single neutrals: the same events, inputs and loss weights, no neighbours."""
    singles = Singles(trainer.crops.stores, trainer.recipe)
    trees = grow(singles, np.arange(len(singles)))
    return lambda x: np.asarray(trees.predict(x, num_threads=1)) if len(x) else np.zeros(0)


def judge(weigh: Weigh, config: Config, judges: dict[str, TokenStore]) -> dict[str, Any]:
    """Residuals of every event by sample, after a calibration on the first of them."""
    first, *_ = judges.values()
    calibration, _, _ = fit_calibration(weigh, first, config.inputs)
    eta = config.inputs.index("abs_eta" if "abs_eta" in config.inputs else "eta")
    found: dict[str, Any] = {}
    for name, store in judges.items():
        residuals, squares = np.zeros((len(store), 2)), np.zeros(len(REGIONS) - 1)
        for event in range(len(store)):
            x = store.features(event)
            raw = weigh(x).astype(np.float32)
            weights = calibration(raw, np.abs(x[:, eta]))
            residuals[event] = store.base[event] - store.momenta(event) @ weights
            squares += squared_error(store, event, weights, np.abs(x[:, eta]))
        found[name] = {"residuals": residuals, "squares": squares / len(store)}
    return found


def squared_error(
    store: TokenStore, event: int, weights: NDArray[Any], eta: NDArray[Any]
) -> NDArray[np.float64]:
    """Sum of (pT (w - y))^2 of an event's neutrals in each of REGIONS (GeV^2)."""
    here = store.tokens(event)
    pt = np.where(store.columns["kind"][here] == NEUTRAL, store.columns["pt"][here], 0)
    errors = (pt * (weights - store.columns["y"][here])) ** 2
    return np.histogram(eta, REGIONS, weights=errors)[0]


def figures(
    mine: dict[str, Any], full: dict[str, Any], judges: dict[str, TokenStore]
) -> dict[str, Any]:
    """Ratio to PUPPI, difference to the full model and its paired error, by sample."""
    rng, found = np.random.default_rng(1), {}
    for name, store in judges.items():
        ours, theirs = mine[name]["residuals"], full[name]["residuals"]
        draws = rng.integers(0, len(store), (RESAMPLES, len(store)))
        gaps = [
            (component_width(ours[d]) - component_width(theirs[d]))
            / component_width(store.puppi[d])
            for d in draws
        ]
        puppi = component_width(store.puppi)
        ratio, base = component_width(ours) / puppi, component_width(theirs) / puppi
        found[name] = {
            "ratio": ratio,
            "difference": ratio - base,
            "error": float(np.std(gaps)),
            "squared_error_by_eta": mine[name]["squares"].tolist(),
        }
    return found


def markdown(rows: dict[str, Any]) -> str:
    """The table as it stands in the documentation."""
    samples = list(next(iter(rows.values())))
    lines = [
        "| variant | " + " | ".join(f"{s} | difference" for s in samples) + " |",
        "|---|" + "---|---|" * len(samples),
    ]
    for name, row in rows.items():
        cells = [
            f"{row[s]['ratio']:.3f} | {row[s]['difference']:+.3f} ± {row[s]['error']:.3f}"
            for s in samples
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", help="Parquet samples to train on")
    parser.add_argument("--validation", nargs="*", default=[], help="Parquet samples to judge on")
    parser.add_argument("--output", type=Path, default=Path("ablations"))
    parser.add_argument("--steps", type=int, default=1200, help="of each training")
    parser.add_argument("--only", nargs="*", help="beginnings of the names of variants")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    base = {
        "name": "ablation",
        "data": {"files": options.files, "validation": options.validation},
        "recipe": {
            "steps": options.steps, "alone_steps": options.steps // 2, "teacher": 0.0,
            "event_steps": 0, "attend_steps": 0,
            "averaging": 0.99, "warm_up": 100, "validate_every": options.steps, "threads": 1,
            "half": True,
        },
    }  # fmt: skip
    results: dict[str, Any] = {}
    rows: dict[str, Any] = {}

    def add(name: str, trainer: Trainer, weigh: Weigh) -> None:
        results[name] = judge(weigh, trainer.config, trainer.judges)
        rows[name] = figures(results[name], results[FULL], trainer.judges)
        for sample, row in rows[name].items():
            logger.info("%s, %s: %.3f, %+.3f", name, sample, row["ratio"], row["difference"])
        (options.output / "ablations.json").write_text(json.dumps(rows, indent=2) + "\n")

    for name, change in variants(options.steps).items():
        if options.only and name != FULL and not name.startswith(tuple(options.only)):
            continue
        folder = options.output / name.replace(" ", "-").replace("'", "")
        trainer, weigh = train(merge(base, change), folder, options.output / "cache")
        add(name, trainer, weigh)
        if name == FULL:
            add(TREES, trainer, boosted_trees(trainer))
    (options.output / "ablations.md").write_text(markdown(rows) + "\n")
    logger.info("%s", options.output / "ablations.md")


if __name__ == "__main__":
    main()

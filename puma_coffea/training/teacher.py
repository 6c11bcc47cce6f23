"""Boosted trees as the teacher of a training's first phase.

A neutral's true share is 0 or 1 for most, and the few hard ones make a noisy target. Trees on the
same inputs regularise themselves better than a network and are trained in minutes; what they say of
events they have not seen is the share one can expect, with less noise than the truth.
"""

from __future__ import annotations

import hashlib
import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puma_coffea.exceptions import MissingExtra
from puma_coffea.training.alone import Singles

logger = logging.getLogger(__name__)

FOLDS = 2
ROUNDS = 300
LIMIT = 3_000_000  # neutrals that a fold's trees are grown on, at most: they must fit in memory
OPTIONS: dict[str, Any] = {
    "objective": "cross_entropy", "num_leaves": 63, "learning_rate": 0.08, "min_data_in_leaf": 1000,
    "feature_fraction": 0.5, "bagging_fraction": 0.7, "bagging_freq": 1, "lambda_l2": 5.0,
    "max_bin": 127, "seed": 1, "verbose": -1,
}  # fmt: skip


def out_of_fold(singles: Singles, threads: int = 1) -> NDArray[np.float32]:
    """For each drawn neutral the weight given by trees that saw nothing of its event.

    Kept beside the stores and read from there the next time.
    """
    path = _path(singles)
    if not path.exists():
        fold = singles.events() % FOLDS
        weights = np.zeros(len(singles), dtype=np.float32)
        for k in range(FOLDS):
            trees = grow(singles, np.flatnonzero(fold != k), threads)
            for part in np.array_split(np.flatnonzero(fold == k), 1 + len(fold) // 200_000):
                weights[part] = trees.predict(singles.take(part)[0], num_threads=threads)
            logger.info("teacher: %d of %d parts", k + 1, FOLDS)
        scratch = path.with_suffix(".part.npy")
        np.save(scratch, weights)
        scratch.replace(path)
    taught: NDArray[np.float32] = np.load(path, mmap_mode="r")
    return taught


def grow(singles: Singles, chosen: NDArray[np.int64], threads: int = 1) -> Any:
    """LightGBM's trees, trained on the chosen neutrals with the loss weights of the first phase."""
    if find_spec("lightgbm") is None:
        msg = (
            "A teacher needs the package lightgbm: pip install lightgbm, or set recipe.teacher: 0."
        )
        raise MissingExtra(msg)
    import lightgbm

    x, y, weight = singles.take(chosen[:: 1 + len(chosen) // LIMIT])
    data = lightgbm.Dataset(x, y, weight=weight)
    return lightgbm.train(OPTIONS | {"num_threads": threads}, data, ROUNDS)


def _path(singles: Singles) -> Path:
    folders = [store.folder for store in singles.stores]
    recipe = singles.recipe
    what = [*(f.name for f in folders), recipe.alpha, recipe.pt_cap, FOLDS, ROUNDS, LIMIT, OPTIONS]
    digest = hashlib.sha256(repr(what).encode()).hexdigest()[:20]
    return folders[0].with_name(f"teacher-{digest}.npy")

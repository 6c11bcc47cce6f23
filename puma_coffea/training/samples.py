"""Which events train and which judge, as stores of tokens; most are made in parallel."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from puma_coffea.exceptions import BadConfig
from puma_coffea.training.config import Config
from puma_coffea.training.data import expand, key_of, overlaid, read_batches
from puma_coffea.training.store import TokenStore, store_for

logger = logging.getLogger(__name__)

SHARD = 2500  # overlaid events of one store


class Split:
    """Every so many-th event of a file is held out."""

    def __init__(self, fraction: float) -> None:
        self.period = round(1 / fraction) if fraction else 0

    def held(self, index: Any) -> Any:
        """Mask of the events that are held out."""
        return index % self.period == self.period - 1 if self.period else index < 0

    def kept(self, index: Any) -> Any:
        """Mask of the events that are trained on."""
        return ~self.held(index)


def training_stores(config: Config, cache: Path) -> list[TokenStore]:
    """Tokens to train on: those of the files, then the overlaid and the simulated ones."""
    data = config.data
    files = expand(data.files)
    key = key_of(files, part="train", held_out=data.held_out)
    real = store_for(read_batches(files, Split(data.held_out).kept), config.card(), cache, key)
    firsts = range(0, data.overlays, SHARD)
    parts: list[tuple[Any, ...]] = [
        (_overlay_store, first, min(SHARD, data.overlays - first)) for first in firsts
    ]
    parts += [(_simulated_store, file) for file in expand(data.simulated)]
    workers = min(len(parts), len(os.sched_getaffinity(0)))
    if workers < 2:
        return [real, *(make(config, cache, *part) for make, *part in parts)]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        made = [pool.submit(_folder, make, config, cache, *part) for make, *part in parts]
        return [real, *(TokenStore(each.result()) for each in made)]


def judging_stores(config: Config, cache: Path) -> dict[str, TokenStore]:
    """Tokens that judge: held-out ones, those of the validation samples, and overlaid ones."""
    data = config.data
    judges = {}
    if data.held_out:
        judges["held_out"] = held_out_store(config, cache)
    if data.validation:
        files = expand(data.validation)
        key = key_of(files, part="validation")
        judges["validation"] = store_for(read_batches(files), config.card(), cache, key)
    if data.validation and data.validation_overlays:
        judges["overlaid"] = _judging_overlays(config, cache)
    if not judges:
        msg = "Nothing to validate on: set data.validation or data.held_out."
        raise BadConfig(msg)
    return judges


def _judging_overlays(config: Config, cache: Path) -> TokenStore:
    """Hard events over the validation samples' pile-up; those that train come last, if at all."""
    data, seed = config.data, config.recipe.seed
    files, hard = expand(data.validation), expand(data.hard_files)
    count, before = data.validation_overlays, data.overlays
    key = key_of(files + hard, part="overlaid", count=count, before=before, seed=seed)
    made = overlaid(files, hard, count, seed, None, before=before)
    return store_for(made, config.card(), cache, key)


def held_out_store(config: Config, cache: Path) -> TokenStore:
    """Tokens of the part of every training file that is not trained on."""
    files = expand(config.data.files)
    key = key_of(files, part="held", held_out=config.data.held_out)
    events = read_batches(files, Split(config.data.held_out).held)
    return store_for(events, config.card(), cache, key)


def _overlay_store(config: Config, cache: Path, first: int, count: int) -> TokenStore:
    """One part of the overlaid events, from the ``first`` on."""
    data, seed = config.data, config.recipe.seed
    files, hard = expand(data.files), expand(data.hard_files)
    key = key_of(
        files + hard, part="overlay", first=first, count=count, held_out=data.held_out, seed=seed
    )
    made = overlaid(files, hard, count, seed, Split(data.held_out).kept, before=first)
    return store_for(made, config.card(), cache, key)


def _simulated_store(config: Config, cache: Path, file: str) -> TokenStore:
    """All events of a simulated sample."""
    return store_for(read_batches([file]), config.card(), cache, key_of([file], part="simulated"))


def _folder(make: Any, config: Config, cache: Path, *part: Any) -> Path:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    made: TokenStore = make(config, cache, *part)
    return made.folder

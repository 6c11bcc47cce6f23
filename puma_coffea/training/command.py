"""What ``puma-coffea train`` and ``puma-coffea export`` do."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from puma_coffea.exceptions import BadConfig
from puma_coffea.puma.export import weights_bytes
from puma_coffea.puma.model import Puma
from puma_coffea.puma.network import NetworkConfig, PumaNetwork
from puma_coffea.training.calibration import fit_calibration
from puma_coffea.training.checkpoint import CHECKPOINT, config_of, read_checkpoint
from puma_coffea.training.config import Config, read_config
from puma_coffea.training.loop import Trainer
from puma_coffea.training.physics import weigher
from puma_coffea.training.samples import held_out_store

logger = logging.getLogger(__name__)


def train_with_progress(
    path: Path, folder: Path, preset: str, cache: Path | None, tensorboard: bool = False
) -> Trainer:
    """Train with a progress bar on standard error; the training, done."""
    config = read_config(path, preset)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    trainer = Trainer(config, folder, cache, tensorboard)
    console = Console(stderr=True, quiet=os.environ.get("RANK", "0") != "0")
    columns = (
        TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.4f}"),
        TextColumn("best {task.fields[best]:.3f}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(
            "", total=config.recipe.steps, completed=trainer.step, loss=0.0, best=0.0
        )

        def report(state: Trainer, loss: float) -> None:
            progress.update(bar, completed=state.step, loss=loss, best=state.best)

        trainer.run(report)
    return trainer


def export_model(
    checkpoint: Path,
    folder: Path,
    metrics: Path | None = None,
    calibrate: Path | None = None,
    shift: float = 0.0,
) -> Path:
    """Model folder with the best parameters of a training and a filled card.

    ``calibrate`` is the training's cache of tokens; if given, a calibration is fitted to the
    held-out events. ``shift`` is added to every logit: weights that make pTmiss narrowest are a
    little low, and for a better response one may raise them.
    """
    path = checkpoint / CHECKPOINT if checkpoint.is_dir() else checkpoint
    if not path.exists():
        msg = f"There is no {path}; name the folder of a training, made by 'puma-coffea train'."
        raise BadConfig(msg)
    state = read_checkpoint(path, torch.device("cpu"))
    config = config_of(state, path)
    network = PumaNetwork(NetworkConfig(inputs=len(config.inputs), **config.network.model_dump()))
    network.load_state_dict(state["best_state"] or state["average"])
    with torch.no_grad():
        network.decode.bias.add_(shift)
    training = _training(config, state) | ({"shift": shift} if shift else {})
    card = config.card().model_copy(update={"training": training})
    if calibrate is not None:
        store = held_out_store(config, calibrate)
        calibration, before, after = fit_calibration(
            weigher(network), store, config.inputs, config.raised
        )
        logger.info(
            "calibration: width %.2f GeV before, %.2f after (held-out events)", before, after
        )
        card = card.model_copy(update={"calibration": calibration})
    if metrics is not None:
        card = card.model_copy(update={"metrics": _metrics(metrics)})
    return Puma(card, weights_bytes(network)).save(folder)


def _training(config: Config, state: dict[str, Any]) -> dict[str, Any]:
    names = [Path(pattern).name for pattern in config.data.files]
    return {
        **({} if config.start is None else {"start": Path(config.start).name}),
        "samples": names,
        "hard_samples": [Path(pattern).name for pattern in config.data.hard_files],
        "overlays": config.data.overlays,
        "simulated_samples": [Path(pattern).name for pattern in config.data.simulated],
        "steps": state["step"],
        "hours": round(state["seconds"] / 3600, 2),
        "recipe": config.recipe.model_dump(mode="json"),
    }


def _metrics(path: Path) -> Any:
    import json

    from puma_coffea.puma.card import Metric

    try:
        return tuple(
            Metric.model_validate(each) for each in json.loads(path.read_text())["metrics"]
        )
    except (OSError, ValueError, KeyError) as error:
        msg = f"{path} holds no metrics ({error}); make it with 'puma-coffea evaluate --json'."
        raise BadConfig(msg) from error

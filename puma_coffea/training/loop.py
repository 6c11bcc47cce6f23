"""The training loop: resumable, the same on one process or several, judged by physics.

Several processes: the command line under torchrun. Each takes its share of the same batch and
gradients are summed before the step, so one process and several give the same curve.
"""

from __future__ import annotations

import copy
import ctypes
import logging
import math
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from puma_coffea.exceptions import BadConfig
from puma_coffea.puma.model import Puma
from puma_coffea.puma.network import MaskedBatchNorm, NetworkConfig, PumaNetwork
from puma_coffea.training.alone import Singles, attends, silence_attention, wake_attention
from puma_coffea.training.batches import Crops
from puma_coffea.training.checkpoint import CHECKPOINT, read_checkpoint, write_checkpoint
from puma_coffea.training.config import SHAPE, Config
from puma_coffea.training.half import half_is_fast
from puma_coffea.training.log import Log
from puma_coffea.training.logits import logits as fast_logits
from puma_coffea.training.phases import Phase, learning_rate, phase_of
from puma_coffea.training.physics import missing_momentum, weigher
from puma_coffea.training.processes import Processes
from puma_coffea.training.samples import judging_stores, training_stores
from puma_coffea.training.teacher import out_of_fold
from puma_coffea.training.whole import Thinned, Whole, event_loss, thin

logger = logging.getLogger(__name__)

RELEASE_EVERY = 50  # steps


class Trainer:
    """A training in a folder: ``checkpoint.pt``, ``log.csv``, the cache of tokens.

    Parameters
    ----------
    config
        What to train, on what, how.
    folder
        Where it lives; an existing checkpoint of the same configuration is resumed.
    cache
        Where prepared tokens are kept; default ``folder / "cache"``.
    tensorboard
        Whether to write a log for TensorBoard beside ``log.csv``.
    """

    def __init__(
        self, config: Config, folder: Path, cache: Path | None = None, tensorboard: bool = False
    ) -> None:
        self.config, self.folder, self.log = config, folder, Log(folder, tensorboard)
        self.recipe = config.recipe
        self.processes = Processes.join()
        self.rank, self.world, self.device = self.processes
        if self.recipe.threads:
            torch.set_num_threads(self.recipe.threads)
        self.half = self.recipe.half and half_is_fast()
        torch.manual_seed(self.recipe.seed)
        folder.mkdir(parents=True, exist_ok=True)
        cache = cache or folder / "cache"
        with self.processes.first_ahead():
            self.judges = judging_stores(config, cache)
            self.stores = training_stores(config, cache)
        self.crops = Crops(self.stores, self.recipe, config.network.band, config.inputs)
        self.singles = Singles(self.stores, self.recipe) if self.recipe.alone_steps else None
        self.whole: Whole | None = None  # made when its phase begins
        if self.singles is not None and self.recipe.teacher:
            with self.processes.first_ahead():
                # The others wait: their threads are free.
                threads = torch.get_num_threads() * self.world
                self.singles.teach(out_of_fold(self.singles, threads))
        shape = NetworkConfig(inputs=len(config.inputs), **config.network.model_dump())
        self.network = PumaNetwork(shape).to(self.device)
        if config.start is not None:
            self.network.load_state_dict(Puma.load(config.start, "cpu").network().state_dict())
        elif self.singles is not None:
            silence_attention(self.network)
        self.average = copy.deepcopy(self.network)
        self.optimiser = torch.optim.AdamW(
            self.network.parameters(),
            self.recipe.learning_rate,
            weight_decay=self.recipe.weight_decay,
            fused=True,
        )
        self.step, self.best, self.since_best, self.seconds = 0, math.inf, 0, 0.0
        self.best_state: dict[str, Tensor] = {}
        if not self._resume() and config.start is None:
            self._calibrate()

    def run(self, report: Any = None) -> float:
        """Train until the steps or the patience are used up; the best validation figure.

        ``report(trainer, loss)`` is called after every step, for a progress bar.
        """
        began, losses = time.monotonic(), []
        if self.step == 0 and self.config.start is not None:
            self._validate(math.nan)  # the model to be beaten
        while self.step < self.recipe.steps and self.since_best < self.recipe.patience:
            losses.append(self._step())
            self.step += 1
            if report is not None:
                report(self, losses[-1])
            if self.step % RELEASE_EVERY == 0:
                release_memory()
            if self.step % self.recipe.validate_every == 0 or self.step == self.recipe.steps:
                self.seconds += time.monotonic() - began
                began = time.monotonic()
                self._validate(sum(losses) / len(losses))
                losses = []
        self.processes.wait()
        return self.best

    @property
    def found_better(self) -> bool:
        """Whether any validation after the first step was the best; without ``start`` one always is."""
        return self.since_best < math.ceil(self.step / self.recipe.validate_every)

    def _step(self) -> float:
        self._begin_phase()
        self.network.train()
        _freeze_norms(self.network)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.recipe, self.step)
        self.optimiser.zero_grad(set_to_none=True)
        total = 0.0
        for part in range(self.recipe.accumulate):
            number = self.step * self.recipe.accumulate + part
            loss = self._loss(number) / self.recipe.accumulate
            loss.backward()
            total += float(loss.detach())
        total = self._sum_gradients(total)
        nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        self.optimiser.step()
        self._average()
        return total

    def _begin_phase(self) -> None:
        """A later phase starts from the averaged parameters, with a fresh optimiser."""
        phase = phase_of(self.recipe, self.step)
        if self.step == phase.first > 0:
            if phase.name == "attend" and not attends(self.average):
                wake_attention(self.average, self.recipe.seed)
            self.network.load_state_dict(self.average.state_dict())
            self.optimiser.state.clear()
            self.whole = None
        if phase.name in ("whole", "attend") and self.whole is None:
            self.whole = self._find_events(phase)

    def _find_events(self, phase: Phase) -> Whole:
        """Whole events; those of a network without attention are thinned, once, each store by one process."""
        if phase.name == "attend":
            return Whole(self.stores, self.recipe, self.recipe.attend_events)
        if attends(self.network):
            return Whole(self.stores, self.recipe, self.recipe.events)
        folder, weigh = self.folder / "thinned", weigher(self.average)
        if self.rank == 0 and self.step == phase.first:
            shutil.rmtree(folder, ignore_errors=True)  # of another training
        self.processes.wait()
        for store in self.stores[self.rank :: self.world]:
            thin(store, weigh, folder / store.folder.name, self.config.raised)
        self.processes.wait()
        thinned = [Thinned(folder / store.folder.name) for store in self.stores]
        return Whole(self.stores, self.recipe, self.recipe.events, thinned)

    def _loss(self, number: int) -> Tensor:
        """Loss of this process's part of a batch; the parts of all processes add up."""
        phase = phase_of(self.recipe, self.step).name
        if phase in ("whole", "attend"):
            assert self.whole is not None
            events = self.whole(number, self.rank, self.world).to(self.device)
            alone = self.whole.thinned is not None
            logits = fast_logits(self.network, events.batch, alone=alone, half=self.half)
            weights = self.config.raised(torch.sigmoid(logits), events.momenta.norm(dim=-1))
            return event_loss(weights, events) / self.whole.events
        if phase == "alone":
            assert self.singles is not None
            batch, size = self.singles(number, self.rank, self.world), self.recipe.singles
        else:
            batch = self.crops(number, self.rank, self.world)
            size = self.recipe.crops * self.recipe.crop
        batch = batch.to(self.device)
        logits = fast_logits(self.network, batch, alone=phase == "alone", half=self.half)
        if self.recipe.loss == "squared":
            each = (torch.sigmoid(logits) - batch.target) ** 2
        else:
            each = functional.binary_cross_entropy_with_logits(
                logits, batch.target, reduction="none"
            )
        return (each * batch.weight).sum() / size

    def _sum_gradients(self, loss: float) -> float:
        if self.world == 1:
            return loss
        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
        flat = torch.cat(
            [g.reshape(-1) for g in gradients] + [torch.tensor([loss], device=self.device)]
        )
        flat = self.processes.add_up(flat)
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].reshape(gradient.shape))
            start += gradient.numel()
        return float(flat[-1])

    @torch.no_grad()
    def _average(self) -> None:
        done = self.step - phase_of(self.recipe, self.step).first
        keep = min(self.recipe.averaging, (done + 1) / (done + 10))
        both = zip(
            self.average.state_dict().values(), self.network.state_dict().values(), strict=True
        )
        mine, theirs = zip(*(pair for pair in both if pair[0].is_floating_point()), strict=True)
        torch._foreach_lerp_(mine, theirs, 1 - keep)

    def _calibrate(self) -> None:
        """Statistics of the two batch norms from a few batches; they stay as they are from then on.

        Fixed statistics make a step independent of how its batch is split over processes.
        """
        norms = [m for m in self.network.modules() if isinstance(m, MaskedBatchNorm)]
        self.network.train()
        with torch.no_grad():
            for norm in norms:
                norm.momentum = None  # torch: a plain average
            for k in range(20):
                batch = self.crops(10**9 + k).to(self.device)  # steps that no training reaches
                self.network.logits(batch.x, batch.mask)
        self.average.load_state_dict(self.network.state_dict())

    def _validate(self, loss: float) -> None:
        row: dict[str, Any] = {"step": self.step, "seconds": round(self.seconds), "loss": loss}
        weigh, limit = weigher(self.average), self.recipe.validate_events
        for name, store in self.judges.items():
            found = missing_momentum(weigh, store, limit, self.config.raised, self.processes)
            row[name] = found.ratio
        figure = sum(row[name] for name in self.judges) / len(self.judges)
        if figure < self.best:
            self.best, self.since_best = figure, 0
            self.best_state = {k: v.clone() for k, v in self.average.state_dict().items()}
        else:
            self.since_best += 1
        if self.rank == 0:
            figures = ", ".join(f"{name} {row[name]:.3f}" for name in self.judges)
            before = math.isnan(loss)
            logger.info("step %d, %s%s", self.step, "" if before else f"loss {loss:.4f}, ", figures)
            self.log(row)
            self._save()

    def _save(self) -> None:
        state = {
            "config": self.config.model_dump(mode="json"),
            "step": self.step,
            "seconds": self.seconds,
            "best": self.best,
            "since_best": self.since_best,
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "best_state": self.best_state,
            "optimiser": self.optimiser.state_dict(),
            "random": torch.get_rng_state(),
        }
        write_checkpoint(self.folder / CHECKPOINT, state)

    def _resume(self) -> bool:
        path = self.folder / CHECKPOINT
        if not path.exists():
            return False
        state = read_checkpoint(path, self.device)
        mine, theirs = self.config.model_dump(mode="json"), state["config"]
        for key in SHAPE:
            if mine[key] != theirs[key]:
                msg = f"{path} was made with another '{key}'; choose another folder for this training."
                raise BadConfig(msg)
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.best = state["step"], state["best"]
        self.since_best, self.best_state = state["since_best"], state["best_state"]
        self.seconds = state["seconds"]
        torch.set_rng_state(state["random"].cpu())
        logger.info("resumed at step %d", self.step)
        return True


def release_memory() -> None:
    """Give freed memory back: batches differ in length, and the gaps that malloc keeps grow to gigabytes."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def _freeze_norms(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, MaskedBatchNorm):
            module.eval()

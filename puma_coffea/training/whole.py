"""The last phase of a training: whole events, judged by the momentum that their weights add up to.

Errors of neighbours have much in common, and a sum over an event does not forgive that: a jet whose
candidates are all a little wrong costs more than as many errors here and there. No loss that looks
at one candidate at a time can see it. So the network ends its training on the residual of pTmiss
itself, beside the squared error of each candidate, which keeps the weights what they mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from puma_coffea.training.batches import Batch, draw, pad
from puma_coffea.training.config import Recipe
from puma_coffea.training.physics import Raise, Weigh, unchanged, used_weights
from puma_coffea.training.store import NEUTRAL, TokenStore

FLOOR = 0.02  # neutrals with less weight at the start of the phase keep it
UNIT = 10.0  # GeV: residuals of this size make a loss of order one
OUTLIER = 60.0  # GeV: beyond, the loss grows linearly (a lost muon is nobody's fault)


class Events(NamedTuple):
    """Some events' tokens, and what the rest of each event adds to its residual."""

    batch: Batch
    momenta: Tensor
    """(B, N, 2): px and py in GeV, 0 for tracks."""
    event: Tensor
    """int64 (B, N): to which event a token belongs."""
    rest: Tensor
    """(events, 2): residual of pTmiss (GeV) before the tokens are added."""

    def to(self, device: torch.device) -> Events:
        """The events on a device."""
        return Events(self.batch.to(device), *(each.to(device) for each in self[1:]))


class Whole:
    """Draws batches of whole events; which ones depends on the seed and the step alone.

    Parameters
    ----------
    stores
        Tokens of real and overlaid events.
    recipe
        Cap and seed.
    events
        In a batch, over all processes.
    thinned
        From :func:`thin`, if candidates do not attend to each other: neutrals that matter, alone.
        Otherwise whole sequences are drawn.
    """

    def __init__(
        self,
        stores: list[TokenStore],
        recipe: Recipe,
        events: int,
        thinned: list[Thinned] | None = None,
    ) -> None:
        self.stores, self.recipe, self.events, self.thinned = stores, recipe, events, thinned
        self._first = np.concatenate(([0], np.cumsum([len(store) for store in stores])))

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> Events:
        """This process's part of the step's batch."""
        rng = np.random.default_rng((self.recipe.seed, 2, step))
        sizes = np.diff(self._first)
        mine = draw(rng, sizes, self.recipe.real_share, self.events)[rank::world]
        found = [self._event(int(number)) for number in mine]
        tokens, rest = [each[:3] for each in found], np.stack([each[4] for each in found])
        momenta = [each[3] for each in found]
        event = np.repeat(np.arange(len(found)), [len(p) for p in momenta])
        if self.thinned is not None:  # one after the other
            tokens = [tuple(np.concatenate(each) for each in zip(*tokens, strict=True))]
        batch = pad(tokens)
        places, owner = torch.zeros(*batch.mask.shape, 2), torch.zeros_like(batch.mask).long()
        places[batch.mask] = torch.from_numpy(np.concatenate(momenta)).float()
        owner[batch.mask] = torch.from_numpy(event)
        return Events(batch, places, owner, torch.from_numpy(rest).float())

    def _event(self, number: int) -> tuple[NDArray[Any], ...]:
        """Features, target, loss weight and momenta of an event's tokens, and its rest."""
        which = int(np.searchsorted(self._first, number, side="right")) - 1
        store, event = self.stores[which], number - int(self._first[which])
        here: slice | NDArray[np.int64] = store.tokens(event)
        rest = store.base[event]
        if self.thinned is not None:
            here, rest = self.thinned[which].event(event)
        x, y = (np.asarray(store.columns[name][here], np.float32) for name in ("x", "y"))
        momenta = store.momenta_of(here)
        weight = (np.minimum(np.hypot(*momenta), self.recipe.pt_cap) / UNIT) ** 2
        return x, y, weight, momenta.T, rest


def event_loss(weights: Tensor, events: Events) -> Tensor:
    """Sum over events of the residual's square and of each neutral's squared error, in UNIT^2 / 2."""
    momenta = (weights.unsqueeze(-1) * events.momenta).reshape(-1, 2)
    residual = events.rest.index_add(0, events.event.reshape(-1), -momenta)
    square = (residual / UNIT).square().sum(dim=1)
    limit = OUTLIER / UNIT
    far = 2 * limit * torch.sqrt(square.clamp(min=limit**2)) - limit**2
    each = (weights - events.batch.target).square() * events.batch.weight
    return (torch.where(square < limit**2, square, far).sum() + each.sum()) / 2


class Thinned:
    """Neutrals of a store that matter: ``tokens``, ``offsets`` by event, and each event's ``rest``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tokens, self._offsets, self._rest = (
            np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("tokens", "offsets", "rest")
        )

    def event(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Tokens of an event that matter, and the residual of all the others."""
        begin, end = self._offsets[number : number + 2]
        return self._tokens[begin:end], self._rest[number]


def thin(store: TokenStore, weigh: Weigh, folder: Path, raised: Raise = unchanged) -> Thinned:
    """Neutrals of at least the weight FLOOR; kept in a folder and read from there the next time."""
    if not (folder / "rest.npy").exists():
        folder.mkdir(parents=True, exist_ok=True)
        tokens, rest = [], np.array(store.base)
        for event in range(len(store)):
            weights, momenta = used_weights(weigh, store, event, raised)
            chosen = (weights >= FLOOR) & (store.columns["kind"][store.tokens(event)] == NEUTRAL)
            rest[event] -= momenta[:, ~chosen] @ weights[~chosen]
            tokens.append(store.offsets[event] + np.flatnonzero(chosen))
        offsets = np.concatenate(([0], np.cumsum([len(each) for each in tokens])))
        np.save(folder / "tokens.npy", np.concatenate(tokens))
        np.save(folder / "offsets.npy", offsets)
        np.save(folder / "rest.part.npy", rest)
        (folder / "rest.part.npy").replace(folder / "rest.npy")  # the last: all is there
    return Thinned(folder)

"""From flat candidates to what the network reads: tokens in sequence, with their features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puma_coffea.flat import HARD, Flat
from puma_coffea.puma.card import Card, Tokens
from puma_coffea.puma.clustering import iterative_cluster, pt_order
from puma_coffea.puma.features import features


@dataclass(frozen=True)
class Inputs:
    """The tokens of a chunk, event after event, each event in the order of its sequence."""

    offsets: NDArray[np.int64]
    """Where each event's tokens begin."""
    index: NDArray[np.int64]
    """Candidate (index into the flat arrays) of each token."""
    x: NDArray[np.float32]
    """Features, (tokens, inputs)."""

    def event(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Candidates and features of one event's tokens."""
        here = slice(self.offsets[number], self.offsets[number + 1])
        return self.index[here], self.x[here]


def prepare(flat: Flat, card: Card) -> Inputs:
    """The network's inputs for a chunk, exactly as the card asks for them."""
    clusters = iterative_cluster(flat, card.ordering.size, card.ordering.branches)
    order = clusters.order if card.ordering.by == "clusters" else pt_order(flat)
    mask = is_token(flat, card.tokens)[order]
    index = order[mask]
    running = np.concatenate(([0], np.cumsum(mask)))
    x = features(flat, clusters, card.inputs, of=index)
    return Inputs(running[flat.offsets], index, x)


def is_token(flat: Flat, tokens: Tokens) -> Any:
    """Mask of the candidates that the network sees."""
    limit = np.where(flat.vertex == HARD, tokens.hard_pt_min, tokens.pileup_pt_min)
    return flat.pt >= np.where(flat.neutral, tokens.neutral_pt_min, limit)

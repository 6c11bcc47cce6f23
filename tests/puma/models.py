"""Untrained models whose weights differ from candidate to candidate."""

from __future__ import annotations

import torch

from puma_coffea.puma.card import Card, Network, Ordering, Tokens
from puma_coffea.puma.export import weights_bytes
from puma_coffea.puma.features import PAPER
from puma_coffea.puma.model import Puma
from puma_coffea.puma.network import NetworkConfig, PumaNetwork

INPUTS = (*PAPER, "hard_ptdr_0.2", "pileup_pt_0.2", "nearest_hard_dr", "ring_neutral_pt")
SHAPE = {"width": 16, "heads": 2, "layers": 3, "groups": 3, "band": 5, "feed_forward": 16}


def untrained(name="tiny", seed=1, inputs=INPUTS, tokens=None, by="clusters", **options):
    """A small random model; the normalisation and the last layer spread its weights over [0, 1]."""
    torch.manual_seed(seed)
    network = PumaNetwork(NetworkConfig(inputs=len(inputs), **SHAPE))
    with torch.no_grad():
        for module in (network.input_norm, network.embed_norm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 4)
        network.decode.weight.mul_(15)
    card = Card(
        name=name,
        description="A random network for the tests.",
        inputs=tuple(inputs),
        tokens=tokens or Tokens(),
        ordering=Ordering(by=by),
        network=Network(**SHAPE),
    )
    return Puma(card, weights_bytes(network), **options)

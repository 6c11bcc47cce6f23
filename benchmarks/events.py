"""What is measured on: the embedded ttbar events, and an untrained network of preset ``paper``."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from puma_coffea import candidates, open_events, sample_path
from puma_coffea.flat import Flat, flatten
from puma_coffea.puma.card import Card, Network
from puma_coffea.puma.fast_weights import tensor_shapes
from puma_coffea.puma.features import PAPER
from puma_coffea.puma.model import Puma

SAMPLE = "ttbar_pu140"
# As puma_coffea.puma.network.PRESETS["paper"], which needs torch.
NETWORK = Network(layers=12, groups=5, feed_forward=64, norm="post", norm_eps=1e-12)
CARD = Card(name="paper", description="Untrained, for timing.", inputs=PAPER, network=NETWORK)

_COLUMNS = [field.name for field in fields(Flat) if field.name not in ("offsets", "hard_fraction")]


def embedded(quick: bool) -> ak.Array:
    """Candidates of the twelve events; two of them for a quick run."""
    return candidates(open_events(sample_path(SAMPLE), entry_stop=2 if quick else None))


def flat_events(quick: bool) -> Flat:
    """The same as flat columns."""
    return flatten(embedded(quick))[2]


def overlaid(flat: Flat, size: int) -> Flat:
    """One event of ``size`` candidates: several laid over each other, thinned."""
    chosen = np.random.default_rng(1).permutation(len(flat.pt))[:size]
    columns: dict[str, Any] = {name: getattr(flat, name)[chosen] for name in _COLUMNS}
    return replace(flat, offsets=np.array([0, len(chosen)]), hard_fraction=None, **columns)


def random_tensors() -> dict[str, NDArray[Any]]:
    """Numbers of an untrained network, with the spread of a trained one in its normalisations."""
    rng = np.random.default_rng(1)
    tensors: dict[str, NDArray[Any]] = {}
    for name, shape in tensor_shapes(NETWORK, len(PAPER)).items():
        if name.endswith("num_batches_tracked"):
            tensors[name] = np.zeros(shape, dtype=np.int64)
        elif name.endswith("running_var"):
            tensors[name] = rng.uniform(0.5, 4, shape).astype(np.float32)
        elif "norm" in name:
            tensors[name] = np.full(shape, name.endswith("weight"), dtype=np.float32)
        else:
            tensors[name] = rng.uniform(-0.125, 0.125, shape).astype(np.float32)
    return tensors


def paper_model() -> Puma:
    """An untrained model that costs what one of preset ``paper`` costs."""
    from safetensors.numpy import save

    return Puma(CARD, save(random_tensors()), device="cpu")

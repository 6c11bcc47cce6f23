"""A model's TorchScript file through coffea's own torch_wrapper.

For frameworks that already run their networks this way: model.pt takes features (events, places,
inputs) and a mask of the places that are not padding. The features come from this package.

Run it: python examples/torch_wrapper.py [MODEL-FOLDER]
"""

import sys

import awkward as ak
import numpy as np
from coffea.ml_tools.torch_wrapper import torch_wrapper

from puma_coffea import Puma, candidates, open_events, sample_path
from puma_coffea.flat import flatten
from puma_coffea.puma.card import read_card
from puma_coffea.puma.inputs import prepare
from puma_coffea.puma.model import find_folder


class PumaScript(torch_wrapper):
    """Network values of the tokens, one jagged row per event."""

    def prepare_awkward(self, tokens):
        """Pad the events of (events, var tokens, inputs) to the longest."""
        lengths = ak.to_numpy(ak.num(tokens, axis=1))
        mask = np.arange(lengths.max()) < lengths[:, None]
        padded = np.zeros((*mask.shape, len(tokens[0, 0])), dtype=np.float32)
        padded[mask] = ak.to_numpy(ak.flatten(tokens, axis=1))
        return (ak.from_numpy(padded), ak.from_numpy(mask)), {}

    def validate_numpy_input(self, x, mask):
        assert x.shape[:2] == mask.shape

    def postprocess_awkward(self, values, tokens):
        """Drop the padding again."""
        lengths = ak.num(tokens, axis=1)
        return values[ak.from_numpy(np.arange(ak.max(lengths)) < ak.to_numpy(lengths)[:, None])]


def main(model="puma"):
    folder, _ = find_folder(model)
    card = read_card(folder)
    network = PumaScript(str(folder / "model.pt"))

    pf = candidates(open_events(sample_path("zvv_pu140")))[:3]
    _, usable, flat = flatten(pf)
    inputs = prepare(flat, card)
    tokens = ak.unflatten(ak.from_numpy(inputs.x, regulararray=True), np.diff(inputs.offsets))
    values = network(tokens)

    # Tokens stand in the order of the sequence; put each value at its candidate.
    weights = np.zeros(len(flat.pt), dtype=np.float32)
    weights[inputs.index] = ak.to_numpy(ak.flatten(values, axis=None))
    if card.calibration is not None:  # stands in the card, not in model.pt
        weights = np.where(flat.neutral, card.calibration(weights, np.abs(flat.eta)), weights)
    expected = ak.to_numpy(ak.flatten(Puma.load(folder, charged="model")(pf)))[usable]
    print(f"{len(pf)} events, {len(weights):,} candidates")
    print(f"largest difference from Puma.load(): {np.abs(weights - expected).max():.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:2])

"""The network as it is trained on a CPU is the network."""

from __future__ import annotations

import pytest
import torch

from puma_coffea.puma.network import PRESETS, MaskedBatchNorm, NetworkConfig, PumaNetwork
from puma_coffea.training.alone import alone_logits
from puma_coffea.training.batches import Batch
from puma_coffea.training.logits import logits


@pytest.mark.parametrize(
    "config",
    [
        NetworkConfig(layers=3, groups=2),
        PRESETS["paper"],
        NetworkConfig(width=24, heads=3, layers=2, groups=2, band=4, feed_forward=20),
    ],
)
@pytest.mark.parametrize("alone", [False, True])
def test_the_network_and_its_derivatives_are_those_of_torch(config, alone):
    torch.manual_seed(1)
    network = PumaNetwork(config).train()
    for module in network.modules():
        if isinstance(module, MaskedBatchNorm):
            module.eval()
    mask = torch.arange(150) < torch.tensor([[150], [90]])
    x = torch.randn(2, 150, config.inputs)
    x[~mask] = 0 if alone else torch.nan
    batch = Batch(x, mask, x[..., 0], x[..., 0])
    above = torch.randn(2, 150) * mask
    gradients = []
    for fast in (False, True):
        network.zero_grad()
        if fast:
            out = logits(network, batch, alone)
        else:
            out = alone_logits(network, batch) if alone else network.logits(x, mask)
        out.masked_fill(~mask, 0).backward(above)
        gradients.append(
            [out.detach()[mask], *(p.grad for p in network.parameters() if p.grad is not None)]
        )
    largest = max(float(each.abs().max()) for each in gradients[0])
    for expected, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-6 * largest)


def test_products_in_bfloat16_change_derivatives_by_less_than_a_percent():
    torch.manual_seed(1)
    network = PumaNetwork(NetworkConfig(layers=4, groups=4)).eval()
    batch = Batch(torch.randn(4, 200, 11), torch.ones(4, 200, dtype=torch.bool), *torch.zeros(2, 1))
    gradients = []
    for half in (False, True):
        network.zero_grad()
        logits(network, batch, half=half).square().mean().backward()
        gradients.append(torch.cat([p.grad.reshape(-1) for p in network.parameters()]))
    assert 0 < (gradients[1] - gradients[0]).norm() < 0.01 * gradients[0].norm()

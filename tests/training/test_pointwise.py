"""GELU, dropout, residual and LayerNorm in one pass equal those of torch, with derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from puma_coffea.training.pointwise import add_norm, gelu


def close(found, expected):
    torch.testing.assert_close(found.detach().double(), expected.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1, 15, 16, 1000])
def test_gelu(size):
    torch.manual_seed(1)
    values = 4 * torch.randn(size)
    values[0] = 60.0
    mine, theirs = values.clone().requires_grad_(), values.double().requires_grad_()
    found, expected = gelu(mine), functional.gelu(theirs, approximate="tanh")
    found.sum().backward()
    expected.sum().backward()
    close(found, expected)
    close(mine.grad, theirs.grad)


@pytest.mark.parametrize("width", [64, 16, 24])
@pytest.mark.parametrize("both", [True, False])
def test_sum_and_norm(width, both):
    torch.manual_seed(1)
    norm = nn.LayerNorm(width)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    double = nn.LayerNorm(width).double()
    double.load_state_dict(norm.state_dict())
    given = [torch.randn(2, 33, width) * 3 + 1 for _ in range(2)]
    above = [torch.randn(2, 33, width) for _ in range(2)]
    mine = [each.clone().requires_grad_() for each in given]
    theirs = [each.double().requires_grad_() for each in given]
    total = theirs[0] + theirs[1]
    for found, expected, parameters in (
        (add_norm(*mine, norm, 0.0), None, norm),
        (None, (total, double(total)), double),
    ):
        out = found or expected
        loss = sum((o * a).sum() for o, a in list(zip(out, above, strict=True))[0 if both else 1 :])
        loss.backward()
        assert parameters.weight.grad is not None
    for found, expected in zip(mine, theirs, strict=True):
        close(found.grad, expected.grad)
    close(norm.weight.grad, double.weight.grad)
    close(norm.bias.grad, double.bias.grad)


def test_dropout_keeps_the_mean_and_the_derivative_drops_the_same():
    torch.manual_seed(1)
    norm = nn.LayerNorm(64)
    h, x = torch.zeros(10, 1000, 64), torch.ones(10, 1000, 64, requires_grad=True)
    total, normal = add_norm(h, x, norm, 0.25)
    (total.sum() + 0 * normal.sum()).backward()
    assert torch.equal(x.grad, total.detach())
    assert x.grad.unique().tolist() == pytest.approx([0, 4 / 3])
    dropped = (x.grad == 0).float()
    assert float(dropped.mean()) == pytest.approx(0.25, abs=0.003)  # 4.5 deviations
    # Neighbours, features and rows are independent.
    flat = dropped.reshape(-1)
    for distance in (1, 2, 16, 64, 1024, 64_000):
        pairs = (flat[:-distance] * flat[distance:]).mean()
        assert float(pairs) == pytest.approx(0.0625, abs=0.002)


def test_dropout_follows_the_generator_of_torch():
    norm, x = nn.LayerNorm(64), torch.ones(1, 100, 64)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append([add_norm(x, x, norm, 0.5)[0] for _ in range(2)])
    assert torch.equal(draws[0][1], draws[1][1])
    different = [draws[0][0], draws[0][1], draws[2][0]]
    for i in range(3):
        agreement = (different[i] == different[i - 1]).float().mean()
        assert float(agreement) == pytest.approx(0.5, abs=0.03)

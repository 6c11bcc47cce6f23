"""Attention for training equals the network's own, with its derivatives."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from puma_coffea.puma.network import band_bias
from puma_coffea.puma.network import banded_attention as torch_attention
from puma_coffea.training.attention import banded_attention


def reference(qkv, mask, heads, band):
    """The network's attention, for any length."""
    length = mask.shape[1]
    extra = -length % 16
    bias = band_bias(functional.pad(mask, [0, extra]), band, qkv.dtype)
    return torch_attention(functional.pad(qkv, [0, 0, 0, extra]), bias, heads, band)[:, :length]


def lengths_mask(lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def relative(found, expected):
    found, expected = found.detach().double(), expected.detach()
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("band", [0, 1, 5, 15, 30])
@pytest.mark.parametrize(
    ("heads", "size", "lengths"),
    [
        (4, 16, [512, 300, 512]),
        (2, 8, [77, 5, 76]),
        (1, 20, [130, 129]),
        (3, 33, [64]),
        (1, 1, [3, 1]),
    ],
)
def test_values_and_derivatives_equal_those_in_double_precision(band, heads, size, lengths):
    torch.manual_seed(band)
    mask = lengths_mask(lengths)
    given = torch.randn(*mask.shape, 3 * heads * size)
    above = torch.randn(*mask.shape, heads * size) * mask.unsqueeze(-1)
    mine = given.clone().requires_grad_()
    theirs = given.double().requires_grad_()
    found, expected = (
        banded_attention(mine, mask, heads, band),
        reference(theirs, mask, heads, band),
    )
    found.backward(above)
    expected.backward(above.double())
    assert relative(found[mask], expected[mask]) < 2e-6
    # Without keys but itself a query's score does not matter: there is nothing to be relative to.
    for part, (a, b) in enumerate(
        zip(mine.grad.chunk(3, -1), theirs.grad.chunk(3, -1), strict=True)
    ):
        if band == 0 and part < 2:
            assert a.abs().max() < 1e-5
        else:
            assert relative(a, b) < 1e-5
    assert not mine.grad[~mask].any()


def test_a_hole_in_the_mask_is_not_seen():
    torch.manual_seed(1)
    mask = torch.rand(2, 100) < 0.7
    qkv = torch.randn(2, 100, 96)
    torch.testing.assert_close(
        banded_attention(qkv, mask, 2, 5)[mask], reference(qkv, mask, 2, 5)[mask]
    )


def test_large_scores_do_not_overflow():
    torch.manual_seed(1)
    mask = lengths_mask([100])
    qkv = 100 * torch.randn(1, 100, 96)
    mine, theirs = qkv.clone().requires_grad_(), qkv.double().requires_grad_()
    found, expected = banded_attention(mine, mask, 2, 15), reference(theirs, mask, 2, 15)
    found.sum().backward()
    expected.sum().backward()
    assert relative(found, expected) < 1e-3
    assert relative(mine.grad, theirs.grad) < 1e-3


def test_threads_do_not_change_a_bit():
    torch.manual_seed(1)
    mask = lengths_mask([100, 90, 80])
    qkv = torch.randn(3, 100, 96)
    threads, results = torch.get_num_threads(), []
    for n in (1, 2):
        torch.set_num_threads(n)
        mine = qkv.clone().requires_grad_()
        out = banded_attention(mine, mask, 2, 15)
        out.square().sum().backward()
        results.append((out.detach(), mine.grad))
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))

"""The network: banded attention is dense attention in a band, and padding is not there."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from puma import oracles

from puma_coffea.flat import flatten
from puma_coffea.puma.clustering import iterative_cluster
from puma_coffea.puma.features import features
from puma_coffea.puma.network import (
    BLOCK,
    PRESETS,
    MaskedBatchNorm,
    NetworkConfig,
    PumaNetwork,
    band_bias,
    banded_attention,
)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def sequence(ttbar):
    """Eleven inputs of 500 candidates of a real event, in the order of the sequence."""
    _, _, flat = flatten(ttbar[:1])
    order = iterative_cluster(flat)
    table = features(flat, order)[order.order]
    return torch.from_numpy(table[:500])


def network(preset="default", seed=1):
    """A network with running statistics that are not the initial ones."""
    torch.manual_seed(seed)
    net = PumaNetwork(PRESETS[preset])
    net.logits(torch.randn(2, 300, net.config.inputs) * 2 + 1)
    return net.eval()


def padded(*events):
    """A batch of events of different length with its mask; padding is NaN."""
    longest = max(len(event) for event in events)
    batch = torch.full((len(events), longest, events[0].shape[1]), torch.nan)
    for row, event in zip(batch, events, strict=True):
        row[: len(event)] = event
    return batch, ~batch.isnan().any(dim=2)


def test_the_papers_network_has_127063_parameters():
    normalise_inputs = 2 * 11
    embed = (11 * 64 + 64) + 2 * 64  # linear, BatchNorm
    attention = 4 * (64 * 64 + 64)  # query, key, value, output
    layer = attention + 2 * (2 * 64) + 2 * (64 * 64 + 64)  # two LayerNorms, feed-forward
    decode = 64 + 1
    assert layer == 25_216
    total = normalise_inputs + embed + 5 * layer + decode
    net = PumaNetwork(PRESETS["paper"])
    assert sum(p.numel() for p in net.parameters()) == total == 127_063


def test_layer_i_of_the_paper_uses_set_i_times_5_over_12():
    sets = [int(i / (12 / 5)) for i in range(12)]
    repeats = [layer.repeats for layer in PumaNetwork(PRESETS["paper"]).layers]
    assert repeats == [sets.count(group) for group in range(5)] == [3, 2, 3, 2, 2]


@pytest.mark.parametrize("band", [0, 1, 15, 40])
def test_banded_attention_equals_dense_attention_with_a_band_mask(band):
    torch.manual_seed(0)
    lengths = [500, 1, 17, 333]
    size = 512
    qkv = torch.randn(len(lengths), size, 3 * 64, requires_grad=True)
    mask = torch.arange(size)[None, :] < torch.tensor(lengths)[:, None]
    actual = banded_attention(qkv, band_bias(mask, band, qkv.dtype), 4, band)
    dense = torch.stack(
        [oracles.dense_attention(qkv[b], 4, band, lengths[b]) for b in range(len(lengths))]
    )
    torch.testing.assert_close(actual[mask], dense[mask], atol=1e-5, rtol=0)
    wish = torch.randn_like(actual[mask])
    gradients = [torch.autograd.grad((out[mask] * wish).sum(), qkv)[0] for out in (actual, dense)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-4, rtol=0)


@pytest.mark.parametrize("preset", PRESETS)
def test_padding_and_batch_mates_do_not_change_a_candidate(preset, sequence):
    net = network(preset)
    events = [sequence, sequence[100:133], sequence[:1]]
    batch, mask = padded(*events)
    with torch.no_grad():
        together = net(batch, mask)
        for row, event in zip(together, events, strict=True):
            torch.testing.assert_close(row[: len(event)], net(event[None])[0], atol=1e-6, rtol=0)
    assert (together[~mask] == 0).all()
    assert ((together >= 0) & (together <= 1)).all()


@pytest.mark.parametrize("preset", PRESETS)
def test_information_travels_one_band_per_layer_and_no_farther(preset, sequence):
    net = network(preset)
    reach = net.config.band * net.config.layers
    place = 250
    changed = sequence.clone()
    changed[place] += 1
    with torch.no_grad():
        moved = (net.logits(sequence[None]) != net.logits(changed[None]))[0].nonzero()[:, 0]
    assert place - reach <= moved.min() < place - net.config.band
    assert place + net.config.band < moved.max() <= place + reach


@pytest.mark.parametrize("length", [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 30_000])
def test_any_length_has_weights(length):
    with torch.no_grad():
        weights = network()(torch.randn(1, length, 11))
    assert weights.shape == (1, length)
    assert torch.isfinite(weights).all()


def test_an_event_of_padding_alone_has_weights_zero():
    with torch.no_grad():
        weights = network()(
            torch.full((1, 20, 11), torch.nan), torch.zeros(1, 20, dtype=torch.bool)
        )
    assert (weights == 0).all()


def test_batch_statistics_are_those_of_the_real_candidates(sequence):
    batch, mask = padded(sequence, sequence[:77])
    ours, packed = MaskedBatchNorm(11), torch.nn.BatchNorm1d(11)
    normal = ours(batch.nan_to_num(5.0), mask)[mask]
    torch.testing.assert_close(normal, packed(torch.cat([sequence, sequence[:77]])))
    torch.testing.assert_close(ours.running_mean, packed.running_mean)
    torch.testing.assert_close(ours.running_var, packed.running_var)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("length", [0, 1, 40])
def test_a_training_step_has_finite_gradients_for_any_length(preset, length):
    net = PumaNetwork(PRESETS[preset]).train()
    net.logits(torch.randn(1, length, 11)).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("preset", PRESETS)
def test_torchscript_gives_the_same_weights(preset, sequence):
    net = network(preset)
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(net), buffer)
    buffer.seek(0)
    scripted = torch.jit.load(buffer)
    batch, mask = padded(sequence, sequence[:20])
    with torch.no_grad():
        torch.testing.assert_close(scripted(batch, mask), net(batch, mask), atol=1e-5, rtol=0)
        torch.testing.assert_close(
            scripted.logits(sequence[None]), net.logits(sequence[None]), atol=1e-5, rtol=0
        )
        assert scripted(sequence[None, :0]).shape == (1, 0)


@pytest.mark.parametrize("preset", PRESETS)
def test_torch_export_of_one_length_serves_all_lengths(preset, sequence):
    net = network(preset)
    dynamic = {1: torch.export.Dim.DYNAMIC}
    mask = torch.ones(1, 100, dtype=torch.bool)
    program = torch.export.export(
        net, (sequence[None, :100], mask), dynamic_shapes={"x": dynamic, "mask": dynamic}
    )
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    exported = torch.export.load(buffer).module()
    for length in (0, 1, 15, 16, 500):
        mask = torch.ones(1, length, dtype=torch.bool)
        with torch.no_grad():
            torch.testing.assert_close(
                exported(sequence[None, :length], mask),
                net(sequence[None, :length]),
                atol=1e-5,
                rtol=0,
            )


def test_dropout_acts_in_training_only(sequence):
    torch.manual_seed(4)
    net = PumaNetwork(NetworkConfig(dropout=0.5, layers=2, groups=2))
    first, second = net.logits(sequence[None]), net.logits(sequence[None])
    assert not torch.equal(first, second)
    net.eval()
    assert torch.equal(net(sequence[None]), net(sequence[None]))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"norm": "none"}, "'pre' or 'post'"),
        ({"width": 65}, "multiple of heads"),
        ({"groups": 7}, "between 1 and layers"),
        ({"band": -1}, "negative"),
        ({"dropout": 1.0}, "dropout"),
        ({"inputs": 0}, "at least 1"),
    ],
)
def test_impossible_networks_are_refused(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        NetworkConfig(**wrong)


def test_weights_follow_the_order_of_the_sequence_not_of_the_input(ttbar):
    _, _, flat = flatten(ttbar[:1])
    shuffle = np.random.default_rng(5).permutation(len(flat.pt))
    from puma.events import permuted

    net, found = network("paper"), []
    for event in (flat, permuted(flat, shuffle)):
        order = iterative_cluster(event)
        with torch.no_grad():
            weights = net(torch.from_numpy(features(event, order)[order.order])[None])[0].numpy()
        back = np.empty_like(weights)
        back[order.order] = weights
        found.append(back)
    np.testing.assert_array_equal(found[1], found[0][shuffle])

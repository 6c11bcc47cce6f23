"""The engine without torch: the network's numbers, for any shape, length, company and machine."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from puma_coffea.puma.fast import NumbaEngine
from puma_coffea.puma.network import PRESETS, NetworkConfig, PumaNetwork

LENGTHS = [0, 1, 2, 15, 16, 17, 100, 500, 3000]
CONFIGS = {
    "paper": PRESETS["paper"],
    "pre": NetworkConfig(inputs=58, layers=4, groups=4),
    "shared": NetworkConfig(inputs=7, layers=5, groups=2, norm="pre", feed_forward=64),
    "odd": NetworkConfig(
        inputs=3, width=30, heads=3, layers=3, groups=2, band=4, feed_forward=17, norm="post"
    ),
    "no-band": NetworkConfig(inputs=1, width=9, heads=9, layers=1, groups=1, band=0),
    "wide-band": NetworkConfig(inputs=5, width=24, heads=1, layers=2, groups=1, band=130),
}


def random_network(config, seed=1, sharpness=1.0, spread=1.0):
    """Parameters and statistics away from where a training starts; weights all over [0, 1].

    Queries are ``sharpness`` times larger than usual; logits have a deviation of ``spread``.
    """
    torch.manual_seed(seed)
    network = PumaNetwork(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for module in (network.input_norm, network.embed_norm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.3, 4)
        for layer in network.layers:
            layer.attention_out.weight.mul_(0.3)  # else many layers make all candidates alike
            layer.query_key_value.weight[: config.width].mul_(sharpness)
        logits = network.logits(torch.from_numpy(random_features(500, config.inputs))[None])
        factor = spread / max(float(logits.std()), 0.1)
        network.decode.weight.mul_(factor)
        network.decode.bias.copy_((network.decode.bias - logits.mean()) * factor)
    return network


def numbers(network):
    return {name: tensor.numpy() for name, tensor in network.state_dict().items()}


def random_features(length, inputs, seed=1):
    return np.random.default_rng(seed).normal(size=(length, inputs)).astype(np.float32)


def reference(network, x):
    with torch.inference_mode():
        return network(torch.from_numpy(x)[None])[0].numpy()


@pytest.fixture(scope="module")
def paper():
    network = random_network(PRESETS["paper"])
    return network, NumbaEngine(network.config, numbers(network))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_weights_are_those_of_the_torch_network(config):
    network = random_network(config)
    engine = NumbaEngine(config, numbers(network))
    for length in LENGTHS:
        x = random_features(length, config.inputs, seed=length)
        (found,) = engine([x])
        assert found.dtype == np.float32
        assert found.shape == (length,)
        np.testing.assert_allclose(found, reference(network, x), atol=1e-5, rtol=0)
    assert found.std() > 0.1


@settings(max_examples=30, deadline=None)
@given(
    heads=st.integers(1, 5),
    size=st.integers(1, 20),
    layers=st.integers(1, 3),
    band=st.integers(0, 40),
    feed_forward=st.integers(1, 40),
    inputs=st.integers(1, 20),
    norm=st.sampled_from(["pre", "post"]),
    length=st.integers(0, 300),
    data=st.data(),
)
def test_any_shape_equals_the_torch_network(
    heads, size, layers, band, feed_forward, inputs, norm, length, data
):
    config = NetworkConfig(
        inputs=inputs,
        width=heads * size,
        heads=heads,
        layers=layers,
        groups=data.draw(st.integers(1, layers)),
        band=band,
        feed_forward=feed_forward,
        norm=norm,
        norm_eps=1e-2,  # a LayerNorm over one or two features magnifies rounding without bounds
    )
    network = random_network(config)
    x = random_features(length, inputs)
    (found,) = NumbaEngine(config, numbers(network))([x])
    np.testing.assert_allclose(found, reference(network, x), atol=1e-5, rtol=0)


def test_no_bit_depends_on_repetition_or_other_events(paper):
    _, engine = paper
    events = [random_features(length, 11, seed=length) for length in (700, 0, 1, 95, 97, 2000)]
    alone = [engine([x])[0] for x in events]
    for together in (engine(events), engine(events[::-1])[::-1]):
        for one, other in zip(alone, together, strict=True):
            assert np.array_equal(one, other)


def test_inputs_may_be_any_view(paper):
    _, engine = paper
    x = random_features(60, 11)
    wide = np.zeros((60, 30))
    wide[:, 5:16] = x
    assert np.array_equal(engine([wide[:, 5:16]])[0], engine([x])[0])
    assert np.array_equal(engine([x.copy(order="F")])[0], engine([x])[0])


@pytest.mark.parametrize("name", ["paper", "pre"])
@pytest.mark.parametrize("scale", [1e4, 1e15, 1e30, 3e38])
def test_extreme_inputs_give_weights_in_range(name, scale):
    network = random_network(CONFIGS[name])
    engine = NumbaEngine(network.config, numbers(network))
    signs = np.sign(random_features(300, network.config.inputs))
    (found,) = engine([(signs * np.float32(scale)).astype(np.float32)])
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 1


def test_sharp_attention_and_large_logits_stay_accurate():
    network = random_network(PRESETS["paper"], sharpness=100, spread=30)
    x = random_features(400, 11)
    by_torch = reference(network, x)
    exact = reference(network.double(), x.astype(np.float64))
    (found,) = NumbaEngine(network.config, numbers(network.float()))([x])
    assert np.isfinite(found).all()
    assert exact.min() < 1e-9
    assert exact.max() > 1 - 1e-9
    # Scores of several hundred magnify rounding, torch's as well.
    assert np.abs(found - exact).mean() < 2 * np.abs(by_torch - exact).mean() + 1e-6


def test_numbers_that_do_not_fit_are_refused_by_name(paper):
    network, _ = paper
    right = numbers(network)
    cases = [
        ({"decode.bias": np.zeros(2)}, r"decode\.bias has shape \(2,\) instead of \(1,\)"),
        ({"layers.2.feed.bias": np.full(64, np.nan)}, r"layers\.2\.feed\.bias holds numbers"),
        ({"more": np.zeros(1)}, "more is not part of the network"),
    ]
    for change, message in cases:
        with pytest.raises(ValueError, match=message):
            NumbaEngine(network.config, right | change)
    for name in ("embed.weight", "layers.4.attention_norm.weight"):
        fewer = {key: value for key, value in right.items() if key != name}
        with pytest.raises(ValueError, match=f"{name} is missing"):
            NumbaEngine(network.config, fewer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "both"}, "norm must be 'pre' or 'post', not 'both'"),
        ({"heads": 0}, "at least 1"),
        ({"heads": 3}, "multiple of heads"),
        ({"groups": 13}, "groups must be between 1 and layers"),
        ({"band": -1}, "band must not be negative"),
    ],
)
def test_shapes_that_make_no_network_are_refused(paper, change, message):
    network, _ = paper
    config = SimpleNamespace(**(vars(network.config) | change))
    with pytest.raises(ValueError, match=message):
        NumbaEngine(config, numbers(network))


MACHINES = {"AVX2": {"sse2": True, "avx2": True}, "SSE": {"sse2": True}, "NEON": {}}
ELSEWHERE = """
import sys, numpy as np
sys.modules["torch"] = None  # importing it fails
import llvmlite.binding, numba.core.codegen
machine = llvmlite.binding.get_host_cpu_features
if len(sys.argv) > 3:
    llvmlite.binding.get_host_cpu_features = lambda: eval(sys.argv[3])
import puma_coffea.puma.vectors
llvmlite.binding.get_host_cpu_features = machine
from types import SimpleNamespace
from puma_coffea.puma.fast import NumbaEngine
given = np.load(sys.argv[1], allow_pickle=False)
config = SimpleNamespace(width=24, heads=2, layers=2, groups=2, band=6, feed_forward=20,
                         norm="pre", norm_eps=1e-5)
tensors = {name: given[name] for name in given.files if name != "x"}
np.save(sys.argv[2], NumbaEngine(config, tensors)([given["x"]])[0])
"""


@pytest.mark.parametrize("features", [None, *MACHINES.values()], ids=["this", *MACHINES])
def test_without_torch_and_with_vectors_of_any_length(features, tmp_path):
    config = NetworkConfig(
        inputs=6, width=24, heads=2, layers=2, groups=2, band=6, feed_forward=20, norm="pre"
    )
    network = random_network(config)
    x = random_features(130, 6)
    np.savez(tmp_path / "given.npz", x=x, **numbers(network))
    arguments = [str(tmp_path / "given.npz"), str(tmp_path / "found.npy")]
    environment = dict(os.environ)
    if features is not None:
        arguments.append(repr(features))
        # Kernels for another machine must not be cached as those of this one.
        environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
    subprocess.run([sys.executable, "-c", ELSEWHERE, *arguments], check=True, env=environment)
    found = np.load(tmp_path / "found.npy")
    np.testing.assert_allclose(found, reference(network, x), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["paper", "pre", "odd"])
@pytest.mark.parametrize("silent", ["all", "first"])
def test_attention_that_says_nothing_is_left_out(name, silent):
    network = random_network(CONFIGS[name])
    chosen = list(network.layers) if silent == "all" else [network.layers[0]]
    with torch.no_grad():
        for layer in chosen:
            layer.attention_out.weight.zero_()
            layer.attention_out.bias.zero_()
    engine = NumbaEngine(network.config, numbers(network))
    assert engine.attends.sum() == network.config.groups - len(chosen)
    x = random_features(300, network.config.inputs)
    with torch.no_grad():
        expected = network(torch.from_numpy(x)[None])[0].numpy()
    np.testing.assert_allclose(engine([x])[0], expected, atol=1e-5)

"""The network (preset ``paper``) against the time of its matrix products alone, on one core.

Every formulation computes whole events of the sample, in turns, so that a clock that changes
changes all of them; ratios are those of the best turns. Longformer needs ``transformers`` and is
left out without it. Run it: python benchmarks/network.py [--json FILE]
"""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import json
import platform
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numba import njit
from torch import nn
from torch.nn import functional

import puma_coffea.puma.network as network_module
from puma_coffea import candidates, open_events, sample_path
from puma_coffea.flat import flatten
from puma_coffea.puma import fast
from puma_coffea.puma.card import Card, Network
from puma_coffea.puma.fast_vectors import LANES, TILES, gelu, normalise
from puma_coffea.puma.features import PAPER
from puma_coffea.puma.inputs import prepare
from puma_coffea.puma.network import PRESETS, PumaNetwork

try:
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerLayer
except ImportError:
    LongformerLayer = None

CONFIG = PRESETS["paper"]
TURNS = 7
PARTS = ("qkv", "attention", "after", "gelu", "norms")
DENSE = 2080  # candidates for dense attention: its time grows with their square


def one_event():
    """Features of the event of the sample whose length is nearest to 8320 candidates."""
    pf = candidates(open_events(sample_path("ttbar_pu140")))
    shape = {key: getattr(CONFIG, key) for key in Network.model_fields}
    card = Card(name="paper", description="", inputs=PAPER, network=Network(**shape))
    inputs = prepare(flatten(pf)[2], card)
    lengths = np.diff(inputs.offsets)
    return inputs.event(int(np.argmin(np.abs(lengths - 8320))))[1]


def random_network():
    """Untrained, with the spread of a trained one in its normalisations."""
    torch.manual_seed(1)
    network = PumaNetwork(CONFIG)
    with torch.no_grad():
        for module in (network.input_norm, network.embed_norm):
            module.running_var.uniform_(0.5, 4)
    return network.eval()


def matrix_products(length):
    """The products of the layers in numpy, and nothing else."""
    rng = np.random.default_rng(0)
    width, feed = CONFIG.width, CONFIG.feed_forward
    x, y = (rng.normal(size=(length, n)).astype(np.float32) for n in (width, feed))
    shapes = [(width, 3 * width), (width, width), (width, feed), (feed, width)]
    weights = [rng.normal(size=shape).astype(np.float32) for shape in shapes]

    def run():
        for _ in range(CONFIG.layers):
            for source, weight in zip((x, x, x, y), weights, strict=True):
                source @ weight

    return run


def with_attention(network, attention, x):
    """The torch network with another attention; it learns how many places are no padding."""
    features = torch.from_numpy(x)[None]

    def run():
        original = network_module.banded_attention
        network_module.banded_attention = partial(attention, len(x))
        try:
            with torch.inference_mode():
                return network(features)[0].numpy()
        finally:
            network_module.banded_attention = original

    return run


def by_head(qkv, heads):
    """Queries, keys and values of (1, N, 3 D) as (1, H, N, d) each."""
    length, width = qkv.shape[1], qkv.shape[2] // 3
    return qkv.reshape(1, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)


def dense_attention(length, qkv, _bias, heads, band):
    """All pairs, those outside the band masked."""
    q, k, v = by_head(qkv, heads)
    place = torch.arange(qkv.shape[1])
    seen = ((place[:, None] - place).abs() <= band) & (place < length) | (place[:, None] == place)
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return mixed.transpose(1, 2).reshape(1, qkv.shape[1], -1)


def blocked_attention(length, qkv, _bias, heads, band, block=32):
    """Query blocks with three key blocks each, and torch's attention with the band as a mask."""
    padded = qkv.shape[1]
    qkv = functional.pad(qkv, [0, 0, block, block + -padded % block])
    q, k, v = by_head(qkv, heads)
    k, v = (each.unfold(2, 3 * block, block).transpose(3, 4) for each in (k, v))
    q = q[:, :, block:-block].unflatten(2, (-1, block))
    query = torch.arange(block)[:, None] + block
    key = torch.arange(3 * block)
    first = torch.arange(q.shape[2])[:, None, None] * block - block
    inside = (first + key >= 0) & (first + key < length)
    # Places behind the last would see nothing, which torch answers with NaN; they see themselves.
    seen = (inside & ((key - query).abs() <= band)) | (key == query)
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return mixed.flatten(2, 3).transpose(1, 2).flatten(2)[:, :padded]


def longformer(length):
    """A stack of Hugging Face layers of the same size, or None."""
    if LongformerLayer is None:
        return None
    window = 2 * CONFIG.band
    config = LongformerConfig(
        hidden_size=CONFIG.width,
        num_attention_heads=CONFIG.heads,
        intermediate_size=CONFIG.feed_forward,
        num_hidden_layers=CONFIG.layers,
        attention_window=[window] * CONFIG.layers,
        hidden_act="gelu_new",
    )
    layers = nn.ModuleList(LongformerLayer(config, i) for i in range(CONFIG.layers)).eval()
    h = torch.randn(1, length + -length % window, CONFIG.width)
    masked = torch.arange(h.shape[1])[None] >= length
    flags = {"is_index_masked": masked, "is_index_global_attn": torch.zeros_like(masked)}

    @torch.inference_mode()
    def run():
        x = h
        for layer in layers:
            x = layer(x, masked * -1e4, is_global_attn=False, **flags)[0]

    return run


@njit
def part(which, layers, shape, p, steps, state, hidden, tiles, mixed, feed, window, shares):
    """One part of all layers by itself, as often as the whole network does it."""
    tile = shape.rows * LANES
    for _ in range(layers):
        for step in range(steps):
            if which == 0:
                fast.next_keys(shape, p, 0, step, state, tiles, window)
            for place in range(0, fast.STEP, fast.GROUP):
                here = (step * fast.STEP + place) * shape.rows
                if which == 1:
                    fast.attention(shape, place, step, window, hidden, shares, mixed)
                elif which == 2:
                    at = step * fast.STEP + place
                    fast.after_attention(shape, p, 0, at, state, tiles, mixed, feed)
                elif which == 3:
                    gelu(feed, TILES * shape.feed_rows)
                elif which == 4:
                    for _ in range(2):
                        normalise(state, here, tile, shape.width, p.eps, p.feed_norm[0], 0,
                                  state, here)  # fmt: skip


def engine_parts(engine, length):
    """Functions that run the parts of the engine alone, by number (see :func:`part`)."""
    shape, rng = engine.shape, np.random.default_rng(0)
    steps = -(-(length + shape.reach) // fast.STEP)
    places = shape.reach + steps * fast.STEP
    sizes = (places * shape.rows, places + shape.reach, *engine.scratch_sizes())
    arrays = [rng.normal(size=size).astype(np.float32) for size in sizes]
    arguments = (CONFIG.layers, shape, engine.parameters, steps, *arrays)
    return [lambda i=i: part(i, *arguments) for i in range(5)]


def best_times(functions, turns):
    """Seconds of each function, the best of several turns in which all of them run once."""
    times = {name: [] for name in functions}
    for function in functions.values():
        function()  # compiles, warms up
    for _ in range(turns):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: min(each) for name, each in times.items()}


def formulations(x):
    """What is compared, by name: functions that compute one event."""
    network = random_network()
    tensors = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    engine = fast.NumbaEngine(CONFIG, tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        script = torch.jit.script(network)
    features = torch.from_numpy(x)[None]

    @torch.inference_mode()
    def eager():
        return network(features)[0].numpy()

    @torch.inference_mode()
    def scripted():
        return script(features)[0].numpy()

    found = {
        "matrix products alone": matrix_products(len(x)),
        "this package": lambda: engine([x])[0],
        "torch, eager": eager,
        "torch, TorchScript": scripted,
        "torch, blocked SDPA with a mask": with_attention(network, blocked_attention, x),
        "dense": with_attention(network, dense_attention, x[:DENSE]),
    }
    stack = longformer(len(x))
    if stack is not None:
        found["Longformer layers (transformers)"] = stack
    expected = found["torch, eager"]()
    for name in ("this package", "torch, TorchScript", "torch, blocked SDPA with a mask"):
        np.testing.assert_allclose(found[name](), expected, atol=1e-5, rtol=0, err_msg=name)
    parts = engine_parts(engine, len(x))
    for name, run in zip(PARTS, parts, strict=True):
        found[f"part {name}"] = run
    return found


def measure(turns=TURNS):
    """Table of seconds per event and of ratios to the matrix products."""
    torch.set_num_threads(1)
    x = one_event()
    seconds = best_times(formulations(x), turns)
    # The dense formulation ran on a piece of the event; almost all of it grows with the square.
    dense = seconds.pop("dense") * (len(x) / DENSE) ** 2
    seconds[f"torch, dense with a mask (from {DENSE} candidates)"] = dense
    alone = {name: seconds.pop(f"part {name}") for name in PARTS}
    products = alone["qkv"] + alone["after"] - alone["gelu"] - alone["norms"]
    seconds["  of this package: its products"] = products
    seconds["  of this package: attention"] = alone["attention"]
    seconds["  of this package: GELU"] = alone["gelu"]
    seconds["  of this package: LayerNorm"] = alone["norms"]
    unit = seconds["matrix products alone"]
    rows = {name: {"ms": 1e3 * s, "ratio": s / unit} for name, s in seconds.items()}
    machine = platform.processor() or platform.machine()
    return {"candidates": len(x), "threads": 1, "machine": machine, "lanes": LANES, "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--turns", type=int, default=TURNS)
    options = parser.parse_args()
    result = measure(options.turns)
    print(
        f"one event of {result['candidates']} candidates, one thread, {result['machine']}, "
        f"vectors of {result['lanes']} numbers"
    )
    for name, row in result["rows"].items():
        print(f"{name:55s} {row['ms']:9.1f} ms  {row['ratio']:6.2f}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")

"""The same network computed by others: torch in several ways, Longformer, onnxruntime."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from puma_coffea.benchmarks.events import NETWORK, random_tensors
from puma_coffea.puma import network as network_module
from puma_coffea.puma.fast import NumbaEngine
from puma_coffea.puma.network import NetworkConfig, PumaNetwork

DENSE = 2080  # candidates for dense attention: its time and memory grow with their square


class Peer(NamedTuple):
    """A function that computes the event, and a factor on its time."""

    run: Callable[[], Any]
    scale: float = 1.0


def network(x: Any) -> PumaNetwork:
    """The network of :func:`random_tensors` in torch."""
    config = NetworkConfig(inputs=x.shape[1], **NETWORK.model_dump())
    made = PumaNetwork(config)
    made.load_state_dict({name: torch.from_numpy(t) for name, t in random_tensors().items()})
    return made.eval()


def checked(run: Callable[[], Any], x: Any) -> Peer:
    """The function, after checking that it gives this package's weights."""
    expected = NumbaEngine(NETWORK, random_tensors())([x])[0]
    np.testing.assert_allclose(np.asarray(run()).reshape(-1), expected, atol=1e-5, rtol=0)
    return Peer(run)


def without_gradient(module: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    """One call of a module on an event."""
    features = torch.from_numpy(x)[None]

    @torch.inference_mode()
    def run() -> Any:
        return module(features)[0].numpy()

    return run


def eager(x: Any) -> Peer:
    """torch as it is written in ``network.py``."""
    return checked(without_gradient(network(x), x), x)


def script(x: Any) -> Peer:
    """``model.pt`` of a model folder."""
    with quiet():
        scripted = torch.jit.script(network(x))
    return checked(without_gradient(scripted, x), x)


def compiled(x: Any) -> Peer:
    """torch.compile for this very length, which is the best case for it."""
    module = torch.compile(network(x), dynamic=False)

    def run() -> Any:
        with torch.no_grad():
            return module(torch.from_numpy(x)[None])[0].numpy()

    with quiet():
        return checked(run, x)


def ahead_of_time(x: Any) -> Peer:
    """AOTInductor: the same compiler, run beforehand."""
    features = torch.from_numpy(x)[None]
    with quiet(), torch.no_grad(), TemporaryDirectory() as folder:
        exported = torch.export.export(network(x), (features,))
        path = str(Path(folder) / "network.pt2")
        torch._inductor.aoti_compile_and_package(exported, package_path=path)
        loaded = torch._inductor.aoti_load_package(path)

    def run() -> Any:
        return loaded(features)[0].numpy()

    return checked(run, x)


def onnx(x: Any) -> Peer:
    """onnxruntime on one thread."""
    import onnxruntime

    with quiet(), TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.onnx")
        torch.onnx.export(
            network(x), (torch.from_numpy(x)[None],), path, dynamo=True, verbose=False
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return checked(lambda: session.run(None, {name: x[None]})[0], x)


def blocked(x: Any) -> Peer:
    """Query blocks with three key blocks each, the band as a mask."""
    return checked(_with_attention(network(x), _blocked_attention, x), x)


def dense(x: Any) -> Peer:
    """All pairs, those outside of the band masked, on a piece of the event."""
    piece = x[:DENSE]
    run = checked(_with_attention(network(x), _dense_attention, piece), piece).run
    return Peer(run, (len(x) / len(piece)) ** 2)


def longformer(x: Any) -> Peer:
    """A stack of Hugging Face layers of the same size; no embedding, other numbers."""
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerLayer

    window, length = 2 * NETWORK.band, len(x)
    config = LongformerConfig(
        hidden_size=NETWORK.width,
        num_attention_heads=NETWORK.heads,
        intermediate_size=NETWORK.feed_forward,
        num_hidden_layers=NETWORK.layers,
        attention_window=[window] * NETWORK.layers,
        hidden_act="gelu_new",
    )
    layers = nn.ModuleList(LongformerLayer(config, i) for i in range(NETWORK.layers)).eval()
    start = torch.randn(1, length + -length % window, NETWORK.width)
    masked = torch.arange(start.shape[1])[None] >= length
    flags = {"is_index_masked": masked, "is_index_global_attn": torch.zeros_like(masked)}

    @torch.inference_mode()
    def run() -> None:
        h = start
        for layer in layers:
            h = layer(h, masked * -1e4, is_global_attn=False, **flags)[0]

    run()
    return Peer(run)


@contextmanager
def quiet() -> Any:
    """Without the compilers' warnings."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _with_attention(module: PumaNetwork, attention: Callable[..., Any], x: Any) -> Any:
    """The network with another attention, which learns how many places are no padding."""
    features = torch.from_numpy(x)[None]

    @torch.inference_mode()
    def run() -> Any:
        original = network_module.banded_attention
        network_module.banded_attention = partial(attention, len(x))
        try:
            return module(features)[0].numpy()
        finally:
            network_module.banded_attention = original

    return run


def _by_head(qkv: Any, heads: int) -> Any:
    """Queries, keys and values of (1, N, 3 D) as (1, H, N, d) each."""
    length, width = qkv.shape[1], qkv.shape[2] // 3
    return qkv.reshape(1, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)


def _dense_attention(length: int, qkv: Any, _bias: Any, heads: int, band: int) -> Any:
    q, k, v = _by_head(qkv, heads)
    place = torch.arange(qkv.shape[1])
    seen = ((place[:, None] - place).abs() <= band) & (place < length) | (place[:, None] == place)
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return mixed.transpose(1, 2).reshape(1, qkv.shape[1], -1)


def _blocked_attention(
    length: int, qkv: Any, _bias: Any, heads: int, band: int, block: int = 32
) -> Any:
    padded = qkv.shape[1]
    qkv = functional.pad(qkv, [0, 0, block, block + -padded % block])
    q, k, v = _by_head(qkv, heads)
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

"""A training step on one core, as the presets have it: the step by parts, and against torch.

"Straightforward" is eager torch with blocks of 32 queries, three blocks of keys each, and
``scaled_dot_product_attention`` with the band as a mask. Needs torch.

Run it: python -m puma_coffea.benchmarks.training_step
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from puma_coffea.benchmarks.rows import Row
from puma_coffea.benchmarks.timing import best_times

TITLE = "Training step, 16 crops of 512 tokens"
CROPS, CROP = 16, 512
THIS = "this package"


def measure(quick: bool) -> list[Row]:
    """Times of a step and of its parts, for both presets."""
    try:
        import torch
    except ImportError:
        return [Row("training step", missing="pip install torch")]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = []
    for preset in ("default", "paper"):
        turns = 1 if quick else 9
        rows += [_named(preset, row) for row in [*_steps(preset, turns), *_parts(preset, turns)]]
    torch.set_num_threads(threads)
    return rows


def _named(preset: str, row: Row) -> Row:
    return Row(f"{preset}: {row.name}", row.value, row.unit, row.ratio, row.against)


def _network(preset: str) -> Any:
    """The network of a preset, as the training has it: batch norms stand still."""
    import torch

    from puma_coffea.puma.network import MaskedBatchNorm, NetworkConfig, PumaNetwork
    from puma_coffea.training.config import make_config

    config = make_config({"name": "x", "data": {"files": ["x"]}}, preset)
    torch.manual_seed(1)
    shape = NetworkConfig(inputs=len(config.inputs), **config.network.model_dump())
    network = PumaNetwork(shape).train()
    for module in network.modules():
        if isinstance(module, MaskedBatchNorm):
            module.eval()
    return network


def _batch(inputs: int) -> Any:
    import torch

    from puma_coffea.training.batches import Batch

    mask = torch.ones(CROPS, CROP, dtype=torch.bool)
    target = torch.rand(CROPS, CROP)
    return Batch(torch.randn(CROPS, CROP, inputs), mask, target, torch.ones(CROPS, CROP))


def _steps(preset: str, turns: int) -> list[Row]:
    """Whole steps: forward, backward, clipping, AdamW."""
    import torch
    from torch.nn import functional

    from puma_coffea.training.logits import logits

    network = _network(preset)
    batch = _batch(network.config.inputs)
    optimiser = torch.optim.AdamW(network.parameters(), 1e-4, fused=True)

    def step(compute: Callable[[], Any]) -> None:
        optimiser.zero_grad(set_to_none=True)
        functional.binary_cross_entropy_with_logits(compute(), batch.target).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()

    def straightforward() -> Any:
        with _attention(_blocked_attention):
            return network.logits(batch.x, batch.mask)

    ways: dict[str, Callable[[], Any]] = {
        THIS: lambda: logits(network, batch),
        "this package, products in bfloat16": lambda: logits(network, batch, half=True),
        "torch, the network's own formulation": lambda: network.logits(batch.x, batch.mask),
        "torch, straightforward": straightforward,
        "first phase, this package": lambda: logits(network, batch, alone=True),
    }
    times = best_times({name: partial(step, way) for name, way in ways.items()}, turns)
    rows = [Row(name, 1e3 * s, "ms", s / times[THIS], THIS) for name, s in times.items()]
    return [*rows, Row("crops per second", CROPS / times[THIS], "Hz")]


def _parts(preset: str, turns: int) -> list[Row]:
    """Parts of a step by themselves with their derivatives, as often as the network has them."""
    import torch
    from torch.nn import functional

    from puma_coffea.puma import network as own
    from puma_coffea.training import attention, pointwise

    network = _network(preset)
    shape, layer = network.config, network.layers[0]
    mask = torch.ones(CROPS, CROP, dtype=torch.bool)
    bias = own.band_bias(mask, shape.band, torch.float32)
    wide, h = (torch.randn(CROPS, CROP, n) for n in (shape.feed_forward, shape.width))
    qkv = torch.randn(CROPS, CROP, 3 * shape.width)
    norm, drop = layer.feed_norm, shape.dropout
    linear = (layer.query_key_value, layer.attention_out, layer.feed)

    def in_torch(h: Any) -> Any:
        return norm(h + functional.dropout(h, drop))

    cases: dict[str, tuple[Any, Any, int]] = {
        **{f"linear {i}": (each, h, 1) for i, each in enumerate(linear)},
        "linear 3": (layer.feed_out, wide, 1),
        "attention": (
            lambda x: attention.banded_attention(x, mask, shape.heads, shape.band), qkv, 1,
        ),
        "GELU": (pointwise.gelu, wide, 1),
        "dropout, residual, LayerNorm": (
            lambda x: pointwise.add_norm(x, x, norm, drop)[1], h, 2,
        ),
        "attention in torch": (
            lambda x: own.banded_attention(x, bias, shape.heads, shape.band), qkv, 1,
        ),
        "GELU in torch": (lambda x: functional.gelu(x, approximate="tanh"), wide, 1),
        "dropout, residual, LayerNorm in torch": (in_torch, h, 2),
    }  # fmt: skip
    runs = {name: _with_derivative(function, x) for name, (function, x, _) in cases.items()}
    times = best_times(runs, turns)
    spent = {name: times[name] * shape.layers * cases[name][2] for name in cases}
    products = sum(spent.pop(name) for name in list(spent) if name.startswith("linear"))
    rows = {"linear layers": products, **spent, **_optimiser(network, turns)}
    return [Row(f"  {name}", 1e3 * seconds, "ms") for name, seconds in rows.items()]


def _with_derivative(function: Callable[[Any], Any], x: Any) -> Callable[[], None]:
    import torch

    x = x.clone().requires_grad_()
    above = torch.randn_like(function(x))

    def run() -> None:
        x.grad = None
        function(x).backward(above)

    return run


def _optimiser(network: Any, turns: int) -> dict[str, float]:
    """AdamW in two ways, clipping, and the running average of the parameters."""
    import torch

    parameters = list(network.parameters())
    average = [p.detach().clone() for p in parameters]
    for each in parameters:
        each.grad = torch.randn_like(each)
    detached = [p.detach() for p in parameters]
    ways: dict[str, Callable[[], Any]] = {
        "AdamW, fused": torch.optim.AdamW(parameters, 1e-4, fused=True).step,
        "AdamW, foreach": torch.optim.AdamW(parameters, 1e-4, foreach=True).step,
        "clipping": lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0),
        "averaging": lambda: torch._foreach_lerp_(average, detached, 0.001),
    }
    found: dict[str, float] = best_times(ways, turns)
    return found


@contextmanager
def _attention(function: Callable[..., Any]) -> Iterator[None]:
    """The network with another attention."""
    from puma_coffea.puma import network

    original = network.banded_attention
    network.banded_attention = function
    try:
        yield
    finally:
        network.banded_attention = original


def _blocked_attention(qkv: Any, _bias: Any, heads: int, band: int, block: int = 32) -> Any:
    import torch
    from torch.nn import functional

    batch, padded, width = qkv.shape
    apart = functional.pad(qkv, [0, 0, block, block + -padded % block])
    apart = apart.reshape(batch, -1, 3, heads, width // 3 // heads).permute(2, 0, 3, 1, 4)
    q, k, v = apart.unbind(0)
    k, v = (each.unfold(2, 3 * block, block).transpose(3, 4) for each in (k, v))
    q = q[:, :, block:-block].unflatten(2, (-1, block))
    query, key = torch.arange(block)[:, None] + block, torch.arange(3 * block)
    first = torch.arange(q.shape[2])[:, None, None] * block - block
    inside = (first + key >= 0) & (first + key < CROP)
    # Places behind the last would see nothing, which torch answers with NaN; they see themselves.
    seen = (inside & ((key - query).abs() <= band)) | (key == query)
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return mixed.flatten(2, 3).transpose(1, 2).flatten(2)[:, :padded]


if __name__ == "__main__":
    from rich.console import Console
    from rich.table import Table

    table = Table("", "ms", "ratio", title=TITLE)
    for each in measure(quick=False):
        table.add_row(each.name, f"{each.value:.2f}", f"{each.ratio:.2f}" if each.ratio else "")
    Console().print(table)

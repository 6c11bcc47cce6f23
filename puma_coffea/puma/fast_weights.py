"""A network's numbers for :mod:`puma_coffea.puma.fast`: checked, and packed as its kernels read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from puma_coffea.puma.vectors import ROWS


class NetworkShape(Protocol):
    """What decides the shapes: ``NetworkConfig`` and the card's ``Network`` both have it."""

    @property
    def width(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def band(self) -> int: ...
    @property
    def feed_forward(self) -> int: ...
    @property
    def norm(self) -> str: ...
    @property
    def norm_eps(self) -> float: ...


class Parameters(NamedTuple):
    """The network's numbers, packed; those of layers are (groups, ...)."""

    input_norm: Any
    """Scales of the inputs, then offsets."""
    embed: Any
    embed_norm: Any
    query_key_value: Any
    attention_out: Any
    feed: Any
    feed_out: Any
    attention_norm: Any
    feed_norm: Any
    final_norm: Any
    decode: Any
    eps: Any


def check(
    config: NetworkShape, tensors: Mapping[str, NDArray[Any]], inputs: int | None = None
) -> None:
    """Refuse numbers that are not those of a network of this shape, and of ``inputs`` if given."""
    sizes = (config.width, config.heads, config.feed_forward)
    problems = [
        (config.norm not in ("pre", "post"), f"norm must be 'pre' or 'post', not {config.norm!r}"),
        (min(sizes) < 1, "width, heads and feed_forward must be at least 1"),
        (config.width % max(config.heads, 1) != 0, "width must be a multiple of heads"),
        (not 1 <= config.groups <= config.layers, "groups must be between 1 and layers"),
        (config.band < 0, "band must not be negative"),
        ("embed.weight" not in tensors, "embed.weight is missing"),
    ]
    for wrong, sentence in problems:
        if wrong:
            raise ValueError(sentence)
    expected = tensor_shapes(config, inputs or tensors["embed.weight"].shape[-1])
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in expected or name not in tensors:
            msg = f"{name} is {'missing' if name in expected else 'not part of the network'}"
            raise ValueError(msg)
        if tensors[name].shape != expected[name]:
            msg = f"{name} has shape {tensors[name].shape} instead of {expected[name]}"
            raise ValueError(msg)
        if not np.isfinite(tensors[name]).all():
            msg = f"{name} holds numbers that are not finite"
            raise ValueError(msg)


def tensor_shapes(config: NetworkShape, inputs: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all numbers of a network."""
    width, feed = config.width, config.feed_forward
    shapes: dict[str, tuple[int, ...]] = {}
    linear = {"embed": (width, inputs), "decode": (1, width)}
    norms = ["final_norm"] if config.norm == "pre" else []
    for g in range(config.groups):
        layer = f"layers.{g}"
        norms += [f"{layer}.attention_norm", f"{layer}.feed_norm"]
        linear[f"{layer}.query_key_value"] = (3 * width, width)
        linear[f"{layer}.attention_out"] = (width, width)
        linear[f"{layer}.feed"] = (feed, width)
        linear[f"{layer}.feed_out"] = (width, feed)
    for name, (rows, columns) in linear.items():
        shapes |= {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}
    for name in norms:
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    for name, size in (("input_norm", inputs), ("embed_norm", width)):
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.{part}"] = (size,)
        shapes[f"{name}.num_batches_tracked"] = ()
    return shapes


def pack(config: NetworkShape, tensors: Mapping[str, NDArray[Any]]) -> Parameters:
    """The numbers in the order in which the kernels read them."""
    numbers = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    # Scores come as logarithms to base 2, ready for the exponential.
    query = (config.width / config.heads) ** -0.5 / np.log(2)
    scale = np.repeat([query, 1, 1], config.width)

    def linear(name: str, factor: Any = 1.0) -> NDArray[np.float32]:
        weight, bias = numbers[f"{name}.weight"], numbers[f"{name}.bias"]
        return pack_linear((weight.T * factor).T, bias * factor)

    def affine(name: str) -> NDArray[np.float32]:
        return np.concatenate([numbers[f"{name}.weight"], numbers[f"{name}.bias"]]).astype("f4")

    def batch_norm(name: str) -> NDArray[np.float32]:
        eps = 1e-5  # of torch's BatchNorm
        factor = numbers[f"{name}.weight"] / np.sqrt(numbers[f"{name}.running_var"] + eps)
        offset = numbers[f"{name}.bias"] - numbers[f"{name}.running_mean"] * factor
        return np.concatenate([factor, offset]).astype("f4")

    layers = [f"layers.{g}" for g in range(config.groups)]
    decoder = np.append(numbers["decode.weight"][0], numbers["decode.bias"]).astype("f4")
    return Parameters(
        input_norm=batch_norm("input_norm"),
        embed=linear("embed"),
        embed_norm=batch_norm("embed_norm"),
        query_key_value=np.stack([linear(f"{g}.query_key_value", scale) for g in layers]),
        attention_out=np.stack([linear(f"{g}.attention_out") for g in layers]),
        feed=np.stack([linear(f"{g}.feed") for g in layers]),
        feed_out=np.stack([linear(f"{g}.feed_out") for g in layers]),
        attention_norm=np.stack([affine(f"{g}.attention_norm") for g in layers]),
        feed_norm=np.stack([affine(f"{g}.feed_norm") for g in layers]),
        final_norm=affine("final_norm") if config.norm == "pre" else np.zeros(0, dtype="f4"),
        decode=decoder,
        eps=np.array([config.norm_eps], dtype="f4"),
    )


def pack_linear(weight: NDArray[Any], bias: NDArray[Any]) -> NDArray[np.float32]:
    """Blocks of ROWS outputs, zeros at the end: their biases, then their weights by input."""
    outputs, inputs = weight.shape
    packed = np.zeros((round_up(outputs, ROWS), 1 + inputs), dtype=np.float32)
    packed[:outputs, 0], packed[:outputs, 1:] = bias, weight
    return packed.reshape(-1, ROWS, 1 + inputs).transpose(0, 2, 1).reshape(-1)


def round_up(number: int, multiple: int) -> int:
    """The next multiple.

    >>> round_up(15, 16)
    16
    """
    return -(-number // multiple) * multiple

"""What a training step does between its matrix products, each in one pass over memory, on a CPU.

GELU, and the end of a part of a layer: dropout, residual, LayerNorm. Derivatives are written by
hand. Dropout draws from a hash of the number's place and two seeds, which come from torch's
generator: nothing has to be kept for the derivative, and a resumed training draws the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from puma_coffea.kernels import kernel
from puma_coffea.puma.vectors import LANES, Vectors, vectorised
from puma_coffea.training.tensor_calls import flat, spread

ROUNDS = ((16, 0x7FEB352D), (15, 0x846CA68B))  # shifts and factors of a 32-bit hash, "lowbias32"


def gelu(x: Tensor) -> Tensor:
    """GELU, tanh form, of a tensor of float32 or bfloat16."""
    if x.numel() % LANES:
        x = x.float()  # the last numbers one by one
    out: Tensor = Gelu.apply(x)  # type: ignore[no-untyped-call]
    return out


def add_norm(
    h: Tensor, x: Tensor, norm: nn.LayerNorm, dropout: float, kind: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Sum of h and x after dropout, and its LayerNorm.

    Parameters
    ----------
    h, x
        (B, N, D), float32 or for x also bfloat16.
    norm
        Over the D features.
    dropout
        Probability; 0 for none.
    kind
        Of the LayerNorm's result, float32 or bfloat16; the sum is float32.
    """
    if h.shape[-1] % LANES:
        total = h + functional.dropout(x, dropout)
        return total, norm(total).to(kind)
    parameters = (norm.weight, norm.bias, norm.eps, dropout, kind)
    total, normal = AddNorm.apply(h, x, *parameters)  # type: ignore[no-untyped-call]
    return total, normal


class Gelu(torch.autograd.Function):
    """:func:`gelu` for autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        out, slope = torch.empty_like(x), torch.empty_like(x)
        arrays = [flat(each) for each in (x, out, slope)]
        spread(x.numel(), lambda _, first, last: gelu_kernel(first, last, *arrays), LANES)
        ctx.save_for_backward(slope)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        by_x: Tensor = gradients[0] * slope
        return by_x


class AddNorm(torch.autograd.Function):
    """:func:`add_norm` for autograd; D is a multiple of LANES."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        dropout: float,
        kind: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        h, x = h.contiguous(), x.contiguous()
        total, normal = torch.empty_like(h), torch.empty_like(h, dtype=kind)
        seeds = torch.randint(-(2**31), 2**31, (2,)) if dropout else torch.zeros(2)
        ctx.drop = np.array([*seeds.tolist(), _threshold(dropout)], dtype=np.int64)
        ctx.numbers = np.array([1 / (1 - dropout), eps], dtype=np.float32)
        arrays = [flat(each) for each in (h, x, weight, bias, total, normal)]
        width = len(weight)

        def part(_: int, first: int, last: int) -> None:
            forward(first, last, width, ctx.drop, ctx.numbers, *arrays)

        spread(h.numel() // width, part)
        ctx.kind = x.dtype
        ctx.save_for_backward(total, weight)
        ctx.set_materialize_grads(False)
        return total, normal

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        total, weight = ctx.saved_tensors
        by_total, by_normal = gradients
        if by_normal is None:
            msg = "the LayerNorm was not used"
            raise NotImplementedError(msg)
        width, drops = len(weight), ctx.drop[2] > -(2**31)
        by_total = torch.zeros(1) if by_total is None else by_total.contiguous()
        by_h = torch.empty_like(total)
        by_x = torch.empty_like(total, dtype=ctx.kind) if drops else by_h
        threads = torch.get_num_threads()
        by_parameters = torch.zeros(threads, 2 * width)
        given = (total, weight, by_normal.contiguous(), by_total, by_h, by_x)
        arrays = [flat(each) for each in given]

        def part(i: int, first: int, last: int) -> None:
            own = [by_parameters[i].numpy()]
            backward(first, last, width, ctx.drop, ctx.numbers, *arrays, *own)

        spread(total.numel() // width, part)
        by_weight, by_bias = by_parameters.sum(0).view(2, width).unbind()
        return by_h, by_x.to(ctx.kind), by_weight, by_bias, None, None, None


def _threshold(dropout: float) -> int:
    """Hashes below this, as signed 32-bit numbers, are dropped."""
    return round(dropout * 2**32) - 2**31


@kernel(nogil=True)
def gelu_kernel(first: int, last: int, x: Any, out: Any, slope: Any) -> None:
    """GELU and its derivative."""
    vectors = (last - first) // LANES
    gelu_vectors(x, first, out, slope, vectors)
    for i in range(first + vectors * LANES, last):
        square = x[i] * x[i]
        inner = np.float32(2 * np.sqrt(2 / np.pi)) * x[i]
        share = 1 / (1 + np.exp(-inner * (1 + np.float32(0.044715) * square)))
        out[i] = x[i] * share
        slope[i] = share + out[i] * (1 - share) * np.float32(2 * np.sqrt(2 / np.pi)) * (
            1 + np.float32(3 * 0.044715) * square
        )


@kernel(nogil=True)
def forward(
    first: int,
    last: int,
    width: int,
    drop: Any,
    numbers: Any,
    h: Any,
    x: Any,
    weight: Any,
    bias: Any,
    total: Any,
    normal: Any,
) -> None:
    """Rows from ``first`` to ``last``."""
    drops = drop[2] > -(2**31)
    for i in range(first, last):
        at = i * width
        if drops:
            add_dropped(h, x, at, drop, numbers, total, width // LANES)
        else:
            add(h, x, at, total, width // LANES)
        normalise(total, at, width, numbers, weight, bias, normal)


@kernel(nogil=True)
def backward(
    first: int,
    last: int,
    width: int,
    drop: Any,
    numbers: Any,
    total: Any,
    weight: Any,
    by_normal: Any,
    by_total: Any,
    by_h: Any,
    by_x: Any,
    by_parameters: Any,
) -> None:
    """Rows from ``first`` to ``last``."""
    drops, more = drop[2] > -(2**31), len(by_total) > 1
    for i in range(first, last):
        at = i * width
        normalise_slopes(total, at, width, numbers, weight, by_normal, by_h, by_parameters)
        if more:
            add(by_h, by_total, at, by_h, width // LANES)
        if drops:
            dropped(by_h, at, drop, numbers, by_x, width // LANES)


@vectorised
def gelu_vectors(v: Vectors, x: Any, x0: Any, out: Any, slope: Any, count: Any) -> None:
    """x s and s + x s (1 - s) u' with s = 1 / (1 + exp(-u)), u = c (x + 0.044715 x^3)."""
    c = 2 * np.sqrt(2 / np.pi)
    base = float(-c / np.log(2))
    with v.loop(count) as i:
        value = v.load(x, x0, (i, LANES))
        square = v.builder.fmul(value, value)
        power = v.power_of_two(
            v.builder.fmul(value, v.fma(square, v.splat(0.044715 * base), v.splat(base)))
        )
        share = v.builder.fdiv(v.splat(1.0), v.builder.fadd(power, v.splat(1.0)))
        result = v.builder.fmul(value, share)
        steep = v.fma(square, v.splat(float(3 * 0.044715 * c)), v.splat(float(c)))
        rest = v.builder.fmul(result, v.builder.fsub(v.splat(1.0), share))
        v.store(result, out, x0, (i, LANES))
        v.store(v.fma(rest, steep, share), slope, x0, (i, LANES))


@vectorised
def add(v: Vectors, a: Any, b: Any, at: Any, out: Any, count: Any) -> None:
    """a + b."""
    with v.loop(count) as i:
        place = v.index(at, (i, LANES))
        v.store(v.builder.fadd(v.load(a, place), v.load(b, place)), out, place)


def _kept(v: Vectors, place: Any, drop: Any, x: Any) -> Any:
    """x where the hash of its place says so, else 0."""
    first, second, least = (v.spread_int(drop, n) for n in range(3))
    number = v.builder.xor(v.count_from(place), first)
    for n, (shift, factor) in enumerate(ROUNDS):
        number = v.builder.xor(number, v.builder.lshr(number, v.splat_int(shift)))
        number = v.builder.mul(number, v.splat_int(factor))
        if n == 0:
            number = v.builder.add(number, second)
    number = v.builder.xor(number, v.builder.lshr(number, v.splat_int(16)))
    return v.builder.select(v.builder.icmp_signed(">=", number, least), x, v.splat(0.0))


@vectorised
def add_dropped(
    v: Vectors, h: Any, x: Any, at: Any, drop: Any, numbers: Any, out: Any, count: Any
) -> None:
    """h + dropout(x)."""
    factor = v.spread(numbers, 0)
    with v.loop(count) as i:
        place = v.index(at, (i, LANES))
        kept = _kept(v, place, drop, v.load(x, place))
        v.store(v.fma(kept, factor, v.load(h, place)), out, place)


@vectorised
def dropped(v: Vectors, x: Any, at: Any, drop: Any, numbers: Any, out: Any, count: Any) -> None:
    """dropout(x)."""
    factor = v.spread(numbers, 0)
    with v.loop(count) as i:
        place = v.index(at, (i, LANES))
        v.store(v.builder.fmul(_kept(v, place, drop, v.load(x, place)), factor), out, place)


def _centre(v: Vectors, x: Any, at: Any, width: Any, numbers: Any) -> tuple[Any, Any, Any, Any]:
    """Mean and inverse deviation of a row, 1 / width, and the row's number of vectors."""
    count = v.builder.udiv(width, v.index(LANES))
    inverse = v.builder.fdiv(v.number(1.0), v.to_float(width))
    total = v.variable(v.splat(0.0))
    with v.loop(count) as i:
        v.set(total, v.builder.fadd(v.get(total), v.load(x, at, (i, LANES))))
    mean = v.splat(v.builder.fmul(v.sum(v.get(total)), inverse))
    squares = v.variable(v.splat(0.0))
    with v.loop(count) as i:
        off = v.builder.fsub(v.load(x, at, (i, LANES)), mean)
        v.set(squares, v.fma(off, off, v.get(squares)))
    variance = v.builder.fmul(v.sum(v.get(squares)), inverse)
    deviation = v.root_number(v.builder.fadd(variance, v.load_number(numbers, 1)))
    return mean, v.splat(v.builder.fdiv(v.number(1.0), deviation)), v.splat(inverse), count


@vectorised
def normalise(
    v: Vectors, x: Any, at: Any, width: Any, numbers: Any, weight: Any, bias: Any, out: Any
) -> None:
    """LayerNorm of a row."""
    mean, scale, _, count = _centre(v, x, at, width, numbers)
    with v.loop(count) as i:
        off = v.builder.fmul(v.builder.fsub(v.load(x, at, (i, LANES)), mean), scale)
        result = v.fma(off, v.load(weight, (i, LANES)), v.load(bias, (i, LANES)))
        v.store(result, out, at, (i, LANES))


@vectorised
def normalise_slopes(
    v: Vectors,
    x: Any,
    at: Any,
    width: Any,
    numbers: Any,
    weight: Any,
    above: Any,
    out: Any,
    by_parameters: Any,
) -> None:
    """Derivatives of LayerNorm by a row; those by weight and bias are added up."""
    mean, scale, inverse, count = _centre(v, x, at, width, numbers)
    plain, along = v.variable(v.splat(0.0)), v.variable(v.splat(0.0))

    def pair(i: Any) -> tuple[Any, Any]:
        off = v.builder.fmul(v.builder.fsub(v.load(x, at, (i, LANES)), mean), scale)
        return off, v.load(above, at, (i, LANES))

    with v.loop(count) as i:
        off, given = pair(i)
        by_off = v.builder.fmul(given, v.load(weight, (i, LANES)))
        v.set(plain, v.builder.fadd(v.get(plain), by_off))
        v.set(along, v.fma(by_off, off, v.get(along)))
        slot = v.index((i, LANES))
        v.store(v.fma(given, off, v.load(by_parameters, slot)), by_parameters, slot)
        slot = v.index(width, (i, LANES))
        v.store(v.builder.fadd(given, v.load(by_parameters, slot)), by_parameters, slot)
    mean_plain = v.builder.fmul(v.splat(v.sum(v.get(plain))), inverse)
    mean_along = v.builder.fmul(v.splat(v.sum(v.get(along))), inverse)
    with v.loop(count) as i:
        off, given = pair(i)
        by_off = v.builder.fmul(given, v.load(weight, (i, LANES)))
        result = v.builder.fsub(v.builder.fsub(by_off, mean_plain), v.builder.fmul(off, mean_along))
        v.store(v.builder.fmul(result, scale), out, at, (i, LANES))

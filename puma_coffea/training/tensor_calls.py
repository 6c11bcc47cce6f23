"""How numba kernels are called with tensors of torch, on as many threads as torch uses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch
from torch import Tensor


def flat(tensor: Tensor) -> Any:
    """The numbers of a contiguous tensor; those of bfloat16 as int16, for ``Vectors.load``."""
    tensor = tensor.detach().view(-1)
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def spread(count: int, part: Callable[[int, int, int], None], unit: int = 1) -> None:
    """Call ``part(thread, first, last)`` for the parts of ``count`` things, and wait.

    Parameters
    ----------
    count
        Things to be worked on, each of them by one thread.
    part
        Must not hold Python's lock for long: a numba kernel with ``nogil``.
    unit
        Parts begin at multiples of this.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        part(0, 0, count)
        return
    whole = -(-count // unit)
    bounds = [min(unit * (whole * i // threads), count) for i in range(threads + 1)]
    list(_pool(threads).map(part, range(threads), bounds[:-1], bounds[1:]))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)

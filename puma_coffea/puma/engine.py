"""Running the network: event by event on a CPU, in packed batches on a GPU."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from puma_coffea.exceptions import BadConfig
from puma_coffea.opening import first_line
from puma_coffea.puma.network import PumaNetwork

logger = logging.getLogger(__name__)

# Tokens in a batch on a GPU, padding included: about 2 GB of activations at width 64.
BATCH_TOKENS = 200_000

# The CPU with torch, for comparison with the engine of this package that "cpu" means.
TORCH_CPU = "torch-cpu"


class TorchEngine:
    """A network on a device.

    On a CPU each event is computed by itself with one thread, so that a weight depends on
    nothing but its event, to the last bit; parallelism is a matter of processes. On a GPU events
    of similar length share a batch.
    """

    def __init__(self, network: PumaNetwork, device: str) -> None:
        self.device = torch.device("cpu" if device == TORCH_CPU else device)
        self.network = network.eval().to(self.device)
        if self.device.type == "cpu" and torch.get_num_threads() > 1:
            logger.info("PUMA runs on one thread; use several processes to use several cores")

    def __call__(self, events: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """Weights of the tokens of each event, from features of shape (tokens, inputs)."""
        if self.device.type == "cpu":
            with one_thread():
                return [self._alone(x) for x in events]
        return self.packed(events)

    def packed(self, events: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """The same in batches of events of similar length: equal to 1e-5."""
        results: list[Any] = [None] * len(events)
        for batch in pack([len(x) for x in events], BATCH_TOKENS):
            for i, weights in zip(batch, self._batch([events[i] for i in batch]), strict=True):
                results[i] = weights
        return results

    @torch.inference_mode()
    def _alone(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        if len(x) == 0:
            return np.zeros(0, dtype=np.float32)
        weights: NDArray[np.float32] = self.network(torch.from_numpy(x)[None])[0].numpy()
        return weights

    @torch.inference_mode()
    def _batch(self, events: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        lengths = torch.tensor([len(x) for x in events])
        longest = int(lengths.max())
        padded = torch.zeros(len(events), longest, events[0].shape[1])
        for row, x in zip(padded, events, strict=True):
            row[: len(x)] = torch.from_numpy(x)
        mask = torch.arange(longest) < lengths[:, None]
        weights = self.network(padded.to(self.device), mask.to(self.device)).cpu().numpy()
        return [row[: len(x)] for row, x in zip(weights, events, strict=True)]


def pack(lengths: Sequence[int], limit: int) -> Iterator[list[int]]:
    """Indices of events that share a batch: similar lengths, at most ``limit`` places with padding.

    >>> list(pack([5, 1, 6, 2], limit=12))
    [[2, 0], [3, 1]]
    """
    batch: list[int] = []
    longest = 0
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batch and longest * (len(batch) + 1) > limit:
            yield batch
            batch = []
        if not batch:
            longest = max(lengths[i], 1)
        batch.append(i)
    if batch:
        yield batch


def choose_device(device: str) -> str:
    """``"auto"`` is a GPU where torch sees one, else the CPU; any other name must be usable here."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == TORCH_CPU:
        return device
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        msg = f"Device {device!r} cannot be used here ({first_line(error)}); use 'auto' or 'cpu'."
        raise BadConfig(msg) from error
    return device


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch inside, the caller's number again afterwards.

    Worker processes must not fight for cores, and sums over several threads would make the
    last bit of a weight depend on their number.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""The processes of a training under torchrun, and what they tell each other.

torch.distributed is used directly; adding up gradients takes a few lines, and a framework would
hide them.
"""

from __future__ import annotations

import atexit
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import torch
from torch import Tensor, distributed

PATIENCE = timedelta(days=7)  # with one that prepares tokens of a large sample


class Processes(NamedTuple):
    """This process among all of them; one by itself is number 0 of 1."""

    rank: int = 0
    world: int = 1
    device: torch.device = torch.device("cpu")

    @classmethod
    def join(cls) -> Processes:
        """This process and its device, as torchrun says; returns when all are there."""
        rank, world, local = (
            int(os.environ.get(name, default))
            for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
        )
        device = torch.device("cpu")
        if torch.cuda.is_available():
            device = torch.device("cuda", local % torch.cuda.device_count())
            torch.cuda.set_device(device)
        if world > 1 and not distributed.is_initialized():
            # Imported later, its functions' defaults would keep the group beyond its destruction.
            importlib.import_module("torch.distributed.nn")
            backend = "nccl" if device.type == "cuda" else "gloo"
            distributed.init_process_group(backend, timeout=PATIENCE)
            # Its threads end with it; left to the interpreter, they may abort a finished process.
            atexit.register(distributed.destroy_process_group)
        return cls(rank, world, device)

    def add_up(self, values: Tensor) -> Tensor:
        """The sum over all processes, on this one's device."""
        values = values.to(self.device)
        if self.world > 1:
            distributed.all_reduce(values)
        return values

    def wait(self) -> None:
        """Return when all processes have come here."""
        if self.world > 1:
            distributed.barrier()

    @contextmanager
    def first_ahead(self) -> Iterator[None]:
        """Inside, the first process writes to disk what the others, which wait, then read."""
        if self.rank > 0:
            self.wait()
        yield
        if self.rank == 0:
            self.wait()


ALONE = Processes()

"""Times that can be compared: best of several turns in which every candidate runs once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


def best_times(functions: Mapping[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """Seconds of each function: the shortest, the others measure what else the machine does.

    All of them run in every turn, so that a clock that changes changes all of them.
    """
    for function in functions.values():
        function()  # compiles, warms up
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(turns):
        for name, function in functions.items():
            times[name].append(seconds(function))
    return {name: min(each) for name, each in times.items()}


def seconds(function: Callable[[], Any]) -> float:
    """Of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start

"""The phases of a training, each with a rise and fall of the learning rate of its own."""

from __future__ import annotations

import math
from typing import NamedTuple

from puma_coffea.training.config import Recipe


class Phase(NamedTuple):
    """A stretch of a training's steps, with a rise and fall of the learning rate of its own."""

    name: str
    first: int
    steps: int
    rate: float
    """Its highest learning rate."""


def phase_of(recipe: Recipe, step: int) -> Phase:
    """The phase that a step belongs to: "alone", "crops", "whole" or "attend"."""
    attend = recipe.steps - recipe.attend_steps
    whole, alone = attend - recipe.event_steps, recipe.alone_steps
    if step < alone:
        return Phase("alone", 0, alone, recipe.learning_rate)
    if step < whole:
        rate = recipe.together_rate if alone else recipe.learning_rate
        return Phase("crops", alone, whole - alone, rate)
    if step < attend:
        return Phase("whole", whole, attend - whole, recipe.event_rate)
    rate = recipe.attend_rate or recipe.event_rate
    return Phase("attend", attend, recipe.steps - attend, rate)


def learning_rate(recipe: Recipe, step: int) -> float:
    """The learning rate of a step."""
    _, first, steps, peak = phase_of(recipe, step)
    step -= first
    if recipe.schedule == "cyclical":
        cycle, place = divmod(step, recipe.cycle)
        triangle = 1 - abs(2 * place / recipe.cycle - 1)
        return peak * recipe.cycle_decay**cycle * max(triangle, 0.01)
    rising = min(1.0, (step + 1) / (min(recipe.warm_up, steps // 10) + 1))
    if recipe.schedule == "cosine":
        falling = 0.5 * (1 + math.cos(math.pi * step / steps))
    else:
        falling = min(1.0, (steps - step) / (0.1 * steps))
    return peak * rising * max(falling, 0.01)

"""Learning rates of all steps of a training, fixed before it starts."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from noshadow.checks import InputError, refuse, require_choice, require_number, require_whole, said

Schedule = str | Callable[[int, int], float]
NAMES = ("constant", "cosine", "linear", "step")


def schedule_factors(
    schedule: Schedule, *, epochs: int, steps: int, warmup: float = 0.0, milestones: Sequence[int] = (), gamma: float = 0.1
) -> list[float]:
    """Factor on the learning rate at each of the epochs · steps steps, at least 0.

    With T steps in all, W = round(warmup · T) of them warming up, and s = max(step − W, 0) / (T −
    W): "constant" 1, "cosine" (1 + cos πs)/2, "linear" 1 − s, "step" gamma^(milestones reached,
    counted in epochs), a callable its own value at (step, T); each times min(1, (step + 1)/W).

    Args:
        schedule: one of the names, or a callable (step, total) → factor.
        epochs: number of epochs. steps: steps an epoch.
        warmup: share of all steps in [0, 1). milestones, gamma: for "step".

    Raises:
        InputError: a callable that raises or gives something else than a finite number ≥ 0.

    Exact when: always; without warm-up the names equal torch's CosineAnnealingLR, LinearLR to 0 and
        MultiStepLR, the first two
    stepped after each batch.
    Cost: O(epochs · steps).

    Example:
        >>> schedule_factors("linear", epochs=2, steps=2)
        [1.0, 0.75, 0.5, 0.25]
    """
    total = epochs * steps
    warming = min(round(warmup * total), total - 1)
    return [
        min(1.0, (step + 1) / warming if warming else 1.0) * _shape(schedule, step, total, warming, step // steps, milestones, gamma)
        for step in range(total)
    ]


def _shape(schedule: Schedule, step: int, total: int, warming: int, epoch: int, milestones: Sequence[int], gamma: float) -> float:
    if not isinstance(schedule, str):
        return _users_factor(schedule, step, total)
    share = max(step - warming, 0) / (total - warming)
    if schedule == "cosine":
        return (1 + math.cos(math.pi * share)) / 2
    if schedule == "linear":
        return 1 - share
    if schedule == "step":
        return float(gamma ** sum(milestone <= epoch for milestone in milestones))
    return 1.0


def _users_factor(schedule: Callable[[int, int], float], step: int, total: int) -> float:
    rule = "schedule must give a finite number ≥ 0 for every step"
    try:
        factor = schedule(step, total)
    except Exception as error:
        raise InputError(said(f"{rule}; got {type(error).__name__} ({error}) at step {step} of {total}.")) from error
    if isinstance(factor, bool) or not isinstance(factor, (int, float, np.integer, np.floating)) or not 0 <= factor < math.inf:
        raise InputError(said(f"{rule}; got {factor!r} at step {step} of {total}."))
    return float(factor)


def require_schedule(schedule: object, *, epochs: int, warmup: object, milestones: object, gamma: object) -> tuple[int, ...]:
    """The schedule's own arguments, checked; returns the milestones."""
    if not callable(schedule):
        require_choice(schedule, NAMES, "schedule")
    require_number(warmup, "warmup", low=0, high=1, high_open=True)
    require_number(gamma, "gamma", low=0, low_open=True)
    if not isinstance(milestones, (tuple, list)):
        refuse("milestones", "be a tuple of epochs", repr(milestones))
    reached = tuple(require_whole(epoch, "milestones", low=1) for epoch in milestones)
    if any(late >= later for late, later in pairwise((*reached, epochs))):
        refuse("milestones", f"rise and stay below the number of epochs ({epochs})", repr(reached))
    if (schedule == "step") != bool(reached):
        refuse("milestones", "be given with schedule='step' and only then", f"{reached} with schedule={schedule!r}")
    return reached

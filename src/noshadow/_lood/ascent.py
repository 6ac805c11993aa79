"""Projected gradient ascent on the distinguishability of query sets: where it starts, how it walks."""

import numpy as np
import torch
from torch import Tensor

from noshadow._lood.objective import QueryProblem, query_moments, set_divergences
from noshadow.checks import Array, NumericalError, as_array, refuse, require_choice
from noshadow.progress import tracked

OWNER = "optimal_query"
OBJECTIVES = ("kl", "mean_distance")
_FIRST_MOMENT, _SECOND_MOMENT, _FLOOR = 0.9, 0.999, 1e-12
_LAST_RATE = 0.02
_START_NOISE = 0.05


def box_of(bounds: tuple[object, object] | None, shape: torch.Size, owner: str) -> tuple[Tensor, Tensor] | None:
    """Lowest and highest allowed value of every feature, or None for no bounds."""
    if bounds is None:
        return None
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        refuse(owner, "bounds", "be a pair (low, high)", repr(bounds))
    ends = []
    for name, end in zip(("low", "high"), bounds, strict=True):
        array = as_array(end, owner, "bounds")
        if array.dtype.kind not in "biuf" or np.isnan(array).any() or array.shape not in ((), tuple(shape)):
            refuse(owner, "bounds", f"be numbers or arrays of a record's shape {tuple(shape)}", f"{name} of shape {array.shape}")
        ends.append(torch.from_numpy(np.broadcast_to(array, tuple(shape)).astype(np.float64)))
    if bool((ends[0] >= ends[1]).any()):
        refuse(owner, "bounds", "have low < high everywhere", f"{float((ends[1] - ends[0]).min()):g} between them")
    return ends[0], ends[1]


def starting_queries(
    start: object, problem: QueryProblem, box: tuple[Tensor, Tensor] | None, sets: int, size: int, rng: np.random.Generator
) -> Tensor:
    """Starting query sets (restarts, q, …) within the bounds."""
    x = problem.full.x
    shape = (sets, size, *x.shape[1:])
    low, high = (x.amin(0), x.amax(0)) if box is None else box
    if isinstance(start, str):
        require_choice(start, ("random", "record"), OWNER, "start")
        if not bool(torch.isfinite(high - low).all()):
            low, high = x.amin(0), x.amax(0)
        uniform = torch.from_numpy(rng.random(shape))
        if start == "random":
            chosen = low + uniform * (high - low)
        else:
            records = x[torch.from_numpy(problem.rows)[torch.arange(size) % len(problem.rows)]]
            chosen = records + _START_NOISE * (2 * uniform - 1) * (high - low)
            chosen[0] = records
    else:
        given = as_array(start, OWNER, "start")
        if given.dtype.kind not in "biuf" or given.shape not in (shape, shape[1:]) or not np.isfinite(given).all():
            refuse(OWNER, "start", f"be 'random', 'record' or finite with shape {shape[1:]} or {shape}", f"shape {given.shape}")
        chosen = torch.from_numpy(np.broadcast_to(given, shape).astype(np.float64))
    return chosen if box is None else chosen.clamp(*box)


def ascended(
    problem: QueryProblem, initial: Tensor, box: tuple[Tensor, Tensor] | None, objective: str, steps: int, rate: float, show: bool
) -> tuple[Tensor, Array]:
    """Best query sets on the way (R, q, …) and the objective's trace (R, steps + 1)."""
    at, best = initial.clone(), initial.clone()
    first, second = torch.zeros_like(at), torch.zeros_like(at)
    trace = np.empty((len(at), steps + 1))
    highest = np.full(len(at), -np.inf)
    for step in tracked(range(steps + 1), "optimising queries", show=show):
        at = at.detach().requires_grad_(True)
        value = set_divergences(problem, query_moments(problem, at))[OBJECTIVES.index(objective)]
        # A sum over restarts: their gradients do not mix. The floor keeps log finite where the kernel has underflowed.
        (gradient,) = torch.autograd.grad(torch.log(value + np.finfo(float).tiny).sum(), at)
        trace[:, step] = value.detach().numpy()
        if not bool(torch.isfinite(gradient).all()) or not np.isfinite(trace[:, step]).all():
            raise NumericalError(f"{OWNER}: the objective or its gradient is not finite at step {step}. Raise the noise or lower lr.")
        better = trace[:, step] > highest
        highest = np.maximum(highest, trace[:, step])
        best[torch.from_numpy(better)] = at.detach()[torch.from_numpy(better)]
        # Adam by hand: the first step of torch.optim's imports its compiler, which takes seconds.
        first = _FIRST_MOMENT * first + (1 - _FIRST_MOMENT) * gradient
        second = _SECOND_MOMENT * second + (1 - _SECOND_MOMENT) * gradient**2
        scale = rate * (_LAST_RATE + (1 - _LAST_RATE) * (1 + np.cos(np.pi * step / steps)) / 2)
        direction = first / (1 - _FIRST_MOMENT ** (step + 1)) / ((second / (1 - _SECOND_MOMENT ** (step + 1))).sqrt() + _FLOOR)
        at = at.detach() + scale * direction
        at = at if box is None else at.clamp(*box)
    return best, trace

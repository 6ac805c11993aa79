"""Distinguishability at many query sets at once, and the gradient ascent on it.

The distinguishability is differentiable in the queries.

A query set is a block of q inputs; R of them, (R, q, …), share one kernel call. Everything that
does not depend on the queries is prepared once, so that a step costs one product with an n × n
matrix.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noshadow._lood.divergence import variance_excess_tensor
from noshadow._lood.factor import Posterior, posterior_of, require_same_problem
from noshadow._lood.inputs import Kernel, Noise, group_indices, kernel_values
from noshadow.checks import Array, NumericalError, as_array, refuse, require_choice, said
from noshadow.progress import tracked

# Added to every query's posterior variance, relative to its prior variance, in both models: query
# sets that run into each other keep a finite gradient. It is an observation noise, so it can only
# lower the divergence.
JITTER = 1e-10
OBJECTIVES = ("kl", "mean_distance")
STARTS = ("random", "greedy", "record")
_FIRST_MOMENT, _SECOND_MOMENT, _FLOOR = 0.9, 0.999, 1e-12
_LAST_RATE = 0.02
_START_NOISE = 0.05


@dataclass(frozen=True, eq=False)
class Model:
    """One Gaussian process with its inverse.

    It holds x (n, …), the inverse M⁻¹ (n, n) and the weights M⁻¹Y (n, C).
    """

    x: Tensor
    kernel: Kernel
    inverse: Tensor
    weights: Tensor


@dataclass(frozen=True, eq=False)
class QueryProblem:
    """A group of records and the two models that differ in it.

    Attributes:
        full: the model trained with the group.
        spread: (n, s) P·A^(−½), P = (M⁻¹)_XS, A = (M⁻¹)_SS: Σ − Σ′ at queries is K_QX spread
            spreadᵀ K_XQ.
        shift: (n, C) −PA⁻¹(M⁻¹Y)_S: μ − μ′ at queries is K_QX shift.
        without: a model of its own when the kernel changes with the data, and then used instead of
            the two above.
        rows: (s,) the group. noise: σ².
    """

    full: Model
    spread: Tensor
    shift: Tensor
    without: Model | None
    rows: Array
    noise: float


@dataclass(frozen=True, eq=False)
class QueryMoments:
    """Both posteriors at R query sets.

    It holds means (R, q, C), covariances (R, q, q), and spread (R, q, s) or None.
    """

    mean: Tensor
    covariance: Tensor
    shift: Tensor
    spread: Tensor | None
    loo_covariance: Tensor


def query_problem(
    x: object,
    y: object,
    differing: object,
    kernel: Kernel,
    noise: Noise,
    kernel_without: Kernel | None,
    factor: Posterior | None,
    max_memory: float,
) -> QueryProblem:
    """Everything that does not depend on the queries: one factorisation, one inverse."""
    if factor is None:
        given = {"relative_noise" if noise.relative else "noise": noise.value}
        factor = posterior_of(x, y, kernel=kernel, with_inverse=True, max_memory=max_memory, **given)
    else:
        factor = require_same_problem(factor, x, y, kernel, noise)
    n = len(factor.x)
    rows = group_indices(differing, n)
    full = _model(factor)
    chosen = torch.from_numpy(rows)
    columns = full.inverse[:, chosen]
    lower = torch.linalg.cholesky(columns[chosen])
    spread = torch.linalg.solve_triangular(lower, columns.T, upper=False).T
    shift = -spread @ torch.linalg.solve_triangular(lower, full.weights[chosen], upper=False)
    without = None
    if kernel_without is not None:
        kept = np.delete(np.arange(n), rows)
        others = (factor.x[kept], factor.y[kept])
        rest = posterior_of(*others, kernel=kernel_without, noise=factor.noise, with_inverse=True, max_memory=max_memory)
        without = _model(rest)
    return QueryProblem(full, spread, shift, without, rows, factor.noise)


def _model(posterior: Posterior) -> Model:
    if posterior.inverse is None:
        refuse("factor", "hold the inverse", "a factor without it", "Leave it out: it is made afresh.")
    return Model(posterior.x, posterior.kernel, torch.from_numpy(posterior.inverse), torch.from_numpy(posterior.weights))


def query_moments(problem: QueryProblem, queries: Tensor) -> QueryMoments:
    """Both posteriors at R query sets (R, q, …)."""
    sets, size = queries.shape[:2]
    flat = queries.flatten(0, 1)
    prior, cross, covariance = _covariance(problem.full, flat, sets, size)
    mean = (cross @ problem.full.weights).view(sets, size, -1)
    nugget = torch.diag_embed(JITTER * prior.diagonal(dim1=1, dim2=2))
    covariance = covariance + nugget
    if problem.without is None:
        spread = (cross @ problem.spread).view(sets, size, -1)
        shift = (cross @ problem.shift).view(sets, size, -1)
        return QueryMoments(mean, covariance, shift, spread, covariance + spread @ spread.mT)
    _, beside, other = _covariance(problem.without, flat, sets, size)
    shift = (beside @ problem.without.weights).view(sets, size, -1) - mean
    return QueryMoments(mean, covariance, shift, None, other + nugget)


def _covariance(model: Model, flat: Tensor, sets: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Prior (R, q, q), kernel with the training inputs (Rq, n), posterior covariance (R, q, q)."""
    cross = kernel_values(model.kernel, flat, model.x)
    square = kernel_values(model.kernel, flat, flat).view(sets, size, sets, size)
    prior = square.diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    with torch.no_grad():
        solved = (cross @ model.inverse).view(sets, size, -1)
    held = cross.view(sets, size, -1)
    # d(kM⁻¹kᵀ) = dk·(M⁻¹kᵀ) + (kM⁻¹)·dkᵀ: with M⁻¹kᵀ known, the gradient needs no second product
    # with M⁻¹.
    half = solved @ held.mT
    explained = half + half.mT - half.detach()
    return prior, cross, (prior + prior.mT - explained - explained.mT) / 2


def set_divergences(problem: QueryProblem, moments: QueryMoments) -> tuple[Tensor, Tensor]:
    """KL (R,) and mean distance (R,) of query sets, differentiable."""
    outputs = moments.mean.shape[-1]
    lower, failed = torch.linalg.cholesky_ex(moments.covariance)
    if bool((failed > 0).any()):
        raise NumericalError(said("a posterior covariance at the queries is not positive definite in float64. Raise the noise."))
    separation = (torch.linalg.solve_triangular(lower, moments.shift, upper=False) ** 2).sum((1, 2))
    if moments.spread is None:
        half = torch.linalg.solve_triangular(lower, moments.loo_covariance, upper=False)
        ratio = torch.linalg.solve_triangular(lower, half.mT, upper=False)
        excess = torch.linalg.eigvalsh((ratio + ratio.mT) / 2) - 1
    else:
        white = torch.linalg.solve_triangular(lower, moments.spread, upper=False)
        narrow = white.shape[2] < white.shape[1]
        excess = torch.linalg.eigvalsh(white.mT @ white if narrow else white @ white.mT).clamp(min=0)
    kl = 0.5 * (outputs * variance_excess_tensor(excess).sum(1) + separation)
    return kl, 0.5 * (moments.shift**2).sum((1, 2))


def starting_queries(
    start: object, problem: QueryProblem, box: tuple[Tensor, Tensor] | None, sets: int, size: int, rng: np.random.Generator
) -> Tensor:
    """Starting query sets (restarts, q, …) within the bounds."""
    x = problem.full.x
    shape = (sets, size, *x.shape[1:])
    low, high = (x.amin(0), x.amax(0)) if box is None else box
    if isinstance(start, str):
        require_choice(start, STARTS, "start")
        if not bool(torch.isfinite(high - low).all()):
            low, high = x.amin(0), x.amax(0)
        uniform = torch.from_numpy(rng.random(shape))
        if start in ("random", "greedy"):
            chosen = low + uniform * (high - low)
        else:
            records = x[torch.from_numpy(problem.rows)[torch.arange(size) % len(problem.rows)]]
            chosen = records + _START_NOISE * (2 * uniform - 1) * (high - low)
            chosen[0] = records
    else:
        given = as_array(start, "start")
        if given.dtype.kind not in "biuf" or given.shape not in (shape, shape[1:]) or not np.isfinite(given).all():
            refuse("start", f"be 'random', 'greedy', 'record' or finite with shape {shape[1:]} or {shape}", f"shape {given.shape}")
        chosen = torch.from_numpy(np.broadcast_to(given, shape).astype(np.float64))
    return chosen if box is None else chosen.clamp(*box)


def ascended(
    problem: QueryProblem,
    initial: Tensor,
    box: tuple[Tensor, Tensor] | None,
    objective: str,
    steps: int,
    rate: float,
    show: bool,
    held: int = 0,
) -> tuple[Tensor, Array]:
    """Best query sets on the way (R, q, …) and the objective's trace (R, steps + 1).

    The first `held` queries of every set stay where they are.
    """
    at, best = initial.clone(), initial.clone()
    first, second = torch.zeros_like(at), torch.zeros_like(at)
    trace = np.empty((len(at), steps + 1))
    highest = np.full(len(at), -np.inf)
    for step in tracked(range(steps + 1), "optimising queries", show=show):
        at = at.detach().requires_grad_(True)
        value = set_divergences(problem, query_moments(problem, at))[OBJECTIVES.index(objective)]
        # A sum over restarts: their gradients do not mix. The floor keeps log finite where the
        # kernel has underflowed.
        (gradient,) = torch.autograd.grad(torch.log(value + np.finfo(float).tiny).sum(), at)
        gradient[:, :held] = 0.0
        trace[:, step] = value.detach().numpy()
        if not bool(torch.isfinite(gradient).all()) or not np.isfinite(trace[:, step]).all():
            raise NumericalError(said(f"the objective or its gradient is not finite at step {step}. Raise the noise or lower lr."))
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


def greedy_queries(
    problem: QueryProblem,
    drawn: Tensor,
    box: tuple[Tensor, Tensor] | None,
    objective: str,
    steps: int,
    rate: float,
    show: bool,
) -> Tensor:
    """Starting query sets (R, q, …) found query by query.

    Each query ascends from R starts beside the best ones found before it, which stay: what these
    already show leads it to another record. `drawn` (R, q, …) holds the starts.
    """
    sets, size = drawn.shape[:2]
    found = drawn[:, :0]
    for place in range(size):
        candidates = torch.cat([found, drawn[:, place : place + 1]], dim=1)
        candidates, trace = ascended(problem, candidates, box, objective, steps, rate, show, held=place)
        best = candidates[int(trace.max(1).argmax())]
        # The last step keeps all R sets: the joint ascent starts from each.
        found = best.expand(sets, *best.shape) if place < size - 1 else candidates
    return found

"""Distinguishability at many query sets at once, differentiable in the queries.

A query set is a block of q inputs; R of them, (R, q, …), share one kernel call. Everything that does not depend on
the queries is prepared once, so that a step costs one product with an n × n matrix.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noshadow._lood.divergence import variance_excess_tensor
from noshadow._lood.factor import Posterior, posterior_of, require_same_problem
from noshadow._lood.inputs import Kernel, group_indices, kernel_values
from noshadow.checks import Array, NumericalError, refuse

# Added to every query's posterior variance, relative to its prior variance, in both models: query sets that run into
# each other keep a finite gradient. It is an observation noise, so it can only lower the divergence.
JITTER = 1e-10


@dataclass(frozen=True, eq=False)
class Model:
    """One Gaussian process with its inverse at hand: x (n, …), inverse M⁻¹ (n, n), weights M⁻¹Y (n, C)."""

    x: Tensor
    kernel: Kernel
    inverse: Tensor
    weights: Tensor


@dataclass(frozen=True, eq=False)
class QueryProblem:
    """A group of records and the two models that differ in it.

    Attributes:
        full: the model trained with the group.
        spread: (n, s) P·A^(−½), P = (M⁻¹)_XS, A = (M⁻¹)_SS: Σ − Σ′ at queries is K_QX spread spreadᵀ K_XQ.
        shift: (n, C) −PA⁻¹(M⁻¹Y)_S: μ − μ′ at queries is K_QX shift.
        without: a model of its own when the kernel changes with the data, and then used instead of the two above.
        rows: (s,) the group. noise: σ². owner: whom an error names.
    """

    full: Model
    spread: Tensor
    shift: Tensor
    without: Model | None
    rows: Array
    noise: float
    owner: str


@dataclass(frozen=True, eq=False)
class QueryMoments:
    """Both posteriors at R query sets: means (R, q, C), covariances (R, q, q), and spread (R, q, s) or None."""

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
    noise: float,
    kernel_without: Kernel | None,
    factor: Posterior | None,
    max_memory: float,
    owner: str,
) -> QueryProblem:
    """Everything that does not depend on the queries: one factorisation, one inverse."""
    if factor is None:
        factor = posterior_of(x, y, kernel=kernel, noise=noise, with_inverse=True, max_memory=max_memory, owner=owner)
    else:
        factor = require_same_problem(factor, x, y, kernel, noise, owner)
    n = len(factor.x)
    rows = group_indices(differing, n, owner)
    full = _model(factor, owner)
    chosen = torch.from_numpy(rows)
    columns = full.inverse[:, chosen]
    lower = torch.linalg.cholesky(columns[chosen])
    spread = torch.linalg.solve_triangular(lower, columns.T, upper=False).T
    shift = -spread @ torch.linalg.solve_triangular(lower, full.weights[chosen], upper=False)
    without = None
    if kernel_without is not None:
        kept = np.delete(np.arange(n), rows)
        others = (factor.x[kept], factor.y[kept])
        rest = posterior_of(*others, kernel=kernel_without, noise=factor.noise, with_inverse=True, max_memory=max_memory, owner=owner)
        without = _model(rest, owner)
    return QueryProblem(full, spread, shift, without, rows, factor.noise, owner)


def _model(posterior: Posterior, owner: str) -> Model:
    if posterior.inverse is None:
        refuse(owner, "factor", "hold the inverse", "a factor without it", "Make it with posterior_of(…, with_inverse=True).")
    return Model(posterior.x, posterior.kernel, torch.from_numpy(posterior.inverse), torch.from_numpy(posterior.weights))


def query_moments(problem: QueryProblem, queries: Tensor) -> QueryMoments:
    """Both posteriors at R query sets (R, q, …)."""
    sets, size = queries.shape[:2]
    flat = queries.flatten(0, 1)
    prior, cross, covariance = _covariance(problem.full, flat, sets, size, problem.owner)
    mean = (cross @ problem.full.weights).view(sets, size, -1)
    nugget = torch.diag_embed(JITTER * prior.diagonal(dim1=1, dim2=2))
    covariance = covariance + nugget
    if problem.without is None:
        spread = (cross @ problem.spread).view(sets, size, -1)
        shift = (cross @ problem.shift).view(sets, size, -1)
        return QueryMoments(mean, covariance, shift, spread, covariance + spread @ spread.mT)
    _, beside, other = _covariance(problem.without, flat, sets, size, problem.owner)
    shift = (beside @ problem.without.weights).view(sets, size, -1) - mean
    return QueryMoments(mean, covariance, shift, None, other + nugget)


def _covariance(model: Model, flat: Tensor, sets: int, size: int, owner: str) -> tuple[Tensor, Tensor, Tensor]:
    """Prior (R, q, q), kernel with the training inputs (Rq, n) and posterior covariance (R, q, q)."""
    cross = kernel_values(model.kernel, flat, model.x, owner)
    square = kernel_values(model.kernel, flat, flat, owner).view(sets, size, sets, size)
    prior = square.diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    with torch.no_grad():
        solved = (cross @ model.inverse).view(sets, size, -1)
    held = cross.view(sets, size, -1)
    # d(kM⁻¹kᵀ) = dk·(M⁻¹kᵀ) + (kM⁻¹)·dkᵀ: with M⁻¹kᵀ known, the gradient needs no second product with M⁻¹.
    half = solved @ held.mT
    explained = half + half.mT - half.detach()
    return prior, cross, (prior + prior.mT - explained - explained.mT) / 2


def set_divergences(problem: QueryProblem, moments: QueryMoments) -> tuple[Tensor, Tensor]:
    """KL (R,) and mean distance (R,) of query sets, differentiable."""
    outputs = moments.mean.shape[-1]
    lower, failed = torch.linalg.cholesky_ex(moments.covariance)
    if bool((failed > 0).any()):
        raise NumericalError(
            f"{problem.owner}: a posterior covariance at the queries is not positive definite in float64. Raise the noise."
        )
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

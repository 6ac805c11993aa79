"""Margin leverage: each record's leverage in the one-output problem of the statistic φ.

φ is the statistic that the attack itself uses.
"""

from dataclasses import dataclass

import numpy as np
import torch

from noshadow.blocks import block_length, block_tensor, blocks
from noshadow.checks import Array
from noshadow.linalg import PairForms, pair_products, spd_inverse
from noshadow.losses import margins
from noshadow.scores.last_layer.curvature import ContrastInverse, SoftmaxProblem, contrast_inverse, difference_blocks, difference_forms
from noshadow.scores.last_layer.precision import largest_relative_error, probe_problem, probe_steps

DUAL_LIMIT = 1e7
PROBES = 5


def margin_gradients(problem: SoftmaxProblem, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
    """∂φ/∂f (b, m) and w = s·p_y(1 − p_y) (b,) of a block of records.

    ∂φ/∂f is y minus the softmax over the other classes.
    """
    logits = block_tensor(problem.outputs, start, stop)
    targets = block_tensor(problem.targets, start, stop)
    labels = (targets if targets.ndim == 1 else targets.argmax(1))[:, None]
    margin = margins(logits, labels[:, 0])
    others = torch.softmax(logits.scatter(1, labels, -torch.inf), 1)
    weight = torch.sigmoid(margin) * torch.sigmoid(-margin) * problem.weights(start, stop)
    return (-others).scatter(1, labels, 1.0), weight


@dataclass(frozen=True, eq=False)
class MarginLeverages:
    """h of every record, (n,) float64, and the relative error of the largest of them.

    The error is None where no product was taken in float32.
    """

    values: Array
    error: float | None


def margin_leverages(
    problem: SoftmaxProblem, *, dtype: torch.dtype = torch.float64, block_size: int | None, progress: bool
) -> MarginLeverages:
    """h_i = w_i x_iᵀ(Σ_j w_j x_jx_jᵀ + λI)⁻¹x_i with x = (∂φ/∂f) ⊗ g̃, in [0, 1].

    Solved in the contrasts ((m−1)·r) or over the records (n), whichever is smaller; both are exact.
    The dual needs every coordinate penalised, so an unpenalised intercept takes the first way. For
    soft targets the label is the most probable class.

    Args:
        dtype: of the products over records in the contrasts. float32 is measured, as `newton_error`
            does; the dual is always in float64.

    Cost: min(n, (m−1)r)³ flops beside building the matrix.
    Reference: ours; the one-output Gauss–Newton problem of φ, restricted to the last layer.
    """
    n, contrasts = len(problem.design), (problem.classes - 1) * problem.design.rank
    all_penalised = problem.damping > 0 and problem.design.all_penalised
    if n < contrasts and all_penalised:
        kernel = _kernel(problem)
        # Unlike the whitened primal, the dual loses eps·‖K_w‖/λ: hand over before that shows.
        if float(kernel.trace()) < DUAL_LIMIT * problem.damping:
            return MarginLeverages(_dual(kernel, problem.damping), None)
    inverse = contrast_inverse(problem, margin_pairs, dtype=dtype, block_size=block_size, progress=progress)
    forms = difference_forms(inverse, problem.classes, problem.design.rank, dtype)
    values = margin_columns(problem, forms, dtype=dtype, block_size=block_size, progress=progress)
    return MarginLeverages(values, _error(problem, inverse, values) if dtype == torch.float32 else None)


def margin_pairs(problem: SoftmaxProblem, start: int, stop: int, dtype: torch.dtype) -> torch.Tensor:
    """Laplacian pair weights −w·a_u a_v of the rank-one curvatures w·aaᵀ (a sums to zero)."""
    gradient, weight = margin_gradients(problem, start, stop)
    return pair_products((gradient * weight.sqrt()[:, None]).T.to(dtype), strict=True).neg_()


def margin_columns(problem: SoftmaxProblem, forms: PairForms, *, dtype: torch.dtype, block_size: int | None, progress: bool) -> Array:
    """h of the problem's records from the forms of the inverse curvature, (n,).

    h = w·aᵀHa = −w·Σ_{u<v} a_u a_v D_uv.
    """
    leverage = np.empty(len(problem.design))
    for start, stop, differences in difference_blocks(problem, forms, dtype=dtype, block_size=block_size, progress=progress):
        found = (margin_pairs(problem, start, stop, dtype) * differences).sum(0)
        # outside [0, 1] by rounding only
        leverage[start:stop] = found.double().clamp(0.0, 1.0).numpy()
    return leverage


def _error(problem: SoftmaxProblem, contrast: ContrastInverse, values: Array) -> float:
    """Largest relative error among the largest leverages.

    With v = 𝓗⁻¹x a leverage is w(2xᵀv − vᵀ𝓗v) to first order; 𝓗 is applied in float64.

    Cost: 4·n·m·d flops for each of the probed records, one pass.
    """
    probes = np.argsort(-values)[:PROBES]
    own = probe_problem(problem, probes)
    gradient, weight = margin_gradients(own, 0, len(probes))
    steps = probe_steps(own, contrast, gradient)
    image = problem.damping * (steps @ problem.design.penalty)
    for start, stop in blocks(len(problem.design), block_length(4 * problem.classes * len(steps), high=8192)):
        rows = problem.design.rows(start, stop, torch.float64)  # (r, b)
        slopes, weights = margin_gradients(problem, start, stop)
        moves = (steps.flatten(0, 1) @ rows).view(*steps.shape[:2], -1)  # (k, m, b)
        pulled = (moves * slopes.T).sum(1) * weights  # (k, b)
        image += ((pulled[:, None, :] * slopes.T).flatten(0, 1) @ rows.T).view_as(steps)
    seen = torch.einsum("km,kr,kmr->k", gradient, own.design.rows(0, len(probes), torch.float64).T, steps)
    exact = weight * (2 * seen - (steps * image).sum((1, 2)))
    return largest_relative_error(torch.from_numpy(values[probes]), exact)


def _kernel(problem: SoftmaxProblem) -> torch.Tensor:
    """K_w = w^½(aaᵀ ∘ g̃g̃ᵀ)w^½, (n, n)."""
    n = len(problem.design)
    gradient, weight = margin_gradients(problem, 0, n)
    scaled = gradient * weight.sqrt()[:, None]
    kernel = scaled @ scaled.T
    rows = problem.design.raw(0, n)
    for start, stop in blocks(n, 4096):
        kernel[start:stop] *= rows[start:stop] @ rows.T
    return kernel


def _dual(kernel: torch.Tensor, damping: float) -> Array:
    """h = diag(K_w(K_w + λI)⁻¹), as a row product so that small h keep their digits."""
    damped = kernel.clone()
    damped.diagonal().add_(damping)
    inverse = torch.from_numpy(spd_inverse(damped.numpy(), overwrite=True).matrix)
    return (kernel * inverse).sum(1).clamp(0.0, 1.0).numpy()

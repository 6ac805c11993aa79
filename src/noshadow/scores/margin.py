"""Margin leverage: the leverage of each record in the one-output problem of the attack's own statistic φ."""

import numpy as np
import torch

from noshadow.blocks import as_blocks_of, blocks
from noshadow.checks import Array
from noshadow.linalg import PairForms, pair_products, spd_inverse
from noshadow.losses import margins
from noshadow.scores.curvature import SoftmaxProblem, contrast_inverse, difference_blocks, difference_forms
from noshadow.scores.softmax import square_differences

OWNER = "record_scores"
DUAL_LIMIT = 1e7


def margin_gradients(problem: SoftmaxProblem, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(∂φ/∂f (b, m), w = s·p_y(1 − p_y) (b,)) of a block; ∂φ/∂f is y minus the softmax over the other classes."""
    logits = as_blocks_of(problem.outputs, start, stop)
    targets = as_blocks_of(problem.targets, start, stop)
    labels = (targets if targets.ndim == 1 else targets.argmax(1))[:, None]
    margin = margins(logits, labels[:, 0])
    others = torch.softmax(logits.scatter(1, labels, -torch.inf), 1)
    weight = torch.sigmoid(margin) * torch.sigmoid(-margin) * problem.weights(start, stop)
    return (-others).scatter(1, labels, 1.0), weight


def margin_leverages(problem: SoftmaxProblem, *, block_size: int | None, progress: bool) -> Array:
    """h_i = w_i x_iᵀ(Σ_j w_j x_jx_jᵀ + λI)⁻¹x_i with x = (∂φ/∂f) ⊗ g̃, in [0, 1], float64 (n,).

    Solved in the contrasts ((m−1)·r) or over the records (n), whichever is smaller; both are exact. The dual
    needs every coordinate penalised, so an unpenalised intercept takes the first way. For soft targets the
    label is the most probable class.

    Cost: min(n, (m−1)r)³ flops beside building the matrix; float64 throughout.
    Reference: ours; the one-output Gauss–Newton problem of φ, restricted to the last layer.
    """
    n, contrasts = len(problem.design), (problem.classes - 1) * problem.design.rank
    all_penalised = problem.damping > 0 and problem.design.all_penalised
    if n < contrasts and all_penalised:
        kernel = _kernel(problem)
        # Unlike the whitened primal, the dual loses eps·‖K_w‖/λ: hand over before that shows.
        if float(kernel.trace()) < DUAL_LIMIT * problem.damping:
            return _dual(kernel, problem.damping)
    return _primal(problem, block_size=block_size, progress=progress)


def margin_pairs(problem: SoftmaxProblem, start: int, stop: int, dtype: torch.dtype) -> torch.Tensor:
    """Laplacian pair weights −w·a_u a_v of the rank-one curvatures w·aaᵀ (a sums to zero)."""
    gradient, weight = margin_gradients(problem, start, stop)
    return pair_products((gradient * weight.sqrt()[:, None]).T.to(dtype), strict=True).neg_()


def _primal(problem: SoftmaxProblem, *, block_size: int | None, progress: bool) -> Array:
    # float64: diagonals of this Laplacian are differences of its off-diagonals
    inverse = contrast_inverse(problem, margin_pairs, dtype=torch.float64, block_size=block_size, progress=progress, owner=OWNER)
    forms = difference_forms(inverse, problem.classes, problem.design.rank, torch.float64)
    return margin_columns(problem, forms, block_size=block_size, progress=progress)


def margin_columns(problem: SoftmaxProblem, forms: PairForms, *, block_size: int | None, progress: bool) -> Array:
    """h of the problem's records from the forms of the inverse curvature, (n,)."""
    leverage = np.empty(len(problem.design))
    walk = difference_blocks(problem, forms, dtype=torch.float64, block_size=block_size, progress=progress)
    for start, stop, differences in walk:
        gradient, weight = margin_gradients(problem, start, stop)
        square = square_differences(differences, problem.classes)
        form = -0.5 * ((square @ gradient[:, :, None])[:, :, 0] * gradient).sum(1)
        leverage[start:stop] = (weight * form).clamp(0.0, 1.0).numpy()  # outside [0, 1] by rounding only
    return leverage


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
    inverse = torch.from_numpy(spd_inverse(damped.numpy(), OWNER, overwrite=True).matrix)
    return (kernel * inverse).sum(1).clamp(0.0, 1.0).numpy()

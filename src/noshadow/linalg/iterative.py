"""Conjugate gradients for many right-hand sides at once, which say whether they converged."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from noshadow.checks import NumericalError, said


@dataclass(frozen=True, eq=False)
class IterativeSolution:
    """What conjugate gradients found for k right-hand sides.

    Attributes:
        solution: (k, …) as the right-hand sides. Of a column that did not converge: its last
            iterate.
        converged: (k,) whether the residual reached the tolerance (a tenth above it counts:
            rounding of the recurrence).
        residual: (k,) ‖b − Ax‖/‖b‖, 0 for b = 0; from one more product when verified, else as the
            recurrence has it.
        iterations: (k,) steps taken.
        negative_curvature: (k,) whether a direction with vᵀAv ≤ 0 was met; the column stops before
            that step.
        least_curvature: (k,) smallest vᵀAv/vᵀv over the directions walked, +inf where none was.
    """

    solution: torch.Tensor
    converged: torch.Tensor
    residual: torch.Tensor
    iterations: torch.Tensor
    negative_curvature: torch.Tensor
    least_curvature: torch.Tensor


def batched_cg(
    product: Callable[[torch.Tensor], torch.Tensor],
    right: torch.Tensor,
    *,
    tolerance: float,
    max_iterations: int,
    preconditioner: Callable[[torch.Tensor], torch.Tensor] | None = None,
    verified: bool = True,
    stop: Callable[[int, torch.Tensor, torch.Tensor], bool] | None = None,
) -> IterativeSolution:
    """Solve Ax = b for k right-hand sides at once by (preconditioned) conjugate gradients.

    Each right-hand side has its own steps.

    Columns are frozen once converged or on negative curvature and then reach `product` and
    `preconditioner` as zeros, so that either may skip them; other columns are not affected. The
    steps are of the flexible kind (Polak–Ribière), so the preconditioner may itself be an
    iteration.

    Args:
        product: X ↦ AX on tensors shaped as `right`, A symmetric and meant to be positive definite.
            It may be a different matrix for each column.
        right: (k, N), or (k, …) for unknowns that are matrices.
        tolerance: stop a column at ‖b − Ax‖ ≤ tolerance·‖b‖. max_iterations: products spent at
            most, beside the check.
        preconditioner: X ↦ M⁻¹X with M near A and positive definite, or None.
        verified: compute the residuals afresh at the end, for one more product.
        stop: (step, solution, residual of the recurrence) → whether to end there, asked after each
            step; None: never.

    Raises:
        NumericalError: a product is not finite, or the preconditioner is not positive definite.

    Cost: one product and one preconditioning per step; six tensors shaped as `right`.
    """
    solution, residual = torch.zeros_like(right), right.clone()
    sizes = _inner(right, right).sqrt()
    active = sizes > 0
    # With an image of zeros, the first direction is the conditioned residual itself.
    direction, image, curvature = torch.zeros_like(right), torch.zeros_like(right), torch.ones_like(sizes)
    iterations, negative = torch.zeros(len(right), dtype=torch.int64), torch.zeros_like(active)
    least = torch.full_like(sizes, torch.inf)
    for step in range(1, max_iterations + 1):
        if not active.any():
            break
        conditioned = residual * _spread(active, residual)
        conditioned = conditioned if preconditioner is None else preconditioner(conditioned)
        strength = torch.where(active, _inner(conditioned, residual), 1.0)
        if not bool((strength > 0).all()):
            raise NumericalError(said("the preconditioner is not positive definite or not finite. Solve without it."))
        # Conjugate to the last direction whatever the preconditioner did
        direction.mul_(_spread(torch.where(active, -_inner(conditioned, image) / curvature, 0.0), right)).add_(conditioned)
        image = product(direction)
        curvature = _inner(direction, image)
        if not bool(curvature.isfinite().all()):
            raise NumericalError(said("a product in conjugate gradients is not finite. Check for NaN and for numbers beyond float64."))
        least = torch.where(active, torch.minimum(least, curvature / _inner(direction, direction)), least)
        negative |= active & (curvature <= 0)
        active = active & ~negative
        length = _spread(torch.where(active, strength / curvature, 0.0), right)
        solution.addcmul_(direction, length)
        residual.addcmul_(image, length, value=-1)
        iterations += active
        active = active & (_inner(residual, residual).sqrt() > tolerance * sizes)
        if stop is not None and stop(step, solution, residual):
            break
    if verified:
        residual = right - product(solution)
    relative = _inner(residual, residual).sqrt() / sizes.where(sizes > 0, torch.ones_like(sizes))
    # Rounding parts the true residual from the recurrence that stopped the column, by a little.
    return IterativeSolution(solution, relative <= 1.1 * tolerance, relative, iterations, negative, least)


def _inner(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Inner product of each column, (k, …) → (k,)."""
    return torch.as_tensor(torch.linalg.vecdot(left.flatten(1), right.flatten(1)))


def _spread(per_column: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """(k,) → (k, 1, …), to scale the columns of a tensor."""
    return per_column.view(-1, *[1] * (like.ndim - 1)).to(like.dtype)

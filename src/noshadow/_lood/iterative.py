"""Two-sided bounds on leave-group-out distinguishability without an n × n matrix.

The bounds come from conjugate gradients and their residuals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noshadow._lood.divergence import variance_excess
from noshadow._lood.inputs import (
    Kernel,
    asked_noise,
    group_indices,
    input_rows,
    require_memory,
    require_rows_match,
    target_columns,
)
from noshadow._lood.tiles import TILE_ROWS, KernelTiles, kernel_diagonal, kernel_tiles, partial_cholesky, tiles_product
from noshadow.arguments import MAX_MEMORY, PROGRESS
from noshadow.checks import Array, NumericalError, as_array, named_in_errors, refuse, require_number, require_whole, said
from noshadow.linalg import batched_cg
from noshadow.progress import tracked

_BOUNDED_EVERY = 5
# Relative residual at which a column rests: further steps would not move the solution, and squares
# of residuals would underflow.
_SOLVED = 1e-30


@dataclass(frozen=True, eq=False)
class _Problem:
    """What the iteration needs to know of the data.

    It holds M·V and P⁻¹·V for vectors as rows V, the right-hand sides Bᵀ, the groups in their
    order, outputs and σ².
    """

    product: Callable[[Tensor], Tensor]
    precondition: Callable[[Tensor], Tensor]
    right: Tensor
    members: list[Array]
    outputs: int
    noise: float


@dataclass(frozen=True, eq=False)
class LoodBounds:
    """Bounds on the distinguishability of groups of records, each group queried at its own records.

    Attributes:
        kl_low, kl_high: (g,) around KL(f without the group ‖ f with it), nats; kl_high may be inf
            before convergence.
        mean_distance_low, mean_distance_high: (g,) around half the squared distance between the two
            means.
        groups: the g groups as row numbers.
        iterations: conjugate-gradient steps taken. rank: columns of the preconditioner.
        converged: whether every pair of bounds is within `tolerance` of each other.
        tolerance, noise: as given.
        cached: share of the kernel matrix that was kept in memory.
    """

    kl_low: Array
    kl_high: Array
    mean_distance_low: Array
    mean_distance_high: Array
    groups: tuple[Array, ...]
    iterations: int
    rank: int
    converged: bool
    tolerance: float
    noise: float
    cached: float


@named_in_errors
def lood_bounds(
    x: object,
    y: object,
    *,
    groups: Sequence[object],
    kernel: Kernel,
    noise: float | None = None,
    relative_noise: float | None = None,
    tolerance: float = 1e-3,
    iterations: int = 200,
    rank: int = 256,
    max_memory: float = MAX_MEMORY,
    progress: bool = PROGRESS,
) -> LoodBounds:
    """Lower and upper bounds on leave-group-out distinguishability.

    They are meant for data sets whose kernel matrix does not fit.

    Everything follows from entries of BᵀM⁻¹B, M = K + σ²I, B = [unit columns of the groups, Y]. For
    any approximate solutions Z with residuals R = B − MZ,

        BᵀM⁻¹B = BᵀZ + ZᵀR + RᵀM⁻¹R   and   0 ⪯ RᵀM⁻¹R ⪯ RᵀP⁻¹R   whenever P ⪯ M.

    P = FFᵀ + σ²I, F a partial pivoted Cholesky factor of K, satisfies P ⪯ M and preconditions the
    conjugate gradients that make Z. Eigenvalues, residuals and distances of `lood` are then bounded
    by monotonicity and the triangle inequality. The bounds hold at any iteration, and their width
    falls with the square of the residual.

    Args:
        x, y, kernel, noise, relative_noise: as in `lood`.
        groups: row numbers, or sequences of row numbers, each queried at its own records.
        tolerance: stop when every high − low ≤ tolerance·high. iterations: most steps, ≥ 1.
        rank: columns of F, ≥ 0. max_memory: bytes to use; what the vectors leave keeps tiles of K.
        progress: draw a bar on a terminal.

    Returns:
        LoodBounds; `converged` says whether the tolerance was reached.

    Raises:
        InputError: bad arrays, groups or options, vectors that would not fit in memory.
        NumericalError: the kernel is not positive semi-definite, or the noise so far below it that
            the preconditioner is not.

    Exact when: the bounds hold up to rounding of the residuals, about 1e-16·n^½ times the condition
        of M.
    Cost: n²/2 kernel values per step unless they fit in memory, 2n² flops per step and column of B;
        memory beside the tiles: 8n(rank + 6·columns of B) bytes.
    Reference: [LOOD] Definitions C.1 and C.3; Hestenes and Stiefel 1952; Golub and Meurant 2010.
    """
    rows, columns, asked = input_rows(x, "x"), target_columns(y, "y"), asked_noise(noise, relative_noise)
    require_rows_match(rows, columns)
    relative = require_number(tolerance, "tolerance", low=0)
    most, width = require_whole(iterations, "iterations", low=1), require_whole(rank, "rank", low=0)
    members = _groups(groups, len(rows))
    right = torch.cat([_unit_rows(np.concatenate(members), len(rows)), torch.from_numpy(columns.T)])
    vectors = 8.0 * len(rows) * (width + 6 * len(right)) + 16.0 * TILE_ROWS**2
    require_memory(vectors, max_memory, len(rows), "Raise max_memory, or pass fewer groups at a time.")
    with torch.no_grad():
        sigma2 = asked.noise_variance(float(kernel_diagonal(rows, kernel).mean())) if asked.relative else asked.value
        factor = partial_cholesky(rows, kernel, width)
        tiles = kernel_tiles(rows, kernel, max_bytes=max_memory - vectors)
        problem = _Problem(_noisy_product(tiles, sigma2), _preconditioner(factor, sigma2), right, members, columns.shape[1], sigma2)
        (low, high), steps = _bounds(problem, relative, most, progress)
    kept = sum(tile.numel() * (1 if row == column else 2) for (row, column), tile in tiles.kept.items())
    return LoodBounds(
        kl_low=low[:, 0],
        kl_high=high[:, 0],
        mean_distance_low=low[:, 1],
        mean_distance_high=high[:, 1],
        groups=tuple(members),
        iterations=steps,
        rank=factor.shape[1],
        converged=_tight(low, high, relative),
        tolerance=relative,
        noise=sigma2,
        cached=kept / len(rows) ** 2,
    )


def _groups(groups: Sequence[object], n: int) -> list[Array]:
    if isinstance(groups, (str, bytes)) or not isinstance(groups, (Sequence, np.ndarray)) or not len(groups):
        refuse("groups", "be a non-empty sequence of row numbers or of groups of them", repr(groups))
    return [group_indices(as_array(group, "groups"), n, "groups") for group in groups]


def _unit_rows(places: Array, n: int) -> Tensor:
    rows = torch.zeros((len(places), n), dtype=torch.float64)
    rows[torch.arange(len(places)), torch.from_numpy(places)] = 1.0
    return rows


def _noisy_product(tiles: KernelTiles, noise: float) -> Callable[[Tensor], Tensor]:
    """V ↦ V(K + σ²I), refused on a direction that no positive semi-definite kernel has."""

    def product(vectors: Tensor) -> Tensor:
        image = tiles_product(tiles, vectors).add_(vectors, alpha=noise)
        if bool((torch.linalg.vecdot(vectors, image) < 0).any()):
            raise NumericalError(said("the kernel is not positive semi-definite (a direction with vᵀ(K + noise·I)v < 0). Check it."))
        return image

    return product


def _preconditioner(factor: Tensor, noise: float) -> Callable[[Tensor], Tensor]:
    """V ↦ V(FFᵀ + σ²I)⁻¹, refused where rounding leaves it indefinite: no bound would hold."""
    if not factor.shape[1]:
        return lambda v: v / noise
    inner = factor.T @ factor
    inner.diagonal().add_(noise)
    lower = torch.linalg.cholesky(inner)

    def precondition(vectors: Tensor) -> Tensor:
        # Woodbury: only an r × r matrix is factored.
        image = (vectors - torch.cholesky_solve((vectors @ factor).T, lower).T @ factor.T) / noise
        if bool(((torch.linalg.vecdot(vectors, image) <= 0) & vectors.any(1)).any()):
            raise NumericalError(
                said("the noise is too small beside the kernel for a preconditioner in float64. Raise it, or pass rank=0.")
            )
        return image

    return precondition


def _bounds(problem: _Problem, tolerance: float, most: int, show: bool) -> tuple[tuple[Array, Array], int]:
    """Bounds from the true residuals of conjugate gradients, and the steps taken.

    The iteration stops once the bounds are tight.
    """
    bar = tracked(range(most), "conjugate gradients", show=show)

    def tight(step: int, solution: Tensor, residual: Tensor) -> bool:
        next(bar, None)
        return step % _BOUNDED_EVERY == 0 and _tight(*_all_bounds(problem, solution, residual), tolerance)

    found = batched_cg(
        problem.product,
        problem.right,
        tolerance=_SOLVED,
        max_iterations=most,
        preconditioner=problem.precondition,
        verified=False,
        stop=tight,
    )
    # the recurrence's residual drifts; the bounds need the true one
    residual = problem.right - problem.product(found.solution)
    return _all_bounds(problem, found.solution, residual), int(found.iterations.max())


def _tight(low: Array, high: Array, tolerance: float) -> bool:
    return bool(np.isfinite(high).all() and (high - low <= tolerance * high).all())


def _all_bounds(problem: _Problem, solution: Tensor, residual: Tensor) -> tuple[Array, Array]:
    """(low, high), each (g, 2): KL and mean distance of each group."""
    z, r, p, outputs = solution.numpy(), residual.numpy(), problem.precondition(residual).numpy(), problem.outputs
    target_error = max(float((r[-outputs:] * p[-outputs:]).sum()), 0.0)
    low, high = np.empty((len(problem.members), 2)), np.empty((len(problem.members), 2))
    start = 0
    for g, rows in enumerate(problem.members):
        own = slice(start, start + len(rows))
        start += len(rows)
        inner = z[own][:, rows].T + z[own] @ r[own].T
        gap = r[own] @ p[own].T
        weights = z[-outputs:, rows].T + z[own] @ r[-outputs:].T
        low[g], high[g] = _group_bounds((inner + inner.T) / 2, (gap + gap.T) / 2, weights, target_error, problem.noise)
    return low, high


def _group_bounds(inner: Array, gap: Array, weights: Array, target_error: float, noise: float) -> tuple[Array, Array]:
    """Bounds from A = (M⁻¹)_SS between `inner` and `inner + gap` and (M⁻¹Y)_S near `weights`."""
    least = np.linalg.eigvalsh(inner)
    if least[0] <= 0:
        return np.zeros(2), np.full(2, np.inf)
    outer = inner + gap
    most = np.minimum(np.linalg.eigvalsh(outer), 1 / noise)
    slack = float(np.linalg.norm(gap, 2))
    weights_error = np.sqrt(max(float(np.trace(gap)), 0.0) * target_error)
    residual = np.linalg.solve(outer, weights)  # β = A⁻¹(M⁻¹Y)_S, the leave-group-out residual
    inverse_error = np.linalg.norm(np.linalg.inv(inner) - np.linalg.inv(outer), 2)
    error = inverse_error * np.linalg.norm(weights) + weights_error / least[0]
    # H = I − σ²A lies between these two; its spectral norm is at most `top`.
    above, below = np.eye(len(inner)) - noise * inner, np.eye(len(inner)) - noise * outer
    top = max(1 - noise * least[0], 0.0)
    sizes = [float(np.sqrt(max((residual * (h @ residual)).sum(), 0.0))) for h in (below, above)]
    reach = np.sqrt(top) * error
    separation_low, separation_high = max(sizes[0] - reach, 0.0) ** 2 / noise, (sizes[1] + reach) ** 2 / noise
    outputs = weights.shape[1]
    excess_low, excess_high = (np.maximum(1 - noise * a, 0.0) / (noise * a) for a in (most, least))
    shift = float(np.linalg.norm(above @ residual))
    shift_error = noise * slack * float(np.linalg.norm(residual)) + top * error
    low = [0.5 * (outputs * variance_excess(excess_low).sum() + separation_low), 0.5 * max(shift - shift_error, 0.0) ** 2]
    high = [0.5 * (outputs * variance_excess(excess_high).sum() + separation_high), 0.5 * (shift + shift_error) ** 2]
    return np.array(low), np.array(high)

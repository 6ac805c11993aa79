"""Linear algebra that reports when it needed a rescue.

It has scaled SPD inverses, forms over pairs of rows, and conjugate gradients.

`vech` order throughout: the upper triangle row by row, (0,0), (0,1) … (0,d−1), (1,1) ….
Rows are held as (row, record) so that every product below is one matrix multiplication over
records.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import lapack

from noshadow.checks import Array, NumericalError, said

JITTER_LADDER = (0.0, 1e-14, 1e-12, 1e-10, 1e-8)
_PANEL_ROWS = 512
# Rows that start on 64-byte boundaries run a third faster through the BLAS: 16 float32 numbers.
_ALIGNED = 16
# Multiplications from which more threads pay: they cost 5 ms to start, each with the BLAS's own.
_THREADED_FROM = 20_000_000


@dataclass(frozen=True, eq=False)
class SpdInverse:
    """Inverse of a symmetric positive definite matrix, and what it took.

    Attributes:
        matrix: (N, N) float64.
        jitter: what was added to the diagonal of the unit-diagonal scaled matrix; 0 when nothing
            was.
        condition: 1-norm condition estimate of the scaled matrix.
    """

    matrix: Array
    jitter: float
    condition: float


def spd_inverse(matrix: Array, *, overwrite: bool = False) -> SpdInverse:
    """Inverse by Cholesky of the matrix scaled to unit diagonal, with a reported jitter ladder.

    Scaling to unit diagonal bounds the rounding error by the condition of the scaled matrix, which
    for curvatures of rare classes is far below that of the matrix itself.

    Args:
        matrix: (N, N) symmetric, float64; left untouched unless `overwrite`.
        overwrite: use the matrix as work space, for callers that have no more need of it.

    Raises:
        NumericalError: not positive definite even with the largest jitter.

    Cost: N³ flops, one or two further N × N matrices.
    """
    diagonal = matrix.diagonal()
    usable = (diagonal > 0) & np.isfinite(diagonal)
    if not usable.all():
        raise NumericalError(
            said(f"the curvature has {int((~usable).sum())} non-positive or infinite diagonal entries. Raise the damping.")
        )
    scale = 1.0 / np.sqrt(diagonal)
    scaled = _scaled_on_both_sides(matrix if overwrite else matrix.copy(), scale)
    norm = one_norm(scaled)
    for jitter in JITTER_LADDER:
        # A failed attempt has overwritten the diagonal, which is known to be one.
        scaled.flat[:: len(scaled) + 1] = 1.0 + jitter
        factor, info = cholesky_in_place(scaled)
        if info == 0:
            break
        _mirrored(scaled.T)  # the other triangle still holds the matrix
    else:
        raise NumericalError(said(f"the curvature is not positive definite even with jitter {JITTER_LADDER[-1]:g}. Raise the damping."))
    condition = cholesky_condition(factor, norm)
    lower, info = lapack.dpotri(factor, lower=1, overwrite_c=1)
    if info != 0:
        raise NumericalError(said(f"inverting the Cholesky factor failed at pivot {info}. Raise the damping."))
    inverse = _mirrored(_scaled_on_both_sides(lower.T, scale))
    return SpdInverse(inverse, jitter, condition)


def one_norm(matrix: Array) -> float:
    """Largest absolute row sum, which for a symmetric matrix is its 1-norm.

    The sum is taken in strips, so that no second matrix is made.
    """
    return max(float(np.abs(matrix[low : low + 256]).sum(1).max()) for low in range(0, len(matrix), 256))


def cholesky_in_place(matrix: Array) -> tuple[Array, int]:
    """Cholesky factor of a symmetric row-ordered matrix in the matrix's own memory.

    Returns:
        (factor, pivot): the factor is column-ordered and in the lower triangle, the other triangle
        still holds the matrix. The pivot is 0, or the 1-based number of the first row at which the
        matrix is not positive definite.
    """
    # Symmetric, so its transpose is the column-ordered matrix that LAPACK wants.
    factor, pivot = lapack.dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
    return factor, int(pivot)


def cholesky_condition(factor: Array, norm: float) -> float:
    """1-norm condition estimate of a matrix from its Cholesky factor and its 1-norm."""
    reciprocal, _ = lapack.dpocon(factor, norm, uplo="L")
    return float(1.0 / max(reciprocal, np.finfo(float).tiny))


def cholesky_inverse(factor: Array) -> Array:
    """Both triangles of a matrix's inverse, column-ordered, from its Cholesky factor.

    The factor is left untouched.
    """
    inverse, _ = lapack.dpotri(factor, lower=1)
    symmetric: Array = _mirrored(inverse.T).T
    return symmetric


def _scaled_on_both_sides(matrix: Array, scale: Array) -> Array:
    """diag(scale)·matrix·diag(scale) in place.

    It is done by torch, whose element-wise loops use all threads.
    """
    tensor, factor = torch.from_numpy(matrix), torch.from_numpy(scale)
    tensor.mul_(factor[:, None]).mul_(factor)
    return matrix


def batched_spd_solve(matrices: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Solve many small symmetric positive definite systems, (b, m, m) and (b, m), by Cholesky.

    LAPACK works on one small matrix at a time, so it is the batch that is shared out over torch's
    threads.

    Returns:
        (solutions (b, m), smallest pivots (b,)); a matrix that is not positive definite has pivot 0
        and a meaningless solution.
    """
    threads = torch.get_num_threads()
    if threads == 1 or matrices.numel() * matrices.shape[-1] < _THREADED_FROM:
        return _spd_solve(matrices, right)
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(_spd_solve, matrices.chunk(2 * threads), right.chunk(2 * threads)))
    return torch.cat([solution for solution, _ in parts]), torch.cat([pivots for _, pivots in parts])


def _spd_solve(matrices: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    factor, info = torch.linalg.cholesky_ex(matrices)
    pivots = factor.diagonal(dim1=1, dim2=2).amin(1) ** 2
    return torch.cholesky_solve(right[:, :, None], factor)[:, :, 0], torch.where(info > 0, torch.zeros_like(pivots), pivots)


def _mirrored(upper: Array, block: int = 512) -> Array:
    """Copy the upper triangle of a square matrix onto its lower one, in place."""
    for start in range(0, len(upper), block):
        stop = min(start + block, len(upper))
        corner = upper[start:stop, start:stop]
        corner[:] = np.triu(corner) + np.triu(corner, 1).T
        upper[stop:, start:stop] = upper[start:stop, stop:].T
    return upper


def vech_offsets(d: int) -> list[int]:
    """Where row i of the upper triangle starts in vech order; the last entry is d(d+1)/2."""
    return [i * d - i * (i - 1) // 2 for i in range(d + 1)]


def pair_products(rows: torch.Tensor, *, strict: bool = False) -> torch.Tensor:
    """Products of all pairs of rows, (d, b) → (d(d+1)/2, b) in vech order.

    `strict` leaves out squares.
    """
    d, b = rows.shape
    out = rows.new_empty((d * (d - 1) // 2 if strict else d * (d + 1) // 2, b))
    start = 0
    for i in range(d):
        partners = rows[i + 1 :] if strict else rows[i:]
        torch.mul(rows[i], partners, out=out[start : start + len(partners)])
        start += len(partners)
    return out


def pair_gram(parts: Iterable[tuple[torch.Tensor, torch.Tensor]], k: int, d: int) -> torch.Tensor:
    """Σ_b weights[:, b] · vech(rows_b rows_bᵀ)ᵀ over parts of the records, (k, d(d+1)/2) float64.

    Args:
        parts: pairs of weights (k, b) and rows (d, b) of one dtype, in which each part is
            multiplied; parts are added up in float64.

    Cost: k·d²·b flops up to the panel's corner. Whichever of the two sides is smaller gets
        multiplied out, so the work beside the matrix product is O(min(k, d)·d·b). Memory: twice the
        result.
    """
    if k >= d:
        total = torch.zeros((k, d * (d + 1) // 2), dtype=torch.float64)
        for weights, rows in parts:
            products = pair_products(rows)
            total += _aligned_product(weights, products)[:, : len(products)]
        return total
    # Whole panels are added up, below their diagonal too, and taken apart once: a row at a time
    # costs as much as the product.
    panels = _panels(d, k)
    sums = [torch.zeros(((high - low) * k, _aligned(d - low)), dtype=torch.float64) for low, high in panels]
    for weights, rows in parts:
        for (low, high), held in zip(panels, sums, strict=True):
            held += _aligned_product((rows[low:high, None, :] * weights).flatten(0, 1), rows[low:])
    offsets, total = vech_offsets(d), torch.empty((k, d * (d + 1) // 2), dtype=torch.float64)
    for low, high in panels:
        panel = sums.pop(0).view(high - low, k, -1)
        for i in range(low, high):
            total[:, offsets[i] : offsets[i + 1]] = panel[i - low, :, i - low : d - low]
    return total


def _panels(d: int, k: int) -> list[tuple[int, int]]:
    """Runs of rows whose products with k weights fill about `_PANEL_ROWS` rows of one matrix."""
    panel = max(1, _PANEL_ROWS // k)
    return [(low, min(low + panel, d)) for low in range(0, d, panel)]


def _aligned(length: int) -> int:
    """The next multiple of the alignment."""
    return length + -length % _ALIGNED


def _aligned_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left·rightᵀ, (p, b)·(b, q) → (p, q′), with q′ ≥ q a multiple of the alignment.

    Columns past q are zero.
    """
    short = _aligned(len(right)) - len(right)
    padded = torch.cat([right, right.new_zeros((short, right.shape[1]))]) if short else right
    return left @ padded.T


@dataclass(frozen=True, eq=False)
class PairForms:
    """Quadratic forms over d coordinates, laid out for fast evaluation on blocks of records.

    There are `count` = k forms.

    `dense` holds (k, d(d+1)/2) vech coefficients when k ≥ d; otherwise `panels` holds, for each run
    of rows, the coefficients as one matrix.
    """

    count: int
    dense: torch.Tensor | None
    panels: Sequence[tuple[int, int, torch.Tensor]]


def pair_forms(coefficients: torch.Tensor, d: int) -> PairForms:
    """Lay out forms given by vech coefficients (k, d(d+1)/2).

    Off-diagonal entries are already doubled.
    """
    k = len(coefficients)
    if k >= d:
        return PairForms(k, coefficients, ())
    offsets = vech_offsets(d)
    panels = []
    for low, high in _panels(d, k):
        block = coefficients.new_zeros((high - low, k, d - low))
        for i in range(low, high):
            block[i - low, :, i - low :] = coefficients[:, offsets[i] : offsets[i + 1]]
        panels.append((low, high, block.flatten(0, 1)))
    return PairForms(k, None, panels)


def pair_form_values(forms: PairForms, rows: torch.Tensor) -> torch.Tensor:
    """Values (k, b) of the forms at the columns of `rows` (d, b)."""
    if forms.dense is not None:
        return forms.dense @ pair_products(rows)
    values = rows.new_zeros((forms.count, rows.shape[1]))
    for low, high, block in forms.panels:
        partial = (block @ rows[low:]).view(high - low, *values.shape)
        for i in range(low, high):
            values.addcmul_(partial[i - low], rows[i])  # one read of the product, no write
    return values


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

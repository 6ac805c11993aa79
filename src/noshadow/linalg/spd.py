"""Inverses and factors of symmetric positive definite matrices, with every rescue reported."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import lapack

from noshadow.checks import Array, NumericalError, said

JITTER_LADDER = (0.0, 1e-14, 1e-12, 1e-10, 1e-8)
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

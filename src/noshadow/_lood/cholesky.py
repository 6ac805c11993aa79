"""Cholesky factor of a kernel matrix plus noise, with what is wrong with the matrix said in numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from scipy.linalg import blas, lapack

from noshadow.checks import Array, refuse

# How far from symmetric or positive semi-definite a matrix may be, relative to its largest diagonal entry: rounding
# in its own precision, and quadrature in a kernel, stay below.
_ASYMMETRY = {4: 1e-5, 8: 1e-10}
_NEGATIVE = {4: 1e-4, 8: 1e-8}
_LANCZOS_STEPS = 40
_STRIP = 256


@dataclass(frozen=True, eq=False)
class NoisyFactor:
    """Cholesky factor of M = K + σ²I.

    Attributes:
        lower: (n, n) column-ordered; its lower triangle is the factor, the rest is scrap.
        condition: 1-norm condition estimate of M.
        smallest_eigenvalue: Lanczos estimate, from above, of K's smallest eigenvalue.
    """

    lower: Array
    condition: float
    smallest_eigenvalue: float


def noisy_factor(matrix: Array, noise: float, owner: str, argument: str) -> NoisyFactor:
    """Factor K + σ²I in a private copy, refusing a K that is not symmetric or not positive semi-definite.

    Raises:
        InputError: the entries that differ most, the failed pivot, or the negative eigenvalue found.

    Cost: ⅓n³ flops, one n × n matrix.
    """
    _require_symmetric(matrix, owner, argument)
    n, diagonal = len(matrix), matrix.diagonal()
    if diagonal.min() < 0:
        row = int(diagonal.argmin())
        refuse(owner, argument, "be positive semi-definite", f"{diagonal[row]:.3g} on the diagonal at row {row}")
    work = np.array(matrix, dtype=np.float64, order="C")
    work.flat[:: n + 1] += noise
    norm = max(float(np.abs(work[low : low + _STRIP]).sum(1).max()) for low in range(0, n, _STRIP))
    # Symmetric, so its transpose is the column-ordered matrix that LAPACK wants: factored in place.
    lower, failed = lapack.dpotrf(work.T, lower=1, clean=0, overwrite_a=1)
    if failed:
        eigenvalue = _lowest_ritz_value(lambda v: matrix @ v, n)
        _refuse_indefinite(eigenvalue, f"a pivot ≤ 0 at row {failed - 1} of K + noise·I", owner, argument)
    reciprocal, _ = lapack.dpocon(lower, norm, uplo="L")

    def minus_inverse(v: Array) -> Array:
        return -np.asarray(blas.dtrsv(lower, blas.dtrsv(lower, v, lower=1), lower=1, trans=1))

    smallest = -1.0 / _lowest_ritz_value(minus_inverse, n) - noise
    if smallest < -_tolerance(matrix, _NEGATIVE):
        _refuse_indefinite(smallest, "a negative eigenvalue", owner, argument)
    return NoisyFactor(lower, float(1.0 / max(reciprocal, np.finfo(float).tiny)), smallest)


def _require_symmetric(matrix: Array, owner: str, argument: str) -> None:
    worst, where = 0.0, (0, 0)
    for low in range(0, len(matrix), _STRIP):
        strip = np.abs(matrix[low : low + _STRIP, low:] - matrix[low:, low : low + _STRIP].T)
        row, column = np.unravel_index(strip.argmax(), strip.shape)
        if strip[row, column] > worst:
            worst, where = float(strip[row, column]), (low + int(row), low + int(column))
    if worst > _tolerance(matrix, _ASYMMETRY):
        got = f"entries {where} and {where[::-1]} that differ by {worst:.3g}"
        refuse(owner, argument, "be symmetric", got, "Use (K + K.T) / 2 if the two should agree.")


def _tolerance(matrix: Array, table: dict[int, float]) -> float:
    return table[4 if matrix.dtype == np.float32 else 8] * float(np.abs(matrix.diagonal()).max())


def _refuse_indefinite(eigenvalue: float, sign: str, owner: str, argument: str) -> NoReturn:
    got = f"{sign}, the smallest eigenvalue being at most {eigenvalue:.3g}"
    refuse(owner, argument, "be positive semi-definite", got, "Check the kernel, or raise the noise if this is rounding.")


def _lowest_ritz_value(product: Callable[[Array], Array], n: int) -> float:
    """Lanczos estimate, from above, of the smallest eigenvalue of a symmetric operator."""
    basis = np.empty((min(_LANCZOS_STEPS, n), n))
    vector = np.random.default_rng(0).normal(size=n)
    diagonal, beside = [], []
    for step in range(len(basis)):
        basis[step] = vector / np.linalg.norm(vector)
        image = product(basis[step])
        diagonal.append(float(basis[step] @ image))
        for _ in range(2):  # once is not orthogonal enough
            image = image - basis[: step + 1].T @ (basis[: step + 1] @ image)
        beside.append(float(np.linalg.norm(image)))
        if beside[-1] <= 1e-13 * max(np.abs(diagonal)):
            break
        vector = image
    size = len(diagonal)
    tridiagonal = np.diag(diagonal) + np.diag(beside[: size - 1], 1) + np.diag(beside[: size - 1], -1)
    return float(np.linalg.eigvalsh(tridiagonal)[0])

"""One factorisation of a Gaussian process's training matrix, shared by every group and query.

A matrix that cannot be a kernel matrix is refused with what is wrong with it in numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import torch
from scipy.linalg import blas, lapack
from scipy.sparse.linalg import LinearOperator, eigsh

from noshadow._lood.inputs import (
    Kernel,
    Noise,
    asked_noise,
    input_rows,
    kernel_values,
    require_memory,
    require_rows_match,
    target_columns,
)
from noshadow.arguments import MAX_MEMORY
from noshadow.checks import Array, named_in_errors, refuse
from noshadow.linalg import cholesky_condition, cholesky_in_place, cholesky_inverse, one_norm

# How far from symmetric or positive semi-definite a matrix may be, relative to its largest diagonal
# entry: rounding in its own precision, and quadrature in a kernel, stay below.
_ASYMMETRY = {4: 1e-5, 8: 1e-10}
_NEGATIVE = {4: 1e-4, 8: 1e-8}
_STRIP = 256
_DENSE = 64  # side up to which all eigenvalues are cheaper than an iteration
# Vectors of ARPACK's basis, and the residual at which it stops: it then almost always needs that
# many products and no restart, and the eigenvalue, whose error is the square of the residual's, has
# its digits.
_BASIS = 40
_RESIDUAL = 1e-3


@dataclass(frozen=True, eq=False)
class Posterior:
    """A Gaussian process given n noisy observations, ready for leave-group-out updates.

    Attributes:
        x: (n, …) float64 inputs. y: (n, C) targets.
        kernel: the callable. noise: σ². mean_diagonal: of K, the prior variance of a prediction.
        factor: (n, n) column-ordered; its lower triangle is the Cholesky factor of M = K + σ²I, the
            rest is scrap.
        weights: (n, C) M⁻¹Y.
        inverse: (n, n) M⁻¹ when asked for; `optimal_query` needs it.
        condition: 1-norm condition estimate of M.
    """

    x: torch.Tensor
    y: Array
    kernel: Kernel
    noise: float
    mean_diagonal: float
    factor: Array
    weights: Array
    inverse: Array | None
    condition: float


@named_in_errors
def posterior_of(
    x: object,
    y: object,
    *,
    kernel: Kernel,
    noise: float | None = None,
    relative_noise: float | None = None,
    with_inverse: bool = False,
    max_memory: float = MAX_MEMORY,
) -> Posterior:
    """The factorised posterior of a Gaussian process, to reuse over many groups and queries.

    Args:
        x: (n, …) inputs, n ≥ 2. y: (n,) or (n, C) floats, or (n,) integer labels 0 … C − 1 (one-hot
            columns).
        kernel: callable (x, z) → (len(x), len(z)) tensor.
        noise: σ² > 0. relative_noise: σ² as a share of the mean of K(x, x) over the records, in its
            place.
        with_inverse: invert M as well, for `optimal_query` and `query_lood`.
        max_memory: bytes that the kernel matrix and its factor may take.

    Returns:
        Posterior, accepted as `factor=` by `lood`, `optimal_query` and `query_lood`.

    Raises:
        InputError: bad arrays, noise ≤ 0, a kernel of the wrong shape, asymmetric or not positive
            semi-definite, too large for memory.

    Cost: n² kernel values, ⅓n³ flops (n³ with the inverse), two n × n float64 matrices (three).
    """
    rows, columns, asked = input_rows(x, "x"), target_columns(y, "y"), asked_noise(noise, relative_noise)
    require_rows_match(rows, columns)
    n = len(rows)
    matrices = 3 if with_inverse else 2
    require_memory(8.0 * matrices * n * n, max_memory, n, "Raise max_memory, or bound chosen groups with lood_bounds.")
    with torch.no_grad():
        values = kernel_values(kernel, rows, rows).numpy()
    diagonal = float(values.diagonal().mean())
    sigma2 = asked.noise_variance(diagonal)
    factor = noisy_factor(values, sigma2, "kernel(x, x)")
    del values
    weights, _ = lapack.dpotrs(factor.lower, columns, lower=1)
    inverse = cholesky_inverse(factor.lower) if with_inverse else None
    weights = np.ascontiguousarray(weights)
    return Posterior(rows, columns, kernel, sigma2, diagonal, factor.lower, weights, inverse, factor.condition)


def require_same_problem(factor: object, x: object, y: object, kernel: Kernel, noise: Noise) -> Posterior:
    """The factor, refused unless it was made from these x, y, kernel and noise."""
    if not isinstance(factor, Posterior):
        refuse("factor", "be a factor that was made before, or None", type(factor).__name__, "Leave it out: it is made afresh.")
    rows, columns = input_rows(x, "x"), target_columns(y, "y")
    same = {
        "x": torch.equal(rows, factor.x),
        "y": np.array_equal(columns, factor.y),
        "kernel": kernel is factor.kernel,
        "noise": noise.noise_variance(factor.mean_diagonal) == factor.noise,
    }
    other = [name for name, equal in same.items() if not equal]
    if other:
        refuse("factor", "come from the same x, y, kernel and noise", f"another {other[0]}", "Leave it out: it is made afresh.")
    return factor


def half_solved(posterior: Posterior, right: Array) -> Array:
    """L⁻¹B for the Cholesky factor L of M.

    The squared lengths of its columns are the diagonal of BᵀM⁻¹B.
    """
    solved, _ = lapack.dtrtrs(posterior.factor, right, lower=1)
    return np.asarray(solved)


def solved(posterior: Posterior, right: Array) -> Array:
    """M⁻¹B."""
    solution, _ = lapack.dpotrs(posterior.factor, right, lower=1)
    return np.asarray(solution)


@dataclass(frozen=True, eq=False)
class NoisyFactor:
    """Cholesky factor of M = K + σ²I.

    Attributes:
        lower: (n, n) column-ordered; its lower triangle is the factor, the rest is scrap.
        condition: 1-norm condition estimate of M.
        smallest_eigenvalue: estimate, from above, of K's smallest eigenvalue.
    """

    lower: Array
    condition: float
    smallest_eigenvalue: float


def noisy_factor(matrix: Array, noise: float, argument: str) -> NoisyFactor:
    """Factor K + σ²I in a private copy.

    A K that is not symmetric or not positive semi-definite is refused.

    Raises:
        InputError: the entries that differ most, the failed pivot, or the negative eigenvalue
            found.

    Cost: ⅓n³ flops, one n × n matrix.
    """
    _require_symmetric(matrix, argument)
    n, diagonal = len(matrix), matrix.diagonal()
    if diagonal.min() < 0:
        row = int(diagonal.argmin())
        refuse(argument, "be positive semi-definite", f"{diagonal[row]:.3g} on the diagonal at row {row}")
    work = np.array(matrix, dtype=np.float64, order="C")
    work.flat[:: n + 1] += noise
    norm = one_norm(work)
    lower, failed = cholesky_in_place(work)
    smallest = _smallest_eigenvalue(matrix, None if failed else lower, noise)
    if failed:
        _refuse_indefinite(smallest, f"a pivot ≤ 0 at row {failed - 1} of K + noise·I", argument)
    if smallest < -_tolerance(matrix, _NEGATIVE):
        _refuse_indefinite(smallest, "a negative eigenvalue", argument)
    return NoisyFactor(lower, cholesky_condition(lower, norm), smallest)


def _smallest_eigenvalue(matrix: Array, lower: Array | None, noise: float) -> float:
    """Smallest eigenvalue of K, from above.

    The factor of K + σ²I is used where there is one, because this eigenvalue dominates the inverse;
    otherwise K itself is used.
    """
    n = len(matrix)
    if n <= _DENSE:
        return float(np.linalg.eigvalsh(matrix.astype(np.float64))[0])
    if lower is None:
        # Less its norm, the eigenvalue is the largest in size, to which ARPACK's tolerance is
        # relative.
        norm = one_norm(matrix)
        return _lowest(lambda v: matrix @ v - norm * v, n) + norm

    def minus_inverse(v: Array) -> Array:
        return -np.asarray(blas.dtrsv(lower, blas.dtrsv(lower, v, lower=1), lower=1, trans=1))

    return -1.0 / _lowest(minus_inverse, n) - noise


def _lowest(product: Callable[[Array], Array], n: int) -> float:
    """Smallest eigenvalue of a symmetric operator, from above."""
    operator = LinearOperator((n, n), lambda v: product(v.ravel()), dtype=np.float64)
    # ARPACK would draw its own start, and the last digits would change from run to run.
    start = np.random.default_rng(0).normal(size=n)
    return float(eigsh(operator, k=1, which="SA", ncv=_BASIS, tol=_RESIDUAL, v0=start, return_eigenvectors=False)[0])


def _require_symmetric(matrix: Array, argument: str) -> None:
    worst, where = 0.0, (0, 0)
    for low in range(0, len(matrix), _STRIP):
        strip = np.abs(matrix[low : low + _STRIP, low:] - matrix[low:, low : low + _STRIP].T)
        row, column = np.unravel_index(strip.argmax(), strip.shape)
        if strip[row, column] > worst:
            worst, where = float(strip[row, column]), (low + int(row), low + int(column))
    if worst > _tolerance(matrix, _ASYMMETRY):
        got = f"entries {where} and {where[::-1]} that differ by {worst:.3g}"
        refuse(argument, "be symmetric", got, "Use (K + K.T) / 2 if the two should agree.")


def _tolerance(matrix: Array, table: dict[int, float]) -> float:
    return table[4 if matrix.dtype == np.float32 else 8] * float(np.abs(matrix.diagonal()).max())


def _refuse_indefinite(eigenvalue: float, sign: str, argument: str) -> NoReturn:
    got = f"{sign}, the smallest eigenvalue being at most {eigenvalue:.3g}"
    refuse(argument, "be positive semi-definite", got, "Check the kernel, or raise the noise if this is rounding.")

"""One factorisation of a Gaussian process's training matrix, shared by every group and query."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import lapack

from noshadow._lood.cholesky import noisy_factor
from noshadow._lood.inputs import (
    Kernel,
    input_rows,
    kernel_values,
    require_memory,
    require_noise,
    require_rows_match,
    target_columns,
)
from noshadow.checks import Array, refuse

_STRIP = 256


@dataclass(frozen=True, eq=False)
class Posterior:
    """A Gaussian process given n noisy observations, ready for leave-group-out updates.

    Attributes:
        x: (n, …) float64 inputs. y: (n, C) targets.
        kernel: the callable. noise: σ².
        factor: (n, n) column-ordered; its lower triangle is the Cholesky factor of M = K + σ²I, the rest is scrap.
        weights: (n, C) M⁻¹Y.
        inverse: (n, n) M⁻¹ when asked for; `optimal_query` needs it.
        condition: 1-norm condition estimate of M.
    """

    x: torch.Tensor
    y: Array
    kernel: Kernel
    noise: float
    factor: Array
    weights: Array
    inverse: Array | None
    condition: float


def posterior_of(
    x: object,
    y: object,
    *,
    kernel: Kernel,
    noise: float,
    with_inverse: bool = False,
    max_memory: float = 8e9,
    owner: str = "posterior_of",
) -> Posterior:
    """The factorised posterior of a Gaussian process, to reuse over many groups and queries.

    Args:
        x: (n, …) inputs, n ≥ 2. y: (n,) or (n, C) floats, or (n,) integer labels 0 … C − 1 (one-hot columns).
        kernel: callable (x, z) → (len(x), len(z)) tensor. noise: σ² > 0.
        with_inverse: invert M as well, for `optimal_query` and `query_lood`.
        max_memory: bytes that the kernel matrix and its factor may take. owner: whom an error names.

    Returns:
        Posterior, accepted as `factor=` by `lood`, `optimal_query` and `query_lood`.

    Raises:
        InputError: bad arrays, noise ≤ 0, a kernel of the wrong shape, asymmetric or not positive semi-definite, too
            large for memory.

    Cost: n² kernel values, ⅓n³ flops (n³ with the inverse), two n × n float64 matrices (three).
    """
    rows, columns, sigma2 = input_rows(x, owner, "x"), target_columns(y, owner, "y"), require_noise(noise, owner)
    require_rows_match(rows, columns, owner)
    n = len(rows)
    matrices = 3 if with_inverse else 2
    require_memory(8.0 * matrices * n * n, max_memory, owner, n, "Raise max_memory, or bound chosen groups with lood_bounds.")
    with torch.no_grad():
        values = kernel_values(kernel, rows, rows, owner).numpy()
    factor = noisy_factor(values, sigma2, owner, "kernel(x, x)")
    del values
    weights, _ = lapack.dpotrs(factor.lower, columns, lower=1)
    inverse = _inverse(factor.lower) if with_inverse else None
    return Posterior(rows, columns, kernel, sigma2, factor.lower, np.ascontiguousarray(weights), inverse, factor.condition)


def _inverse(lower: Array) -> Array:
    """M⁻¹, both triangles, from its Cholesky factor."""
    inverse, _ = lapack.dpotri(lower, lower=1)
    for start in range(0, len(inverse), _STRIP):
        stop = start + _STRIP
        corner = np.tril(inverse[start:stop, start:stop])
        inverse[start:stop, start:stop] = corner + np.tril(corner, -1).T
        inverse[start:stop, stop:] = inverse[stop:, start:stop].T
    return np.asarray(inverse)


def require_same_problem(factor: object, x: object, y: object, kernel: Kernel, noise: float, owner: str) -> Posterior:
    """The factor, refused unless it was made from these x, y, kernel and noise."""
    if not isinstance(factor, Posterior):
        refuse(owner, "factor", "be what posterior_of returns", type(factor).__name__)
    rows, columns = input_rows(x, owner, "x"), target_columns(y, owner, "y")
    same = {
        "x": torch.equal(rows, factor.x),
        "y": np.array_equal(columns, factor.y),
        "kernel": kernel is factor.kernel,
        "noise": require_noise(noise, owner) == factor.noise,
    }
    other = [name for name, equal in same.items() if not equal]
    if other:
        refuse(owner, "factor", "come from the same x, y, kernel and noise", f"another {other[0]}", "Make it again with posterior_of.")
    return factor


def half_solved(posterior: Posterior, right: Array) -> Array:
    """L⁻¹B for the Cholesky factor L of M: squares of its columns' lengths are BᵀM⁻¹B's diagonal."""
    solved, _ = lapack.dtrtrs(posterior.factor, right, lower=1)
    return np.asarray(solved)


def solved(posterior: Posterior, right: Array) -> Array:
    """M⁻¹B."""
    solution, _ = lapack.dpotrs(posterior.factor, right, lower=1)
    return np.asarray(solution)

"""Leave-one-out distinguishability of every record, at the record itself.

It comes from one Cholesky factorisation.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from noshadow._lood.divergence import variance_excess
from noshadow._lood.factor import noisy_factor
from noshadow._lood.gaussian_attack import likelihood_ratio_auc, likelihood_ratio_tpr
from noshadow._lood.inputs import asked_noise, require_memory, target_columns
from noshadow.arguments import MAX_MEMORY
from noshadow.checks import Array, floating, named_in_errors, numeric_array, refuse, require_number, require_same_length, require_squarable

_SMALL_LEVERAGE = 1e-2
_STRIP = 256


@dataclass(frozen=True, eq=False)
class LoodScores:
    """Leave-one-out distinguishability of n records, each queried at itself; larger = riskier.

    Attributes:
        kl: (n,) KL(f without the record ‖ f with it), nats, summed over outputs.
        mean_distance: (n,) half the squared distance between the two posterior means.
        loo_mean, loo_variance: (n, C) and (n,) posterior at the record without it.
        mean, variance: (n, C) and (n,) posterior at the record with it.
        leverage: (n,) [K(K + σ²I)⁻¹]_ii in [0, 1]; loo_variance is σ²·leverage/(1 − leverage).
        auc, tpr: (n,) likelihood-ratio attack between the two posteriors; member = trained with the
            record.
        noise: σ². fpr: as given.
        condition: 1-norm condition estimate of K + σ²I.
        smallest_eigenvalue: estimate of K's smallest eigenvalue, from above.
    """

    kl: Array
    mean_distance: Array
    loo_mean: Array
    loo_variance: Array
    mean: Array
    variance: Array
    leverage: Array
    auc: Array
    tpr: Array
    noise: float
    fpr: float
    condition: float
    smallest_eigenvalue: float


@named_in_errors
def lood_scores(
    kernel_matrix: object,
    targets: object,
    *,
    noise: float | None = None,
    relative_noise: float | None = None,
    fpr: float = 1e-3,
    max_memory: float = MAX_MEMORY,
) -> LoodScores:
    """Leave-one-out distinguishability of every record of a Gaussian process.

    Each record is queried at itself.

    With M = K + σ²I, q_i = (M⁻¹)_ii, leverage h_i = 1 − σ²q_i, t_i = h_i/(1 − h_i) and
    leave-one-out residual r_i = (M⁻¹Y)_i/q_i:

        Σ_i = σ²t_i,  Σ′_i = σ²h_i,  μ_i = y_i − r_i,  μ′_i − μ_i = h_i r_i,
        kl_i = ½[C(t_i − log(1 + t_i)) + ‖r_i‖²h_i/σ²],   mean_distance_i = ½h_i²‖r_i‖².

    D is the data without record i (μ, Σ), D′ the data with it (μ′, Σ′). None of these cancels: t −
    log(1 + t) is summed as a series when t is small, and where h_i is small and K_ii < σ² the
    leverage is taken as (K_ii − k_iᵀM⁻¹k_i)/σ² instead. Duplicated records are fine: each hides the
    other, and LOOD falls.

    Args:
        kernel_matrix: (n, n) symmetric positive semi-definite, n ≥ 2; never modified.
        targets: (n,) or (n, C) floats, or (n,) integer labels 0 … C − 1, which become C one-hot
            columns.
        noise: variance σ² > 0 of the observation noise. relative_noise: σ² as a share of the mean
            diagonal of the kernel matrix, in its place: with it, kernels of different size can be
            compared.
        fpr: false-positive rate of `tpr`, in (0, 1).
        max_memory: bytes that the call may take beside the kernel matrix (it needs one more n × n
            matrix).

    Returns:
        LoodScores.

    Raises:
        InputError: a matrix that is not square, symmetric, finite or positive semi-definite (the
            message says how far off it is), noise ≤ 0, targets of another length, a matrix that
            would not fit in memory.

    Exact when: always; rounding grows with `condition`.
    Cost: ⅔n³ flops and one n × n float64 matrix, up to n³ more when many records have little
        leverage.
    Reference: [LOOD] Definitions C.1 and C.3, Eqs. (3)–(6), proof of Theorem 4.1.

    >>> scores = lood_scores(np.eye(3), [0.0, 1.0, 2.0], noise=1.0)
    >>> scores.mean_distance
    array([0.   , 0.125, 0.5  ])
    """
    asked = asked_noise(noise, relative_noise)
    rate = require_number(fpr, "fpr", low=0, high=1, low_open=True, high_open=True)
    matrix = floating(numeric_array(kernel_matrix, "kernel_matrix", ndim=2))
    y = target_columns(targets, "targets")
    n = len(matrix)
    if matrix.shape != (n, n) or n < 2:
        refuse("kernel_matrix", "be square with at least 2 rows", f"shape {matrix.shape}")
    require_same_length(kernel_matrix=matrix, targets=y)
    require_memory(9.0 * n * n, max_memory, n, "Raise max_memory, or bound chosen records with lood_bounds.")
    require_squarable(matrix, "kernel_matrix")
    sigma2 = asked.noise_variance(float(matrix.diagonal().mean(dtype=np.float64)))
    factor = noisy_factor(matrix, sigma2, "kernel_matrix")
    alpha, _ = lapack.dpotrs(factor.lower, y, lower=1)
    inverse_diagonal, h = _leverages(matrix, factor.lower, sigma2)
    rest = sigma2 * inverse_diagonal  # 1 − h
    residual = alpha / inverse_diagonal[:, None]
    separation = (residual**2).sum(1) * h / sigma2
    return LoodScores(
        kl=0.5 * (y.shape[1] * variance_excess(h / rest) + separation),
        mean_distance=0.5 * h**2 * (residual**2).sum(1),
        loo_mean=y - residual,
        loo_variance=h / inverse_diagonal,
        mean=y - sigma2 * alpha,
        variance=sigma2 * h,
        leverage=h,
        auc=likelihood_ratio_auc(separation, h / rest, outputs=y.shape[1]),
        tpr=likelihood_ratio_tpr(separation, h / rest, fpr=rate, outputs=y.shape[1]),
        noise=sigma2,
        fpr=rate,
        condition=factor.condition,
        smallest_eigenvalue=factor.smallest_eigenvalue,
    )


def _leverages(matrix: Array, lower: Array, noise: float) -> tuple[Array, Array]:
    """diag(M⁻¹) and the leverages 1 − σ²·diag(M⁻¹), each in the more accurate way.

    `lower` is overwritten.
    """
    n, diagonal = len(matrix), matrix.diagonal().astype(np.float64)
    inverse, _ = lapack.dtrtri(lower, lower=1, overwrite_c=1)
    # Squares of a triangular matrix's columns: positive terms only.
    inverse_diagonal = np.array([inverse[j:, j] @ inverse[j:, j] for j in range(n)])
    leverage = 1.0 - noise * inverse_diagonal
    chosen = np.flatnonzero((leverage < _SMALL_LEVERAGE) & (diagonal < noise))
    for low in range(0, len(chosen), _STRIP):
        rows = chosen[low : low + _STRIP]
        columns = np.array(matrix[:, rows], dtype=np.float64, order="F")
        explained = (blas.dtrmm(1.0, inverse, columns, lower=1, overwrite_b=1) ** 2).sum(0)
        leverage[rows] = (diagonal[rows] - explained) / noise
    return inverse_diagonal, np.clip(leverage, 0.0, 1.0)

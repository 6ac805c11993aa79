"""Kernel regressions of scikit-learn: without a record, one row and column of the kernel go."""

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import pairwise_kernels

from noshadow.checks import Array, NotApplicable
from noshadow.views.estimator_family import EstimatorFamily, Refitted, type_name
from noshadow.views.estimators import estimator_reader

HOW = "the record's row and column leave the kernel, whose parameters stay; exact"
MOST_RECORDS = 10_000  # the kernel then takes 0.8 GB


def _kernel_ridge(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """f = K(K + αW⁻¹)⁻¹y, W the sample weights, with and without each record. Cost: O(n³)."""
    n = X.shape[0]
    require_small(n, last)
    options = (last.kernel_params or {}) if callable(last.kernel) else {"gamma": last.gamma, "degree": last.degree, "coef0": last.coef0}
    filtered = {"filter_params": True} if not callable(last.kernel) else {}
    kernel = np.asarray(pairwise_kernels(X, metric=last.kernel, **filtered, **options), dtype=np.float64)
    weight = np.ones(n) if sample_weight is None else sample_weight
    if (weight == 0).any():
        raise NotApplicable("KernelRidge with sample weights of 0 has no row to delete for those records")
    targets = y.reshape(n, -1)
    alphas = np.broadcast_to(np.asarray(last.alpha, dtype=np.float64).ravel(), (targets.shape[1],))
    columns = []
    for alpha in np.unique(alphas):
        picked = alphas == alpha
        columns.append((picked, _deleted(kernel + np.diag(alpha / weight), kernel, targets[:, picked], np.zeros(n), last)))
    whole, without = np.empty_like(targets), np.empty_like(targets)
    for picked, (fitted, left) in columns:
        whole[:, picked], without[:, picked] = fitted, left
    return Refitted(whole.reshape(y.shape), without.reshape(y.shape), HOW)


def _gaussian_process(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Posterior mean of a Gaussian process, with and without each record. Cost: O(n³).

    The kernel's parameters are those of the fit. Where the targets are normalised their mean loses
    the record, too; their standard deviation cancels.
    """
    n = X.shape[0]
    require_small(n, last)
    # A white kernel is noise of the training records, and no part of an answer.
    kernel = np.asarray(last.kernel_(X, X), dtype=np.float64)
    gram = np.asarray(last.kernel_(X), dtype=np.float64) + np.diag(np.broadcast_to(np.asarray(last.alpha, dtype=np.float64), (n,)))
    targets = y.reshape(n, -1)
    if not last.normalize_y:
        whole, without = _deleted(gram, kernel, targets, np.zeros(n), last)
        return Refitted(whole.reshape(y.shape), without.reshape(y.shape), HOW)
    sides = []
    for k in range(targets.shape[1]):
        column = targets[:, [k]]
        mean = float(column.mean())
        whole, _ = _deleted(gram, kernel, column - mean, np.zeros(n), last)
        _, without = _deleted(gram, kernel, column, (n * mean - column[:, 0]) / (n - 1), last)
        sides.append((whole[:, 0] + mean, without[:, 0]))
    whole, without = (np.column_stack([side[j] for side in sides]).reshape(y.shape) for j in range(2))
    return Refitted(whole, without, HOW)


def _deleted(gram: Array, kernel: Array, targets: Array, centres: Array, last: Any) -> tuple[Array, Array]:
    """Fitted values with all records, and of record i without it, (n, q) each.

    With G the kernel K plus noise on its diagonal, f = KG⁻¹y and, around a centre c_i that
    is known without the record, f₋ᵢ = y_i − [G⁻¹(y − c_i)]_i/[G⁻¹]_ii
    (Rasmussen and Williams 2006, eq. 5.12).
    """
    try:
        factor = cho_factor(gram, lower=True)
    except LinAlgError as error:
        raise NotApplicable(f"the kernel of {type_name(last)} is singular, so that records do not leave it by a formula") from error
    inverse = cho_solve(factor, np.eye(len(kernel)), overwrite_b=True)
    dual = inverse @ targets
    left = dual - centres[:, None] * inverse.sum(1)[:, None]
    return kernel @ dual, targets - left / np.diag(inverse)[:, None]


def require_small(n: int, last: Any) -> None:
    """Refuse more records than a kernel is inverted for."""
    if n > MOST_RECORDS:
        raise NotApplicable(f"{n} records are more than the {MOST_RECORDS} whose kernel {type_name(last)} is inverted for")


KERNEL_RIDGE = estimator_reader(
    EstimatorFamily(
        name="kernel ridge regression",
        reads=lambda last: isinstance(last, KernelRidge),
        left_out=_kernel_ridge,
    )
)

GAUSSIAN_PROCESS = estimator_reader(
    EstimatorFamily(
        name="Gaussian process regression",
        reads=lambda last: isinstance(last, GaussianProcessRegressor),
        left_out=_gaussian_process,
    )
)

"""Least squares with a penalty, and each record's fitted value had it been left out; exact."""

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from noshadow.checks import Array, NotApplicable
from noshadow.views.estimator_family import type_name


def left_least_squares(A: Array, y: Array, weight: Array, penalty: float | Array, pull: Array, last: Any) -> tuple[Array, Array]:
    """Minimise Σ w(y − a·b − c)² + λ‖b‖² + 2 pull·b; fitted values with and without each record.

    f₋ᵢ = y_i − (y_i − f_i)/(1 − h_i) with h_i = w_i(1/Σw + ãᵀ(ÃᵀWÃ + λI)⁻¹ã), ã centred where there
    is an intercept c: the pull is constant and moves both alike. NaN where h is 1.

    Args:
        A: (n, d). y: (n,) or (n, q) targets, each solved for by itself. weight: (n,). penalty: λ,
            or one per column. pull: (d,). last: the estimator, for its intercept and its name.
    """
    total = weight.sum() if last.fit_intercept else np.inf
    centre = weight @ A / total if last.fit_intercept else np.zeros(A.shape[1])
    mean = weight @ y / total if last.fit_intercept else np.zeros(y.shape[1:])
    moved = A - centre
    if moved.shape[1]:
        factor = factored((moved * weight[:, None]).T @ moved + penalty * np.eye(moved.shape[1]), last)
        sides = (moved * weight[:, None]).T @ (y - mean)
        whole = mean + moved @ cho_solve(factor, sides - (pull if y.ndim == 1 else pull[:, None]))
        reach = weight * (1 / total + np.einsum("nd,dn->n", moved, cho_solve(factor, moved.T)))
    else:
        whole, reach = np.broadcast_to(mean, y.shape), weight / total
    rest = (1 - reach).reshape(-1, *[1] * (y.ndim - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        without = y - (y - whole) / rest
    return whole, np.where(rest > 1e-10, without, np.nan)


def factored(matrix: Array, last: Any) -> Any:
    """Cholesky factor of the normal equations; not applicable where they are singular."""
    try:
        return cho_factor(matrix)
    except LinAlgError as error:
        raise NotApplicable(f"the least squares of {type_name(last)} are singular, so that records do not leave them") from error


def columns_of(X: Any, picked: Array | None = None) -> Array:
    """Some columns of a table, or all of them, as a dense array of float64."""
    chosen = X if picked is None else X.iloc[:, picked] if hasattr(X, "iloc") else X[:, picked]
    return np.asarray(chosen.toarray() if hasattr(chosen, "toarray") else chosen, dtype=np.float64)

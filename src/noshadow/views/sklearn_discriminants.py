"""Discriminants of scikit-learn: a record leaves the mean and the scatter of its class."""

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

from noshadow.checks import Array, NotApplicable
from noshadow.views.estimator_family import EstimatorFamily, Refitted, type_name
from noshadow.views.estimators import estimator_reader

HOW = "the record leaves the mean and the scatter of its class; exact"


def _linear(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Class posteriors with one scatter W for all classes, with and without each record.

    log p(c | x) = log π_c − ½ (x − μ_c)ᵀ(W/ν)⁻¹(x − μ_c) + const, ν = n (n − m for solver "svd" of
    older versions: the model itself says which). Without record i of class y with n_y records, μ_y
    moves by −(x − μ_y)/(n_y − 1), W loses n_y/(n_y − 1) (x − μ_y)(x − μ_y)ᵀ
    (Sherman–Morrison), ν and n lose one.

    Cost: O(nd² + nmd).
    """
    if last.shrinkage is not None or last.covariance_estimator is not None:
        raise NotApplicable("LinearDiscriminantAnalysis with shrinkage or a covariance estimator of its own has no form with a record out")
    table, n, m = np.asarray(X, dtype=np.float64), len(y), len(last.classes_)
    counts, means = _class_means(table, y, m)
    if last.solver != "svd" and last.priors is not None and not np.allclose(last.priors_, counts / n):
        raise NotApplicable(f"LinearDiscriminantAnalysis with solver={last.solver!r} weighs scatters by priors that were given")
    beyond = table - means[y]
    solve = _solver(beyond.T @ beyond, last)
    solved, rest = solve(beyond), counts[y] - 1
    whole, without = np.empty((n, m)), np.empty((n, m))
    with np.errstate(divide="ignore", invalid="ignore"):
        grown = counts[y] / rest
        reach = 1 - grown * np.einsum("nd,nd->n", beyond, solved)
        for c in range(m):
            away, own = table - means[c], (y == c)[:, None]
            inverse = solve(away)
            whole[:, c] = np.einsum("nd,nd->n", away, inverse)
            # x − μ_y without the record is (x − μ_y) n_y/(n_y − 1).
            left, inverse = (np.where(own, grown[:, None] * vectors, vectors) for vectors in (away, inverse))
            cross = np.einsum("nd,nd->n", left, solved)
            without[:, c] = np.einsum("nd,nd->n", left, inverse) + grown * cross**2 / reach
    without[(counts[y] <= 1) | (reach <= 0)] = np.nan
    priors, says = _log_priors(last, counts, y), last.predict_proba(X)
    fits = {spare: softmax(priors[0] - spare * whole / 2, axis=1) for spare in ((n, n - m) if last.solver == "svd" else (n,))}
    spare = min(fits, key=lambda each: float(np.abs(fits[each] - says).max()))
    return Refitted(fits[spare], _posterior(priors[1] - (spare - 1) * without / 2), HOW)


def _quadratic(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Class posteriors with a covariance per class, with and without each record.

    Only the record's own class changes. Its covariance (1 − r) W/n_y + r I, r = reg_param, becomes
    (1 − r)(W − n_y/(n_y − 1) δδᵀ)/(n_y − 1) + r I: one matrix per class less a rank-one term that
    differs by record (Sherman–Morrison, and the determinant's lemma). Cost: O(nd² + nmd).
    """
    if getattr(last, "shrinkage", None) is not None or getattr(last, "covariance_estimator", None) is not None:
        raise NotApplicable("QuadraticDiscriminantAnalysis with shrinkage or an estimator of its own has no form with a record out")
    table, n, m = np.asarray(X, dtype=np.float64), len(y), len(last.classes_)
    counts, means = _class_means(table, y, m)
    kept = 1.0 - float(last.reg_param)
    whole, without = np.empty((n, m)), np.empty((n, m))
    for c in range(m):
        beyond = table[y == c] - means[c]
        scatter, count = beyond.T @ beyond, counts[c]
        less = _divisor_offset(last, c, scatter, count, kept)
        away = table - means[c]
        covariance = kept * scatter / (count - less) + (1 - kept) * np.eye(table.shape[1])
        whole[:, c] = without[:, c] = _log_density(away, covariance, last)
        without[y == c, c] = _left_density(beyond, scatter, count, less, kept, last)
    priors = _log_priors(last, counts, y)
    return Refitted(softmax(priors[0] + whole, axis=1), _posterior(priors[1] + without), HOW)


def _divisor_offset(last: Any, c: int, scatter: Array, count: float, kept: float) -> int:
    """0 where a class's scatter is divided by n_y, 1 where by n_y − 1: its trace says which."""
    trace, d = float(np.sum(last.scalings_[c])), len(scatter)
    found = [kept * np.trace(scatter) / (count - less) + (1 - kept) * d for less in (0, 1)]
    return int(abs(found[1] - trace) < abs(found[0] - trace))


def _log_density(away: Array, covariance: Array, last: Any) -> Array:
    solve = _solver(covariance, last)
    _, size = np.linalg.slogdet(covariance)
    found: Array = -0.5 * (np.einsum("nd,nd->n", away, solve(away)) + size)
    return found


def _left_density(beyond: Array, scatter: Array, count: float, less: int, kept: float, last: Any) -> Array:
    """log N(x_i; μ, Σ) of a class's own records, each with itself taken out, (n_c,)."""
    if count - 1 - less <= 0:
        return np.full(len(beyond), np.nan)
    base = kept * scatter / (count - 1 - less) + (1 - kept) * np.eye(len(scatter))
    solve = _solver(base, last)
    taken = kept * count / (count - 1) / (count - 1 - less)
    form = np.einsum("nd,nd->n", beyond, solve(beyond))
    _, size = np.linalg.slogdet(base)
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = 1 - taken * form
        # x − μ without the record is (x − μ) n_y/(n_y − 1).
        distance = (count / (count - 1)) ** 2 * form / reach
        found: Array = np.where(reach > 0, -0.5 * (distance + size + np.log(np.maximum(reach, 1e-300))), np.nan)
    return found


def _class_means(X: Array, y: Array, m: int) -> tuple[Array, Array]:
    counts = np.bincount(y, minlength=m).astype(np.float64)
    return counts, np.array([X[y == c].mean(0) for c in range(m)])


def _solver(matrix: Array, last: Any) -> Any:
    """x → M⁻¹x over rows of x."""
    try:
        factor = cho_factor(matrix)
    except LinAlgError as error:
        raise NotApplicable(f"the scatter of {type_name(last)} is singular, so that records do not leave it by a formula") from error
    diagonal = np.abs(np.diag(factor[0]))
    if diagonal.min() < 1e-7 * diagonal.max():
        raise NotApplicable(f"the scatter of {type_name(last)} is singular to rounding, so that records do not leave it by a formula")
    return lambda rows: cho_solve(factor, rows.T).T


def _log_priors(last: Any, counts: Array, y: Array) -> tuple[Array, Array]:
    """log π_c of the whole model, (m,), and of the model without each record, (n, m)."""
    whole = np.log(last.priors_)
    if last.priors is not None:
        return whole, np.broadcast_to(whole, (len(y), len(whole)))
    held = np.tile(counts, (len(y), 1))
    held[np.arange(len(y)), y] -= 1
    with np.errstate(divide="ignore"):
        return whole, np.log(held / (len(y) - 1))


def _posterior(joint: Array) -> Array:
    gone = np.isnan(joint).any(1)
    found: Array = softmax(np.where(np.isnan(joint), 0.0, joint), axis=1)
    found[gone] = np.nan
    return found


LINEAR_DISCRIMINANT = estimator_reader(
    EstimatorFamily(
        name="linear discriminant",
        reads=lambda last: isinstance(last, LinearDiscriminantAnalysis),
        left_out=_linear,
    )
)

QUADRATIC_DISCRIMINANT = estimator_reader(
    EstimatorFamily(
        name="quadratic discriminant",
        reads=lambda last: isinstance(last, QuadraticDiscriminantAnalysis),
        left_out=_quadratic,
    )
)

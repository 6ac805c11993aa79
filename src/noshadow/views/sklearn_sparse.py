"""Linear regressions of scikit-learn with corners: least squares on what is active, records out.

Coefficients at zero, signs and the side of a corner that a residual is on stay as they are. What is
left is a least-squares problem that a record leaves exactly.
"""

from typing import Any

import numpy as np
from scipy.linalg import cho_solve
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    ElasticNet,
    ElasticNetCV,
    HuberRegressor,
    Lars,
    Lasso,
    LassoCV,
    LassoLars,
    LassoLarsCV,
    LassoLarsIC,
    OrthogonalMatchingPursuit,
    OrthogonalMatchingPursuitCV,
)

from noshadow.checks import Array, NotApplicable
from noshadow.views.estimator_family import EstimatorFamily, Refitted, Solver, type_name
from noshadow.views.estimators import estimator_reader
from noshadow.views.least_squares import columns_of, factored, left_least_squares

ACTIVE = "the record leaves the least squares on the active coefficients; their signs and the penalty on the sum over records stay"
FIXED = "the record leaves the least squares; the penalty that was estimated from all records stays"
CHOSEN = "the record leaves the least squares on the columns that were chosen; which columns these are stays"
INLIERS = "the record leaves the least squares on the inliers; which records these are, scale and penalty stay"
# Share of the first correlation that rounding leaves at the end of a path.
NO_CORRELATION = 1e-8
# Two duality gaps that are one: a difference of large sums, in float64.
SAME_GAP = 1e-6
# Share of the outputs' spread by which L-BFGS leaves a Huber regression that it calls solved.
HUBER_LEFT = 2e-3


def _elastic_net(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Σ w(y − f)² + 2nαρ‖b‖₁ + nα(1 − ρ)‖b‖², ρ = l1_ratio, on coefficients that are not zero."""
    _require_one_output(last, y)
    n = len(y)
    alpha = float(last.alpha_ if hasattr(last, "alpha_") else last.alpha)
    ratio = 1.0 if isinstance(last, (Lasso, LassoCV)) else float(getattr(last, "l1_ratio_", last.l1_ratio))
    active = np.flatnonzero(last.coef_)
    pull = n * alpha * ratio * np.sign(last.coef_[active])
    # scikit-learn scales weights to a mean of one.
    weight = np.ones(n) if sample_weight is None else sample_weight * (n / sample_weight.sum())
    whole, without = left_least_squares(columns_of(X, active), y, weight, n * alpha * (1 - ratio), pull, last)
    gap = _duality_gap(last, X, y, weight, n * alpha * ratio, n * alpha * (1 - ratio))
    own = abs(gap - n * float(last.dual_gap_)) <= SAME_GAP * float(weight @ (y - weight @ y / n) ** 2)
    return Refitted(whole, without, ACTIVE, solver=Solver(own, _unsolved(last, own and gap > last.tol * float(weight @ y**2))))


def _duality_gap(last: Any, X: Any, y: Array, weight: Array, l1: float, l2: float) -> float:
    """Primal − dual of ½Σw(y − f)² + l1‖b‖₁ + ½l2‖b‖² at the model's coefficients.

    scikit-learn stops by it and keeps it (`dual_gap_`, over n): of other records it would be
    another number. The dual point is the residual, scaled into |Aᵀr − l2 b| ≤ l1.
    """
    used = np.flatnonzero(last.coef_)
    fitted = columns_of(X, used) @ last.coef_[used]
    total = weight.sum()
    centred = y - weight @ y / total if last.fit_intercept else y
    residual = y - fitted
    residual = residual - weight @ residual / total if last.fit_intercept else residual
    pulls = np.asarray(X.T @ (weight * residual)).ravel() - l2 * last.coef_
    largest = float(np.max(pulls if last.positive else np.abs(pulls), initial=0.0))
    scale = l1 / largest if largest > l1 else 1.0
    squares = float(weight @ residual**2)
    ridge = 0.5 * l2 * (1 + scale**2) * float(last.coef_ @ last.coef_)
    return 0.5 * (1 + scale**2) * squares + l1 * float(np.abs(last.coef_).sum()) - scale * float(weight @ (residual * centred)) + ridge


def _unsolved(last: Any, left: bool) -> str:
    """What a solver that used up its iterations left undone, in words; "" for nothing."""
    if not left or int(np.max(last.n_iter_)) < last.max_iter:
        return ""
    return f"was stopped after max_iter={last.max_iter} iterations, before it was solved to its tolerance tol={last.tol:g}"


def _bayesian_ridge(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """The posterior mean is ridge regression with λ = lambda_/alpha_, both kept."""
    table = columns_of(X)
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    whole, without = left_least_squares(table, y, weight, float(last.lambda_ / last.alpha_), np.zeros(table.shape[1]), last)
    return Refitted(whole, without, FIXED)


def _relevance(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """The posterior mean is ridge regression with λ = lambda_/alpha_ on columns that are kept."""
    kept = np.flatnonzero(last.lambda_ < last.threshold_lambda)
    penalty = last.lambda_[kept] / last.alpha_
    whole, without = left_least_squares(columns_of(X, kept), y, np.ones(len(y)), penalty, np.zeros(len(kept)), last)
    return Refitted(whole, without, FIXED)


def _path(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """A lasso at one place of its path, solved by angles: ½Σ(y − f)² + nα‖b‖₁ on what is active.

    Lars itself is at a minimum only at the end of its path, where all its columns are fitted.
    """
    _require_one_output(last, y)
    active, lasso = np.flatnonzero(last.coef_), type(last) is not Lars
    if not lasso and not _at_the_end(last, columns_of(X), y):
        raise NotApplicable("a path of angles that was left before its end is the minimum of nothing that a record could leave")
    alpha = float(last.alpha_ if hasattr(last, "alpha_") else last.alpha) if lasso else 0.0
    pull = len(y) * alpha * np.sign(last.coef_[active])
    return Refitted(*left_least_squares(columns_of(X, active), y, np.ones(len(y)), 0.0, pull, last), ACTIVE)


def _at_the_end(last: Any, table: Array, y: Array) -> bool:
    """Whether no column is correlated with what is left of the targets: least squares of all."""
    moved, left = table - table.mean(0) * last.fit_intercept, y - last.predict(table)
    start = np.abs(moved.T @ (y - y.mean() * last.fit_intercept)).max()
    return bool(np.abs(moved.T @ left).max() <= NO_CORRELATION * start)


def _pursuit(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Orthogonal matching pursuit is least squares on the columns that it chose."""
    _require_one_output(last, y)
    chosen = np.flatnonzero(last.coef_)
    return Refitted(*left_least_squares(columns_of(X, chosen), y, np.ones(len(y)), 0.0, np.zeros(len(chosen)), last), CHOSEN)


def _huber(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Σ_in w r²/σ + Σ_out 2εw|r| + α‖b‖²: squares of inliers, a constant pull of each outlier."""
    table, scale = columns_of(X), float(last.scale_)
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    residual = y - last.predict(X)
    outlying = np.abs(residual) > last.epsilon * scale
    pull = np.where(outlying, last.epsilon * scale * weight * np.sign(residual), 0.0)
    design = np.column_stack([table, np.ones(len(y))]) if last.fit_intercept else table
    penalty = np.full(design.shape[1], float(last.alpha) * scale)
    penalty[table.shape[1] :] = 0.0
    inside = np.where(outlying, 0.0, weight)
    factor = factored((design * inside[:, None]).T @ design + np.diag(penalty), last)
    whole = design @ cho_solve(factor, design.T @ (inside * y + pull))
    reach = np.einsum("nd,dn->n", design, cho_solve(factor, design.T))
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = y - (y - whole) / (1 - inside * reach)
    without = np.where(outlying, whole - reach * pull, squares)
    says = y - residual
    own = bool((np.abs(whole - says) <= HUBER_LEFT * (np.abs(says) + says.std())).all())
    return Refitted(whole, without, INLIERS, solver=Solver(own, _unsolved(last, True)))


def _require_one_output(last: Any, y: Array) -> None:
    if y.ndim != 1:
        raise NotApplicable(f"{type_name(last)} with several outputs has an active set per output, which is not taken apart here")


ACTIVE_SET = estimator_reader(
    EstimatorFamily(
        name="lasso and elastic net",
        reads=lambda last: type(last) in (Lasso, LassoCV, ElasticNet, ElasticNetCV),
        left_out=_elastic_net,
    )
)

BAYESIAN_RIDGE = estimator_reader(
    EstimatorFamily(name="Bayesian ridge", reads=lambda last: isinstance(last, BayesianRidge), left_out=_bayesian_ridge)
)

HUBER = estimator_reader(EstimatorFamily(name="Huber regression", reads=lambda last: isinstance(last, HuberRegressor), left_out=_huber))

RELEVANCE = estimator_reader(
    EstimatorFamily(name="relevance determination", reads=lambda last: isinstance(last, ARDRegression), left_out=_relevance)
)

PATH = estimator_reader(
    EstimatorFamily(
        name="least angles",
        reads=lambda last: type(last) in (Lars, LassoLars, LassoLarsCV, LassoLarsIC),
        left_out=_path,
    )
)

PURSUIT = estimator_reader(
    EstimatorFamily(
        name="matching pursuit",
        reads=lambda last: isinstance(last, (OrthogonalMatchingPursuit, OrthogonalMatchingPursuitCV)),
        left_out=_pursuit,
    )
)

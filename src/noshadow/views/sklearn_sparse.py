"""Linear regressions of scikit-learn with corners: least squares on what is active, records out.

Coefficients at zero, signs and the side of a corner that a residual is on stay as they are. What is
left is a least-squares problem that a record leaves exactly.
"""

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from sklearn.linear_model import BayesianRidge, ElasticNet, ElasticNetCV, HuberRegressor, Lasso, LassoCV

from noshadow.checks import Array, NotApplicable
from noshadow.views.estimator_family import EstimatorFamily, Refitted, Solver, type_name
from noshadow.views.estimators import estimator_reader

ACTIVE = "the record leaves the least squares on the active coefficients; their signs and the penalty on the sum over records stay"
FIXED = "the record leaves the least squares; the penalty that was estimated from all records stays"
INLIERS = "the record leaves the least squares on the inliers; which records these are, scale and penalty stay"
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
    whole, without = _left_least_squares(_columns(X, active), y, weight, n * alpha * (1 - ratio), pull, last)
    gap = _duality_gap(last, X, y, weight, n * alpha * ratio, n * alpha * (1 - ratio))
    own = abs(gap - n * float(last.dual_gap_)) <= SAME_GAP * float(weight @ (y - weight @ y / n) ** 2)
    return Refitted(whole, without, ACTIVE, solver=Solver(own, _unsolved(last, own and gap > last.tol * float(weight @ y**2))))


def _duality_gap(last: Any, X: Any, y: Array, weight: Array, l1: float, l2: float) -> float:
    """Primal − dual of ½Σw(y − f)² + l1‖b‖₁ + ½l2‖b‖² at the model's coefficients.

    scikit-learn stops by it and keeps it (`dual_gap_`, over n): of other records it would be
    another number. The dual point is the residual, scaled into |Aᵀr − l2 b| ≤ l1.
    """
    used = np.flatnonzero(last.coef_)
    fitted = _columns(X, used) @ last.coef_[used]
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
    table = _columns(X, np.arange(X.shape[1]))
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    whole, without = _left_least_squares(table, y, weight, float(last.lambda_ / last.alpha_), np.zeros(table.shape[1]), last)
    return Refitted(whole, without, FIXED)


def _huber(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Σ_in w r²/σ + Σ_out 2εw|r| + α‖b‖²: squares of inliers, a constant pull of each outlier."""
    table, scale = _columns(X, np.arange(X.shape[1])), float(last.scale_)
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    residual = y - last.predict(X)
    outlying = np.abs(residual) > last.epsilon * scale
    pull = np.where(outlying, last.epsilon * scale * weight * np.sign(residual), 0.0)
    design = np.column_stack([table, np.ones(len(y))]) if last.fit_intercept else table
    penalty = np.full(design.shape[1], float(last.alpha) * scale)
    penalty[table.shape[1] :] = 0.0
    inside = np.where(outlying, 0.0, weight)
    factor = _factored((design * inside[:, None]).T @ design + np.diag(penalty), last)
    whole = design @ cho_solve(factor, design.T @ (inside * y + pull))
    reach = np.einsum("nd,dn->n", design, cho_solve(factor, design.T))
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = y - (y - whole) / (1 - inside * reach)
    without = np.where(outlying, whole - reach * pull, squares)
    says = y - residual
    own = bool((np.abs(whole - says) <= HUBER_LEFT * (np.abs(says) + says.std())).all())
    return Refitted(whole, without, INLIERS, solver=Solver(own, _unsolved(last, True)))


def _left_least_squares(A: Array, y: Array, weight: Array, penalty: float, pull: Array, last: Any) -> tuple[Array, Array]:
    """Minimise Σ w(y − a·b − c)² + λ‖b‖² + 2 pull·b; fitted values with and without each record.

    f₋ᵢ = y_i − (y_i − f_i)/(1 − h_i) with h_i = w_i(1/Σw + ãᵀ(ÃᵀWÃ + λI)⁻¹ã), ã centred where there
    is an intercept c: the pull is constant and moves both alike. NaN where h is 1.
    """
    total = weight.sum() if last.fit_intercept else np.inf
    centre = weight @ A / total if last.fit_intercept else np.zeros(A.shape[1])
    mean = weight @ y / total if last.fit_intercept else 0.0
    moved = A - centre
    if moved.shape[1]:
        factor = _factored((moved * weight[:, None]).T @ moved + penalty * np.eye(moved.shape[1]), last)
        whole = mean + moved @ cho_solve(factor, moved.T @ (weight * (y - mean)) - pull)
        reach = weight * (1 / total + np.einsum("nd,dn->n", moved, cho_solve(factor, moved.T)))
    else:
        whole, reach = np.full(len(y), mean), weight / total
    with np.errstate(divide="ignore", invalid="ignore"):
        without = y - (y - whole) / (1 - reach)
    return whole, np.where(1 - reach > 1e-10, without, np.nan)


def _factored(matrix: Array, last: Any) -> Any:
    try:
        return cho_factor(matrix)
    except LinAlgError as error:
        raise NotApplicable(f"the least squares of {type_name(last)} are singular, so that records do not leave them") from error


def _columns(X: Any, picked: Array) -> Array:
    chosen = X.iloc[:, picked] if hasattr(X, "iloc") else X[:, picked]
    return np.asarray(chosen.toarray() if hasattr(chosen, "toarray") else chosen, dtype=np.float64)


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

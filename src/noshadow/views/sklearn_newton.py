"""Linear models of scikit-learn that are no softmax head: one Newton step per left-out record.

Logistic regressions of one class against the rest, and generalised linear regressions with a
logarithmic link. With the gradients g and curvatures h of the losses at the linear outputs f, H =
Σhxxᵀ + Λ and s = xᵀH⁻¹x, the output without the record is f + sg/(1 − sh) to first order: the step
that Newton's method takes from the fitted coefficients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import expit
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, SGDClassifier, TweedieRegressor
from sklearn.multiclass import OneVsRestClassifier

from noshadow.checks import Array, NotApplicable
from noshadow.views.estimator_family import WITHOUT, EstimatorFamily, Refitted, Solver, type_name
from noshadow.views.estimators import estimator_reader
from noshadow.views.least_squares import columns_of, factored

REST = "the record leaves each class's regression against the rest by one Newton step; penalties stay"
LOG_LINK = "the record leaves the regression by one Newton step; the penalty stays"
# Share of the gradient at zero that a solver called done may leave.
LEFT_OVER = 1e-2


@dataclass(frozen=True, eq=False)
class _Head:
    """One linear output: (d,) coefficients, its intercept, and λ.

    `scale` is the value of the intercept's feature; None without an intercept. `penalised` says
    whether the intercept is under the penalty.
    """

    coefficients: Array
    intercept: float
    penalty: float
    scale: float | None
    penalised: bool = False


def _newton(table: Array, head: _Head, slopes: Callable[[Array], tuple[Array, Array]], last: Any) -> tuple[Array, Array, float]:
    """Outputs (n,) of one head with and without each record, and the gradient left over.

    Args:
        slopes: outputs (n,) → weighted gradients and curvatures (n,) of the losses there.
    """
    design, start = table, head.coefficients
    if head.scale is not None:
        design = np.column_stack([table, np.full(len(table), head.scale)])
        start = np.append(head.coefficients, head.intercept / head.scale)
    penalty = np.full(design.shape[1], head.penalty)
    if head.scale is not None and not head.penalised:
        penalty[-1] = 0.0
    f = design @ start
    g, h = slopes(f)
    factor = factored((design * h[:, None]).T @ design + np.diag(penalty), last)
    reach = np.einsum("nd,dn->n", design, cho_solve(factor, design.T))
    with np.errstate(divide="ignore", invalid="ignore"):
        without = np.where(1 - reach * h > 1e-10, f + reach * g / (1 - reach * h), np.nan)
    at_zero = np.linalg.norm(design.T @ slopes(np.zeros(len(f)))[0])
    left = np.linalg.norm(design.T @ g + penalty * start) / max(float(at_zero), np.finfo(float).tiny)
    return f, without, float(left)


def _heads(last: Any, n: int) -> list[_Head]:
    """The regressions of each class against the rest."""
    if isinstance(last, OneVsRestClassifier):
        return [_logistic_head(one, 0) for one in last.estimators_]
    if isinstance(last, LogisticRegression):
        return [_logistic_head(last, k) for k in range(len(last.classes_))]
    if last.penalty not in ("l2", None) or last.early_stopping:
        raise NotApplicable(f"SGDClassifier with penalty={last.penalty!r}, early_stopping={last.early_stopping} has no λ of all records")
    scale = 1.0 if last.fit_intercept else None
    penalty = 0.0 if last.penalty is None else float(last.alpha) * n
    return [_Head(last.coef_[k], float(last.intercept_[k]), penalty, scale) for k in range(len(last.classes_))]


def _logistic_head(one: Any, k: int) -> _Head:
    ratio = getattr(one, "l1_ratio", None)
    if ratio not in (None, 0, 0.0) or getattr(one, "penalty", "l2") not in ("l2", "deprecated"):
        raise NotApplicable(
            "records leave a logistic regression against the rest under an l2 penalty by a formula, and this one has another"
        )
    liblinear = one.solver == "liblinear"
    scale = (float(one.intercept_scaling) if liblinear else 1.0) if one.fit_intercept else None
    intercept = float(np.ravel(one.intercept_)[k])
    return _Head(np.atleast_2d(one.coef_)[k], intercept, 1 / float(np.ravel(getattr(one, "C_", one.C))[0]), scale, liblinear)


def _against_the_rest(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Probabilities: sigmoids of all classes, divided by their sum. Cost: O(mnd²)."""
    inner = last.estimator if isinstance(last, OneVsRestClassifier) else last
    if inner.class_weight is not None:
        raise NotApplicable(f"{type_name(inner)} with class_weight weighs each class against the rest in ways that versions differ in")
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    table, sides = columns_of(X), []
    for k, head in enumerate(_heads(last, len(y))):
        own = (y == k).astype(np.float64)

        def slopes(f: Array, own: Array = own) -> tuple[Array, Array]:
            p = expit(f)
            return weight * (p - own), weight * p * (1 - p)

        sides.append(_newton(table, head, slopes, last))
    whole, without = (_divided(expit(np.column_stack([side[j] for side in sides]))) for j in range(2))
    left = max(side[2] for side in sides)
    if isinstance(last, SGDClassifier):
        note = f"SGDClassifier ended where {left:.2g} of its first gradient is left: records leave it as if it were at its minimum"
        return Refitted(whole, without, REST, (note,))
    # Of other records the fit would be another: a Newton step away, which contradicts the model.
    return Refitted(whole if left <= LEFT_OVER else without, without, REST, solver=Solver(left <= LEFT_OVER, _given_up(last)))


def _given_up(last: Any) -> str:
    """What solvers left undone that used up their iterations, in words; "" for nothing."""
    parts = last.estimators_ if isinstance(last, OneVsRestClassifier) else [last]
    stopped = [one for one in parts if int(np.max(one.n_iter_)) >= one.max_iter]
    return f"was stopped after max_iter={stopped[0].max_iter} iterations" if stopped else ""


def _divided(shares: Array) -> Array:
    total = shares.sum(1, keepdims=True)
    found: Array = np.where(total > 0, shares / np.where(total > 0, total, 1.0), 1 / shares.shape[1])
    return found


def _log_link(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Unit deviances of Tweedie's family of power 1 … 2 at μ = e^f, halved. Cost: O(nd²)."""
    power = {PoissonRegressor: 1.0, GammaRegressor: 2.0}.get(type(last))
    power = float(last.power) if power is None else power
    link = getattr(last, "link", "log")
    if not 1 <= power <= 2 or link not in ("log", "auto"):
        raise NotApplicable(f"{type_name(last)} with power={power:g} and link={link!r} is no regression with a log link and convex losses")
    weight = np.ones(len(y)) if sample_weight is None else sample_weight

    def slopes(f: Array) -> tuple[Array, Array]:
        mean = np.exp(f)
        near, far = weight * mean ** (2 - power), weight * y * mean ** (1 - power)
        return near - far, (2 - power) * near + (power - 1) * far

    head = _Head(last.coef_, float(last.intercept_), float(last.alpha) * float(weight.sum()), 1.0 if last.fit_intercept else None)
    f, without, left = _newton(columns_of(X), head, slopes, last)
    own = left <= LEFT_OVER
    unsolved = "" if own or int(last.n_iter_) < last.max_iter else f"was stopped after max_iter={last.max_iter} iterations"
    # Of other records the fit would be another: a Newton step away, which contradicts the model.
    return Refitted(np.exp(f) if own else np.exp(without), np.exp(without), LOG_LINK, solver=Solver(own, unsolved))


def _reads_rest(last: Any) -> bool:
    # Other libraries have None here before a fit, so the kind is asked for first.
    if not isinstance(last, (OneVsRestClassifier, SGDClassifier, LogisticRegression)) or len(getattr(last, "classes_", ())) <= 2:
        return False
    if isinstance(last, OneVsRestClassifier):
        parts = getattr(last, "estimators_", ())
        return not last.multilabel_ and all(isinstance(one, LogisticRegression) for one in parts)
    if isinstance(last, SGDClassifier):
        return bool(last.loss == "log_loss")
    ovr = last.solver == "liblinear" or getattr(last, "multi_class", None) == "ovr"
    return ovr and not hasattr(last, "C_")


AGAINST_THE_REST = estimator_reader(
    EstimatorFamily(
        name="logistic regressions against the rest",
        reads=_reads_rest,
        headless=lambda last: f"{type_name(last)} was trained one class against the rest, so no one softmax head exists; {WITHOUT}",
        left_out=_against_the_rest,
    )
)

LOG_LINKED = estimator_reader(
    EstimatorFamily(
        name="regression with a log link",
        reads=lambda last: type(last) in (PoissonRegressor, GammaRegressor, TweedieRegressor),
        left_out=_log_link,
    )
)

"""Linear models of scikit-learn: logistic, least squares, ridge, stochastic gradients."""

from typing import Any

from sklearn.base import is_classifier
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
)

from noshadow.checks import Array
from noshadow.views.estimator_family import WITHOUT, EstimatorFamily, type_name
from noshadow.views.estimators import estimator_reader
from noshadow.views.penalty import least_squares_penalty, logistic_penalty, ridge_penalty, stochastic_penalty
from noshadow.views.reader import LINEAR
from noshadow.views.solved import least_squares_leaves, logistic_leaves


def _logistic_headless(last: Any) -> str | None:
    """Why the probabilities are not the softmax or the sigmoid of the linear outputs, or None.

    The parameters asked for are those of scikit-learn < 1.8.
    """
    name, scheme, binary = type_name(last), getattr(last, "multi_class", None), len(last.classes_) == 2
    if not binary and (scheme == "ovr" or last.solver == "liblinear"):
        return f"{name} was trained one class against the rest, so no one softmax head exists; {WITHOUT}"
    if binary and scheme == "multinomial":
        return f"{name} with multi_class='multinomial' ties two softmax logits of two classes, which has no head noshadow reads; {WITHOUT}"
    return None


def _stochastic_headless(last: Any) -> str | None:
    """Why a model by stochastic gradients is not one head under cross-entropy or squares."""
    name = type_name(last)
    if last.loss not in ("log_loss", "squared_error") or (is_classifier(last) and last.loss != "log_loss"):
        return f"{name} was trained with loss={last.loss!r}, and heads are read under log_loss or squared_error only; {WITHOUT}"
    return None


def _decided(last: Any, X: Any, dense: Array) -> tuple[Array, Array]:
    return dense, last.decision_function(X)


def _predicted(last: Any, X: Any, dense: Array) -> tuple[Array, Array]:
    return dense, last.predict(X)


LOGISTIC_REGRESSION = estimator_reader(
    EstimatorFamily(
        name="logistic regression",
        reads=lambda last: isinstance(last, LogisticRegression),
        calibrated_as=lambda _: LINEAR,
        headless=_logistic_headless,
        head=_decided,
        penalty=lambda last, _: logistic_penalty(last),
        solver_leaves=logistic_leaves,
    )
)

LEAST_SQUARES = estimator_reader(
    EstimatorFamily(
        name="least squares",
        reads=lambda last: isinstance(last, LinearRegression),
        headless=lambda _: None,
        head=_predicted,
        penalty=lambda last, _: least_squares_penalty(last),
        solver_leaves=least_squares_leaves,
    )
)

RIDGE = estimator_reader(
    EstimatorFamily(
        name="ridge regression",
        reads=lambda last: isinstance(last, (Ridge, RidgeCV)),
        headless=lambda _: None,
        head=_predicted,
        penalty=lambda last, _: ridge_penalty(last),
        solver_leaves=least_squares_leaves,
    )
)

STOCHASTIC_GRADIENT = estimator_reader(
    EstimatorFamily(
        name="linear model by stochastic gradients",
        reads=lambda last: isinstance(last, SGDRegressor) or (isinstance(last, SGDClassifier) and hasattr(last, "predict_proba")),
        calibrated_as=lambda last: LINEAR if last.loss == "log_loss" else type_name(last),
        headless=_stochastic_headless,
        head=lambda last, X, dense: _decided(last, X, dense) if is_classifier(last) else _predicted(last, X, dense),
        penalty=stochastic_penalty,
    )
)

"""Boosted models of scikit-learn: every round of their training can be asked again."""

from collections.abc import Iterator
from typing import Any

from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from noshadow.checks import Array, NotApplicable
from noshadow.views.boosted import Boosted
from noshadow.views.estimator_family import EstimatorFamily, type_name
from noshadow.views.estimators import estimator_reader
from noshadow.views.sklearn_gradient_rounds import gradient_rounds
from noshadow.views.sklearn_histogram_rounds import histogram_rounds

ADAPTIVE = (AdaBoostClassifier, AdaBoostRegressor)
GRADIENT = (GradientBoostingClassifier, GradientBoostingRegressor)
HISTOGRAM = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)


def _stages(last: Any, X: Any, task: str) -> Iterator[Array]:
    rounds: Iterator[Array] = last.staged_predict(X) if task == "regression" else last.staged_predict_proba(X)
    return rounds


def _boosted(last: Any, X: Any, targets: Array, weights: Array | None) -> Boosted:
    if isinstance(last, ADAPTIVE):
        raise NotApplicable(f"{type_name(last)} weighs whole models and adds up no leaf values")
    return gradient_rounds(last, X, targets, weights) if isinstance(last, GRADIENT) else histogram_rounds(last, X, targets, weights)


BOOSTING = estimator_reader(
    EstimatorFamily(
        name="boosting",
        reads=lambda last: isinstance(last, (*ADAPTIVE, *GRADIENT, *HISTOGRAM)),
        history=_stages,
        boosted=_boosted,
    )
)

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

from noshadow.checks import Array
from noshadow.views.estimator_family import EstimatorFamily
from noshadow.views.estimators import estimator_reader

BOOSTED = (
    AdaBoostClassifier,
    AdaBoostRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)


def _rounds(last: Any, X: Any, task: str) -> Iterator[Array]:
    rounds: Iterator[Array] = last.staged_predict(X) if task == "regression" else last.staged_predict_proba(X)
    return rounds


BOOSTING = estimator_reader(
    EstimatorFamily(
        name="boosting",
        reads=lambda last: isinstance(last, BOOSTED),
        history=_rounds,
    )
)

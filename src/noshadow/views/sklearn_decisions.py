"""Classifiers of scikit-learn without probabilities: decision values or votes in their place.

Decision values stand for log-odds, and shares of votes for probabilities. They order records, and
losses made of them are no nats of a probability that was fitted.
"""

import copy
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import RidgeClassifier, RidgeClassifierCV
from sklearn.utils.class_weight import compute_sample_weight

from noshadow.checks import Array, NotApplicable, refuse
from noshadow.views.estimator_family import (
    WITHOUT,
    EstimatorFamily,
    Refitted,
    Solver,
    require_classes,
    require_fitted,
    require_one_label,
    type_name,
)
from noshadow.views.estimators import estimator_reader
from noshadow.views.least_squares import columns_of, left_least_squares
from noshadow.views.stored_trees import as_columns, probabilities

CODES = "the record leaves the least squares on the codes ±1 of its class; the penalty stays; exact"
EXACT_SOLVERS = ("auto", "cholesky", "svd")


def stands_for(last: Any) -> str:
    """What takes the place of probabilities, for readers of the audit."""
    held = "shares of its parts' votes stand for them" if _votes(last) else "its decision values stand for log-odds"
    return f"{type_name(last)} gives no probabilities: {held}, so that losses order records and are no nats"


def decision_task(last: Any) -> str:
    """The task of a fitted classifier, which needs no probabilities."""
    require_fitted(last)
    require_one_label(last)
    return require_classes(last.classes_, last)


def decision_outputs(last: Any, X: Any, task: str) -> Array:
    """Sigmoid or softmax (n, m) of decision values; one per class, or one of two classes."""
    if getattr(last, "decision_function_shape", "ovr") == "ovo":
        # The same machines, whose votes scikit-learn adds up for each class.
        last = copy.copy(last).set_params(decision_function_shape="ovr")
    values = as_columns(last.decision_function(X), X.shape[0])
    m = len(last.classes_)
    if values.shape[1] not in ((1, 2) if m == 2 else (m,)):
        refuse("model", "give one decision value per class", f"{values.shape[1]} of {type_name(last)} for {m} classes")
    return probabilities(values)


def _votes(last: Any) -> bool:
    return isinstance(last, VotingClassifier)


def _outputs(last: Any, X: Any, task: str) -> Array:
    if not _votes(last):
        return decision_outputs(last, X, task)
    votes = np.asarray(last.transform(X), dtype=np.int64)
    weights = np.ones(votes.shape[1]) if last.weights is None else np.asarray(last.weights, dtype=np.float64)
    weights = weights * votes.shape[1] / weights.sum()
    counts = np.stack([(votes == c) @ weights for c in range(len(last.classes_))], axis=1)
    # Half a vote for every class keeps unanimous votes off an infinite loss.
    found: Array = (counts + 0.5) / (counts + 0.5).sum(1, keepdims=True)
    return found


def _reads(last: Any) -> bool:
    """Whether it classifies and has something in the place of probabilities."""
    try:
        bare = is_classifier(last) and not hasattr(last, "predict_proba")
    except Exception:  # whatever an estimator of somebody else does when it is asked
        return False
    return bare and (hasattr(last, "decision_function") or (_votes(last) and hasattr(last, "classes_")))


def _ridge_codes(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Ridge regression of codes, +1 for the record's class and −1 else. Cost: O(nd²)."""
    if getattr(last, "positive", False):
        raise NotApplicable(f"{type_name(last)} holds its coefficients at or above zero, which the formula of a ridge does not")
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    if last.class_weight is not None:
        weight = weight * compute_sample_weight(last.class_weight, np.asarray(last.classes_)[y])
    m = len(last.classes_)
    codes = np.where(y[:, None] == (np.array([1]) if m == 2 else np.arange(m)), 1.0, -1.0)
    table = columns_of(X)
    penalty = float(last.alpha_ if hasattr(last, "alpha_") else last.alpha)
    whole, without = left_least_squares(table, codes, weight, penalty, np.zeros(table.shape[1]), last)
    solver = None
    if getattr(last, "solver", "auto") not in EXACT_SOLVERS:
        solver = Solver(_left_over(last, table, codes, weight, penalty) <= 100 * last.tol)
    return Refitted(probabilities(whole), probabilities(without), CODES, solver=solver)


def _left_over(last: Any, table: Array, codes: Array, weight: Array, penalty: float) -> float:
    """Gradient at the model's coefficients, as a share of the gradient at zero."""
    coefficients = np.atleast_2d(last.coef_).T
    residuals = weight[:, None] * (codes - table @ coefficients - np.ravel(last.intercept_))
    start = np.linalg.norm(table.T @ (weight[:, None] * codes))
    return float(np.linalg.norm(table.T @ residuals - penalty * coefficients) / max(start, np.finfo(float).tiny))


def _headless(last: Any) -> str:
    return f"{type_name(last)} was not trained on a cross-entropy, so no head of a softmax exists; {WITHOUT}"


RIDGE_CLASSIFIER = estimator_reader(
    EstimatorFamily(
        name="ridge classifier",
        reads=lambda last: isinstance(last, (RidgeClassifier, RidgeClassifierCV)),
        task=decision_task,
        outputs=decision_outputs,
        headless=_headless,
        notes=lambda last: (stands_for(last),),
        left_out=_ridge_codes,
    )
)

DECISIONS = estimator_reader(
    EstimatorFamily(
        name="classifier without probabilities",
        reads=_reads,
        task=decision_task,
        outputs=_outputs,
        headless=_headless,
        notes=lambda last: (stands_for(last),),
    )
)

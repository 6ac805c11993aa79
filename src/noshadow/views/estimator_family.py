"""A family of estimators that read a table (X, y), and the answers scikit-learn has for it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from noshadow.checks import Array, InputError, NotApplicable, refuse, said
from noshadow.outcomes import Absent
from noshadow.signals import Signals
from noshadow.views.boosted import Boosted
from noshadow.views.leaf_counts import LeafCounts
from noshadow.views.penalty import Penalty
from noshadow.views.reader import NO_BAGS, NO_ROUNDS, NO_STAGES, NOT_LEFT_OUT

# They move a threshold of labels: probabilities are those of the model inside.
THRESHOLDS = (FixedThresholdClassifier, TunedThresholdClassifierCV)
WITHOUT = "record scores need one, model-level risk does not."


def type_name(last: Any) -> str:
    """The class of an estimator: the name of a family that no calibration knows."""
    return type(last).__name__


def no_head(last: Any) -> str:
    """Why an estimator without a linear head has no scores of one; it may have others."""
    return f"{type_name(last)} has no linear head, which scores of a last layer are made of"


def no_penalty(last: Any, n: int) -> Penalty:
    """Return no λ, since there is no head that it could damp."""
    return Penalty(Absent("not available", "The model has no linear head to damp."))


def require_fitted(last: Any) -> None:
    """Refuse what is no classifier or regressor, or was never fitted."""
    name = type_name(last)
    if not isinstance(last, BaseEstimator) or not (is_classifier(last) or is_regressor(last)):
        refuse("model", "be or end in a classifier or a regressor", name if isinstance(last, BaseEstimator) else repr(last))
    try:
        check_is_fitted(last)
    except NotFittedError as error:
        raise InputError(said(f"model must be fitted; got {name} before fit. Call its fit first.")) from error


def estimator_task(last: Any, *, several_labels: bool = False) -> str:
    """The task that a fitted scikit-learn estimator settles: "regression" or "classification".

    Raises:
        InputError: no classifier or regressor, not fitted, several labels per record, no class
            probabilities, or one class.
    """
    require_fitted(last)
    if is_regressor(last):
        return "regression"
    name = type_name(last)
    require_one_label(last, several_labels=several_labels)
    if not hasattr(last, "predict_proba"):
        refuse("model", "give class probabilities", f"{name} without predict_proba", "Wrap it in CalibratedClassifierCV.")
    return require_classes(last.classes_, last)


def require_one_label(last: Any, *, several_labels: bool = False) -> None:
    """Refuse a classifier that predicts several labels per record."""
    if several_labels or isinstance(last.classes_, list) or getattr(last, "multilabel_", False):
        got = f"{type_name(last)} with several"
        refuse("model", "predict one label per record", got, "Multi-label models: audit one label at a time.")


def require_classes(classes: Any, last: Any) -> str:
    """Refuse a classifier of one class; the task of any other."""
    if len(classes) < 2:
        refuse("model", "know at least two classes", f"{type_name(last)} fitted on one")
    return "classification"


def predictions(last: Any, X: Any, task: str) -> Array:
    """predict(X) of a regression, (n,) or (n, q); predict_proba(X) of a classifier, (n, m)."""
    return np.asarray(last.predict(X) if task == "regression" else last.predict_proba(X))


@dataclass(frozen=True)
class Solver:
    """What a family knows about a model that an iterative solver left beside its minimum.

    Attributes:
        own: whether these records are the model's, by what it keeps of its solver. A formula that
            differs from it then differs by what the solver left.
        unsolved: what the solver left undone, in words, where it gave up; "" where it did not.
    """

    own: bool
    unsolved: str = ""


@dataclass(frozen=True, eq=False)
class Refitted:
    """A model made again from its training records by a formula, with and without each of them.

    Attributes:
        whole: what `outputs` of the family gives, from the formula and all records. It is held
            against what the model itself says: other records, weights or options do not pass.
        without: the same of record i from the formula without record i; NaN where no other record
            determines an answer.
        how, notes, leaves, parts: as in `LeftOut`.
        solver: of models that are solved for step by step; None where `whole` must be the model.
    """

    whole: Array
    without: Array
    how: str
    notes: tuple[str, ...] = ()
    leaves: LeafCounts | None = None
    parts: int = 1
    solver: Solver | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class EstimatorFamily:
    """A family of fitted estimators, as functions of the last step of a pipeline.

    Attributes:
        name: in words. described: one model of the family, in error messages.
        reads: last → whether it is of this family; must not fail, whatever it is given.
        calibrated_as: last → the name that calibrations know.
        task: last → "regression" or "classification"; refuses what cannot be read.
        classes: last → the labels of classes 0 … m − 1.
        outputs: (last, X, task) → predictions of a regression, class probabilities of a classifier.
        headless: last → why it has no head that can be read, or None when it has one.
        head: (last, X, dense X) → inputs (n, d) and raw outputs (n, m) of the head; asked for only
            where `headless` is None.
        penalty: (last, n) → λ of the training on n records; asked for only with a head.
        notes: last → sentences that a reader of the audit must see.
        saved: last → the model's parameters as bytes, for their digest; None where it has no such
            form, and its coefficient arrays or its outputs count.
        history: (last, X, task) → what `outputs` gives, after each stage of the training.
        out_of_bag: (last, X, task) → mean of what the parts trained without a record give for it,
            NaN where there is none, and the number of these parts.
        boosted: (last, X, targets, weights) → the rounds of the training on these records, targets
            (n,) numbers of classes or values, weights (n,) as given or None; raises NotApplicable
            with the reason where the model does not keep them.
        left_out: (last, X, y, task, sample_weight) → the model with and without each record; y
            are class numbers of a classifier. Raises NotApplicable where there is no formula.
        solver_leaves: (last, signals of the training records) → what a solver that converged leaves
            of the gradient per record; None where it did not, or leaves what is not known.
        votes: last → how many parts its class probabilities are shares of; 0 where they are none.
    """

    name: str
    described: str = "a scikit-learn estimator"
    reads: Callable[[Any], bool]
    calibrated_as: Callable[[Any], str] = type_name
    task: Callable[[Any], str] = estimator_task
    classes: Callable[[Any], Any] = lambda last: last.classes_
    outputs: Callable[[Any, Any, str], Array] = predictions
    headless: Callable[[Any], str | None] = no_head
    head: Callable[[Any, Any, Array], tuple[Array, Array]] | None = None
    penalty: Callable[[Any, int], Penalty] = no_penalty
    notes: Callable[[Any], tuple[str, ...]] = lambda last: ()
    saved: Callable[[Any], bytes | None] = lambda last: None
    history: Callable[[Any, Any, str], Iterator[Array]] | NotApplicable = NO_STAGES
    out_of_bag: Callable[[Any, Any, str], tuple[Array, Array]] | NotApplicable = NO_BAGS
    boosted: Callable[[Any, Any, Array, Array | None], Boosted] | NotApplicable = NO_ROUNDS
    left_out: Callable[[Any, Any, Array, str, Array | None], Refitted] | NotApplicable = NOT_LEFT_OUT
    solver_leaves: Callable[[Any, Signals], float | None] = lambda last, seen: None
    votes: Callable[[Any], int] = lambda last: 0


def voting_estimators(last: Any) -> int:
    """How many estimators a fitted forest or bagging asks for a class; 0 in a regression."""
    return len(last.estimators_) if is_classifier(last) else 0


def last_step(model: Any) -> tuple[tuple[Any, ...], Any]:
    """The steps that transform, and the estimator that a pipeline or a search ends in."""
    steps: list[Any] = []
    last = model
    while True:
        if isinstance(last, Pipeline):
            steps += [step for _, step in last.steps[:-1] if step is not None and step != "passthrough"]
            last = last.steps[-1][1]
        elif isinstance(last, THRESHOLDS) and hasattr(last, "estimator_"):
            last = last.estimator_
        elif isinstance(last, BaseEstimator) and hasattr(last, "best_estimator_"):
            last = last.best_estimator_
        else:
            return tuple(steps), last

"""Fitted scikit-learn estimators, alone or at the end of a Pipeline → Signals."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier, RidgeClassifierCV, RidgeCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from noshadow.checks import TASKS, Array, InputError, as_array, numeric_array, refuse, require_choice, require_same_length, users_code
from noshadow.outcomes import Absent
from noshadow.signals import Signals
from noshadow.views.pairing import paired_targets
from noshadow.views.penalty import Penalty, penalty_of
from noshadow.views.repeated import compared, sampled_groups
from noshadow.views.row_names import RowNames, index_ids, index_names, name_facts
from noshadow.views.view import Settings, View, no_records

LINEAR = (LogisticRegression, LinearRegression, Ridge, RidgeCV, MLPClassifier, MLPRegressor)
LEAST_PROBABILITY = 1e-15
DENSE_LIMIT_BYTES = 1_000_000_000
ACTIVATIONS = {"identity": lambda z: z, "logistic": expit, "tanh": np.tanh, "relu": lambda z: np.maximum(z, 0)}


@dataclass(frozen=True)
class _Fitted:
    """An estimator taken apart: the steps that transform, the last one, its task, and why it has no readable head."""

    steps: tuple[Any, ...]
    last: Any
    task: str
    headless: str | None

    @property
    def name(self) -> str:
        return type(self.last).__name__


def sklearn_view(
    estimator: BaseEstimator, train: object, test: object, *, task: str, weight_decay: float | None, settings: Settings
) -> View:
    """The View of a fitted estimator; arguments as in `view`.

    Weights of single records given to `fit` are not stored by scikit-learn and cannot be read.
    """
    owner = settings.owner
    if weight_decay is not None:
        refuse(owner, "weight_decay", "be None for a scikit-learn estimator", f"{weight_decay!r}", "Its own penalty is read from it.")
    fitted = _taken_apart(estimator, settings)
    require_choice(task, ("auto", *TASKS), owner, "task")
    if task not in ("auto", fitted.task):
        refuse(owner, "task", f"be 'auto' or '{fitted.task}' for this {fitted.name}", repr(task))
    X, y, paired = _pair(train, owner, "train")
    seen, clipped = _signals(fitted, X, y, owner, "train")
    again = {"train": _run_again(fitted, X, y, seen, owner, "train")}
    unseen, also_clipped = no_records(seen), 0
    names: dict[str, RowNames | None] = {"train": index_names(X), "test": None}
    if test is not None:
        X_test, y_test, also_paired = _pair(test, owner, "test")
        if len(y_test):
            unseen, also_clipped = _signals(fitted, X_test, y_test, owner, "test")
            again["test"] = _run_again(fitted, X_test, y_test, unseen, owner, "test")
            names["test"], paired = index_names(X_test), (*paired, *also_paired)
    headless = Penalty(Absent("not available", "The model has no linear head to damp."))
    penalty = headless if fitted.headless else penalty_of(fitted.last, len(seen))
    digest, digest_notes = _weights_sha256(fitted.last, seen)
    class_weight = getattr(fitted.last, "class_weight", None) if fitted.headless is None else None
    return View(
        train=seen,
        test=unseen,
        task=fitted.task,
        head=None if fitted.headless else _described(fitted, seen),
        fit_intercept=bool(getattr(fitted.last, "fit_intercept", True)),
        penalize_intercept=penalty.penalize_intercept,
        penalty=penalty.damping,
        sample_weight=None if class_weight is None else compute_sample_weight(class_weight, y),
        class_names=None if fitted.task == "regression" else tuple(str(c) for c in fitted.last.classes_),
        not_applicable=fitted.headless or penalty.not_applicable,
        notes=(*paired, *penalty.notes, *_clipped_note(clipped + also_clipped), *digest_notes),
        weights_sha256=digest,
        inputs=name_facts(names) | {"run_again": again},
    )


def sklearn_signals(estimator: BaseEstimator, data: object, *, settings: Settings) -> Signals:
    """The Signals of one split; arguments as in `collect_signals`."""
    fitted = _taken_apart(estimator, settings)
    X, y, _ = _pair(data, settings.owner, "data")
    return _signals(fitted, X, y, settings.owner, "data")[0]


def _taken_apart(estimator: Any, settings: Settings) -> _Fitted:
    owner = settings.owner
    for argument, value, rest in (
        ("layer", settings.layer, "auto"),
        ("output", settings.output, "auto"),
        ("device", settings.device, None),
    ):
        if value != rest:
            refuse(owner, argument, f"be {rest!r} for a scikit-learn estimator", repr(value))
    steps: list[Any] = []
    last = estimator
    while isinstance(last, Pipeline) or hasattr(last, "best_estimator_"):
        if isinstance(last, Pipeline):
            steps += [step for _, step in last.steps[:-1] if step is not None and step != "passthrough"]
            last = last.steps[-1][1]
        else:
            last = last.best_estimator_
    if not isinstance(last, BaseEstimator) or not (is_classifier(last) or is_regressor(last)):
        got = type(last).__name__ if isinstance(last, BaseEstimator) else repr(last)
        refuse(owner, "model", "be or end in a classifier or a regressor", got)
    try:
        check_is_fitted(last)
    except NotFittedError as error:
        raise InputError(f"{owner}: model must be fitted; got {type(last).__name__} before fit. Call its fit first.") from error
    task = _task(last, owner)
    return _Fitted(tuple(steps), last, task, _headless(last))


def _task(last: Any, owner: str) -> str:
    """The task an estimator settles; what cannot be read is refused."""
    name = type(last).__name__
    if is_regressor(last):
        return "regression"
    if isinstance(last, (RidgeClassifier, RidgeClassifierCV)):
        refuse(
            owner,
            "model",
            "give class probabilities",
            f"{name} (squared loss on codes ±1)",
            "Use LogisticRegression, or Ridge on the codes.",
        )
    if isinstance(last.classes_, list) or getattr(last, "multilabel_", False) or _many_labels(last):
        refuse(owner, "model", "predict one label per record", f"{name} with several", "Multi-label models: audit one label at a time.")
    if not hasattr(last, "predict_proba"):
        refuse(owner, "model", "give class probabilities", f"{name} without predict_proba", "Wrap it in CalibratedClassifierCV.")
    if len(last.classes_) < 2:
        refuse(owner, "model", "know at least two classes", f"{name} fitted on one")
    return "binary" if len(last.classes_) == 2 and _headless(last) is None else "classification"


def _many_labels(last: Any) -> bool:
    return isinstance(last, MLPClassifier) and last.out_activation_ == "logistic" and last.n_outputs_ > 1


def _headless(last: Any) -> str | None:
    """Why record scores do not exist for an estimator; None when its head can be read."""
    name, without = type(last).__name__, "record scores need one, model-level risk does not."
    if not isinstance(last, LINEAR):
        return f"{name} has no linear head that noshadow reads; {without}"
    if isinstance(last, MLPRegressor) and last.out_activation_ != "identity":
        return f"{name} with loss={last.loss!r} has no linear output under squared loss; {without}"
    if isinstance(last, LogisticRegression):
        # Parameters of scikit-learn < 1.8: probabilities there are not the softmax or the sigmoid of the linear outputs.
        scheme, binary = getattr(last, "multi_class", None), len(last.classes_) == 2
        if not binary and (scheme == "ovr" or last.solver == "liblinear"):
            return f"{name} was trained one class against the rest, so no one softmax head exists; {without}"
        if binary and scheme == "multinomial":
            return (
                f"{name} with multi_class='multinomial' ties two softmax logits of two classes, which has no head noshadow reads; {without}"
            )
    return None


def _pair(data: object, owner: str, argument: str) -> tuple[Any, Array, tuple[str, ...]]:
    """X, the labels in its order, and a note where that was not their own."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        refuse(owner, argument, "be (X, y) for a scikit-learn estimator", type(data).__name__)
    X, y = (as_array(part, owner, argument) if isinstance(part, Tensor) else part for part in data)
    y, notes = paired_targets(X, y, owner, argument)
    labels = np.asarray(y)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim not in (1, 2):
        refuse(owner, f"{argument} y", "be 1- or 2-dimensional", f"shape {labels.shape}")
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    require_same_length(owner, X=range(rows), y=range(len(labels)))
    return X, labels, notes


def _signals(fitted: _Fitted, X: Any, y: Array, owner: str, argument: str) -> tuple[Signals, int]:
    """Signals of one split and how many probabilities had to be lifted off zero."""
    if len(y) == 0:
        refuse(owner, argument, "hold at least one record", "none")
    if fitted.task == "regression":
        targets = numeric_array(y, owner, f"{argument} y", ndim=(1, 2)).astype(np.float64)
    else:
        targets = _class_numbers(y, fitted.last.classes_, owner, argument)
    ids = index_ids(X)
    with users_code(owner, f"model must accept {argument} X"):
        for step in fitted.steps:
            X = step.transform(X)
    X = X if hasattr(X, "shape") else np.asarray(X)
    width = getattr(fitted.last, "n_features_in_", None)
    if width is not None and X.shape[1:] != (width,):
        refuse(owner, f"{argument} X", f"have the {width} columns {fitted.name} was fitted on", f"shape {tuple(X.shape)}")
    with users_code(owner, f"model must accept {argument} X"):
        if fitted.headless is None:
            features, outputs = _head_signals(fitted.last, X, owner, argument)
            return Signals(features, outputs, targets, ids), 0
        if fitted.task == "regression":
            return Signals(None, fitted.last.predict(X), targets, ids), 0
        probabilities = np.asarray(fitted.last.predict_proba(X), dtype=np.float64)
    logs = np.log(np.maximum(probabilities, LEAST_PROBABILITY))
    return Signals(None, logs, targets, ids), int((probabilities < LEAST_PROBABILITY).sum())


def _run_again(fitted: _Fitted, X: Any, y: Array, seen: Signals, owner: str, argument: str) -> dict[str, Any]:
    """What becomes of some records when they are predicted again among others: a step may draw at random, or look at its whole batch."""
    rows, outputs, targets = [], [], []
    for group in sampled_groups(len(seen), len(seen)):
        part = X.iloc[group] if hasattr(X, "iloc") else X[group] if hasattr(X, "shape") else [X[row] for row in group]
        runs = [_signals(fitted, part, y[group], owner, argument)[0] for _ in range(2)]
        rows += group
        outputs.append([run.outputs for run in runs])
        targets.append(runs[0].targets)
    first, second = (Signals(None, np.concatenate(part), np.concatenate(targets)) for part in zip(*outputs, strict=True))
    return compared(seen, np.array(rows), first, second, rounding=float(np.finfo(seen.outputs.dtype).eps))


def _class_numbers(y: Array, classes: Array, owner: str, argument: str) -> Array:
    if y.ndim != 1:
        refuse(owner, f"{argument} y", "hold one label per record", f"shape {y.shape}", "Multi-label models: audit one label at a time.")
    numbers = {label: number for number, label in enumerate(classes.tolist())}
    unseen = [row for row, label in enumerate(y.tolist()) if label not in numbers]
    if unseen:
        known = ", ".join(map(repr, list(numbers)[:10])) + (", …" if len(numbers) > 10 else "")
        refuse(owner, f"{argument} y", f"hold labels the model knows ({known})", f"{y.tolist()[unseen[0]]!r} at index {unseen[0]}")
    return np.array([numbers[label] for label in y.tolist()], dtype=np.int64)


def _head_signals(last: Any, X: Any, owner: str, argument: str) -> tuple[Array, Array]:
    if issparse(X):
        size = X.shape[0] * X.shape[1] * (X.dtype.itemsize if X.dtype.kind == "f" else 8)
        if size > DENSE_LIMIT_BYTES:
            refuse(owner, f"{argument} X", "fit into 1 GB as a dense array", f"sparse shape {X.shape}", "Reduce its columns first.")
        dense = X.toarray()
    else:
        dense = np.asarray(X)
    dense = dense if dense.dtype.kind == "f" else np.asarray(dense, dtype=np.float64)
    if isinstance(last, (MLPClassifier, MLPRegressor)):
        # For scikit-learn's own checks of names and order of columns.
        last.predict(X[:1])
        features = dense
        for weights, bias in zip(last.coefs_[:-1], last.intercepts_[:-1], strict=True):
            features = ACTIVATIONS[last.activation](features @ weights + bias)
        return features, features @ last.coefs_[-1] + last.intercepts_[-1]
    outputs = last.decision_function(X) if isinstance(last, LogisticRegression) else last.predict(X)
    return dense, outputs


def _described(fitted: _Fitted, signals: Signals) -> str:
    assert signals.features is not None
    layer = "output layer of " if hasattr(fitted.last, "coefs_") else ""
    bias = "with" if getattr(fitted.last, "fit_intercept", True) else "without"
    return f"{layer}{fitted.name} ({signals.features.shape[1]} → {signals.outputs.shape[1]}, {bias} intercept)"


def _clipped_note(entries: int) -> tuple[str, ...]:
    if entries == 0:
        return ()
    return (f"{entries} class probabilities below {LEAST_PROBABILITY:g} were raised to it, since a zero gives an infinite loss.",)


def _weights_sha256(last: Any, train: Signals) -> tuple[str, tuple[str, ...]]:
    digest, arrays = hashlib.sha256(), 0
    for name in ("coef_", "intercept_", "coefs_", "intercepts_"):
        held: Any = getattr(last, name, None)
        for value in [] if held is None else held if isinstance(held, list) else [held]:
            array = np.ascontiguousarray(value.toarray() if issparse(value) else value, dtype=np.float64)
            digest.update(f"{name}|{array.shape}|".encode())
            digest.update(array.data)
            arrays += 1
    if arrays:
        return digest.hexdigest(), ()
    digest.update(np.ascontiguousarray(train.outputs).data)
    return digest.hexdigest(), (
        f"{type(last).__name__} has no coefficient arrays: weights_sha256 is the digest of its outputs on the training records.",
    )

"""Fitted estimators that read a table (X, y), alone or at the end of a Pipeline → Signals.

Each family of them is described in a file of its own; here is what all of them share.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.class_weight import compute_sample_weight
from torch import Tensor

from noshadow.checks import (
    TASKS,
    Array,
    NotApplicable,
    as_array,
    numeric_array,
    refuse,
    require_choice,
    require_same_length,
    require_weights,
    users_code,
)
from noshadow.signals import Signals
from noshadow.views.boosted import Boosted
from noshadow.views.estimator_family import EstimatorFamily, last_step, no_penalty, type_name
from noshadow.views.pairing import paired_targets
from noshadow.views.reader import LeftOut, OtherRecords, OutOfBag, Reader, Transform
from noshadow.views.repeated import compared, sampled_groups
from noshadow.views.row_names import RowNames, index_ids, index_names, name_facts
from noshadow.views.view import Settings, View, no_records

LEAST_PROBABILITY = 1e-15
DENSE_LIMIT_BYTES = 1_000_000_000
# Share of the outputs' size by which a formula may differ from the model: solvers stop there.
SAME_MODEL = 1e-4


@dataclass(frozen=True)
class _Fitted:
    """An estimator taken apart.

    It holds the steps that transform, the last step, its task, and why it has no readable head.
    """

    family: EstimatorFamily
    steps: tuple[Any, ...]
    last: Any
    task: str
    headless: str | None

    @property
    def name(self) -> str:
        return type_name(self.last)


def _taken_apart(family: EstimatorFamily, model: Any, settings: Settings) -> _Fitted:
    for argument, value, rest in (
        ("layer", settings.layer, "auto"),
        ("output", settings.output, "auto"),
        ("device", settings.device, None),
    ):
        if value != rest:
            refuse(argument, f"be {rest!r} for {family.described}", repr(value))
    steps, last = last_step(model)
    task, headless = family.task(last), family.headless(last)
    if task == "classification" and headless is None and len(family.classes(last)) == 2:
        task = "binary"
    return _Fitted(family, steps, last, task, headless)


def estimator_view(
    family: EstimatorFamily,
    model: Any,
    train: object,
    test: object,
    *,
    task: str,
    weight_decay: float | None,
    settings: Settings,
) -> View:
    """The View of a fitted estimator; arguments as in `view`.

    Weights of single records given to `fit` are not stored by scikit-learn and cannot be read.
    """
    if weight_decay is not None:
        refuse("weight_decay", f"be None for {family.described}", f"{weight_decay!r}", "Its own penalty is read from it.")
    fitted = _taken_apart(family, model, settings)
    require_choice(task, ("auto", *TASKS), "task")
    if task not in ("auto", fitted.task):
        refuse("task", f"be 'auto' or '{fitted.task}' for this {fitted.name}", repr(task))
    X, y, paired = _pair(fitted, train, "train")
    seen, clipped = _signals(fitted, X, y, "train")
    again = {"train": _run_again(fitted, X, y, seen, "train")}
    unseen, also_clipped = no_records(seen), 0
    names: dict[str, RowNames | None] = {"train": index_names(X), "test": None}
    if test is not None:
        X_test, y_test, also_paired = _pair(fitted, test, "test")
        if len(y_test):
            unseen, also_clipped = _signals(fitted, X_test, y_test, "test")
            again["test"] = _run_again(fitted, X_test, y_test, unseen, "test")
            names["test"], paired = index_names(X_test), (*paired, *also_paired)
    penalty = no_penalty(fitted.last, len(seen)) if fitted.headless else family.penalty(fitted.last, len(seen))
    digest, digest_notes = _weights_sha256(family, fitted.last, seen)
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
        class_names=None if fitted.task == "regression" else tuple(str(c) for c in family.classes(fitted.last)),
        not_applicable=fitted.headless or penalty.not_applicable,
        notes=(*paired, *penalty.notes, *_clipped_note(clipped + also_clipped), *digest_notes),
        weights_sha256=digest,
        inputs=name_facts(names) | {"run_again": again},
    )


def estimator_signals(family: EstimatorFamily, model: Any, data: object, *, settings: Settings) -> Signals:
    """The Signals of one split; arguments as in `collect_signals`."""
    fitted = _taken_apart(family, model, settings)
    X, y, _ = _pair(fitted, data, "data")
    return _signals(fitted, X, y, "data")[0]


def estimator_outputs(
    family: EstimatorFamily, model: Any, data: object, *, task: str, transform: Transform | None, settings: Settings
) -> tuple[Signals, str]:
    """Signals without features, and the estimator's own task; arguments as in `collect_outputs`."""
    fitted = _taken_apart(family, model, replace(settings, device=None))
    X, y, _ = _pair(fitted, data, "data")
    if transform is not None:
        with users_code("queries must accept the data's inputs"):
            X = transform(X)
    signals, _ = _signals(fitted, X, y, "data")
    return Signals(None, signals.outputs, signals.targets, signals.ids), fitted.task


def estimator_history(family: EstimatorFamily, model: Any, data: object, *, settings: Settings) -> Iterator[Array]:
    """Outputs (n, m) after each stage of the training, on the scale of `estimator_outputs`."""
    assert not isinstance(family.history, NotApplicable)
    fitted = _taken_apart(family, model, settings)
    X, _, _ = _pair(fitted, data, "data")
    stages = family.history(fitted.last, _transformed(fitted, X, "data"), fitted.task)
    # Not a generator itself: data that cannot be read are refused while the caller is running.
    return (_raw_outputs(values, fitted.task)[0] for values in stages)


def estimator_out_of_bag(family: EstimatorFamily, model: Any, data: object, *, settings: Settings) -> OutOfBag:
    """What the parts trained without each record say of it, on the scale of `estimator_outputs`."""
    assert not isinstance(family.out_of_bag, NotApplicable)
    fitted = _taken_apart(family, model, settings)
    X, _, _ = _pair(fitted, data, "data")
    values, parts = family.out_of_bag(fitted.last, _transformed(fitted, X, "data"), fitted.task)
    return OutOfBag(_raw_outputs(values, fitted.task)[0], parts, len(fitted.last.estimators_))


def estimator_left_out(family: EstimatorFamily, model: Any, data: object, *, sample_weight: Array | None, settings: Settings) -> LeftOut:
    """What the model would say of each record without it, on the scale of `estimator_outputs`.

    Raises:
        NotApplicable: there is no formula for this model; or the formula, applied to all records,
            does not give what the model says.
    """
    assert not isinstance(family.left_out, NotApplicable)
    fitted = _taken_apart(family, model, settings)
    X, y, _ = _pair(fitted, data, "data")
    if fitted.task == "regression":
        targets = numeric_array(y, "data y", ndim=(1, 2)).astype(np.float64)
    else:
        targets = _class_numbers(y, family.classes(fitted.last), "data")
    table = _transformed(fitted, X, "data")
    weight = None if sample_weight is None else require_weights(sample_weight, len(targets))
    found = family.left_out(fitted.last, table, targets, fitted.task, weight)
    says = family.outputs(fitted.last, table, fitted.task)
    apart = np.abs(found.whole - says) > SAME_MODEL * (np.abs(says) + (says.std() if fitted.task == "regression" else 1.0))
    if apart.any():
        raise OtherRecords(
            f"made again from these records, {fitted.name} says something else for {int(apart.reshape(len(says), -1).any(1).sum())} of "
            f"them: it was fitted on other records, in another order, or with sample weights that were not given (sample_weight=)"
        )
    outputs = _raw_outputs(found.without, fitted.task)[0].reshape(len(targets), -1)
    return LeftOut(outputs, found.how, found.notes, found.alone, found.parts)


def estimator_boosted(family: EstimatorFamily, model: Any, data: object, *, weights: Array | None, settings: Settings) -> Boosted:
    """The rounds of the training on these records, with the leaf of each."""
    assert not isinstance(family.boosted, NotApplicable)
    fitted = _taken_apart(family, model, settings)
    X, y, _ = _pair(fitted, data, "data")
    targets = _targets(fitted, y, "data")
    if targets.ndim != 1:
        raise NotApplicable(f"{fitted.name} predicts several values per record")
    return family.boosted(fitted.last, _transformed(fitted, X, "data"), targets, weights)


def estimator_sha256(family: EstimatorFamily, model: Any, outputs: Array) -> str:
    """Hex digest of the coefficients, or of the outputs of an estimator that has none."""
    last = _taken_apart(family, model, Settings()).last
    return _weights_sha256(family, last, Signals(None, outputs, np.zeros(len(outputs))))[0]


def _pair(fitted: _Fitted, data: object, argument: str) -> tuple[Any, Array, tuple[str, ...]]:
    """X, the labels in its order, and a note where that was not their own."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        refuse(argument, f"be (X, y) for {fitted.family.described}", type(data).__name__)
    X, y = (as_array(part, argument) if isinstance(part, Tensor) else part for part in data)
    y, notes = paired_targets(X, y, argument)
    labels = np.asarray(y)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim not in (1, 2):
        refuse(f"{argument} y", "be 1- or 2-dimensional", f"shape {labels.shape}")
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    require_same_length(X=range(rows), y=range(len(labels)))
    return X, labels, notes


def _signals(fitted: _Fitted, X: Any, y: Array, argument: str) -> tuple[Signals, int]:
    """Signals of one split and how many probabilities had to be lifted off zero."""
    if len(y) == 0:
        refuse(argument, "hold at least one record", "none")
    targets = _targets(fitted, y, argument)
    ids = index_ids(X)
    X = _transformed(fitted, X, argument)
    with users_code(f"model must accept {argument} X"):
        if fitted.headless is None:
            assert fitted.family.head is not None
            features, outputs = fitted.family.head(fitted.last, X, _dense(X, argument))
            return Signals(features, outputs, targets, ids), 0
        values, raised = _raw_outputs(fitted.family.outputs(fitted.last, X, fitted.task), fitted.task)
    return Signals(None, values, targets, ids), raised


def _targets(fitted: _Fitted, y: Array, argument: str) -> Array:
    if fitted.task == "regression":
        return numeric_array(y, f"{argument} y", ndim=(1, 2)).astype(np.float64)
    return _class_numbers(y, fitted.family.classes(fitted.last), argument)


def _transformed(fitted: _Fitted, X: Any, argument: str) -> Any:
    """X as the last step of a pipeline sees it, an array or a table with a shape."""
    with users_code(f"model must accept {argument} X"):
        for step in fitted.steps:
            X = step.transform(X)
    X = X if hasattr(X, "shape") else np.asarray(X)
    width = getattr(fitted.last, "n_features_in_", None)
    # CatBoost says 0 of a model that was read from a file.
    if width and X.shape[1:] != (width,):
        refuse(f"{argument} X", f"have the {width} columns {fitted.name} was fitted on", f"shape {tuple(X.shape)}")
    return X


def _raw_outputs(values: Array, task: str) -> tuple[Array, int]:
    """Predictions as they are; logarithms of probabilities, and how many were lifted off zero."""
    if task == "regression":
        return values, 0
    probabilities = np.asarray(values, dtype=np.float64)
    return np.log(np.maximum(probabilities, LEAST_PROBABILITY)), int((probabilities < LEAST_PROBABILITY).sum())


def _dense(X: Any, argument: str) -> Array:
    """X as a dense array of floats."""
    if issparse(X):
        size = X.shape[0] * X.shape[1] * (X.dtype.itemsize if X.dtype.kind == "f" else 8)
        if size > DENSE_LIMIT_BYTES:
            refuse(f"{argument} X", "fit into 1 GB as a dense array", f"sparse shape {X.shape}", "Reduce its columns first.")
        dense = X.toarray()
    else:
        dense = np.asarray(X)
    return dense if dense.dtype.kind == "f" else np.asarray(dense, dtype=np.float64)


def _run_again(fitted: _Fitted, X: Any, y: Array, seen: Signals, argument: str) -> dict[str, Any]:
    """Compare some records with themselves after they are predicted again among other records.

    They may differ, because a step may draw at random or look at its whole batch.
    """
    rows, outputs, targets = [], [], []
    for group in sampled_groups(len(seen), len(seen)):
        part = X.iloc[group] if hasattr(X, "iloc") else X[group] if hasattr(X, "shape") else [X[row] for row in group]
        runs = [_signals(fitted, part, y[group], argument)[0] for _ in range(2)]
        rows += group
        outputs.append([run.outputs for run in runs])
        targets.append(runs[0].targets)
    first, second = (Signals(None, np.concatenate(part), np.concatenate(targets)) for part in zip(*outputs, strict=True))
    return compared(seen, np.array(rows), first, second, rounding=float(np.finfo(seen.outputs.dtype).eps))


def _class_numbers(y: Array, classes: Array, argument: str) -> Array:
    if y.ndim != 1:
        refuse(f"{argument} y", "hold one label per record", f"shape {y.shape}", "Multi-label models: audit one label at a time.")
    numbers = {label: number for number, label in enumerate(np.asarray(classes).tolist())}
    unseen = [row for row, label in enumerate(y.tolist()) if label not in numbers]
    if unseen:
        known = ", ".join(map(repr, list(numbers)[:10])) + (", …" if len(numbers) > 10 else "")
        refuse(f"{argument} y", f"hold labels the model knows ({known})", f"{y.tolist()[unseen[0]]!r} at index {unseen[0]}")
    return np.array([numbers[label] for label in y.tolist()], dtype=np.int64)


def _described(fitted: _Fitted, signals: Signals) -> str:
    assert signals.features is not None
    layer = "output layer of " if hasattr(fitted.last, "coefs_") else ""
    bias = "with" if getattr(fitted.last, "fit_intercept", True) else "without"
    return f"{layer}{fitted.name} ({signals.features.shape[1]} → {signals.outputs.shape[1]}, {bias} intercept)"


def _clipped_note(entries: int) -> tuple[str, ...]:
    if entries == 0:
        return ()
    return (f"{entries} class probabilities below {LEAST_PROBABILITY:g} were raised to it, since a zero gives an infinite loss.",)


def _weights_sha256(family: EstimatorFamily, last: Any, train: Signals) -> tuple[str, tuple[str, ...]]:
    saved = family.saved(last)
    if saved is not None:
        return hashlib.sha256(saved).hexdigest(), ()
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


def estimator_reader(family: EstimatorFamily) -> Reader:
    """The Reader of a family of estimators, which takes pipelines and searches apart."""
    history, out_of_bag, boosted, left_out = family.history, family.out_of_bag, family.boosted, family.left_out
    return Reader(
        name=family.name,
        form="table",
        reads=lambda model: family.reads(last_step(model)[1]),
        family=lambda model: family.calibrated_as(last_step(model)[1]),
        view=partial(estimator_view, family),
        signals=partial(estimator_signals, family),
        outputs=partial(estimator_outputs, family),
        weights_sha256=partial(estimator_sha256, family),
        history=history if isinstance(history, NotApplicable) else partial(estimator_history, family),
        out_of_bag=out_of_bag if isinstance(out_of_bag, NotApplicable) else partial(estimator_out_of_bag, family),
        boosted=boosted if isinstance(boosted, NotApplicable) else partial(estimator_boosted, family),
        left_out=left_out if isinstance(left_out, NotApplicable) else partial(estimator_left_out, family),
    )

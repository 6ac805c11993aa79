"""Fitted estimators that read a table (X, y), alone or at the end of a Pipeline → Signals.

Each family of them is described in a file of its own; here is what all of them share.
"""

import hashlib
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.class_weight import compute_sample_weight

from noshadow.checks import (
    TASKS,
    Array,
    NotApplicable,
    refuse,
    require_choice,
    users_code,
)
from noshadow.signals import Signals
from noshadow.views.estimator_family import EstimatorFamily, last_step, no_penalty
from noshadow.views.estimator_insides import estimator_boosted, estimator_history, estimator_left_out, estimator_out_of_bag
from noshadow.views.estimator_tables import (
    LEAST_PROBABILITY,
    Fitted,
    raw_outputs,
    record_pair,
    record_targets,
    taken_apart,
    transformed,
)
from noshadow.views.reader import Reader, Transform
from noshadow.views.repeated import compared, sampled_groups
from noshadow.views.row_names import RowNames, index_ids, index_names, name_facts
from noshadow.views.view import Settings, View, no_records

DENSE_LIMIT_BYTES = 1_000_000_000
# What the digest of a model without coefficient arrays is that of, in the audit's provenance.
OUTPUTS_DIGESTED = "its outputs on the training records"


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
    fitted = taken_apart(family, model, settings)
    require_choice(task, ("auto", *TASKS), "task")
    if task not in ("auto", fitted.task):
        refuse("task", f"be 'auto' or '{fitted.task}' for this {fitted.name}", repr(task))
    X, y, paired = record_pair(fitted, train, "train")
    seen, clipped = _signals(fitted, X, y, "train")
    again = {"train": _run_again(fitted, X, y, seen, "train")}
    unseen, also_clipped = no_records(seen), 0
    names: dict[str, RowNames | None] = {"train": index_names(X), "test": None}
    if test is not None:
        X_test, y_test, also_paired = record_pair(fitted, test, "test")
        if len(y_test):
            unseen, also_clipped = _signals(fitted, X_test, y_test, "test")
            again["test"] = _run_again(fitted, X_test, y_test, unseen, "test")
            names["test"], paired = index_names(X_test), (*paired, *also_paired)
    penalty = no_penalty(fitted.last, len(seen)) if fitted.headless else family.penalty(fitted.last, len(seen))
    digest, of_weights = _weights_sha256(family, fitted.last, seen)
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
        notes=(*paired, *family.notes(fitted.last), *penalty.notes, *_clipped_note(clipped + also_clipped)),
        weights_sha256=digest,
        inputs=name_facts(names)
        | {"run_again": again}
        | ({} if of_weights else {"weights_digest_of": OUTPUTS_DIGESTED})
        | _solver_facts(fitted, seen),
    )


def _solver_facts(fitted: Fitted, seen: Signals) -> dict[str, float]:
    """What a solver that converged leaves of the gradient of a head."""
    leaves = None if fitted.headless else fitted.family.solver_leaves(fitted.last, seen)
    return {} if leaves is None else {"solver_leaves": leaves}


def estimator_signals(family: EstimatorFamily, model: Any, data: object, *, settings: Settings) -> Signals:
    """The Signals of one split; arguments as in `collect_signals`."""
    fitted = taken_apart(family, model, settings)
    X, y, _ = record_pair(fitted, data, "data")
    return _signals(fitted, X, y, "data")[0]


def estimator_outputs(
    family: EstimatorFamily, model: Any, data: object, *, task: str, transform: Transform | None, settings: Settings
) -> tuple[Signals, str]:
    """Signals without features, and the estimator's own task; arguments as in `collect_outputs`."""
    fitted = taken_apart(family, model, replace(settings, device=None))
    X, y, _ = record_pair(fitted, data, "data")
    if transform is not None:
        with users_code("queries must accept the data's inputs"):
            X = transform(X)
    signals, _ = _signals(fitted, X, y, "data")
    return Signals(None, signals.outputs, signals.targets, signals.ids), fitted.task


def estimator_sha256(family: EstimatorFamily, model: Any, outputs: Array) -> str:
    """Hex digest of the coefficients, or of the outputs of an estimator that has none."""
    last = taken_apart(family, model, Settings()).last
    return _weights_sha256(family, last, Signals(None, outputs, np.zeros(len(outputs))))[0]


def _signals(fitted: Fitted, X: Any, y: Array, argument: str) -> tuple[Signals, int]:
    """Signals of one split and how many probabilities had to be lifted off zero."""
    if len(y) == 0:
        refuse(argument, "hold at least one record", "none")
    targets = record_targets(fitted, y, argument)
    ids = index_ids(X)
    X = transformed(fitted, X, argument)
    with users_code(f"model must accept {argument} X"):
        if fitted.headless is None:
            assert fitted.family.head is not None
            features, outputs = fitted.family.head(fitted.last, X, _dense(X, argument))
            return Signals(features, outputs, targets, ids), 0
        values, raised = raw_outputs(fitted.family.outputs(fitted.last, X, fitted.task), fitted.task)
    return Signals(None, values, targets, ids), raised


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


def _run_again(fitted: Fitted, X: Any, y: Array, seen: Signals, argument: str) -> dict[str, Any]:
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


def _described(fitted: Fitted, signals: Signals) -> str:
    assert signals.features is not None
    layer = "output layer of " if hasattr(fitted.last, "coefs_") else ""
    bias = "with" if getattr(fitted.last, "fit_intercept", True) else "without"
    return f"{layer}{fitted.name} ({signals.features.shape[1]} → {signals.outputs.shape[1]}, {bias} intercept)"


def _clipped_note(entries: int) -> tuple[str, ...]:
    if entries == 0:
        return ()
    return (f"{entries} class probabilities below {LEAST_PROBABILITY:g} were raised to it, since a zero gives an infinite loss.",)


def _weights_sha256(family: EstimatorFamily, last: Any, train: Signals) -> tuple[str, bool]:
    """The digest, and whether it is that of the model's own parameters."""
    saved = family.saved(last)
    if saved is not None:
        return hashlib.sha256(saved).hexdigest(), True
    digest, arrays = hashlib.sha256(), 0
    for name in ("coef_", "intercept_", "coefs_", "intercepts_"):
        held: Any = getattr(last, name, None)
        for value in [] if held is None else held if isinstance(held, list) else [held]:
            array = np.ascontiguousarray(value.toarray() if issparse(value) else value, dtype=np.float64)
            digest.update(f"{name}|{array.shape}|".encode())
            digest.update(array.data)
            arrays += 1
    if arrays:
        return digest.hexdigest(), True
    digest.update(np.ascontiguousarray(train.outputs).data)
    return digest.hexdigest(), False


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
        votes=lambda model: family.votes(last_step(model)[1]),
    )

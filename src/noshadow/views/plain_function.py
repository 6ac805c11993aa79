"""Any function predict(X) → outputs: what it says of the records, and nothing else."""

import hashlib
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from noshadow.checks import Array, as_array, numeric_array, refuse, users_code
from noshadow.outcomes import Absent
from noshadow.signals import Signals
from noshadow.views.pairing import paired_targets
from noshadow.views.reader import Reader, Transform
from noshadow.views.repeated import compared, sampled_groups
from noshadow.views.row_names import index_ids, index_names, name_facts
from noshadow.views.view import Settings, View, no_records

WITHOUT = "a plain function says what it predicts and nothing of how it was trained; record scores need the last layer's inputs"


def is_plain_function(model: object) -> bool:
    """Whether a model is something to be called that no other family reads; classes are not."""
    return callable(model) and not isinstance(model, (type, nn.Module, BaseEstimator))


def _view(model: Any, train: object, test: object, *, task: str, weight_decay: float | None, settings: Settings) -> View:
    _require_defaults(settings, weight_decay)
    X, seen, notes = _signals(model, train, "train")
    again = {"train": _run_again(model, X, seen, "train")}
    names, unseen = {"train": index_names(X), "test": None}, no_records(seen)
    if test is not None and len(_pair(test, "test")[1]):
        X_test, unseen, more = _signals(model, test, "test")
        again["test"] = _run_again(model, X_test, unseen, "test")
        names["test"], notes = index_names(X_test), (*notes, *more)
    if unseen.outputs.shape[1] != seen.outputs.shape[1]:
        refuse("model", "give train and test as many outputs", f"{seen.outputs.shape[1]} and {unseen.outputs.shape[1]}")
    return View(
        train=seen,
        test=unseen,
        task=task,
        head=None,
        fit_intercept=True,
        penalize_intercept=False,
        penalty=Absent("not available", "The model has no linear head to damp."),
        sample_weight=None,
        class_names=None,
        not_applicable=WITHOUT,
        notes=notes,
        weights_sha256=_digest(model, seen.outputs),
        inputs=name_facts(names) | {"run_again": again},
    )


def _one_split(model: Any, data: object, *, settings: Settings) -> Signals:
    _require_defaults(settings, None)
    return _signals(model, data, "data")[1]


def _outputs(model: Any, data: object, *, task: str, transform: Transform | None, settings: Settings) -> tuple[Signals, str]:
    X, y, _ = _pair(data, "data")
    if transform is not None:
        with users_code("queries must accept the data's inputs"):
            X = transform(X)
    return Signals(None, _called(model, X, len(y), "data"), y, index_ids(X)), task


def _require_defaults(settings: Settings, weight_decay: float | None) -> None:
    given = (
        ("layer", settings.layer, "auto"),
        ("output", settings.output, "auto"),
        ("device", settings.device, None),
        ("weight_decay", weight_decay, None),
    )
    for argument, value, rest in given:
        if value != rest:
            refuse(argument, f"be {rest!r} for a plain function", repr(value))


def _pair(data: object, argument: str) -> tuple[Any, Array, tuple[str, ...]]:
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        refuse(argument, "be (X, y) for a plain function", type(data).__name__)
    X, y = data
    y, notes = paired_targets(X, as_array(y, argument) if isinstance(y, Tensor) else y, argument)
    targets = numeric_array(np.asarray(y), f"{argument} y", ndim=(1, 2))
    return X, targets, notes


def _signals(model: Any, data: object, argument: str) -> tuple[Any, Signals, tuple[str, ...]]:
    X, y, notes = _pair(data, argument)
    if len(y) == 0:
        refuse(argument, "hold at least one record", "none")
    return X, Signals(None, _called(model, X, len(y), argument), y, index_ids(X)), notes


def _called(model: Any, X: Any, rows: int, argument: str) -> Array:
    """What the function says of X: one row of numbers per record."""
    with users_code(f"model must accept {argument} X"):
        said = model(X)
    values = numeric_array(said, f"model({argument} X)", ndim=(1, 2))
    if len(values) != rows:
        refuse(f"model({argument} X)", f"have one row for each of {rows} records", f"shape {values.shape}")
    return values


def _run_again(model: Any, X: Any, seen: Signals, argument: str) -> dict[str, Any]:
    """Compare some records with themselves after they are predicted again among other records."""
    rows, outputs = [], []
    for group in sampled_groups(len(seen), len(seen)):
        part = X.iloc[group] if hasattr(X, "iloc") else X[group] if hasattr(X, "shape") else [X[row] for row in group]
        outputs.append([_called(model, part, len(group), argument).reshape(len(group), -1) for _ in range(2)])
        rows += group
    targets = seen.targets[np.array(rows)]
    first, second = (Signals(None, np.concatenate(part), targets) for part in zip(*outputs, strict=True))
    return compared(seen, np.array(rows), first, second, rounding=float(np.finfo(seen.outputs.dtype).eps))


def _digest(model: Any, outputs: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(outputs).data).hexdigest()


PLAIN_FUNCTION = Reader(
    name="plain function",
    form="table",
    reads=is_plain_function,
    family=lambda model: "function",
    view=_view,
    signals=_one_split,
    outputs=_outputs,
    weights_sha256=_digest,
    open_scale=True,
)

"""Fitted estimators taken apart, and their tables (X, y) as the last step sees them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from noshadow.checks import Array, as_array, numeric_array, refuse, require_same_length, users_code
from noshadow.views.estimator_family import EstimatorFamily, last_step, type_name
from noshadow.views.pairing import paired_targets
from noshadow.views.view import Settings

LEAST_PROBABILITY = 1e-15


@dataclass(frozen=True)
class Fitted:
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
        """The class of the last step."""
        return type_name(self.last)


def taken_apart(family: EstimatorFamily, model: Any, settings: Settings) -> Fitted:
    """The steps and the last estimator of a model, with the task that it settles.

    A head of two classes has one logit: its task is "binary". Settings of modules are refused.
    """
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
    return Fitted(family, steps, last, task, headless)


def record_pair(fitted: Fitted, data: object, argument: str) -> tuple[Any, Array, tuple[str, ...]]:
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


def record_targets(fitted: Fitted, y: Array, argument: str) -> Array:
    """Values of a regression, float64 (n,) or (n, q), or numbers of the model's classes, (n,)."""
    if fitted.task == "regression":
        return numeric_array(y, f"{argument} y", ndim=(1, 2)).astype(np.float64)
    return class_numbers(y, fitted.family.classes(fitted.last), argument)


def transformed(fitted: Fitted, X: Any, argument: str) -> Any:
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


def raw_outputs(values: Array, task: str) -> tuple[Array, int]:
    """Predictions as they are; logarithms of probabilities, and how many were lifted off zero."""
    if task == "regression":
        return values, 0
    probabilities = np.asarray(values, dtype=np.float64)
    return np.log(np.maximum(probabilities, LEAST_PROBABILITY)), int((probabilities < LEAST_PROBABILITY).sum())


def class_numbers(y: Array, classes: Array, argument: str) -> Array:
    """Numbers of the classes that labels (n,) name; labels the model does not know are refused."""
    if y.ndim != 1:
        refuse(f"{argument} y", "hold one label per record", f"shape {y.shape}", "Multi-label models: audit one label at a time.")
    numbers = {label: number for number, label in enumerate(np.asarray(classes).tolist())}
    unseen = [row for row, label in enumerate(y.tolist()) if label not in numbers]
    if unseen:
        known = ", ".join(map(repr, list(numbers)[:10])) + (", …" if len(numbers) > 10 else "")
        refuse(f"{argument} y", f"hold labels the model knows ({known})", f"{y.tolist()[unseen[0]]!r} at index {unseen[0]}")
    return np.array([numbers[label] for label in y.tolist()], dtype=np.int64)

"""Nearest neighbours of scikit-learn: without a record, its own neighbourhood has one less."""

import warnings
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, RadiusNeighborsClassifier, RadiusNeighborsRegressor

from noshadow.checks import Array, NotApplicable
from noshadow.views.estimator_family import EstimatorFamily, Refitted, predictions, type_name
from noshadow.views.estimators import estimator_reader
from noshadow.views.reader import OtherRecords

NEAREST = (KNeighborsClassifier, KNeighborsRegressor)
WITHIN = (RadiusNeighborsClassifier, RadiusNeighborsRegressor)
HOW = "the record leaves its own neighbourhood; exact"


def _left_out(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Predictions from every record's neighbours but itself.

    scikit-learn gives them when asked about no records at all, and breaks ties among equally far
    neighbours as it does otherwise: by the order in which its search meets them.

    Cost: two more searches for the neighbours of n records.
    """
    _require_same_records(last, X, y, task)
    if isinstance(last, WITHIN):
        whole, without = (_within_radius(last, query, task) for query in (X, None))
        return Refitted(whole, without, HOW)
    if last.n_neighbors >= X.shape[0]:
        raise NotApplicable(f"{type_name(last)} asks {last.n_neighbors} neighbours, and without a record there are {X.shape[0] - 1}")
    return Refitted(predictions(last, X, task), _nearest(last, task), HOW, _tie_note(last, X.shape[0]))


def _require_same_records(last: Any, X: Any, y: Array, task: str) -> None:
    """A model of neighbours is its records: they are compared one by one."""
    held = last._fit_X
    table = X if issparse(X) else np.asarray(X)
    same = held.shape == table.shape and ((held != table).nnz == 0 if issparse(held) and issparse(table) else np.array_equal(held, table))
    targets = np.asarray(last._y)
    targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 and y.ndim == 1 else targets
    if not same or targets.shape != y.shape or not np.array_equal(targets, y):
        raise OtherRecords(f"the neighbours that {type_name(last)} keeps are not these records in this order")


def _nearest(last: Any, task: str) -> Array:
    distances, neighbours = last.kneighbors(None)
    weights = _weights(distances, last.weights)
    return _averaged(last, neighbours, weights, task)


def _weights(distances: Array, kind: Any) -> Array:
    """Weights of neighbours (n, k) as scikit-learn makes them: copies of a record outweigh all."""
    if kind in ("uniform", None):
        return np.ones_like(distances)
    if callable(kind):
        found: Array = np.asarray(kind(distances), dtype=np.float64)
        return found
    with np.errstate(divide="ignore"):
        inverse = 1.0 / distances
    infinite = np.isinf(inverse)
    return np.where(infinite.any(-1, keepdims=True), infinite, inverse).astype(np.float64)


def _averaged(last: Any, neighbours: Array, weights: Array, task: str) -> Array:
    """Weighted mean (n, …) of the targets of neighbours (n, k), or of their classes' indicators."""
    targets = np.asarray(last._y)
    if task == "regression":
        values = targets[neighbours]
        shaped = weights if values.ndim == 2 else weights[..., None]
        found: Array = (values * shaped).sum(1) / shaped.sum(1)
        return found
    votes = np.zeros((len(neighbours), len(last.classes_)))
    np.add.at(votes, (np.arange(len(neighbours))[:, None], targets[neighbours]), weights)
    shares: Array = votes / votes.sum(1, keepdims=True)
    return shares


def _within_radius(last: Any, query: Any, task: str) -> Array:
    """Answers from all neighbours within the radius; NaN where there are none.

    An outlier label answers in the place of neighbours, where the model has one.
    """
    if query is not None:
        with warnings.catch_warnings():
            # A record that the model itself has no neighbours for gets its NaN here, and no more.
            warnings.simplefilter("ignore", UserWarning)
            return predictions(last, query, task)
    distances, neighbours = last.radius_neighbors(None)
    empty = np.full(np.shape(last._y)[1:] if task == "regression" else len(last.classes_), np.nan)
    rows = [
        _averaged(last, near[None], _weights(far[None], last.weights), task)[0] if len(near) else empty
        for far, near in zip(distances, neighbours, strict=True)
    ]
    found = np.array(rows)
    label = getattr(last, "outlier_label_", None)
    if task != "regression" and label is not None:
        number = np.flatnonzero(np.asarray(last.classes_) == np.ravel(label)[0])
        missing = np.isnan(found).any(1)
        found[missing] = 0.0
        found[missing, number] = 1.0
    return found


def _tie_note(last: Any, n: int) -> tuple[str, ...]:
    """Say for how many records which neighbour counts is a matter of order."""
    if last.n_neighbors + 1 >= n:
        return ()
    far, _ = last.kneighbors(None, n_neighbors=last.n_neighbors + 1)
    ties = int((far[:, -1] == far[:, -2]).sum())
    if not ties:
        return ()
    return (
        f"{ties} of {n} records have further neighbours exactly as far as their last one: which of them counts without the record is a "
        f"matter of scikit-learn's order.",
    )


NEIGHBOURS = estimator_reader(
    EstimatorFamily(
        name="nearest neighbours",
        reads=lambda last: isinstance(last, (*NEAREST, *WITHIN)),
        left_out=_left_out,
    )
)

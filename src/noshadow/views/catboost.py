"""Models of CatBoost, all of which are estimators."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from noshadow.checks import Array, InputError, NotApplicable, refuse, said
from noshadow.views.boosted import LOGISTIC_OF_P, POISSON, SOFTMAX, SQUARED, Boosted, LeafRule
from noshadow.views.estimator_family import EstimatorFamily, type_name
from noshadow.views.estimators import estimator_reader
from noshadow.views.stored_trees import StoredTree, StoredTrees, as_columns, library, library_of, probabilities, single

_OBJECTIVES = {"Logloss": LOGISTIC_OF_P, "RMSE": SQUARED, "Poisson": POISSON, "MultiClass": SOFTMAX}
# Numbers in the m × m systems of all records and rounds: some twenty minutes of one core.
_MOST_NUMBERS = 1e10
# Curvatures of softmax have no part along "all classes alike": below this the penalty is none.
_LEAST_PENALTY = 1e-6
_CLASSIFIERS = ("Logloss", "CrossEntropy", "Focal", "MultiClass", "MultiClassOneVsAll")
_REGRESSIONS = ("RMSE", "MAE", "Quantile", "Poisson", "Tweedie", "Huber", "Expectile", "MAPE", "LogLinQuantile", "LogCosh", "Lq")
_EXPONENTIAL = ("Poisson", "Tweedie")


def _loss(settings: dict[str, Any]) -> str:
    return str(settings["loss_function"]).partition(":")[0]


def _task(last: Any) -> str:
    if not last.is_fitted():
        raise InputError(said(f"model must be fitted; got {type_name(last)} before fit. Call its fit first."))
    name = _loss(last.get_all_params())
    if name in _CLASSIFIERS:
        return "classification"
    if name not in _REGRESSIONS:
        refuse("model", "be a classifier or a regressor", f"{type_name(last)} with the loss {name}")
    return "regression"


def _pool(last: Any, X: Any) -> Any:
    data = X if hasattr(X, "columns") else np.asarray(X)
    return library("catboost").Pool(data, cat_features=last.get_cat_feature_indices() or None)


def _raw(last: Any, X: Any) -> Array:
    return as_columns(last.predict(_pool(last, X), prediction_type="RawFormulaVal", thread_count=1), X.shape[0])


def _outputs(last: Any, X: Any, task: str) -> Array:
    return _said(_raw(last, X), last, task)


def _said(raw: Array, last: Any, task: str) -> Array:
    """Predictions or class probabilities; of one class against the rest, made to add up to 1."""
    if task != "classification":
        return _predicted(raw, last)
    if _loss(last.get_all_params()) != "MultiClassOneVsAll":
        return probabilities(raw)
    chances: Array = np.exp(-np.logaddexp(0.0, -raw))
    whole: Array = chances / chances.sum(1, keepdims=True)
    return whole


def _predicted(raw: Array, last: Any) -> Array:
    found: Array = np.exp(raw) if _loss(last.get_all_params()) in _EXPONENTIAL else raw
    return found[:, 0] if found.shape[1] == 1 else found


def _stored(last: Any, X: Any) -> tuple[StoredTrees, Array]:
    """The trees and the raw outputs before the first."""
    pool, settings = _pool(last, X), last.get_all_params()
    scale, bias = last.get_scale_and_bias()
    start = np.atleast_1d(np.asarray(bias, dtype=np.float64))
    ends = [0, *np.cumsum(last.get_tree_leaf_counts()).astype(int).tolist()]
    values = float(scale) * np.asarray(last.get_leaf_values(), dtype=np.float64)
    width = len(values) // max(1, ends[-1])
    rate = float(scale) * float(settings["learning_rate"])
    table = values.reshape(-1, width)
    rounds = tuple(
        tuple(StoredTree(np.ascontiguousarray(table[first:stop, k]), rate, None, k) for k in range(width)) for first, stop in pairwise(ends)
    )

    def leaves(first: int, stop: int) -> Array:
        found = np.asarray(last.calc_leaf_indexes(pool, ntree_start=first, ntree_end=stop, thread_count=1))
        return np.repeat(found, width, axis=1)

    return StoredTrees(rounds, leaves, X.shape[0]), np.broadcast_to(start, (width,))


def _history(last: Any, X: Any, task: str) -> Iterator[Array]:
    trees, start = _stored(last, X)
    for raw in trees.staged(start):
        yield _said(raw, last, task)


def _boosted(last: Any, X: Any, targets: Array, weights: Array | None) -> Boosted:
    settings = last.get_all_params()
    name, method = _loss(settings), settings["leaf_estimation_method"]
    if name not in _OBJECTIVES:
        raise NotApplicable(f"leaf values under CatBoost's loss {name} are not rebuilt here")
    if method not in ("Newton", "Gradient"):
        raise NotApplicable(f"leaf values by leaf_estimation_method={method!r} are medians or quantiles, no sums of gradients")
    trees, start = _stored(last, X)
    weights = _class_weights(settings, targets, weights)
    # CatBoost penalises by the mean weight of a record.
    penalty = float(settings["l2_leaf_reg"]) * (1.0 if weights is None else float(weights.mean()))
    together = name == "MultiClass" and method == "Newton"
    if together:
        penalty = float(np.float32(penalty))  # as CatBoost hands it to the solver of all classes
        _require_solvable(penalty, len(targets) * len(trees.rounds), len(start))
    return Boosted(
        library="CatBoost",
        rounds=trees.walked,
        count=len(trees.rounds),
        start=start,
        margins=_raw(last, X),
        objective=_OBJECTIVES[name],
        targets=single(targets),
        weights=weights,
        rule=LeafRule(l2=penalty, steps=int(settings["leaf_estimation_iterations"]), newton=method == "Newton", all_classes=together),
        unread=_unread(last, settings),
    )


def _require_solvable(penalty: float, systems: int, classes: int) -> None:
    """Refuse by reason leaves of several classes that are not determined, or too many of them."""
    if penalty < _LEAST_PENALTY:
        raise NotApplicable(
            f"leaf values of several classes with l2_leaf_reg={penalty:.2g} are not determined: only differences of classes are"
        )
    if systems * float(classes) ** 2 > _MOST_NUMBERS:
        raise NotApplicable(
            f"CatBoost solves for all classes of a leaf at once, and leaving every record out of every round would take {systems:,} "
            f"systems of {classes} equations, more than some twenty minutes of one core; a model fitted with the "
            "leaf_estimation_method 'Gradient' needs none"
        )


def _unread(last: Any, settings: dict[str, Any]) -> str:
    """What bends leaf values and is not read."""
    statistics = ["target statistics of categories"] if last.get_cat_feature_indices() else []
    bending = [name for name in ("model_shrink_rate", "monotone_constraints") if settings.get(name)]
    # CatBoost stops or halves its later steps by a loss of its own rounding, which nobody else has.
    halved = settings["leaf_estimation_iterations"] > 1 and settings.get("leaf_estimation_backtracking", "No") != "No"
    backtracking = ["leaf_estimation_backtracking, which 'No' would switch off"] if halved else []
    return ", ".join(statistics + bending + backtracking)


def _class_weights(settings: dict[str, Any], targets: Array, weights: Array | None) -> Array | None:
    given = settings.get("class_weights")
    if settings.get("auto_class_weights", "None") != "None" and not given:
        raise NotApplicable(f"leaf values with auto_class_weights={settings['auto_class_weights']!r} are not rebuilt here")
    if not given:
        return None if weights is None else single(weights)
    found: Array = np.asarray(given, dtype=np.float64)[targets.astype(np.int64)]
    return single(found if weights is None else found * weights)


CATBOOST = estimator_reader(
    EstimatorFamily(
        name="CatBoost",
        described="a CatBoost model",
        reads=lambda last: library_of(last) == "catboost" and hasattr(last, "calc_leaf_indexes"),
        calibrated_as=lambda last: "CatBoost",
        task=_task,
        outputs=_outputs,
        history=_history,
        boosted=_boosted,
    )
)

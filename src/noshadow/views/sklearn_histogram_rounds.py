"""Rounds of scikit-learn's HistGradientBoosting*: leaves by its own predictors."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.model_selection import train_test_split

from noshadow.checks import Array, NotApplicable
from noshadow.views.boosted import GAMMA, LOGISTIC, POISSON, SOFTMAX, SQUARED, Boosted, LeafRule, Round, Tree, class_weighted, held_out_note
from noshadow.views.estimator_family import type_name

# Added to every curvature sum by scikit-learn.
_ADDED_CURVATURE = 1e-15
_REGRESSIONS = {"squared_error": SQUARED, "poisson": POISSON, "gamma": GAMMA}


def histogram_rounds(last: Any, X: Any, targets: Array, weights: Array | None) -> Boosted:
    """The training of a fitted HistGradientBoostingClassifier or HistGradientBoostingRegressor.

    Categorical and missing values go where the model's own predictors send them.

    Args:
        last: the fitted model. X: the training inputs. targets: (n,) numbers of classes or values.
        weights: (n,) given to `fit`, or None; `class_weight` is read from the model.

    Raises:
        NotApplicable: leaf values are no Newton steps.
    """
    objective = _objective(last)
    table = last._preprocess_X(X, reset=False)
    known, places = last._bin_mapper.make_known_categories_bitsets()
    kept = _kept(last, targets)

    def rounds() -> Iterator[Round]:
        for predictors in last._predictors:
            trees = (_tree(one, table, known, places, last.learning_rate, k) for k, one in enumerate(predictors))
            yield Round(tuple(trees), kept)

    outputs = last.n_trees_per_iteration_
    return Boosted(
        library="scikit-learn",
        rounds=rounds,
        count=len(last._predictors),
        start=np.asarray(last._baseline_prediction, dtype=np.float64).reshape(-1),
        margins=np.asarray(last._raw_predict(X), dtype=np.float64).reshape(len(targets), outputs),
        objective=objective,
        targets=targets,
        weights=class_weighted(last, targets, weights),
        rule=LeafRule(l2=last.l2_regularization + _ADDED_CURVATURE),
        gradient_dtype=np.float32,
        notes=held_out_note(0 if kept is None else int((~kept).sum())),
        unread="monotonic_cst" if last.monotonic_cst is not None else "",
    )


def _objective(last: Any) -> str:
    if is_classifier(last):
        return SOFTMAX if len(last.classes_) > 2 else LOGISTIC
    if last.loss not in _REGRESSIONS:
        raise NotApplicable(f"leaf values of {type_name(last)}(loss={last.loss!r}) are medians or quantiles, no sums of gradients")
    return _REGRESSIONS[last.loss]


def _tree(predictor: Any, table: Any, known: Any, places: Any, rate: float, output: int) -> Tree:
    """One tree; its leaves come from a copy of it whose values are the numbers of its nodes."""
    nodes = predictor.nodes
    numbered = nodes.copy()
    numbered["value"] = np.arange(len(nodes))
    copy = type(predictor)(numbered, predictor.binned_left_cat_bitsets, predictor.raw_left_cat_bitsets)
    leaves = copy.predict(table, known, places, 1).astype(np.intp)
    parents = np.full(len(nodes), -1)
    inner = np.flatnonzero(nodes["is_leaf"] == 0)
    for side in ("left", "right"):
        parents[nodes[side][inner].astype(np.intp)] = inner
    # scikit-learn gives a tree that found no split the value 0, whatever its gradients are.
    return Tree(leaves, nodes["value"].astype(np.float64), rate if len(nodes) > 1 else 0.0, parents, output)


def _kept(last: Any, targets: Array) -> Array | None:
    """Whether a record was trained on, not held out to stop the training early; None for all."""
    if not last.do_early_stopping_ or last.validation_fraction is None or not len(last.validation_score_):
        return None
    n, stratify = len(targets), targets if is_classifier(last) else None
    _, held = train_test_split(np.arange(n), test_size=last.validation_fraction, stratify=stratify, random_state=last._random_seed)
    kept = np.ones(n, dtype=bool)
    kept[held] = False
    return kept

"""Rounds of scikit-learn's GradientBoosting*: leaves by the trees themselves, bags replayed."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import is_classifier
from sklearn.ensemble._gradient_boosting import _random_sample_mask
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from noshadow.checks import Array, NotApplicable
from noshadow.views.boosted import EXPONENTIAL, LOGISTIC_OF_G, SOFTMAX, SQUARED, Boosted, LeafRule, Round, Tree, held_out_note
from noshadow.views.estimator_family import type_name

# The trees' splitter draws one number below this of the shared random state per fit.
_LARGEST_DRAW = 2_147_483_647
# Curvatures below this give the step 0 (`_safe_divide`).
_LEAST_CURVATURE = 1e-150


def gradient_rounds(last: Any, X: Any, targets: Array, weights: Array | None) -> Boosted:
    """The training of a fitted GradientBoostingClassifier or GradientBoostingRegressor.

    Args:
        last: the fitted model. X: the training inputs. targets: (n,) numbers of classes or values.
        weights: (n,) given to `fit`, or None.

    Raises:
        NotApplicable: leaf values are no Newton steps; or which rows a round took cannot be known.
    """
    name, table = type_name(last), _table(X)
    objective, outputs = _objective(last), last.estimators_.shape[1]
    if last.loss in ("absolute_error", "huber", "quantile"):
        raise NotApplicable(f"leaf values of {name}(loss={last.loss!r}) are medians or quantiles, no sums of gradients")
    kept = _trained_rows(last, targets)
    held = len(targets) - len(kept)
    bags = _bags(last, kept, len(targets))
    # Friedman's factor (K − 1)/K, which scikit-learn keeps before the step of several classes.
    rate = last.learning_rate * ((outputs - 1) / outputs if objective == SOFTMAX else 1.0)

    def rounds() -> Iterator[Round]:
        for number, trees in enumerate(last.estimators_):
            yield Round(tuple(_tree(one.tree_, table, last.learning_rate, rate, k) for k, one in enumerate(trees)), bags(number))

    margins = np.asarray(last.predict(X) if outputs == 1 and objective == SQUARED else last.decision_function(X), dtype=np.float64)
    return Boosted(
        library="scikit-learn",
        rounds=rounds,
        count=len(last.estimators_),
        start=last._raw_predict_init(table),
        margins=margins.reshape(len(targets), outputs),
        objective=objective,
        targets=targets,
        weights=weights,
        rule=LeafRule(least=_LEAST_CURVATURE),
        logit_scale=2.0 if objective == EXPONENTIAL else 1.0,
        notes=held_out_note(held),
    )


def _objective(last: Any) -> str:
    if not is_classifier(last):
        return SQUARED
    if last.loss == "exponential":
        return EXPONENTIAL
    return SOFTMAX if len(last.classes_) > 2 else LOGISTIC_OF_G


def _table(X: Any) -> Any:
    """Inputs as the trees take them."""
    return X.tocsr().astype(np.float32) if issparse(X) else np.ascontiguousarray(np.asarray(X), dtype=np.float32)


def _tree(tree: Any, table: Any, learning_rate: float, rate: float, output: int) -> Tree:
    parents = np.full(tree.node_count, -1)
    for children in (tree.children_left, tree.children_right):
        inner = np.flatnonzero(children >= 0)
        parents[children[inner]] = inner
    return Tree(tree.apply(table), learning_rate * tree.value[:, 0, 0], rate, parents, output)


def _trained_rows(last: Any, targets: Array) -> Array:
    """Rows that were trained on, in the order of the fit; others were held out to stop it early."""
    rows = np.arange(len(targets))
    if last.n_iter_no_change is None:
        return rows
    _require_seed(last, "held out to stop the training early")
    stratify = targets if is_classifier(last) else None
    found: Array = train_test_split(rows, random_state=last.random_state, test_size=last.validation_fraction, stratify=stratify)[0]
    return found


def _bags(last: Any, rows: Array, n: int) -> Callable[[int], Array | None]:
    """Round number → which records it took; rounds must be asked in their order."""
    kept = np.zeros(n, dtype=bool)
    kept[rows] = True
    if last.subsample >= 1.0:
        return lambda number: None if kept.all() else kept
    _require_seed(last, "in the subsample of a round")
    outputs, count = last.estimators_.shape[1], max(1, int(last.subsample * len(rows)))
    drawing: dict[str, Any] = {}

    def bag(number: int) -> Array:
        if number == 0:
            drawing["random"] = check_random_state(last.random_state)
        inside = np.zeros(n, dtype=bool)
        inside[rows[_random_sample_mask(len(rows), count, drawing["random"])]] = True
        for _ in range(outputs):
            drawing["random"].randint(0, _LARGEST_DRAW)
        return inside

    return bag


def _require_seed(last: Any, what: str) -> None:
    if isinstance(last.random_state, bool) or not isinstance(last.random_state, (int, np.integer)):
        raise NotApplicable(
            f"nothing says which records were {what}: {type_name(last)} was fitted with random_state={last.random_state!r}, and a whole "
            "number would let it be drawn again"
        )

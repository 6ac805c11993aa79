"""Bagging of scikit-learn around any estimator: the parts whose bags a record was not in.

Bagged trees also say what their leaves would be without a record.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.tree import BaseDecisionTree

from noshadow.checks import Array, NotApplicable
from noshadow.views.bags import COMPARED, OTHER_BAGS, out_of_bag_means
from noshadow.views.estimator_family import EstimatorFamily, Refitted, type_name, voting_estimators
from noshadow.views.estimators import estimator_reader
from noshadow.views.reader import OtherRecords
from noshadow.views.sklearn_trees import as_trees_read, mean_of_trees, require_means
from noshadow.views.tree_leaves import holds_these


def _out_of_bag(last: Any, X: Any, task: str) -> tuple[Array, Array]:
    """Mean prediction of the parts that were fitted without each record, and their number.

    Each part sees its own features only. A part that knows fewer classes than the whole gives
    probability 0 to the others; a part without probabilities votes. Drawing without replacement
    leaves records out, too, where `max_samples` is less than all.
    """
    n, name = X.shape[0], type_name(last)
    bags = _bags(last, n)
    table = X.tocsr() if issparse(X) else np.asarray(X)
    parts = list(zip(last.estimators_, last.estimators_features_, strict=True))
    for (part, columns), bag in zip(parts[:COMPARED], bags, strict=False):
        if isinstance(part, BaseDecisionTree) and not holds_these(part.tree_, part.apply(table[np.unique(bag)][:, columns])):
            raise OtherRecords(OTHER_BAGS.format(name=name))
    answers = (_answer(last, part, columns, table, task) for part, columns in parts)
    return out_of_bag_means(answers, bags, n, name)


def _bags(last: Any, n: int) -> list[Array]:
    """Row numbers that each part was fitted on; refused where there were other records."""
    if last._n_samples != n:
        reason = f"was fitted on other records than these {n}: its bags of {last._n_samples} do not say which of these it has not seen"
        raise OtherRecords(f"{type_name(last)} {reason}")
    return list(last.estimators_samples_)


def _left_out(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Mean over bagged trees of each record's leaf, with and without the record; structure fixed.

    Since 1.9 scikit-learn draws bags by the weights; before, it gave a tree the product of both.
    """
    others = sorted({type_name(part) for part in last.estimators_ if not isinstance(part, BaseDecisionTree)})
    if others:
        raise NotApplicable(f"the parts of {type_name(last)} are {', '.join(others)}, which a record leaves by training them again only")
    require_means(last.estimators_[0])
    weighed = getattr(last.estimators_[0], "class_weight", None)
    if weighed is not None:
        raise NotApplicable(f"the trees of this {type_name(last)} weigh classes by class_weight={weighed!r}, each in its own bag")
    table, n, bags = as_trees_read(X), len(y), _bags(last, len(y))
    given = None if hasattr(last, "_sample_weight") else sample_weight

    def walked() -> Iterator[tuple[Any, Array, Array]]:
        for part, columns, bag in zip(last.estimators_, last.estimators_features_, bags, strict=True):
            counts = np.bincount(bag, minlength=n).astype(np.float64)
            yield part.tree_, part.apply(table[:, columns]), counts if given is None else counts * given

    return mean_of_trees(walked(), y, 0 if task == "regression" else len(last.classes_))


def _answer(last: Any, part: Any, columns: Array, table: Any, task: str) -> Callable[[Array], Array]:
    def found(rows: Array) -> Array:
        seen = table[rows][:, columns]
        if task == "regression":
            return np.asarray(part.predict(seen))
        shares = np.zeros((len(rows), len(last.classes_)))
        if hasattr(part, "predict_proba"):
            shares[:, np.asarray(part.classes_, dtype=np.int64)] = part.predict_proba(seen)
        else:
            shares[np.arange(len(rows)), np.asarray(part.predict(seen), dtype=np.int64)] = 1.0
        return shares

    return found


BAGGING = estimator_reader(
    EstimatorFamily(
        name="bagging",
        reads=lambda last: isinstance(last, (BaggingClassifier, BaggingRegressor)),
        out_of_bag=_out_of_bag,
        left_out=_left_out,
        votes=voting_estimators,
    )
)

"""Bagging of scikit-learn around any estimator: the parts whose bags a record was not in."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.tree import BaseDecisionTree

from noshadow.checks import Array
from noshadow.views.bags import COMPARED, OTHER_BAGS, out_of_bag_means
from noshadow.views.estimator_family import EstimatorFamily, type_name
from noshadow.views.estimators import estimator_reader
from noshadow.views.reader import OtherRecords
from noshadow.views.tree_leaves import holds_these


def _out_of_bag(last: Any, X: Any, task: str) -> tuple[Array, Array]:
    """Mean prediction of the parts that were fitted without each record, and their number.

    Each part sees its own features only. A part that knows fewer classes than the whole gives
    probability 0 to the others; a part without probabilities votes. Drawing without replacement
    leaves records out, too, where `max_samples` is less than all.
    """
    n, name = X.shape[0], type_name(last)
    if last._n_samples != n:
        reason = f"was fitted on other records than these {n}: its bags of {last._n_samples} do not say which of these it has not seen"
        raise OtherRecords(f"{name} {reason}")
    table = X.tocsr() if issparse(X) else np.asarray(X)
    bags = list(last.estimators_samples_)
    parts = list(zip(last.estimators_, last.estimators_features_, strict=True))
    for (part, columns), bag in zip(parts[:COMPARED], bags, strict=False):
        if isinstance(part, BaseDecisionTree) and not holds_these(part.tree_, part.apply(table[np.unique(bag)][:, columns])):
            raise OtherRecords(OTHER_BAGS.format(name=name))
    answers = (_answer(last, part, columns, table, task) for part, columns in parts)
    return out_of_bag_means(answers, bags, n, name)


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
    )
)

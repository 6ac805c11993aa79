"""Forests of scikit-learn: the trees whose bags a record was not in were trained without it."""

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor

from noshadow.checks import Array, NotApplicable
from noshadow.views.estimator_family import EstimatorFamily, predictions, type_name
from noshadow.views.estimators import estimator_reader

FORESTS = (ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor)


def _out_of_bag(last: Any, X: Any, task: str) -> tuple[Array, Array]:
    """Mean prediction of the trees that were grown without each record, and their number.

    Cost: one prediction of every tree for the records outside of its bag.
    """
    name = type_name(last)
    if not last.bootstrap:
        raise NotApplicable(f"{name} was fitted without bootstrap, so every tree has seen every record")
    n = X.shape[0]
    bags = [np.bincount(bag, minlength=n) > 0 for bag in last.estimators_samples_]
    if any(len(bag) != n for bag in bags) or getattr(last, "_n_samples", n) != n:
        raise NotApplicable(f"{name} was fitted on other records than these {n}: its bags do not say which of them it has not seen")
    # As the forest hands them to its trees, which know no names of columns.
    table = X.tocsr().astype(np.float32) if issparse(X) else np.asarray(X, dtype=np.float32)
    total: Array | None = None
    for tree, bag in zip(last.estimators_, bags, strict=True):
        outside = ~bag
        if outside.any():
            found = predictions(tree, table[outside], task)
            total = np.zeros((n, *found.shape[1:])) if total is None else total
            total[outside] += found
    parts: Array = np.sum([~bag for bag in bags], axis=0)
    if total is None:
        raise NotApplicable(f"every tree of this {name} has seen every record")
    with np.errstate(invalid="ignore"):
        return total / (parts if total.ndim == 1 else parts[:, None]), parts


FOREST = estimator_reader(
    EstimatorFamily(
        name="forest",
        reads=lambda last: isinstance(last, FORESTS),
        out_of_bag=_out_of_bag,
    )
)

"""Trees and forests of scikit-learn.

The trees whose bags a record was not in were trained without it. With its structure fixed, every
tree also says what its leaves would be without a record.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.class_weight import compute_sample_weight

from noshadow.checks import Array, NotApplicable
from noshadow.views.bags import COMPARED, OTHER_BAGS, out_of_bag_means
from noshadow.views.estimator_family import EstimatorFamily, Refitted, predictions, type_name, voting_estimators
from noshadow.views.estimators import estimator_reader
from noshadow.views.leaf_counts import LeafCounts
from noshadow.views.reader import OtherRecords
from noshadow.views.tree_leaves import holds_these, leaf_answers

FORESTS = (ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor)
TREES = (DecisionTreeClassifier, DecisionTreeRegressor)
HOW = "the record leaves its leaf in every tree, and splits stay where they are; exact for that structure"
OTHER_LEAVES = (
    "leaves of its trees were grown with other numbers of records than these {n} put into them: the model was fitted on other records, "
    "or with sample weights that were not given"
)
MEANS = ("squared_error", "friedman_mse", "poisson", "gini", "entropy", "log_loss")


def _out_of_bag(last: Any, X: Any, task: str) -> tuple[Array, Array]:
    """Mean prediction of the trees that were grown without each record, and their number.

    Cost: one prediction of every tree for the records outside of its bag.
    """
    table, bags = as_trees_read(X), forest_bags(last, X.shape[0])
    for tree, bag in zip(last.estimators_[:COMPARED], bags, strict=False):
        if not holds_these(tree.tree_, tree.apply(table[np.unique(bag)])):
            raise OtherRecords(OTHER_BAGS.format(name=type_name(last)))
    answers = (lambda rows, tree=tree: predictions(tree, table[rows], task) for tree in last.estimators_)
    return out_of_bag_means(answers, bags, X.shape[0], type_name(last))


def forest_bags(last: Any, n: int) -> list[Array]:
    """Bags of a forest that was fitted on n records, as row numbers.

    Raises:
        NotApplicable: no bags were drawn. OtherRecords: they were drawn from another number.
    """
    if not last.bootstrap:
        raise NotApplicable(f"{type_name(last)} was fitted without bootstrap, so every tree has seen every record")
    if last._n_samples != n:
        reason = f"was fitted on other records than these {n}: its bags of {last._n_samples} do not say which of these it has not seen"
        raise OtherRecords(f"{type_name(last)} {reason}")
    return list(last.estimators_samples_)


def as_trees_read(X: Any) -> Any:
    """X as a forest hands it to its trees, which know no names of columns."""
    return X.tocsr().astype(np.float32) if issparse(X) else np.asarray(X, dtype=np.float32)


def _left_out(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Mean over trees of each record's leaf, with and without the record; structure fixed.

    Cost: one walk of every record down every tree.
    """
    require_means(last)
    table = as_trees_read(X)
    trees = last.estimators_ if isinstance(last, FORESTS) else [last]
    classes = 0 if task == "regression" else len(last.classes_)
    walked = ((tree.tree_, tree.apply(table), weight) for tree, weight in zip(trees, _weights(last, y, sample_weight), strict=True))
    return mean_of_trees(walked, y, classes)


def require_means(tree: Any) -> None:
    """Refuse by reason a tree or forest whose leaves are no means."""
    if tree.criterion not in MEANS:
        raise NotApplicable(f"leaves of {type_name(tree)} with criterion={tree.criterion!r} are medians, which is not taken apart here")


def mean_of_trees(walked: Iterable[tuple[Any, Array, Array]], y: Array, classes: int) -> Refitted:
    """Mean over trees of each record's leaf, with and without the record.

    Args:
        walked: of each tree its `tree_`, the leaf (n,) of each record and the weights (n,) of its
            fit. y: class numbers, or values. classes: 0 in a regression.

    Raises:
        OtherRecords: leaves of the first trees hold other numbers of records than they were grown
            with. A fully grown tree is right about part of its records, too.
    """
    n, parts = len(y), 0
    targets = y if classes else y.reshape(n, -1)
    whole, without, counted = np.zeros(()), np.zeros(()), LeafCounts.of(n)
    # Leaf sums of each tree are kept for that tree only.
    for tree, leaves, weight in walked:
        if parts < COMPARED and not holds_these(tree, leaves[weight > 0]):
            raise OtherRecords(OTHER_LEAVES.format(n=n))
        found = leaf_answers(tree, leaves, targets, weight, classes)
        whole, without, parts = whole + found.whole, without + found.without, parts + 1
        counted.add(leaves, found.records, weight > 0, int(tree.max_depth))
    shape = (n, classes) if classes else y.shape
    mean, left = ((side / parts).reshape(shape) for side in (whole, without))
    return Refitted(mean, left, HOW, leaves=counted, parts=parts)


def _weights(last: Any, y: Array, sample_weight: Array | None) -> Iterator[Array]:
    """Weights (n,) of the records in the fit of each tree, one tree after the other.

    Since 1.9 scikit-learn draws bags by the weights and keeps these; before, it gave a tree the
    product of both.
    """
    n = len(y)
    labels = np.asarray(last.classes_)[y] if hasattr(last, "classes_") else y
    kind = getattr(last, "class_weight", None)
    by_bag = kind == "balanced_subsample" and last.bootstrap
    kind = "balanced" if kind == "balanced_subsample" else kind
    by_class = np.ones(n) if kind is None or by_bag else compute_sample_weight(kind, labels)
    base = by_class if sample_weight is None else by_class * sample_weight
    if not isinstance(last, FORESTS):
        yield base
        return
    drawn_by_weight = hasattr(last, "_sample_weight")
    if drawn_by_weight and last._sample_weight is not None and last._n_samples == n:
        base = last._sample_weight
    if not last.bootstrap:
        for _ in last.estimators_:
            yield base
        return
    for bag in forest_bags(last, n):
        counts = np.bincount(bag, minlength=n) * (np.ones(n) if drawn_by_weight else base)
        yield counts * compute_sample_weight("balanced", labels, indices=bag) if by_bag else counts


def _calibrated_as(last: Any) -> str:
    """The class of a forest. Without bootstrap every tree knows every record: another family."""
    return type_name(last) if last.bootstrap else f"{type_name(last)} without bootstrap"


FOREST = estimator_reader(
    EstimatorFamily(
        name="forest",
        reads=lambda last: isinstance(last, FORESTS),
        calibrated_as=_calibrated_as,
        out_of_bag=_out_of_bag,
        left_out=_left_out,
        votes=voting_estimators,
    )
)

TREE = estimator_reader(
    EstimatorFamily(
        name="tree",
        reads=lambda last: isinstance(last, TREES),
        left_out=_left_out,
    )
)

"""Trees inside of estimators of scikit-learn, held against themselves before anything is asked.

Compiled code walks them without looking at the bounds, so that a child that is not there is read
from memory that is not the model's, and one that is its own parent is walked for ever.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.neighbors import BallTree, KDTree
from sklearn.tree._tree import Tree

from noshadow.checks import Array

LEAF = -1
MOST_CATEGORIES = 256  # bits that a histogram's categories have


def require_sound_estimator(model: Any) -> None:
    """Refuse an estimator that holds a tree which cannot be walked, or not on its own columns.

    Raises:
        ValueError: with the part, or KeyError, AttributeError for one that is missing.
    """
    for part, around in _parts(model):
        columns = getattr(around, "n_features_in_", 0)
        if isinstance(part, Tree):
            _require_sound_tree(part, columns)
        elif isinstance(part, TreePredictor):
            _require_sound_predictor(part, columns)
        elif isinstance(part, (KDTree, BallTree)):
            _require_sound_search_tree(part)
        elif isinstance(part, (BaseForest, BaseGradientBoosting)):
            _require_one_table(part)
        elif hasattr(part, "bin_thresholds_"):
            _require_sound_bins(part)


def _parts(model: Any) -> Iterator[tuple[Any, Any]]:
    """Everything that an estimator holds, each with the nearest estimator around it."""
    waiting, seen = [(model, model)], {id(model)}
    while waiting:
        part, around = waiting.pop()
        yield part, around
        if isinstance(part, BaseEstimator):
            around = part
        for inner in _held(part):
            if id(inner) not in seen:
                seen.add(id(inner))
                waiting.append((inner, around))


def _held(part: Any) -> list[Any]:
    if isinstance(part, Mapping):
        return list(part.values())
    if isinstance(part, (list, tuple, set, frozenset)):
        return list(part)
    if isinstance(part, np.ndarray):
        return list(part.flat) if part.dtype == object else []
    return list(vars(part).values()) if hasattr(part, "__dict__") and not isinstance(part, type) else []


def _require_walkable(left: Array, right: Array, leaf: Array) -> None:
    """Children of inner nodes stand behind them and are nodes, so that every way down ends."""
    count, inner = len(leaf), np.flatnonzero(~leaf)
    for side in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        if ((side <= inner) | (side >= count)).any():
            raise ValueError("a tree with children that are not its own")
    if count == 0:
        raise ValueError("a tree without nodes")


def _require_sound_tree(tree: Any, columns: int) -> None:
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    leaf = left == LEAF
    _require_walkable(left, right, leaf)
    if tree.n_features != columns or ((feature[~leaf] < 0) | (feature[~leaf] >= columns)).any():
        raise ValueError(f"a tree of other columns than the {columns} of its estimator")
    if tree.max_depth < 0 or len(tree.value) != len(left):
        raise ValueError("a tree whose leaves have no values")


def _require_sound_predictor(predictor: Any, columns: int) -> None:
    nodes, bits = predictor.nodes, predictor.raw_left_cat_bitsets
    leaf = nodes["is_leaf"].astype(bool)
    _require_walkable(nodes["left"], nodes["right"], leaf)
    split = nodes[~leaf]
    if ((split["feature_idx"] < 0) | (split["feature_idx"] >= columns)).any():
        raise ValueError(f"a tree of other columns than the {columns} of its estimator")
    categorical = split["bitset_idx"][split["is_categorical"].astype(bool)]
    if bits.ndim != 2 or bits.shape[1] != MOST_CATEGORIES // 32 or (categorical >= len(bits)).any():
        raise ValueError("a tree of categories that are not there")


def _require_sound_bins(mapper: Any) -> None:
    """Categories that a histogram tells apart are written into so many bits."""
    for values, categorical in zip(mapper.bin_thresholds_, mapper.is_categorical_, strict=True):
        if categorical and not ((values >= 0) & (values < MOST_CATEGORIES)).all():
            raise ValueError("categories beyond those that histograms have")


def _require_sound_search_tree(tree: Any) -> None:
    data, order, nodes, bounds, leaf_size, levels, count = tree.__getstate__()[:7]
    starts, ends = nodes["idx_start"], nodes["idx_end"]
    leaf = nodes["is_leaf"].astype(bool)
    places = np.arange(len(nodes))
    # Node k has the children 2k + 1 and 2k + 2.
    sound = (
        len(nodes) == count == 2**levels - 1 == bounds.shape[1]
        and bounds.shape[2] == data.shape[1]
        and leaf_size > 0
        and np.array_equal(np.sort(order), np.arange(len(data)))
        and bool(((starts >= 0) & (starts <= ends) & (ends <= len(data))).all())
        and bool((leaf | (2 * places + 2 < len(nodes))).all())
    )
    if not sound:
        raise ValueError("a search tree with records or nodes that are not there")


def _require_one_table(ensemble: Any) -> None:
    """Trees of a forest or of boosting read the ensemble's own table, unchecked."""
    trees = np.asarray(ensemble.estimators_, dtype=object)
    if any(getattr(tree, "n_features_in_", None) != ensemble.n_features_in_ for tree in trees.flat):
        raise ValueError(f"trees of other columns than the {ensemble.n_features_in_} of their ensemble")
    if isinstance(ensemble, BaseGradientBoosting):
        start = ensemble._raw_predict_init(np.zeros((1, ensemble.n_features_in_), dtype=np.float32))
        if trees.ndim != 2 or start.shape != (1, trees.shape[1]):
            raise ValueError(f"trees of shape {trees.shape} for outputs of shape {start.shape}")

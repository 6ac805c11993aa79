"""What an XGBoost file says, held against itself before the library sees it.

XGBoost believes the numbers of its files: a child that is not there, or a count that is too large,
is read from memory that is not the model's.
"""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from noshadow.checks import Array

FEATURE_TYPES = ("float", "int", "i", "q", "c", "indicator")
MOST_CATEGORIES = 2**24  # whole numbers that float32 holds
MOST_OUTPUTS = 2**20
LEAF = -1


def require_sound_xgboost(held: Any) -> None:
    """Refuse a parsed model whose parts do not fit each other.

    Raises:
        ValueError: with the part, or KeyError, TypeError, AttributeError for one that is missing.
    """
    learner = held["learner"]
    _whole_numbers(held["version"], "version", 3, 0, 1000)
    shape = learner["learner_model_param"]
    features = _counted(shape, "num_feature", 2**31)
    classes, targets = _counted(shape, "num_class", MOST_OUTPUTS), _counted(shape, "num_target", MOST_OUTPUTS, rest=1)
    outputs = max(1, classes, targets)
    _require_scores(shape["base_score"], outputs)
    _require_texts(learner.get("attributes", {}))
    for name, known in (("feature_names", None), ("feature_types", FEATURE_TYPES)):
        _require_names(learner.get(name, []), name, features, known)
    said = learner["objective"].get("softmax_multiclass_param", {}).get("num_class", str(classes))
    if int(said) != classes:
        raise ValueError(f"an objective of {said} classes in a model of {classes}")
    _require_sound_booster(learner["gradient_booster"], features, outputs)


def _require_sound_booster(booster: Mapping[str, Any], features: int, outputs: int) -> None:
    name = booster["name"]
    if name == "gblinear":
        _real_numbers(booster["model"]["weights"], "weights", (features + 1) * outputs)
        _whole_numbers([booster["model"].get("boosted_rounds", 0)], "boosted_rounds", 1, 0, 2**31)
        return
    if name == "dart":
        model = booster["gbtree"]["model"]
        _real_numbers(booster["weight_drop"], "weight_drop", len(model["trees"]))
    elif name == "gbtree":
        model = booster["model"]
    else:
        raise ValueError(f"the booster {name!r}")
    _require_sound_trees(model, features, outputs)


def _require_sound_trees(model: Mapping[str, Any], features: int, outputs: int) -> None:
    trees, parameters = model["trees"], model["gbtree_model_param"]
    if _counted(parameters, "num_trees", 2**31) != len(trees):
        raise ValueError(f"{len(trees)} trees of {parameters['num_trees']}")
    _counted(parameters, "num_parallel_tree", 2**31, rest=1)
    _whole_numbers(model["tree_info"], "tree_info", len(trees), 0, outputs)
    ends = model.get("iteration_indptr", [])
    if (ends and (ends[0], ends[-1]) != (0, len(trees))) or (np.diff(_whole_numbers(ends, "iteration_indptr", None, 0, 2**31)) < 0).any():
        raise ValueError("rounds whose trees do not follow each other")
    for number, tree in enumerate(trees):
        try:
            _require_sound_tree(tree, features)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"tree {number}: {type(error).__name__} ({error})" if not isinstance(error, ValueError) else f"tree {number}: {error}"
            ) from error
    if model.get("cats"):
        _require_sound_categories(model["cats"], features)


def _require_sound_tree(tree: Mapping[str, Any], features: int) -> None:
    count = _counted(tree["tree_param"], "num_nodes", 2**31)
    if count < 1 or _counted(tree["tree_param"], "size_leaf_vector", MOST_OUTPUTS, rest=0) > 1:
        raise ValueError("no node, or several values in each leaf, which are not read from files")
    if (
        _counted(tree["tree_param"], "num_feature", 2**31) != features
        or _counted(tree["tree_param"], "num_deleted", count, rest=0) >= count
    ):
        raise ValueError("other columns than the model's, or only deleted nodes")
    inner = _inner_nodes(tree, count)
    # Leaves and nodes that were pruned away ask for no column.
    columns = _whole_numbers(tree["split_indices"], "split_indices", count, 0, 2**32)[inner]
    if (columns >= features).any():
        raise ValueError(f"split_indices outside of 0 … {features - 1}")
    kinds = _whole_numbers([int(kind) for kind in tree.get("split_type", [0] * count)], "split_type", count, 0, 2)
    _whole_numbers([int(kind) for kind in tree["default_left"]], "default_left", count, 0, 2)
    for name in ("split_conditions", "base_weights", "loss_changes", "sum_hessian"):
        _real_numbers(tree[name], name, count)
    _whole_numbers([tree.get("id", 0)], "id", 1, 0, 2**31)
    _require_categories_of(inner[kinds[inner] == 1], tree, count)


def _inner_nodes(tree: Mapping[str, Any], count: int) -> Array:
    """The nodes with children; children that are not there, or not their own, are refused."""
    left, right = (_whole_numbers(tree[f"{side}_children"], f"{side}_children", count, LEAF, count) for side in ("left", "right"))
    parents = _whole_numbers(tree["parents"], "parents", count, LEAF, 2**31)
    inner = np.flatnonzero(left != LEAF)
    # Each child names its parent and the root names none, so that no way down comes back.
    honest = (
        (parents[left[inner]] == inner)
        & (parents[right[inner]] == inner)
        & (left[inner] > 0)
        & (right[inner] > 0)
        & (left[inner] != right[inner])
    )
    if not honest.all() or ((left == LEAF) != (right == LEAF)).any() or 0 <= parents[0] < count:
        raise ValueError("children that are not its own")
    return inner


def _require_categories_of(splits: Array, tree: Mapping[str, Any], count: int) -> None:
    """Categories stand at the nodes that split by them, and within the list of all."""
    categories = _whole_numbers(tree.get("categories", []), "categories", None, 0, MOST_CATEGORIES)
    nodes = _whole_numbers(tree.get("categories_nodes", []), "categories_nodes", None, 0, count)
    starts, sizes = (
        _whole_numbers(tree.get(f"categories_{part}", []), f"categories_{part}", len(nodes), 0, len(categories) + 1)
        for part in ("segments", "sizes")
    )
    if (starts + sizes > len(categories)).any() or not np.array_equal(nodes, splits):
        raise ValueError("categories that are not those of its nodes")


def _require_sound_categories(cats: Mapping[str, Any], features: int) -> None:
    """Names of categories, as files keep them from XGBoost 3.1 on."""
    encoded = cats["enc"]
    if not encoded:
        if cats["feature_segments"] or cats["sorted_idx"]:
            raise ValueError("places of categories without names")
        return
    if len(encoded) != features:
        raise ValueError(f"categories of {len(encoded)} columns of {features}")
    ends = _whole_numbers(cats["feature_segments"], "feature_segments", features + 1, 0, MOST_CATEGORIES)
    order = _whole_numbers(cats["sorted_idx"], "sorted_idx", int(ends[-1]), 0, max(1, int(ends[-1])))
    if ends[0] != 0:
        raise ValueError("categories that do not begin with the first")
    for one, (first, stop) in zip(encoded, pairwise(ends.tolist()), strict=True):
        if first > stop or not np.array_equal(np.sort(order[first:stop]), np.arange(stop - first)):
            raise ValueError("categories in no order")
        values = one["values"]
        if "offsets" not in one or not one["offsets"]:
            _real_numbers(values, "values of categories", stop - first)
            continue
        offsets = _whole_numbers(one["offsets"], "offsets", stop - first + 1, 0, len(values) + 1)
        _whole_numbers(values, "values of categories", None, -128, 256)
        if offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
            raise ValueError("categories whose names do not follow each other")


def _counted(parameters: Mapping[str, Any], name: str, most: int, rest: int | None = None) -> int:
    """A whole number that stands as text."""
    text = parameters[name] if rest is None else parameters.get(name, str(rest))
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or not 0 <= int(text) <= most:
        raise ValueError(f"{name} of {text!r}")
    return int(text)


def _require_scores(text: Any, outputs: int) -> None:
    scores = np.atleast_1d(np.array(json.loads(text), dtype=np.float64))
    if scores.ndim != 1 or len(scores) not in (1, outputs) or not np.isfinite(scores).all():
        raise ValueError(f"base_score of {text!r}")


def _require_texts(held: Any) -> None:
    if not all(isinstance(name, str) and isinstance(value, str) for name, value in held.items()):
        raise ValueError("attributes that are no text")


def _require_names(names: Any, name: str, features: int, known: tuple[str, ...] | None) -> None:
    if not isinstance(names, list) or len(names) not in (0, features) or not all(isinstance(one, str) for one in names):
        raise ValueError(f"{name} that are not one text for each of {features} columns")
    if known is not None and not set(names) <= set(known):
        raise ValueError(f"{name} other than {', '.join(known)}")


def _whole_numbers(values: Any, name: str, length: int | None, low: int, stop: int) -> Array:
    if not isinstance(values, list) or not all(type(value) is int for value in values) or length not in (None, len(values)):
        raise ValueError(f"{name} that are not {'' if length is None else f'{length} '}whole numbers")
    array = np.array(values, dtype=np.int64)
    if len(array) and not (low <= array.min() and array.max() < stop):
        raise ValueError(f"{name} outside of {low} … {stop - 1}")
    return array


def _real_numbers(values: Any, name: str, length: int) -> None:
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values) or len(values) != length:
        raise ValueError(f"{name} that are not {length} numbers")
    if not np.isfinite(np.array(values, dtype=np.float64).astype(np.float32)).all():
        raise ValueError(f"{name} beyond what float32 holds")

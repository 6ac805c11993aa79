"""What a LightGBM file says, held against itself before the library sees it.

LightGBM believes the numbers of its files, walks past the ends of arrays that are too short and
stops the whole process over others.
"""

import json
import math
import re
from typing import Any

import numpy as np

from noshadow.checks import Array

CATEGORICAL = 1  # bit of decision_type
MOST_OUTPUTS = 2**20
# Parameters that the scores of records read as numbers.
NUMERIC = (
    "learning_rate",
    "lambda_l1",
    "lambda_l2",
    "max_delta_step",
    "scale_pos_weight",
    "poisson_max_delta_step",
    "bagging_fraction",
    "pos_bagging_fraction",
    "neg_bagging_fraction",
    "bagging_freq",
    "bagging_seed",
)
WHOLE = ("bagging_freq", "bagging_seed")


def require_sound_lightgbm(content: bytes) -> None:
    """Refuse a model as text whose parts do not fit each other, or that ends early.

    Raises:
        ValueError: with the part, or KeyError for one that is missing.
    """
    head, blank, rest = content.decode("utf-8").partition("\n\n")
    lines = head.splitlines()
    if not lines or lines[0] != "tree" or not blank:
        raise ValueError("no model of LightGBM as text")
    held = _named(lines[1:])
    features = _whole(held["max_feature_idx"], "max_feature_idx", 0, 2**31) + 1
    outputs = _whole(held["num_tree_per_iteration"], "num_tree_per_iteration", 1, MOST_OUTPUTS)
    _require_fitting_objective(held.get("objective", ""), _whole(held["num_class"], "num_class", 1, MOST_OUTPUTS), outputs)
    for name in ("feature_names", "feature_infos"):
        if len(held[name].split(" ")) != features:
            raise ValueError(f"{name} that are not one for each of {features} columns")
    _whole(held["label_index"], "label_index", 0, 2**31)
    tail = _behind_trees(rest.encode(), _numbers(held["tree_sizes"], "tree_sizes", None, 1, 2**62), features, outputs)
    _require_sound_tail(tail)


def _require_fitting_objective(objective: str, classes: int, outputs: int) -> None:
    words = objective.split()
    said = [int(word.partition(":")[2]) for word in words if word.startswith("num_class:")]
    several = bool(words) and words[0].startswith("multiclass")
    if classes != outputs or (several and said != [classes]) or (words[:1] == ["binary"] and classes != 1):
        raise ValueError(f"{outputs} trees a round and {classes} classes under the objective {objective!r}")
    for word in words:
        if word.startswith("sigmoid:") and not float(word.partition(":")[2]) > 0:
            raise ValueError(f"the objective {objective!r}")


def _behind_trees(rest: bytes, sizes: Array, features: int, outputs: int) -> str:
    """Check the trees, each at the place that the sizes give it; what follows them."""
    if len(sizes) % outputs:
        raise ValueError(f"{len(sizes)} trees in rounds of {outputs}")
    place = 0
    for number, size in enumerate(sizes.tolist()):
        lines = rest[place : place + size].decode("utf-8").splitlines()
        if place + size > len(rest) or not lines or lines[0] != f"Tree={number}":
            raise ValueError(f"it ends early: {number} of {len(sizes)} trees")
        try:
            _require_sound_tree(_named(lines[1:]), features)
        except (ValueError, KeyError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"tree {number}: {reason}") from error
        place += size
    return rest[place:].decode("utf-8")


def _require_sound_tree(held: dict[str, str], features: int) -> None:
    leaves = _whole(held["num_leaves"], "num_leaves", 1, 2**31)
    kinds = _whole(held["num_cat"], "num_cat", 0, 2**31)
    inner = leaves - 1
    values = _reals(held["leaf_value"], "leaf_value", leaves)
    if not np.isfinite(values).all():
        raise ValueError("leaf_value that is not finite")
    _reals(held.get("shrinkage", "1"), "shrinkage", 1)
    for name in ("leaf_weight", "leaf_count"):
        _reals(held.get(name, ""), name, leaves if held.get(name) else 0)
    for name in ("split_gain", "internal_value", "internal_weight", "internal_count"):
        _reals(held.get(name, ""), name, inner if held.get(name) else 0)
    if inner:
        _require_sound_splits(held, leaves, kinds, features)
    if held.get("is_linear", "0") == "1":
        _require_sound_lines(held, leaves, features)


def _require_sound_splits(held: dict[str, str], leaves: int, kinds: int, features: int) -> None:
    inner = leaves - 1
    _numbers(held["split_feature"], "split_feature", inner, 0, features)
    thresholds = _reals(held["threshold"], "threshold", inner)
    categorical = _numbers(held["decision_type"], "decision_type", inner, -128, 128) & CATEGORICAL == CATEGORICAL
    children = [_numbers(held[f"{side}_child"], f"{side}_child", inner, -leaves, inner) for side in ("left", "right")]
    both = np.concatenate(children)
    # Every leaf and every inner node but the first is a child once, and nodes follow their parents.
    if not np.array_equal(np.sort(both), np.concatenate([np.arange(-leaves, 0), np.arange(1, inner)])):
        raise ValueError("children that are not its own")
    if any(((side >= 0) & (side <= np.arange(inner))).any() for side in children):
        raise ValueError("nodes before their parents")
    if np.isnan(thresholds).any():
        raise ValueError("threshold that is no number")
    ends = _numbers(held.get("cat_boundaries", "0"), "cat_boundaries", kinds + 1, 0, 2**31)
    words = _numbers(held.get("cat_threshold", ""), "cat_threshold", None, 0, 2**32)
    if ends[0] != 0 or ends[-1] != len(words) or (np.diff(ends) < 0).any():
        raise ValueError("categories that do not follow each other")
    places = thresholds[categorical]
    if len(places) and not ((places >= 0) & (places < kinds) & (places == np.floor(places))).all():
        raise ValueError("categories that are not there")


def _require_sound_lines(held: dict[str, str], leaves: int, features: int) -> None:
    """Linear models in leaves."""
    counts = _numbers(held["num_features"], "num_features", leaves, 0, features + 1)
    _reals(held["leaf_const"], "leaf_const", leaves)
    _numbers(held["leaf_features"], "leaf_features", int(counts.sum()), 0, features)
    _reals(held["leaf_coeff"], "leaf_coeff", int(counts.sum()))


def _require_sound_tail(tail: str) -> None:
    lines = tail.rstrip().splitlines()
    label, _, last = lines[-1].partition(":") if lines else ("", "", "")
    ended = bool(lines) and (lines[-1] == "end of parameters" or (label == "pandas_categorical" and last != ""))
    if not tail.startswith("end of trees\n") or not ended:
        raise ValueError("it ends early, behind its trees")
    if label == "pandas_categorical":
        names: Any = json.loads(last)
        if names is not None and not (isinstance(names, list) and all(isinstance(one, list) for one in names)):
            raise ValueError("pandas_categorical that is no list of lists")
    _, _, settings = tail.partition("\nparameters:\n")
    for line in settings.partition("\nend of parameters")[0].splitlines():
        written = re.fullmatch(r"\[(\w+): ?([^\[\]]*)\]", line)
        if line and written is None:
            raise ValueError(f"the parameter {line!r}")
        name, text = written.groups() if written else ("", "")
        if name in NUMERIC:
            value = int(text) if name in WHOLE else float(text)
            if not math.isfinite(value) or (value < 0 and name not in ("bagging_seed", "bagging_freq")):
                raise ValueError(f"{name} of {text!r}")


def _named(lines: list[str]) -> dict[str, str]:
    held: dict[str, str] = {}
    for line in lines:
        name, _, text = line.partition("=")
        if name in held and line:
            raise ValueError(f"the name {name!r} stands twice")
        held[name] = text
    return held


def _whole(text: str, name: str, low: int, stop: int) -> int:
    return int(_numbers(text, name, 1, low, stop)[0])


def _numbers(text: str, name: str, length: int | None, low: int, stop: int) -> Array:
    words = text.split()
    if length not in (None, len(words)) or not all(re.fullmatch(r"-?[0-9]{1,18}", word) for word in words):
        raise ValueError(f"{name} that are not {'' if length is None else f'{length} '}whole numbers")
    array = np.array([int(word) for word in words], dtype=np.int64)
    if len(array) and not (low <= array.min() and array.max() < stop):
        raise ValueError(f"{name} outside of {low} … {stop - 1}")
    return array


def _reals(text: str, name: str, length: int) -> Array:
    words = text.split()
    if len(words) != length:
        raise ValueError(f"{name} that are not {length} numbers")
    return np.array([float(word) for word in words], dtype=np.float64)

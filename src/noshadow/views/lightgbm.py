"""Models of LightGBM: native boosters and estimators."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from noshadow.checks import Array, InputError, NotApplicable, refuse, said
from noshadow.views.boosted import GAMMA, LOGISTIC, POISSON, SOFTMAX, SQUARED, Boosted, LeafRule, Round, class_weighted
from noshadow.views.estimator_family import EstimatorFamily, require_classes, type_name
from noshadow.views.estimators import estimator_reader
from noshadow.views.lightgbm_bags import lightgbm_bags
from noshadow.views.lightgbm_goss import Goss
from noshadow.views.stored_trees import StoredTree, StoredTrees, as_columns, library_of, probabilities, single

_OBJECTIVES = {"binary": LOGISTIC, "multiclass": SOFTMAX, "regression": SQUARED, "poisson": POISSON, "gamma": GAMMA}
_REGRESSIONS = ("regression", "poisson", "gamma", "tweedie", "huber", "fair", "quantile", "mape")
_ADDED_CURVATURE = 2e-15  # to every curvature sum
_BENDING = ("path_smooth", "monotone_constraints")


def _booster(last: Any) -> Any:
    return last.booster_ if hasattr(last, "_Booster") else last


def _objective(last: Any) -> str:
    """The objective with its options, e.g. "multiclass num_class:3"."""
    found = re.search(r"^objective=(.*)$", _booster(last).model_to_string(num_iteration=1), flags=re.MULTILINE)
    return "" if found is None else found.group(1)


def _task(last: Any) -> str:
    try:
        name = _objective(last).partition(" ")[0]
    except NotFittedError as error:
        raise InputError(said(f"model must be fitted; got {type_name(last)} before fit. Call its fit first.")) from error
    if name in ("binary", "multiclass", "multiclassova"):
        return require_classes(_classes(last), last)
    if not name.startswith(_REGRESSIONS):
        refuse("model", "be a classifier or a regressor", f"{type_name(last)} with the objective {name or 'of its own'}")
    return "regression"


def _classes(last: Any) -> Any:
    found = getattr(last, "classes_", None)
    return np.arange(max(2, int(_booster(last).num_model_per_iteration()))) if found is None else found


def _rounds_used(booster: Any) -> int:
    return int(booster.best_iteration) if booster.best_iteration > 0 else int(booster.current_iteration())


def _raw(last: Any, X: Any) -> Array:
    booster = _booster(last)
    return as_columns(booster.predict(X, raw_score=True, num_iteration=_rounds_used(booster)), X.shape[0])


def _outputs(last: Any, X: Any, task: str) -> Array:
    booster = _booster(last)
    if task == "classification" and not _objective(last).startswith("multiclassova"):
        return probabilities(_sigmoid(last) * _raw(last, X))
    found = np.asarray(booster.predict(X, num_iteration=_rounds_used(booster)))
    return found if task == "regression" or found.ndim == 2 else np.stack([1 - found, found], axis=1)


def _sigmoid(last: Any) -> float:
    found = re.search(r"sigmoid:(\S+)", _objective(last))
    return 1.0 if found is None else float(found.group(1))


def _stored(last: Any, X: Any) -> tuple[StoredTrees, dict[str, str]]:
    """The trees, the starting constant in those of the first round, and the settings."""
    booster = _booster(last)
    text = booster.model_to_string(num_iteration=-1)
    head, _, rest = text.partition("\nTree=0\n")
    body, _, tail = rest.partition("\nend of trees")
    settings = dict(re.findall(r"^\[(\w+): ?(.*)\]$", tail, flags=re.MULTILINE))
    if settings.get("linear_tree", "0") == "1":
        raise NotApplicable("leaves of a linear_tree hold linear models, no single values")
    together, rate = int(booster.num_model_per_iteration()), float(settings.get("learning_rate", 0.1))
    trees = [_tree(part, rate, number % together) for number, part in enumerate(re.split(r"\nTree=\d+\n", f"\n{body}"))] if body else []
    rounds = tuple(tuple(trees[together * t : together * (t + 1)]) for t in range(_rounds_used(booster)))

    def leaves(first: int, stop: int) -> Array:
        found = np.asarray(booster.predict(X, pred_leaf=True, start_iteration=first, num_iteration=stop - first))
        return found.reshape(X.shape[0], -1)

    return StoredTrees(rounds, leaves, X.shape[0]), settings | {"average_output": str("\naverage_output" in head)}


def _numbers(part: str, name: str) -> Array:
    found = re.search(rf"^{name}=(.*)$", part, flags=re.MULTILINE)
    return np.array([] if found is None or not found.group(1) else [float(one) for one in found.group(1).split()])


def _tree(part: str, rate: float, output: int) -> StoredTree:
    """A tree whose leaves are numbered first, its inner nodes behind them."""
    values = _numbers(part, "leaf_value")
    children = [_numbers(part, name).astype(np.int64) for name in ("left_child", "right_child")]
    count, inner = len(values), len(children[0])
    parents = np.full(count + inner, -1)
    for side in children:
        # Negative numbers are leaves, −1 the first.
        parents[np.where(side < 0, -side - 1, count + side)] = count + np.arange(inner)
    counts = np.concatenate([_numbers(part, "leaf_count").astype(np.int64), np.zeros(inner, dtype=np.int64)])
    return StoredTree(np.concatenate([values, np.zeros(inner)]), rate, parents, output, counts)


def _history(last: Any, X: Any, task: str) -> Iterator[Array]:
    trees, settings = _stored(last, X)
    name = _objective(last).partition(" ")[0]
    if settings["average_output"] == "True" or name not in _OBJECTIVES:
        raise NotApplicable(f"stages under LightGBM's objective {name} or boosting={settings.get('boosting')} are not rebuilt here")
    together = len(trees.rounds[0]) if trees.rounds else 1
    for raw in trees.staged(np.zeros(together)):
        if task == "classification":
            yield probabilities(_sigmoid(last) * raw)
        else:
            yield (np.exp(raw) if _OBJECTIVES[name] in (POISSON, GAMMA) else raw)[:, 0]


def _boosted(last: Any, X: Any, targets: Array, weights: Array | None) -> Boosted:
    trees, settings = _stored(last, X)
    words = _objective(last).split()
    _require_rebuilt(words, settings, last)
    weights = class_weighted(last, targets, weights)
    weights, targets = None if weights is None else single(weights), single(targets)
    objective = _OBJECTIVES[words[0]]
    start = np.zeros(_booster(last).num_model_per_iteration())
    if settings.get("boost_from_average", "1") == "1":
        start = _average(objective, targets, weights, len(start))
    return Boosted(
        library="LightGBM",
        rounds=_rounds(_without_start(trees, start), settings, targets),
        count=len(trees.rounds),
        start=start,
        margins=_raw(last, X),
        objective=objective,
        targets=targets,
        weights=_label_weights(settings, objective, targets, weights),
        curvature=_curvature(objective, settings, len(start)),
        rule=LeafRule(
            float(settings.get("lambda_l1", 0)),
            float(settings.get("lambda_l2", 0)) + _ADDED_CURVATURE,
            float(settings.get("max_delta_step", 0)),
        ),
        gradient_dtype=np.float32,
        unread=_unread(settings),
    )


def _by_gradients(settings: dict[str, str]) -> bool:
    return "goss" in (settings.get("boosting"), settings.get("data_sample_strategy"))


def _unread(settings: dict[str, str]) -> str:
    bending = [name for name in _BENDING if settings.get(name, "") not in ("", "0")]
    return ", ".join([*bending, *(["rows of GOSS as this version of LightGBM draws them"] if _by_gradients(settings) else [])])


def _rounds(trees: StoredTrees, settings: dict[str, str], targets: Array) -> Callable[[], Iterator[Round]]:
    """The rounds with the records that each took: all, a bag, or those that GOSS drew."""
    if not _by_gradients(settings):
        return partial(trees.bagged, lightgbm_bags(settings, targets))
    goss = Goss(settings, trees.records, len(trees.rounds))

    def rounds() -> Iterator[Round]:
        goss.start()
        for number, one in enumerate(trees.walked()):
            counts = [tree.counts for tree in trees.rounds[number]]
            yield one if number < goss.first else replace(one, drawn=partial(goss.drawn, fits=partial(_as_counted, one, counts)))

    return rounds


def _as_counted(one: Round, counts: list[Array | None], factors: Array) -> bool:
    """Whether each leaf holds as many of the records taken as the model says of it."""
    return all(
        count is not None and np.array_equal(np.bincount(tree.leaves[factors > 0], minlength=len(count)), count)
        for tree, count in zip(one.trees, counts, strict=True)
    )


def _calibrated_as(last: Any) -> str:
    """Boosted trees; forests and dropped trees are families of their own."""
    found = re.search(r"^\[boosting: (rf|dart)\]$", _booster(last).model_to_string(num_iteration=1), flags=re.MULTILINE)
    return "LightGBM" if found is None else f"LightGBM with boosting={found.group(1)!r}"


def _require_rebuilt(words: list[str], settings: dict[str, str], last: Any) -> None:
    """Refuse by reason what leaf values cannot be rebuilt for."""
    name = words[0] if words else "of its own"
    if name not in _OBJECTIVES or "sqrt" in words:
        raise NotApplicable(f"leaf values under LightGBM's objective {' '.join(words) or name} are not rebuilt here")
    if _sigmoid(last) != 1:
        raise NotApplicable(f"leaf values with sigmoid={_sigmoid(last):g} are not rebuilt here")
    boosting = settings.get("boosting", "gbdt")
    if boosting in ("dart", "rf"):
        why = "drops trees and rescales those it keeps" if boosting == "dart" else "fits every tree to the same gradients and averages"
        raise NotApplicable(f"boosting={boosting!r} of LightGBM {why}, so no round's leaf values stay as fitted")


def _average(objective: str, targets: Array, weights: Array | None, outputs: int) -> Array:
    """Raw outputs (m,) that LightGBM starts from with boost_from_average."""
    if objective == SOFTMAX:
        shares = np.bincount(targets.astype(np.int64), weights, outputs)
        found: Array = np.log(np.maximum(shares / shares.sum(), 1e-15))
        return found
    mean = float(np.average(targets, weights=weights))
    if objective == LOGISTIC:
        mean = min(max(mean, 1e-15), 1 - 1e-15)
        mean = float(np.log(mean / (1 - mean)))
    return np.array([mean if objective in (SQUARED, LOGISTIC) else np.log(mean)])


def _without_start(trees: StoredTrees, start: Array) -> StoredTrees:
    """The trees without the starting constant, which LightGBM adds to the leaves of its first."""
    if not trees.rounds:
        return trees
    first = tuple(replace(tree, values=tree.values - start[tree.output]) for tree in trees.rounds[0])
    return StoredTrees((first, *trees.rounds[1:]), trees.leaves, trees.records)


def _label_weights(settings: dict[str, str], objective: str, targets: Array, weights: Array | None) -> Array | None:
    if objective != LOGISTIC:
        return weights
    positive, negative = float(settings.get("scale_pos_weight", 1)), 1.0
    if settings.get("is_unbalance", "0") == "1":
        count = float(targets.sum())
        positive, negative = max(1.0, (len(targets) - count) / count), max(1.0, count / (len(targets) - count))
    if positive == negative == 1:
        return weights
    found: Array = np.where(targets > 0, positive, negative) * (1.0 if weights is None else weights)
    return found


def _curvature(objective: str, settings: dict[str, str], outputs: int) -> float:
    if objective == SOFTMAX:
        return outputs / (outputs - 1)
    return float(np.exp(float(settings.get("poisson_max_delta_step", 0.7)))) if objective == POISSON else 1.0


LIGHTGBM = estimator_reader(
    EstimatorFamily(
        name="LightGBM",
        described="a LightGBM model",
        reads=lambda last: library_of(last) == "lightgbm" and (hasattr(last, "_Booster") or hasattr(last, "model_to_string")),
        calibrated_as=_calibrated_as,
        task=_task,
        classes=_classes,
        outputs=_outputs,
        saved=lambda last: _booster(last).model_to_string(num_iteration=-1).encode(),
        history=_history,
        boosted=_boosted,
    )
)

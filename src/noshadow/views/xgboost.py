"""Models of XGBoost: native boosters and estimators."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from noshadow.checks import Array, InputError, NotApplicable, refuse, said
from noshadow.views.boosted import LOGISTIC_OF_P, POISSON, SOFTMAX, SQUARED, Boosted, LeafRule
from noshadow.views.estimator_family import EstimatorFamily, require_classes, type_name
from noshadow.views.estimators import estimator_reader
from noshadow.views.stored_trees import (
    StoredTree,
    StoredTrees,
    as_columns,
    library,
    library_of,
    probabilities,
    single,
)
from noshadow.views.xgboost_bags import xgboost_bags

_OBJECTIVES = {
    "binary:logistic": LOGISTIC_OF_P,
    "binary:logitraw": LOGISTIC_OF_P,
    "multi:softprob": SOFTMAX,
    "multi:softmax": SOFTMAX,
    "reg:squarederror": SQUARED,
    "count:poisson": POISSON,
}
_CLASSIFIERS = ("binary:logistic", "binary:logitraw", "multi:softprob", "multi:softmax")
_REGRESSIONS = ("reg:", "count:poisson")
LOST = "settings that a model file loses, such as reg_lambda and subsample"
_CURVATURE_FLOOR = 1e-16  # of a record, in XGBoost's own losses


def _booster(last: Any) -> Any:
    return last.get_booster() if hasattr(last, "get_booster") else last


def _settings(booster: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(booster.save_config())["learner"]
    return found


def _objective_name(last: Any) -> str:
    return str(_settings(_booster(last))["objective"]["name"])


def _task(last: Any) -> str:
    try:
        name = _objective_name(last)
    except NotFittedError as error:
        raise InputError(said(f"model must be fitted; got {type_name(last)} before fit. Call its fit first.")) from error
    if name in _CLASSIFIERS:
        return require_classes(_classes(last), last)
    if not name.startswith(_REGRESSIONS):
        refuse("model", "be a classifier or a regressor", f"{type_name(last)} with the objective {name}")
    return "regression"


def _classes(last: Any) -> Any:
    if hasattr(last, "classes_"):
        return last.classes_
    return np.arange(max(2, int(_settings(_booster(last))["learner_model_param"]["num_class"])))


def _data(last: Any, X: Any) -> Any:
    """X as the booster reads it."""
    how = {"missing": last.missing, "feature_types": last.feature_types} if hasattr(last, "get_booster") else {}
    names = _booster(last).feature_names if not hasattr(X, "columns") else None
    return library("xgboost").DMatrix(X, enable_categorical=True, feature_names=names, nthread=1, **how)


def _rounds_used(last: Any) -> int:
    """Rounds that predict uses: an estimator stops at its best one, a booster takes all."""
    booster = _booster(last)
    best = booster.attr("best_iteration") if hasattr(last, "get_booster") else None
    return int(booster.num_boosted_rounds()) if best is None else int(best) + 1


def _raw(last: Any, X: Any) -> Array:
    data = _data(last, X)
    return as_columns(_booster(last).predict(data, output_margin=True, iteration_range=(0, _rounds_used(last))), data.num_row())


def _outputs(last: Any, X: Any, task: str) -> Array:
    if task == "classification":
        return probabilities(_raw(last, X))
    return np.asarray(_booster(last).predict(_data(last, X), iteration_range=(0, _rounds_used(last))))


def _stored(last: Any, X: Any) -> tuple[StoredTrees, Array]:
    """The trees and the raw outputs before the first."""
    booster, data = _booster(last), _data(last, X)
    held = json.loads(booster.save_raw("json"))["learner"]
    if held["gradient_booster"]["name"] != "gbtree":
        kind = "drops trees and rescales those it keeps" if held["gradient_booster"]["name"] == "dart" else "has no trees"
        raise NotApplicable(f"booster={held['gradient_booster']['name']!r} of XGBoost {kind}, so no round's leaf values stay as fitted")
    model = held["gradient_booster"]["model"]
    if any(int(tree["tree_param"]["size_leaf_vector"]) > 1 for tree in model["trees"]):
        raise NotApplicable("the model has trees with one value per output in each leaf (multi_strategy='multi_output_tree')")
    together = int(model["gbtree_model_param"]["num_parallel_tree"])
    rate = float(_settings(booster)["gradient_booster"]["tree_train_param"]["eta"]) / together
    trees = [_tree(tree, rate, int(output)) for tree, output in zip(model["trees"], model["tree_info"], strict=True)]
    ends = model["iteration_indptr"]
    rounds = tuple(tuple(trees[ends[t] : ends[t + 1]]) for t in range(_rounds_used(last)))

    def leaves(first: int, stop: int) -> Array:
        found: Array = np.asarray(booster.predict(data, pred_leaf=True, iteration_range=(first, stop)))
        return found.reshape(data.num_row(), -1)

    return StoredTrees(rounds, leaves, data.num_row()), _start(held["learner_model_param"], _objective_name(last))


def _tree(tree: dict[str, Any], rate: float, output: int) -> StoredTree:
    parents = np.array(tree["parents"], dtype=np.int64)
    parents[parents >= len(parents)] = -1  # the root's is the largest whole number
    return StoredTree(np.array(tree["split_conditions"], dtype=np.float64), rate, parents, output)


def _start(parameters: dict[str, str], objective: str) -> Array:
    """base_score as raw outputs (m,)."""
    given = np.atleast_1d(np.array(json.loads(parameters["base_score"]), dtype=np.float64))
    outputs = max(1, int(parameters["num_class"]))
    scores: Array = np.broadcast_to(given, (outputs,)).copy()
    if objective == "binary:logistic":
        scores = np.log(scores) - np.log1p(-scores)
    return np.asarray(np.log(scores) if objective == "count:poisson" else scores)


def _history(last: Any, X: Any, task: str) -> Iterator[Array]:
    trees, start = _stored(last, X)
    objective = _OBJECTIVES.get(_objective_name(last))
    for raw in trees.staged(start):
        yield probabilities(raw) if task == "classification" else (np.exp(raw) if objective == POISSON else raw)[:, 0]


def _boosted(last: Any, X: Any, targets: Array, weights: Array | None) -> Boosted:
    name, settings = _objective_name(last), _settings(_booster(last))
    if name not in _OBJECTIVES:
        raise NotApplicable(f"leaf values under XGBoost's objective {name} are not rebuilt here")
    trained = settings["gradient_booster"]
    trees, start = _stored(last, X)
    trained = trained["tree_train_param"]
    share = float(trained["subsample"])
    seed = int(settings["generic_param"]["seed"])
    bag = xgboost_bags(seed, share, len(targets), [len(one) for one in trees.rounds]) if share < 1 else None
    positive = float(settings["objective"].get("reg_loss_param", {}).get("scale_pos_weight", 1))
    if positive != 1:
        weights = np.where(targets > 0, positive, 1.0) * (1.0 if weights is None else weights)
    poisson = float(settings["objective"].get("poisson_regression_param", {}).get("max_delta_step", 0))
    return Boosted(
        library="XGBoost",
        rounds=partial(trees.bagged, bag),
        count=len(trees.rounds),
        start=start,
        margins=_raw(last, X),
        objective=_OBJECTIVES[name],
        targets=single(targets),
        weights=weights,
        curvature=2.0 if _OBJECTIVES[name] == SOFTMAX else float(np.exp(poisson)) if name == "count:poisson" else 1.0,
        curvature_floor=0.0 if _OBJECTIVES[name] == SQUARED else _CURVATURE_FLOOR,
        rule=LeafRule(float(trained["alpha"]), float(trained["lambda"]), float(trained["max_delta_step"])),
        margin_dtype=np.float32,
        gradient_dtype=np.float32,
        unread=_unread(last, settings),
    )


def _calibrated_as(last: Any) -> str:
    """Boosted trees; forests, dropped trees and linear boosters are families of their own."""
    held = _settings(_booster(last))["gradient_booster"]
    if held["name"] != "gbtree":
        return f"XGBoost with booster={held['name']!r}"
    return "XGBoost with parallel trees" if int(held["gbtree_model_param"]["num_parallel_tree"]) > 1 else "XGBoost"


def _unread(last: Any, settings: dict[str, Any]) -> str:
    """What bends leaf values and is not read: constraints, and what a file does not hold."""
    trained = settings["gradient_booster"]["tree_train_param"]
    constrained = str(trained.get("monotone_constraints", "()")) not in ("()", "", "[]")
    found = ["monotone_constraints"] if constrained else []
    # Drawn again as histogram trees draw; other methods draw in other ways.
    found += ["subsample"] if float(trained["subsample"]) < 1 else []
    # A fit leaves a metric behind, a file does not.
    from_file = not hasattr(last, "get_booster") or not settings.get("metrics")
    return ", ".join([*found, LOST] if from_file else found)


XGBOOST = estimator_reader(
    EstimatorFamily(
        name="XGBoost",
        described="an XGBoost model",
        reads=lambda last: library_of(last) == "xgboost" and (hasattr(last, "get_booster") or hasattr(last, "save_raw")),
        calibrated_as=_calibrated_as,
        task=_task,
        classes=_classes,
        outputs=_outputs,
        saved=lambda last: bytes(_booster(last).save_raw("ubj")),
        history=_history,
        boosted=_boosted,
    )
)

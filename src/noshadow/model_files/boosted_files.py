"""Boosted trees in their libraries' own formats."""

import json
import re
from pathlib import Path
from typing import Any

from noshadow.model_files.held import HeldModel, needed
from noshadow.storage.reasons import one_kind_of_error


def xgboost_model(path: Path) -> HeldModel:
    """The booster of a .json or .ubj file, or the estimator that wrote it.

    Raises:
        ValueError: it is no such file.
    """
    library = needed("xgboost", "trees")
    with one_kind_of_error():
        booster = library.Booster(model_file=str(path))
        written = json.loads(booster.attr("scikit_learn") or "{}").get("_estimator_type")
        kinds = {"classifier": library.XGBClassifier, "regressor": library.XGBRegressor}
        model: Any = booster
        if written in kinds:
            model = kinds[written]()
            model.load_model(path)
    # Before XGBoost 3.1 a file kept numbers of categories and not what they stood for.
    categories = "c" in (booster.feature_types or []) and hasattr(booster, "get_categories")
    names = booster.feature_names
    return HeldModel(model, None if names is None else tuple(names), text="category" if categories else "refused")


def lightgbm_model(path: Path) -> HeldModel:
    """The booster of a text file.

    Raises:
        ValueError: it is no such file, or not a whole one, which LightGBM itself would read.
    """
    library = needed("lightgbm", "trees")
    with one_kind_of_error():
        _require_whole(path.read_text(encoding="utf-8"))
        booster = library.Booster(model_file=str(path), params={"verbosity": -1})
    names = tuple(booster.feature_name())
    numbered = names == tuple(f"Column_{number}" for number in range(len(names)))
    return HeldModel(booster, None if numbered else names, text="category" if booster.pandas_categorical else "refused")


def _require_whole(text: str) -> None:
    lines = text.rstrip().splitlines()
    if not lines or lines[0] != "tree":
        raise ValueError("no model of LightGBM as text")
    sizes = re.search(r"^tree_sizes=(.*)$", text, flags=re.MULTILINE)
    trees, claimed = len(re.findall(r"^Tree=\d+$", text, flags=re.MULTILINE)), 0 if sizes is None else len(sizes.group(1).split())
    label, _, last = lines[-1].partition(":")
    ended = lines[-1] == "end of parameters" or (label == "pandas_categorical" and last != "")
    if trees != claimed or "end of trees" not in lines or not ended:
        raise ValueError(f"it ends early: {trees} of {claimed} trees")
    if label == "pandas_categorical":
        json.loads(last)


def catboost_model(path: Path) -> HeldModel:
    """The model of a .cbm file, as the classifier or regressor that it is.

    Raises:
        ValueError: it is no such file.
    """
    library = needed("catboost", "trees")
    with one_kind_of_error():
        held = library.CatBoost().load_model(str(path))
        classes = held.classes_
        kind = library.CatBoostClassifier if len(classes) else library.CatBoostRegressor
        model = kind().load_model(str(path))
    names = tuple(map(str, model.feature_names_ or ()))
    numbered = names == tuple(map(str, range(len(names))))
    return HeldModel(model, None if numbered else names, tuple(classes.tolist()) if len(classes) else None)

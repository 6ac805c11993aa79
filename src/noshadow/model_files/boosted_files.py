"""Boosted trees in their libraries' own formats, looked through before a library reads them."""

import json
import re
from pathlib import Path
from typing import Any

from noshadow.model_files.catboost_content import require_sound_catboost
from noshadow.model_files.held import HeldModel, needed
from noshadow.model_files.lightgbm_content import require_sound_lightgbm
from noshadow.model_files.ubjson import parsed_ubjson
from noshadow.model_files.xgboost_content import require_sound_xgboost
from noshadow.storage.json_text import parsed_json
from noshadow.storage.reasons import one_kind_of_error

# What the scores of records read.
CATBOOST_SETTINGS = ("loss_function", "learning_rate", "leaf_estimation_method", "leaf_estimation_iterations", "l2_leaf_reg")


def xgboost_model(path: Path) -> HeldModel:
    """The booster of a .json or .ubj file, or the estimator that wrote it.

    Raises:
        ValueError: it is no such file. OSError: as the system gives it.
    """
    library = needed("xgboost", "trees")
    with one_kind_of_error():
        content = path.read_bytes()
        binary = path.suffix.lower() == ".ubj"
        held = parsed_ubjson(content) if binary else parsed_json(content)
        require_sound_xgboost(held)
        # Text is written anew, so that the library reads what was looked at.
        sound = bytearray(content if binary else json.dumps(held).encode())
        booster = library.Booster(model_file=sound)
        written = json.loads(booster.attr("scikit_learn") or "{}").get("_estimator_type")
        kinds = {"classifier": library.XGBClassifier, "regressor": library.XGBRegressor}
        model: Any = booster
        if written in kinds:
            model = kinds[written]()
            model.load_model(sound)
        # Before XGBoost 3.1 a file kept numbers of categories and not what they stood for.
        marked = _xgboost_categories(booster) if hasattr(booster, "get_categories") else {}
    names = booster.feature_names
    return HeldModel(
        model,
        None if names is None else tuple(names),
        categories=frozenset(marked),
        texts=frozenset(column for column, text in marked.items() if text),
        numbers=True,
    )


def _xgboost_categories(booster: Any) -> dict[str | int, bool]:
    """Columns of categories, and whether these are text."""
    types = booster.feature_types or []
    if "c" not in types:
        return {}
    kept = booster.get_categories(export_to_arrow=True).to_arrow()
    columns = booster.feature_names or range(len(types))
    named = zip(columns, kept, types, strict=True)
    return {column: values is not None and "string" in str(values.type) for column, (_, values), kind in named if kind == "c"}


def lightgbm_model(path: Path) -> HeldModel:
    """The booster of a text file.

    Raises:
        ValueError: it is no such file, or not a whole one. OSError: as the system gives it.
    """
    library = needed("lightgbm", "trees")
    with one_kind_of_error():
        content = path.read_bytes()
        require_sound_lightgbm(content)
        booster = library.Booster(model_str=content.decode("utf-8"))
        names = tuple(booster.feature_name())
        marked = _lightgbm_categories(content.decode("utf-8"), booster.pandas_categorical or [])
    columns = None if names == tuple(f"Column_{number}" for number in range(len(names))) else names
    own = range(len(names)) if columns is None else columns
    return HeldModel(
        booster,
        columns,
        categories=frozenset(own[place] for place in marked),
        texts=frozenset(own[place] for place, text in marked.items() if text),
        numbers=True,
    )


def _lightgbm_categories(text: str, kept: list[list[Any]]) -> dict[int, bool]:
    """Places of the columns of categories, and whether these are text.

    Raises:
        ValueError: the file does not say which columns its categories are of.
    """
    (line,) = re.findall(r"^feature_infos=(.*)$", text, flags=re.MULTILINE)
    # [least:largest] of a number, numbers with colons of categories, none of what no split can use.
    kinds = ["number" if info.startswith("[") else "none" if info == "none" else "category" for info in line.split(" ")]
    places = [place for place, kind in enumerate(kinds) if kind == "category"]
    if kept and len(places) != len(kept):
        places = [place for place, kind in enumerate(kinds) if kind != "number"]
    if kept and len(places) != len(kept):
        raise ValueError(f"categories of {len(kept)} columns, without saying which")
    return {place: all(isinstance(one, str) for one in values) for place, values in zip(places, kept, strict=False)}


def catboost_model(path: Path) -> HeldModel:
    """The model of a .cbm file, as the classifier or regressor that it is.

    Raises:
        ValueError: it is no such file. OSError: as the system gives it.
    """
    library = needed("catboost", "trees")
    with one_kind_of_error():
        require_sound_catboost(path.read_bytes())
        # By its path: of bytes CatBoost keeps a view, and reads past their end.
        held = library.CatBoost().load_model(str(path))
        missing = [name for name in CATBOOST_SETTINGS if name not in held.get_all_params()]
        if missing:
            raise ValueError(f"a model without {missing[0]}")
        classes = held.classes_
        kind = library.CatBoostClassifier if len(classes) else library.CatBoostRegressor
        model = kind().load_model(str(path))
        names = tuple(map(str, model.feature_names_ or ()))
        places = model.get_cat_feature_indices()
    columns = None if names == tuple(map(str, range(len(names)))) else names
    return HeldModel(
        model,
        columns,
        tuple(classes.tolist()) if len(classes) else None,
        # CatBoost takes a whole number for its digits, so that 007 and 7 are two categories.
        texts=frozenset(places if columns is None else (columns[place] for place in places)),
    )

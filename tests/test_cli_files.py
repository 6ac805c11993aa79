"""`noshadow audit --model`: every format gives the audit that Python gives for the same model and records, or says in one line why not."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from textwrap import dedent

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from torch import nn

import noshadow as ns
from extras import extra
from file_models import CATEGORIES, MIXED, NUMBERS, TABLE, TEST, TRAIN, N, categorical, write_tables
from noshadow.model_files import Columns, HeldModel, read_split

# Names of the models in test ids → model, its columns, its target.
SKLEARN = {
    "logistic regression": (lambda: LogisticRegression(), NUMBERS, "state"),
    "three classes": (lambda: LogisticRegression(), NUMBERS, "stage"),
    "pipeline with text": (
        lambda: make_pipeline(
            make_column_transformer(
                (StandardScaler(), NUMBERS),
                (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")), ["sex", "clinic"]),
            ),
            LogisticRegression(),
        ),
        MIXED,
        "state",
    ),
    "search": (lambda: GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=3), NUMBERS, "state"),
    "ridge": (lambda: Ridge(), NUMBERS, "days"),
    "forest": (lambda: RandomForestClassifier(8, random_state=0), NUMBERS, "state"),
    "histogram boosting": (lambda: HistGradientBoostingClassifier(max_iter=6), NUMBERS, "state"),
    "histograms of categories": (
        lambda: make_pipeline(
            make_column_transformer((OrdinalEncoder(), ["sex", "clinic"]), remainder="passthrough"),
            HistGradientBoostingClassifier(max_iter=6, categorical_features=[0, 1]),
        ),
        MIXED,
        "state",
    ),
    "boosting": (lambda: GradientBoostingClassifier(n_estimators=6), NUMBERS, "stage"),
    "perceptron": (lambda: MLPClassifier((6,), max_iter=30, random_state=0), NUMBERS, "stage"),
    "neighbours": (lambda: KNeighborsClassifier(3), NUMBERS, "state"),
}


@pytest.fixture
def audited(run, tmp_path):
    """Audit a file with the command line; its audit folder, loaded."""

    def call(model, columns, target, suffix="csv", *options, more=("patient",)):
        train, test = write_tables(tmp_path, columns, target, suffix, more)
        files = ("--model", model, "--train", train, "--test", test, "--target", target, "--id", "patient")
        code, out, err = run("audit", *files, "--out", "a", "--force", "--quiet", *options)
        assert (code, out, err) == (0, "", ""), err
        return ns.load("a")

    return call


@pytest.fixture
def fails(run, tmp_path):
    """A command that must end with one line and exit code 2."""

    def call(says, *args):
        code, out, err = run("audit", "--out", tmp_path / "a", *args)
        assert (code, out) == (2, "") and err.count("\n") == 1 and re.search(says, err), err
        assert not (tmp_path / "a").exists()

    return call


def python_audit(model, read, target, **options):
    """The oracle: the same model and records through `ns.audit`."""
    splits = [(read(table).set_axis(pd.Index(list(table.patient)), axis=0), table[target].to_numpy()) for table in (TRAIN, TEST)]
    return ns.audit(model, *splits, ids=list(TRAIN.patient), progress=False, **options)


def require_same(found, expected, ranks=True):
    """Some roundings of float64 apart: columns that come in another order lie elsewhere in memory, and are summed in another one."""
    assert found.ranked_by == expected.ranked_by and found.model_risk.auc == expected.model_risk.auc
    assert list(found.records.columns) == list(expected.records.columns)
    ranked = [] if ranks else ["rank"]
    pd.testing.assert_frame_equal(found.records.drop(columns=ranked), expected.records.drop(columns=ranked), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("name", SKLEARN)
def test_skops(audited, tmp_path, name, suffix):
    made, columns, target = SKLEARN[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few steps of training are enough
        model = made().fit(TRAIN[columns], TRAIN[target])
    extra("skops.io").dump(model, tmp_path / "m.skops")
    require_same(audited("m.skops", columns, target, suffix), python_audit(model, lambda table: table[columns], target))


XGBOOST = {
    "two": ("XGBClassifier", {}, "ill"),
    "three": ("XGBClassifier", {}, "stage"),
    "value": ("XGBRegressor", {}, "days"),
    "native": (None, {}, "ill"),
}


@pytest.mark.parametrize("suffix", ["json", "ubj"])
@pytest.mark.parametrize("name", XGBOOST)
def test_xgboost(audited, tmp_path, name, suffix):
    library = extra("xgboost")
    kind, options, target = XGBOOST[name]
    if kind is None:
        model = library.train({"objective": "binary:logistic", "max_depth": 3}, library.DMatrix(TRAIN[NUMBERS], TRAIN[target]), 6)
    else:
        model = getattr(library, kind)(n_estimators=6, max_depth=3, n_jobs=1, **options).fit(TRAIN[NUMBERS], TRAIN[target])
    model.save_model(tmp_path / f"m.{suffix}")
    found = audited(f"m.{suffix}", NUMBERS, target)
    assert found.ranked_by == ("shift" if kind == "XGBRegressor" else "yielding_shift")
    require_same(found, python_audit(model, lambda table: table[NUMBERS], target))


def test_xgboost_stops_at_its_best_round(audited, tmp_path):
    library = extra("xgboost")
    model = library.XGBClassifier(n_estimators=60, max_depth=4, n_jobs=1, early_stopping_rounds=2)
    model.fit(TRAIN[NUMBERS], TRAIN.ill, eval_set=[(TEST[NUMBERS], TEST.ill)], verbose=False)
    model.save_model(tmp_path / "m.json")
    assert model.best_iteration < 50
    require_same(audited("m.json", NUMBERS, "ill"), python_audit(model, lambda table: table[NUMBERS], "ill"))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_categories_of_boosters_are_told_apart_by_their_names(audited, tmp_path, suffix):
    library, other = extra("xgboost"), extra("lightgbm")
    model = library.XGBClassifier(n_estimators=6, enable_categorical=True, n_jobs=1).fit(categorical(TRAIN), TRAIN.ill)
    model.save_model(tmp_path / "m.json")
    require_same(audited("m.json", MIXED, "ill", suffix), python_audit(model, categorical, "ill"))
    model = other.LGBMClassifier(n_estimators=6, verbose=-1, min_child_samples=5, n_jobs=1).fit(categorical(TRAIN), TRAIN.ill)
    model.booster_.save_model(tmp_path / "m.txt")
    require_same(audited("m.txt", MIXED, "ill", suffix), python_audit(model, categorical, "ill"))


def test_whole_numbers_that_are_categories_stay_categories(audited, tmp_path):
    library, other = extra("xgboost"), extra("lightgbm")
    columns = [*NUMBERS, "stage"]

    def read(table):
        return table[columns].astype({"stage": "category"})

    model = library.XGBClassifier(n_estimators=6, enable_categorical=True, n_jobs=1).fit(read(TRAIN), TRAIN.ill)
    model.save_model(tmp_path / "m.ubj")
    require_same(audited("m.ubj", columns, "ill"), python_audit(model, read, "ill"))
    model = other.LGBMClassifier(n_estimators=6, verbose=-1, n_jobs=1).fit(read(TRAIN), TRAIN.ill)
    model.booster_.save_model(tmp_path / "m.txt")
    require_same(audited("m.txt", columns, "ill"), python_audit(model, read, "ill"))


def test_settings_that_an_xgboost_file_loses_are_named_and_blame_nobody(audited, tmp_path):
    library = extra("xgboost")
    model = library.XGBClassifier(n_estimators=6, reg_lambda=3.0, n_jobs=1).fit(TRAIN[NUMBERS], TRAIN.ill)
    model.save_model(tmp_path / "m.json")
    found, held = audited("m.json", NUMBERS, "ill"), python_audit(model, lambda table: table[NUMBERS], "ill")
    assert held.ranked_by == "yielding_shift" and found.ranked_by == "exposure_score"
    assert found.records["loss"].equals(held.records["loss"])
    said = " ".join(finding.sentence for finding in found.findings if finding.status == "found")
    assert "was fitted on other records" not in said
    assert "settings that a model file loses" in str(found.provenance) + str([entry.stamp for entry in found.evidence]) + str(
        found.evidence
    )


def test_a_trusted_skops_file_keeps_what_an_xgboost_file_loses(audited, tmp_path):
    model = extra("xgboost").XGBClassifier(n_estimators=6, reg_lambda=3.0, n_jobs=1).fit(TRAIN[NUMBERS], TRAIN.ill)
    extra("skops.io").dump(model, tmp_path / "m.skops")
    trusted = ("--trust", "xgboost.core.Booster", "--trust", "xgboost.sklearn.XGBClassifier")
    found = audited("m.skops", NUMBERS, "ill", "csv", *trusted)
    assert found.ranked_by == "yielding_shift"
    require_same(found, python_audit(model, lambda table: table[NUMBERS], "ill"))


@pytest.mark.parametrize(("kind", "target"), [("LGBMClassifier", "ill"), ("LGBMClassifier", "stage"), ("LGBMRegressor", "days")])
def test_lightgbm(audited, tmp_path, kind, target):
    model = getattr(extra("lightgbm"), kind)(n_estimators=6, num_leaves=5, reg_lambda=2.0, verbose=-1, n_jobs=1)
    model.fit(TRAIN[NUMBERS], TRAIN[target]).booster_.save_model(tmp_path / "m.txt")
    found = audited("m.txt", NUMBERS, target)
    assert found.ranked_by == ("shift" if kind == "LGBMRegressor" else "yielding_shift")
    require_same(found, python_audit(model, lambda table: table[NUMBERS], target))


@pytest.mark.parametrize(
    ("kind", "columns", "target"),
    [
        ("CatBoostClassifier", NUMBERS, "ill"),
        ("CatBoostClassifier", NUMBERS, "state"),
        ("CatBoostClassifier", NUMBERS, "stage"),
        ("CatBoostRegressor", NUMBERS, "days"),
        ("CatBoostClassifier", MIXED, "ill"),
    ],
)
def test_catboost(audited, tmp_path, kind, columns, target):
    options = {"iterations": 6, "depth": 3, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    model = getattr(extra("catboost"), kind)(**options, cat_features=[name for name in columns if name in CATEGORIES])
    model.fit(TRAIN[columns], TRAIN[target]).save_model(str(tmp_path / "m.cbm"))
    require_same(
        audited("m.cbm", columns, target), python_audit(model, lambda table: table[columns], target), ranks=False
    )  # a file rounds what the model held


def test_models_without_names_take_the_columns_in_the_tables_order(audited, fails, tmp_path):
    columns = list(reversed(NUMBERS))  # as write_tables writes them
    model = LogisticRegression().fit(TRAIN[columns].to_numpy(), TRAIN.state)
    extra("skops.io").dump(model, tmp_path / "m.skops")
    found = audited("m.skops", NUMBERS, "state")
    require_same(found, python_audit(model, lambda table: table[columns].set_axis(range(4), axis=1), "state"))
    TEST[["patient", "state", *NUMBERS]].to_csv(tmp_path / "other.csv", index=False)
    for name in ("a", "m.skops"):  # the folder of the audit is in the way of the next
        path = tmp_path / name
        if path.is_dir():
            path.rename(tmp_path / "kept")
    says = r"--test must have the columns of --train in their order; got 'age' for 'iron' as column 0\. The model's file names no columns"
    fails(says, "--model", "m.skops", "--train", "train.csv", "--test", "other.csv", "--target", "state", "--id", "patient")


NET = """
    from torch import nn

    def build():
        print("built")
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

    def wider():
        return nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 3))

    def nothing():
        return 3
"""


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "built_net.py").write_text(dedent(NET), encoding="utf-8")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    save_file(model.state_dict(), tmp_path / "m.safetensors")
    yield model
    sys.modules.pop("built_net", None)


def test_safetensors_with_a_module(run, net):
    columns = list(reversed(NUMBERS))
    train, test = write_tables(Path(), NUMBERS, "stage", "parquet", more=("patient", "ward"))
    files = ("--model", "m.safetensors", "--module", "built_net:build", "--train", train, "--test", test, "--target", "stage")
    options = ("--id", "patient", "--group", "ward", "--weight-decay", "0.01", "--layers", "2")
    code, out, err = run("audit", *files, "--out", "a", "--quiet", *options)
    assert (code, out, err) == (0, "", "built\n")
    splits = [(table[columns].to_numpy(np.float32), table.stage.to_numpy()) for table in (TRAIN, TEST)]
    groups = {"groups": list(TRAIN.ward), "test_groups": list(TEST.ward)}
    expected = ns.audit(net, *splits, ids=list(TRAIN.patient), weight_decay=0.01, layers=2, progress=False, **groups)
    require_same(ns.load("a"), expected)
    assert set(ns.load("a").records["group"]) == {"a", "b"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--model", "m.safetensors"), "--module must come with weights in .safetensors; got none. Pass --module package.module:build"),
        (
            ("--model", "m.safetensors", "--module", "built_net:wider"),
            "--module must have exactly the weights of the file; got size mismatch",
        ),
        (("--model", "m.safetensors", "--module", "built_net:nothing"), "--module must name a function that returns an nn.Module; got"),
        (("--model", "m.safetensors", "--module", "built_net:wider", "--trust", "x.y"), "--trust must come with a .skops file"),
        (("--model", "absent.onnx"), "--model must be a file that exists; got 'absent.onnx'"),
        (
            ("--model", "built_net.py"),
            r"--model must end in .skops, .json, .ubj, .txt, .lgb, .cbm, .onnx, .safetensors; got 'built_net.py'",
        ),
        (("--train", "train.csv"), "WHAT or --model must be given; got neither"),
        (("built_net:build", "--model", "m.safetensors"), "WHAT must stand without --model; got 'built_net:build'"),
    ],
)
def test_what_does_not_go_together_is_one_line_and_exit_code_2(fails, net, tmp_path, options, says):
    write_tables(tmp_path, NUMBERS, "stage")
    given = (
        options
        if "--train" in options
        else (*options, "--train", "train.csv", "--test", "test.csv", "--target", "stage", "--drop", "patient")
    )
    fails(says, *given)


def test_a_model_without_tables_says_which(fails, net):
    fails(
        "--model must come with --train, --test and --target; got none for --test, --target", "--model", "m.safetensors", "--train", "a.csv"
    )


def test_a_file_is_not_trained_again(fails, net, tmp_path):
    write_tables(tmp_path, NUMBERS, "stage")
    files = ("--model", "m.safetensors", "--module", "built_net:build", "--train", "train.csv", "--test", "test.csv", "--target", "stage")
    fails("--folds must come with a module:function; got --model", *files, "--drop", "patient", "--folds", "3")
    fails("--no-intercept and --family must come with a file of signals", *files, "--drop", "patient", "--no-intercept")


@pytest.fixture
def simple(tmp_path):
    """A model of named columns in a file, the tables it reads, and the options that audit it."""
    model = LogisticRegression().fit(TRAIN[NUMBERS], TRAIN.state)
    extra("skops.io").dump(model, tmp_path / "m.skops")
    write_tables(tmp_path, NUMBERS, "state")
    return ("--model", "m.skops", "--train", "train.csv", "--test", "test.csv", "--target", "state")


def changed(path, edit):
    table = pd.read_csv(path, dtype=str)
    edit(table).to_csv(path, index=False)


@pytest.mark.parametrize(
    ("edit", "options", "says"),
    [
        (
            lambda t: t,
            (),
            r"--train must have the model's 4 columns; got a table with also 'patient'. Name what is not for the model with --id",
        ),
        (lambda t: t.drop(columns="age"), ("--id", "patient"), "--train must have the model's 4 columns; got a table without 'age'"),
        (lambda t: t, ("--id", "pid"), "--train must have the columns that were named; got none for --id 'pid' among 'patient', 'state'"),
        (lambda t: t, ("--drop", "nothing"), "got none for --drop 'nothing'"),
        (
            lambda t: t.assign(age="old"),
            ("--id", "patient"),
            "model must accept train X; got ValueError .could not convert string to float: 'old'",
        ),
        (lambda t: t.assign(age=""), ("--id", "patient"), "model must accept train X; got ValueError .Input X contains NaN"),
        (
            lambda t: t.assign(state="dead"),
            ("--id", "patient"),
            r"train y must hold labels the model knows .'ill', 'well'.; got 'dead' at index 0",
        ),
        (
            lambda t: t.assign(state=[""] + ["ill"] * (N - 1)),
            ("--id", "patient"),
            "--target of --train must have a value in each row; got 1 without, row 0",
        ),
        (lambda t: t.assign(patient=["", *t.patient[1:]]), ("--id", "patient"), "--id of --train must have a value in each row"),
        (lambda t: t.assign(patient="007"), ("--id", "patient"), "ids must .*unique"),
        (lambda t: t[:0], ("--id", "patient"), "--train must hold at least one record; got none"),
    ],
)
def test_tables_that_do_not_fit_are_one_line_and_exit_code_2(fails, simple, tmp_path, edit, options, says):
    changed(tmp_path / "train.csv", edit)
    fails(says, *simple, *options)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "--train must be a readable .csv file; got 'train.csv' .No columns to parse"),
        (b"age,age,state\n1,2,ill\n", "the column 'age' stands twice"),
        (b"age;weight;state\n1;2;ill\n", "got none for --target 'state' among 'age;weight;state'. Separate its columns by commas"),
        (b"age,state\n1,2,ill\n", "its rows have more fields than its first line has names"),
        ("größe,state\n1,ill\n".encode("latin1"), "--train must be a readable .csv file; got 'train.csv' .'utf-8' codec"),
    ],
)
def test_broken_text_is_one_line_and_exit_code_2(fails, simple, tmp_path, content, says):
    (tmp_path / "train.csv").write_bytes(content)
    fails(says, *simple)


def test_broken_parquet_is_one_line_and_exit_code_2(fails, simple, tmp_path):
    (tmp_path / "train.parquet").write_bytes(b"PAR1 nothing PAR1")
    fails("--train must be a readable .parquet file; got 'train.parquet'", *simple[:3], "train.parquet", *simple[4:])
    fails("--train must end in .csv or .parquet; got 'train.xlsx'", *simple[:3], "train.xlsx", *simple[4:])
    fails("--train must be a readable .csv file; got 'absent.csv'", *simple[:3], "absent.csv", *simple[4:])


def test_ids_and_labels_stay_as_they_are_written(run, tmp_path, simple):
    """007 is no 7, and NA is a label where the model has one."""
    labels = TRAIN.state.map({"ill": "NA", "well": "None"})
    model = LogisticRegression().fit(TRAIN[NUMBERS], labels)
    extra("skops.io").dump(model, tmp_path / "m.skops")
    for name, table in (("train", TRAIN), ("test", TEST)):
        table.assign(state=table.state.map({"ill": "NA", "well": "None"}))[["patient", "state", *NUMBERS]].to_csv(
            f"{name}.csv", index=False
        )
    assert run("audit", *simple, "--id", "patient", "--out", "a", "--quiet") == (0, "", "")
    records = ns.load("a").records
    assert set(records["id"]) == set(TRAIN.patient) and set(records["label"]) == {"NA", "None"}


def test_ids_may_be_the_index_of_a_parquet_table(run, tmp_path, simple):
    for name, table in (("train", TRAIN), ("test", TEST)):
        table[["patient", "state", *NUMBERS]].set_index("patient").to_parquet(tmp_path / f"{name}.parquet")
    files = [part.replace(".csv", ".parquet") for part in simple]
    assert run("audit", *files, "--id", "patient", "--out", "a", "--quiet") == (0, "", "")
    assert list(ns.load("a").records["id"]) == list(TRAIN.patient)
    # An index that nobody names is no column of the model.
    assert run("audit", *files, "--out", "b", "--quiet") == (0, "", "")


def test_text_that_an_encoder_knows_is_not_read_as_numbers(audited, tmp_path):
    """Codes of clinics are text to the encoder, which would ignore the numbers 7, 12 and 120 without a word."""
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()).fit(TRAIN[["clinic"]], TRAIN.state)
    extra("skops.io").dump(model, tmp_path / "m.skops")
    require_same(audited("m.skops", ["clinic"], "state"), python_audit(model, lambda table: table[["clinic"]], "state"))


def test_text_where_a_booster_takes_numbers_is_named(fails, tmp_path):
    model = extra("xgboost").XGBClassifier(n_estimators=2, n_jobs=1).fit(TRAIN[NUMBERS], TRAIN.ill)
    model.save_model(tmp_path / "m.json")
    write_tables(tmp_path, NUMBERS, "ill")
    files = ("--model", "m.json", "--train", "train.csv", "--test", "test.csv", "--target", "ill", "--id", "patient")
    changed(tmp_path / "train.csv", lambda table: table.assign(age="old"))
    fails("--train must hold numbers for this model; got text in 'age'. The file does not say which category", *files)
    write_tables(tmp_path, NUMBERS, "ill")
    changed(tmp_path / "train.csv", lambda table: table.assign(ill="yes"))
    fails("--target of --train must hold numbers for this model; got .*'yes'. The model's file holds no such labels", *files)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_missing_values_reach_a_model_that_takes_them(audited, tmp_path, monkeypatch, suffix):
    table = TABLE.copy()
    table.loc[::5, "age"] = np.nan
    monkeypatch.setattr("file_models.TRAIN", table[:N])
    monkeypatch.setattr("file_models.TEST", table[N:].reset_index(drop=True))
    model = HistGradientBoostingClassifier(max_iter=5).fit(table[:N][NUMBERS], table[:N].state)
    extra("skops.io").dump(model, tmp_path / "m.skops")
    found = audited("m.skops", NUMBERS, "state", suffix)
    splits = [(part[NUMBERS].set_axis(pd.Index(list(part.patient)), axis=0), part.state.to_numpy()) for part in (table[:N], table[N:])]
    require_same(found, ns.audit(model, *splits, ids=list(TRAIN.patient), progress=False))


def test_floats_of_a_csv_are_the_nearest(audited, tmp_path):
    """A tree asks on which side of a threshold a value is: one unit in the last place would be another leaf."""
    values = np.random.default_rng(3).random(4000) * 10.0 ** np.random.default_rng(4).integers(-8, 9, 4000)
    pd.DataFrame({"x": values, "y": values}).to_csv(tmp_path / "t.csv", index=False)
    split = read_split(tmp_path / "t.csv", HeldModel(None, ("x",)), Columns("y"), option="--train")
    assert np.array_equal(split.X["x"].to_numpy(), values) and np.array_equal(split.y, values)


def test_help_teaches_files_without_loading_a_library():
    code = (
        "import sys\nfrom noshadow import cli\nsys.argv = ['noshadow', 'audit', '--help']\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'sklearn', 'pandas', 'skops', 'onnx', 'xgboost') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "200"})
    assert done.stdout.rstrip().endswith("[]")
    for word in ("From files", "--model", "--train", "--target", "--trust", "--module", ".skops", ".onnx", ".safetensors"):
        assert word in done.stdout, word

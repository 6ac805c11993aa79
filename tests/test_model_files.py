"""`load_model`: what is refused and why, before any library sees it; damage of every kind is one sentence, never a crash or a wait."""

import faulthandler
import gzip
import io
import json
import pickle
import random
import re
import struct
import subprocess
import sys
import warnings
import zipfile

import joblib
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import noshadow as ns
from damaged_bytes import flipped, truncated
from extras import extra
from file_models import MIXED, NUMBERS, TRAIN, categorical
from noshadow import InputError
from noshadow.model_files import catboost_content
from noshadow.model_files.sound_estimators import require_sound_estimator
from noshadow.model_files.ubjson import parsed_ubjson
from noshadow.views import collect_outputs

X, Y = TRAIN[NUMBERS].to_numpy(), TRAIN.ill.to_numpy()


class Harmful:
    """What would run if anybody unpickled it."""

    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


class Own(ClassifierMixin, BaseEstimator):
    """A type that is not scikit-learn's."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


def refused(says, *args, **kwargs):
    with pytest.raises(InputError, match=says) as caught:
        ns.load_model(*args, **kwargs)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("load_model: ")


SUFFIXES = ("skops", "json", "ubj", "txt", "lgb", "cbm", "onnx", "safetensors", "PKL", "pkl", "joblib", "pt", "pth", "ckpt")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["pickle", "pickle 0", "joblib", "joblib gz", "joblib zlib", "torch", "old torch"])
def test_serialised_objects_are_refused_whatever_they_are_called(tmp_path, kind, suffix):
    path = tmp_path / f"m.{suffix}"
    if kind.startswith("pickle"):
        path.write_bytes(pickle.dumps(Harmful(), protocol=0 if kind.endswith("0") else 4))
    elif kind == "joblib gz":
        path.write_bytes(gzip.compress(pickle.dumps(Harmful())))
    elif kind.startswith("joblib"):
        joblib.dump(Harmful(), path, compress=3 if kind.endswith("zlib") else 0)
    else:
        torch.save({"model": Harmful()}, path, _use_new_zipfile_serialization=kind == "torch")
    says = r"path must be no file of serialised Python objects; got .*Convert it where it was made: skops.io.dump\(model, 'm.skops'\)"
    refused(says, path)


@pytest.mark.parametrize("size", [640, 896, 1152, 1408])
def test_safetensors_whose_header_begins_like_a_pickle_are_read(tmp_path, size):
    """The first bytes are the size of the header: 640 is 80 02, as a pickle of protocol 2 begins."""
    module, path = nn.Linear(3, 2), tmp_path / "m.safetensors"
    save_file(module.state_dict(), path)
    content = path.read_bytes()
    held = struct.unpack("<Q", content[:8])[0]
    path.write_bytes(struct.pack("<Q", size) + content[8 : 8 + held].ljust(size) + content[8 + held :])
    assert path.read_bytes()[:1] == b"\x80"
    found = ns.load_model(path, module=nn.Linear(3, 2))
    assert torch.equal(found.weight, module.weight) and not found.training


def test_arguments_that_do_not_fit(tmp_path):
    (tmp_path / "m.json").write_text("{}")
    (tmp_path / "m.xyz").write_text("{}")
    save_file(nn.Linear(3, 2).state_dict(), tmp_path / "m.safetensors")
    refused("path must be a file that exists; got ", tmp_path / "absent.onnx")
    refused("path must be a file that exists; got ", tmp_path)
    refused("path must end in .skops, .json, .ubj, .txt, .lgb, .cbm, .onnx, .safetensors; got ", tmp_path / "m.xyz")
    refused("module must come with weights in .safetensors; got none. Pass module=…", tmp_path / "m.safetensors")
    refused("module must come with weights in .safetensors only; got ", tmp_path / "m.json", module=nn.Linear(3, 2))
    refused("module must be an nn.Module; got str", tmp_path / "m.safetensors", module="net")
    refused("module must have exactly the weights of the file; got size mismatch", tmp_path / "m.safetensors", module=nn.Linear(4, 2))
    refused("trust must come with a .skops file", tmp_path / "m.json", trust=["a.b"])
    refused(r"trust must be a sequence of names; got 'a.b'. Pass trust=\['a.b'\]", tmp_path / "m.json", trust="a.b")


@pytest.mark.parametrize(
    ("suffix", "library", "name"),
    [
        ("skops", "skops.io", "files"),
        ("onnx", "onnx", "files"),
        ("onnx", "onnxruntime", "files"),
        ("json", "xgboost", "trees"),
        ("txt", "lightgbm", "trees"),
        ("cbm", "catboost", "trees"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch, suffix, library, name):
    if library == "onnxruntime":
        extra("onnx")
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / f"m.{suffix}").write_bytes(b"nothing")
    refused(rf"{library} must be installed for this file; got .*Run pip install noshadow\[{name}\]\.", tmp_path / f"m.{suffix}")


def dumped(tmp_path, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        extra("skops.io").dump(model, tmp_path / "m.skops")
    return tmp_path / "m.skops"


def test_unknown_types_are_shown_and_refused_until_they_are_trusted(tmp_path):
    path = dumped(tmp_path, Own().fit(X, Y))
    name = f"{Own.__module__}.Own"
    says = rf"path must ask for known types only; got .* with {name}\. Types run code of their own: .*trust=\['{name}'\] \(--trust {name}\)"
    refused(says, path)
    refused(says, path, trust=["another.Type"])
    assert type(ns.load_model(path, trust=[name])).__name__ == "Own"


def test_a_function_that_a_file_names_is_no_known_type(tmp_path):
    path = dumped(tmp_path, FunctionTransformer(func=np.sin).fit(X))
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    text = members["schema.json"].decode()
    for module, name in (("os", "system"), ("builtins", "eval"), ("operator", "methodcaller")):
        schema = text.replace('"__class__": "sin"', f'"__class__": "{name}"').replace('"__module__": "numpy"', f'"__module__": "{module}"')
        assert name in schema
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, schema if member == "schema.json" else content)
        refused(rf"path must ask for known types only; got .*{module}.{name}", path)


def test_an_archive_that_claims_more_than_it_holds_is_refused(tmp_path):
    path = dumped(tmp_path, LogisticRegression().fit(X, Y))
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\x01\x02")
    content[place + 24 : place + 28] = (2**31).to_bytes(4, "little")
    path.write_bytes(bytes(content))
    refused(r"path must be a whole .skops file of a model; got .*claims 2147483648 bytes", path)


# What compiled code would walk over unchecked: model → damage.
def with_nodes(model, edit):
    """The first tree of a model with other nodes."""
    tree = model.estimators_.flat[0] if isinstance(model.estimators_, np.ndarray) else model.estimators_[0]
    state = tree.tree_.__getstate__()
    edit(state["nodes"])
    tree.tree_.__setstate__(state)
    return model


def forest():
    return RandomForestClassifier(3, random_state=0).fit(X, Y)


def boosting():
    return GradientBoostingClassifier(n_estimators=3).fit(X, Y)


def put(field, value, row=0):
    def edit(nodes):
        nodes[field][row] = value

    return edit


def set_predictor(field, value):
    model = HistGradientBoostingClassifier(max_iter=2).fit(X, Y)
    model._predictors[0][0].nodes[field][0] = value
    return model


def set_neighbours(position, value):
    model = KNeighborsClassifier(3, algorithm="kd_tree").fit(X, Y)
    state = list(model._tree.__getstate__())
    state[position] = value(state[position])
    model._tree.__setstate__(tuple(state))
    return model


def out_of_place(array, field=None):
    made = array.copy()
    if field is None:
        made[0] = 10**6
    else:
        made[field][0] = 10**6
    return made


def wider():
    model = forest()
    other = DecisionTreeClassifier().fit(np.tile(X, 9), Y)
    model.estimators_[1] = other
    return model


def more_outputs():
    model = boosting()
    model.estimators_ = np.repeat(model.estimators_, 40, axis=1)
    return model


def many_categories():
    model = HistGradientBoostingClassifier(max_iter=2, categorical_features=[0]).fit(np.abs(X).round(), Y)
    model._bin_mapper.bin_thresholds_[0] = np.array([1.0, 1e6])
    return model


UNSOUND = {
    "a child that is not there": (lambda: with_nodes(forest(), put("left_child", 10**6)), "children that are not its own"),
    "a child that is its own parent": (lambda: with_nodes(forest(), put("right_child", 0)), "children that are not its own"),
    "a column that is not there": (lambda: with_nodes(forest(), put("feature", 99)), "other columns than the 4"),
    "a column below the first": (lambda: with_nodes(boosting(), put("feature", -7)), "other columns than the 4"),
    "a tree of more columns": (wider, "trees of other columns than the 4"),
    "trees for more outputs": (more_outputs, "trees of shape"),
    "a histogram's child": (lambda: set_predictor("left", 10**6), "children that are not its own"),
    "a histogram's loop": (lambda: set_predictor("right", 0), "children that are not its own"),
    "a histogram's column": (lambda: set_predictor("feature_idx", 4), "other columns than the 4"),
    "a histogram's bits": (lambda: set_predictor("is_categorical", 1), "categories that are not there"),
    "categories beyond the bits": (many_categories, "categories beyond those that histograms have"),
    "a neighbour that is not there": (lambda: set_neighbours(1, out_of_place), "a search tree with records or nodes that are not there"),
    "a range of neighbours": (lambda: set_neighbours(2, lambda nodes: out_of_place(nodes, "idx_end")), "a search tree with records"),
    "fewer nodes than they say": (lambda: set_neighbours(2, lambda nodes: nodes[:1].copy()), "a search tree with records or nodes"),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_trees_that_cannot_be_walked_are_refused(name):
    made, says = UNSOUND[name]
    with pytest.raises(ValueError, match=says):
        require_sound_estimator(made())


def test_sound_trees_are_sound():
    for model in (forest(), boosting(), KNeighborsClassifier(3).fit(X, Y), HistGradientBoostingClassifier(max_iter=2).fit(X, Y)):
        require_sound_estimator(model)


def test_the_file_of_such_a_tree_is_refused(tmp_path):
    refused(
        "path must be a whole .skops file of a model; got .*children that are not its own",
        dumped(tmp_path, UNSOUND["a child that is not there"][0]()),
    )


# One small file of each format, as its library writes it.
def xgboost(path, rows=TRAIN, **options):
    categories = options.pop("categories", False)
    read = categorical(rows) if categories else rows[NUMBERS]
    model = extra("xgboost").XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1, enable_categorical=categories, **options)
    model.fit(read, rows.stage if options.get("several") else rows.ill).save_model(path)
    return read


def lightgbm(path, target="ill", categories=False):
    read = categorical(TRAIN) if categories else TRAIN[NUMBERS]
    model = extra("lightgbm").LGBMClassifier(n_estimators=4, num_leaves=6, min_child_samples=5, verbose=-1, n_jobs=1)
    model.fit(read, TRAIN[target]).booster_.save_model(path)
    return read


def catboost(path, target="ill", categories=False):
    read = TRAIN[["sex", "clinic"]] if categories else TRAIN[NUMBERS]
    options = {"iterations": 4, "depth": 3, "verbose": 0, "allow_writing_files": False, "thread_count": 1, "one_hot_max_size": 1}
    model = extra("catboost").CatBoostClassifier(**options, cat_features=["sex", "clinic"] if categories else [])
    model.fit(read, TRAIN[target]).save_model(str(path))
    return read


def onnx(path):
    extra("onnxruntime")
    library = extra("onnx")
    helper = library.helper
    weights = [
        library.numpy_helper.from_array(np.random.default_rng(0).normal(size=size).astype(np.float32), name)
        for name, size in (("A", (4, 5)), ("a", 5), ("B", (5, 3)), ("b", 3))
    ]
    nodes = [
        helper.make_node(*node) for node in (("Gemm", ["x", "A", "a"], ["h"]), ("Relu", ["h"], ["r"]), ("Gemm", ["r", "B", "b"], ["z"]))
    ]
    ends = [[helper.make_tensor_value_info(name, 1, (None, size))] for name, size in (("x", 4), ("z", 3))]
    library.save(
        helper.make_model(helper.make_graph(nodes, "g", *ends, weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return TRAIN[NUMBERS].to_numpy(np.float32)


def skops(path):
    dumped(path.parent, RandomForestClassifier(2, max_depth=2, random_state=0).fit(TRAIN[NUMBERS], TRAIN.ill))
    return TRAIN[NUMBERS]


def safetensors(path):
    save_file(nn.Linear(4, 3).state_dict(), path)
    return TRAIN[NUMBERS].to_numpy(np.float32)


FORMATS = {
    "m.skops": skops,
    "m.json": xgboost,
    "m.ubj": xgboost,
    "categories.json": lambda path: xgboost(path, categories=True),
    "categories.ubj": lambda path: xgboost(path, categories=True),
    "m.txt": lightgbm,
    "three.txt": lambda path: lightgbm(path, "stage"),
    "categories.txt": lambda path: lightgbm(path, categories=True),
    "m.cbm": catboost,
    "three.cbm": lambda path: catboost(path, "stage"),
    "categories.cbm": lambda path: catboost(path, categories=True),
    "m.onnx": onnx,
    "m.safetensors": safetensors,
}
MUTATIONS = 150


def renumbered(rng, content):
    """One number of a text exchanged for another."""
    spans = [match.span() for match in re.finditer(rb"-?\d+", content)]
    if not spans:
        return flipped(rng, content)
    start, stop = rng.choice(spans)
    return (
        content[:start]
        + rng.choice((b"0", b"-1", b"7", b"99999999", b"2147483647", b"-2147483648", b"1e400", b"x", b"9" * 20))
        + content[stop:]
    )


def rewritten(rng, content):
    """A skops archive whose members are whole, with one of them changed."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [[info.filename, archive.read(info)] for info in archive.infolist()]
    chosen = rng.choice([members[0], members[-1], rng.choice(members)])
    chosen[1] = rng.choice((flipped, renumbered, truncated))(rng, chosen[1])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return packed.getvalue()


def module_of(path):
    return nn.Linear(4, 3) if path.suffix == ".safetensors" else None


@pytest.fixture
def ends_when_waiting():
    """A test that waits ends its process. The clock stops with the test, however it ends: one that was skipped would end a later one."""
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.usefixtures("ends_when_waiting")
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_read_or_refused_in_one_sentence(tmp_path, name):
    """A crash would end this process, and so does a wait."""
    path, rng = tmp_path / name, random.Random(name)
    read = FORMATS[name](path)
    content, outcomes = path.read_bytes(), []
    edits = (flipped, truncated, renumbered, *((rewritten, rewritten) if name == "m.skops" else ()))
    rows = read.iloc[:20] if hasattr(read, "iloc") else read[:20]
    assert collect_outputs(ns.load_model(path, module=module_of(path)), (rows, Y[:20])) is not None
    for _ in range(MUTATIONS):
        path.write_bytes(rng.choice(edits)(rng, content))
        try:
            model = ns.load_model(path, module=module_of(path))
            outcomes.append("read")
            if name != "m.skops":  # what a file's attributes say is scikit-learn's to check
                collect_outputs(model, (rows, Y[:20]))
        except InputError as error:
            outcomes.append("refused")
            assert "\n" not in str(error) and len(str(error)) < 2000 and re.match(r"(load_model|collect_outputs): ", str(error)), error
    assert outcomes.count("refused") > MUTATIONS // 3


@pytest.mark.parametrize("name", ["m.skops", "m.json", "m.ubj", "m.txt", "m.cbm", "m.onnx", "m.safetensors"])
def test_half_a_file_is_one_line_and_exit_code_2(tmp_path, run, name):
    path = tmp_path / name
    FORMATS[name](path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    TRAIN[[*NUMBERS, "ill"]].to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "half_net.py").write_text("from torch import nn\ndef build():\n    return nn.Linear(4, 3)\n", encoding="utf-8")
    module = ("--module", "half_net:build") if name == "m.safetensors" else ()
    code, out, err = run("audit", "--model", name, *module, "--train", "t.csv", "--test", "t.csv", "--target", "ill", "--out", "a")
    assert (code, out) == (2, "") and err.count("\n") == 1, err
    assert re.search(rf"--model must be a whole {path.suffix} file of a model; got '{name}' \(", err), err


@pytest.mark.parametrize("name", ["m.skops", "m.json", "m.ubj", "m.txt", "m.cbm", "m.onnx"])
@pytest.mark.parametrize("suffix", [".skops", ".json", ".ubj", ".txt", ".cbm", ".onnx"])
def test_a_file_under_another_formats_suffix_is_refused(tmp_path, name, suffix):
    made = tmp_path / name
    if made.suffix == suffix:
        return
    FORMATS[name](made)
    made.rename(tmp_path / f"other{suffix}")
    refused(f"path must be a whole {suffix} file of a model; got ", tmp_path / f"other{suffix}")


def edited_json(path, edit):
    held = json.loads(path.read_text())
    edit(held["learner"], held["learner"]["gradient_booster"]["model"])
    path.write_text(json.dumps(held))


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda learner, model: model["trees"][0]["left_children"].__setitem__(0, 10**6), "tree 0: left_children outside of"),
        (lambda learner, model: model["trees"][0]["right_children"].__setitem__(0, 0), "tree 0: children that are not its own"),
        (lambda learner, model: model["trees"][0]["split_indices"].__setitem__(0, 4), "tree 0: split_indices outside of 0 … 3"),
        (lambda learner, model: model["trees"][0]["split_conditions"].pop(), "tree 0: split_conditions that are not"),
        (lambda learner, model: model["tree_info"].__setitem__(0, 1), "tree_info outside of 0 … 0"),
        (lambda learner, model: model["trees"].pop(), "3 trees of 4"),
        (lambda learner, model: model["iteration_indptr"].__setitem__(1, 9), "rounds whose trees do not follow each other"),
        (lambda learner, model: learner["learner_model_param"].__setitem__("num_feature", "9"), "9 columns"),
        (lambda learner, model: learner["learner_model_param"].__setitem__("base_score", "[1,2,3]"), "base_score of"),
        (lambda learner, model: learner["feature_types"].__setitem__(0, "evil"), "feature_types other than"),
    ],
)
def test_what_xgboost_would_believe_is_refused(tmp_path, edit, says):
    path = tmp_path / "m.json"
    xgboost(path)
    edited_json(path, edit)
    refused(says, path)


@pytest.mark.parametrize("booster", ["gbtree", "dart", "gblinear"])
def test_all_boosters_of_xgboost_and_pruned_trees_are_read(tmp_path, booster):
    library = extra("xgboost")
    options = {"gamma": 2.0, "tree_method": "exact"} if booster == "gbtree" else {}
    model = library.XGBClassifier(n_estimators=4, booster=booster, n_jobs=1, **options).fit(TRAIN[NUMBERS], TRAIN.stage)
    for suffix in ("json", "ubj"):
        model.save_model(tmp_path / f"m.{suffix}")
        found = ns.load_model(tmp_path / f"m.{suffix}")
        assert np.array_equal(found.predict_proba(TRAIN[NUMBERS]), model.predict_proba(TRAIN[NUMBERS]))


def test_pretty_printed_json_is_the_same_model(tmp_path):
    path = tmp_path / "m.json"
    xgboost(path)
    before = ns.load_model(path).predict_proba(TRAIN[NUMBERS])
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2))
    assert np.array_equal(ns.load_model(path).predict_proba(TRAIN[NUMBERS]), before)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "claimed where 0 are left"),
        (b"[$d#L" + (2**40).to_bytes(8, "big"), "bytes claimed"),
        (b"[#L" + (2**40).to_bytes(8, "big"), "an array of"),
        (b"[#L" + (2**64 - 1).to_bytes(8, "big"), "an array of -1 values"),
        (b"{i\x01ai\x01i\x01ai\x02}", "the name 'a' stands twice"),
        (b"[" * 100, "nested deeper than 64 levels"),
        (b"Zx", "1 bytes behind its end"),
        (b"Q", "'Q' where a value is due"),
    ],
)
def test_binary_json_is_not_believed(content, says):
    with pytest.raises(ValueError, match=says):
        parsed_ubjson(content)


def test_binary_json_says_what_the_text_says(tmp_path):
    library = extra("xgboost")
    model = library.XGBClassifier(n_estimators=3, n_jobs=1, enable_categorical=True).fit(categorical(TRAIN), TRAIN.stage)
    model.save_model(tmp_path / "m.json")
    model.save_model(tmp_path / "m.ubj")
    text, binary = json.loads((tmp_path / "m.json").read_text()), parsed_ubjson((tmp_path / "m.ubj").read_bytes())

    def same(one, other):
        if isinstance(one, dict):
            assert one.keys() == other.keys()
            return all(same(one[name], other[name]) for name in one)
        if isinstance(one, list):
            return len(one) == len(other) and all(map(same, one, other))
        return one == other if isinstance(one, str) else np.float32(one) == np.float32(other)

    assert same(text, binary)


@pytest.mark.parametrize(
    ("pattern", "change", "says"),
    [
        (r"(?<=left_child=)-?\d+", "99", "left_child outside of"),
        (r"(?<=left_child=)-?\d+", "0", "children that are not its own"),
        (r"(?<=split_feature=)\d+", "7", "split_feature outside of 0 … 3"),
        (r"(?<=leaf_value=)\S+ ", "", "leaf_value that are not"),
        (r"(?<=num_tree_per_iteration=)1", "2", "2 trees a round and 1 classes"),
        (r"(?<=tree_sizes=)\d+", "9", "tree 0: no 'num_leaves'"),
        (r"(?<=tree_sizes=)\d+", "0", "tree_sizes outside of"),
        (r"\[learning_rate: .*\]", "[learning_rate: fast]", "could not convert string to float: 'fast'"),
        (r"\[lambda_l2: .*\]", "[lambda_l2 0]", "the parameter"),
        (r"end of parameters(.|\n)*", "", "it ends early, behind its trees"),
    ],
)
def test_what_lightgbm_would_believe_is_refused(tmp_path, pattern, change, says):
    path = tmp_path / "m.txt"
    lightgbm(path)
    text = path.read_text()
    made = re.sub(pattern, change, text, count=1)
    assert made != text
    grown = len(made.encode()) - len(text.encode())
    if "_child" in pattern or "split" in pattern or "leaf_value" in pattern:
        made = re.sub(r"(?<=tree_sizes=)\d+", lambda match: str(int(match[0]) + grown), made)
    path.write_text(made)
    refused(says, path)


def test_forms_of_lightgbm_are_read(tmp_path):
    library = extra("lightgbm")
    data = {"train_set": library.Dataset(X, X[:, 0] + Y, params={"verbosity": -1}), "num_boost_round": 4}
    for options in ({"linear_tree": True}, {"boosting": "dart"}, {"objective": "quantile"}, {"min_data_in_leaf": 500}):
        booster = library.train(
            {"verbosity": -1, "objective": "regression", **options},
            **data | {"train_set": library.Dataset(X, X[:, 0] + Y, params={"verbosity": -1} | options)},
        )
        booster.save_model(tmp_path / "m.txt")
        assert np.array_equal(ns.load_model(tmp_path / "m.txt").predict(X), booster.predict(X)), options


def with_number(content, place, value, kind="<i"):
    """A model of CatBoost in which the first number of a vector of its trees is another."""
    core = catboost_content._Table(content[8:], struct.unpack_from("<I", content, 8)[0])
    trees = core.table(catboost_content.TREES)
    at, made = trees.at(place), bytearray(content)
    struct.pack_into(kind, made, 8 + at + struct.unpack_from("<I", content, 8 + at)[0] + 4, value)
    return bytes(made)


def misplaced(content):
    """The last category that the file's last hash finds leads to counts that are not there."""
    made = bytearray(content)
    starts = range(len(content) - 12, 0, -12)
    last = next(start for start in starts if content[start : start + 8] != b"\xff" * 8)
    made[last + 8 : last + 12] = (10**6).to_bytes(4, "little")
    return bytes(made)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda content: with_number(content, catboost_content.SPLITS, 10**6), "splits that are not there"),
        (lambda content: with_number(content, catboost_content.SIZES, 2), "splits that are not there"),
        (lambda content: with_number(content, catboost_content.STARTS, 1), "trees that do not follow each other"),
        (lambda content: with_number(content, catboost_content.LEAVES, float("nan"), "<d"), "leaf values that are not finite"),
        (lambda content: with_number(content, catboost_content.BINS, 60000, "<H"), "bins of columns that are not there"),
        (lambda content: content[:8] + content[8:].replace(b"\xff" * 8, b"\x11" * 8), "target statistics that are searched for ever"),
        (lambda content: misplaced(content), "target statistics that are not there"),
        (lambda content: content[:-4], "it ends early, in its target statistics"),
        (lambda content: content + b"more", "4 bytes behind its end"),
        (lambda content: b"CBM2" + content[4:], "no whole model of CatBoost"),
    ],
)
def test_what_catboost_would_believe_is_refused(tmp_path, edit, says):
    path = tmp_path / "m.cbm"
    catboost(path, categories=True)
    content = path.read_bytes()
    made = edit(content)
    assert made != content
    path.write_bytes(made)
    refused(says, path)


def test_forms_of_catboost_are_read(tmp_path):
    library = extra("catboost")
    for options in (
        {"grow_policy": "Lossguide"},
        {"grow_policy": "Depthwise"},
        {"one_hot_max_size": 1, "simple_ctr": ["Counter"]},
        {"border_count": 1000},
    ):
        model = library.CatBoostClassifier(iterations=6, depth=4, verbose=0, allow_writing_files=False, thread_count=1, **options)
        model.fit(TRAIN[MIXED], TRAIN.stage, cat_features=["sex", "clinic"]).save_model(str(tmp_path / "m.cbm"))
        found = ns.load_model(tmp_path / "m.cbm")
        assert np.array_equal(found.predict_proba(TRAIN[MIXED]), model.predict_proba(TRAIN[MIXED])), options


def test_loading_runs_in_a_process_that_has_no_pickle(tmp_path):
    """Every format is read with unpickling made impossible."""
    for name in ("m.skops", "m.json", "m.txt", "m.cbm", "m.onnx"):
        FORMATS[name](tmp_path / name)
    code = (
        "import pickle, sys, noshadow as ns\n"
        "def fail(*a, **k): raise SystemExit('unpickled')\n"
        "for name in ('skops.io', 'xgboost', 'lightgbm', 'catboost', 'onnx', 'onnxruntime'): __import__(name)\n"
        "pickle.load = pickle.loads = pickle.Unpickler = fail\n"
        "for path in sys.argv[1:]: ns.load_model(path)\nprint('read')"
    )
    paths = [str(tmp_path / name) for name in ("m.skops", "m.json", "m.txt", "m.cbm", "m.onnx")]
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, *paths], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("read")

"""The command line: exit codes, one line on stderr for what is wrong, one JSON object or nothing for machines."""

import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import numpy as np
import pandas as pd
import pytest

import noshadow
from noshadow import Signals, audit_signals, load, save_splits

RNG = np.random.default_rng(8)
N = 60
X = RNG.normal(size=(N, 3))
LOGITS = X @ RNG.normal(size=(3, 3))
LABELS = (LOGITS + RNG.gumbel(size=(N, 3))).argmax(1)
REAL = LOGITS[:, 0] + RNG.normal(size=N)
FOLDER = {"audit.json", "records.parquet", "losses.npz", "report.html"}
COMMANDS = ("demo", "audit", "report", "gate")
MODULES = (f"users_module_{number}" for number in itertools.count())
MAIN = [sys.executable, "-m", "noshadow"]


@pytest.fixture
def fails(run):
    """The command ends with this code, prints nothing, and says what is wrong in one line."""

    def call(match, *args, code=2):
        ended, out, err = run(*args)
        assert (ended, out) == (code, ""), err
        assert err.startswith("noshadow: ") and err.endswith("\n") and err.count("\n") == 1
        assert re.search(match, err), err
        assert "Traceback" not in err

    return call


def arrays(**changes):
    held = {}
    for split, rows in (("train", slice(0, 40)), ("test", slice(40, N))):
        held |= {f"{split}_features": X[rows], f"{split}_outputs": LOGITS[rows], f"{split}_targets": LABELS[rows]}
    return {name: array for name, array in (held | changes).items() if array is not None}


@pytest.fixture
def signals(tmp_path):
    """Write a file of signals, with changes; None leaves a key out."""

    def write(**changes):
        np.savez(tmp_path / "signals.npz", **arrays(**changes))
        return "signals.npz"

    return write


@pytest.fixture
def module(tmp_path):
    """Write a module and return its name."""

    def write(source):
        name = next(MODULES)
        (tmp_path / f"{name}.py").write_text(dedent(source), encoding="utf-8")
        return name

    return write


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    held = arrays()
    train, test = (Signals(*(held[f"{split}_{field}"] for field in ("features", "outputs", "targets"))) for split in ("train", "test"))
    return audit_signals(train, test).save(tmp_path_factory.mktemp("saved") / "audit")


TARGET = """
    import numpy as np
    import torch
    import noshadow as ns

    def build():
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(50, 3)).astype(np.float32), rng.integers(0, 3, 50)
        model = torch.nn.Linear(3, 3)
        with torch.no_grad():
            model.weight.copy_(torch.eye(3))
            model.bias.zero_()
        return ns.Target(model, (x[:30], y[:30]), (x[30:], y[30:]){more})
"""


# What works


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_explains_and_gives_an_example(run, command):
    code, out, err = run(*command, "--help")
    assert (code, err) == (0, "") and "\x1b" not in out
    text = " ".join(out.split())
    assert f"noshadow {command[0]}" in text.split("Example: ")[1] if command else "Start with noshadow demo" in text
    assert command or all(name in text for name in (*COMMANDS, "Exit codes"))


def test_the_version_is_printed(run):
    code, out, err = run("--version")
    assert (code, out, err) == (0, f"noshadow {noshadow.__version__}\n", "")


def test_no_arguments_print_the_help(run):
    assert run() == run("--help")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_file_of_signals_becomes_a_folder(run, tmp_path, suffix):
    held = arrays()
    train = Signals(held["train_features"], held["train_outputs"], held["train_targets"], [f"é{i}" for i in range(40)])
    test = Signals(held["test_features"], held["test_outputs"], held["test_targets"])
    traces = np.column_stack([RNG.random((40, 3)), audit_signals(train, test).records["loss"]])
    save_splits(tmp_path / f"signals{suffix}", train, test, loss_traces=traces)
    code, out, err = run("audit", f"signals{suffix}", "--out", "made/here", "--fpr", 0.1, "--weight-decay", 0.01, "--seed", 3)
    assert (code, err) == (0, "") and "\x1b" not in out and "\r" not in out
    assert {entry.name for entry in Path("made/here").iterdir()} == FOLDER
    assert "Loss AUC" in out and "Most exposed records, by shift" in out and "Report: made/here/report.html" in out
    audited, expected = load("made/here"), audit_signals(train, test, loss_traces=traces, fpr=0.1, weight_decay=0.01, seed=3)
    assert audited.model_risk == expected.model_risk
    assert audited.records.equals(expected.records) and "lt_iqr" in audited.records
    assert audited.records["id"].iloc[int(audited.records["rank"].argmin())] in out


def test_options_reach_the_audit(run, signals):
    assert run("audit", signals(), "--out", "a", "--quiet", "--damping", 2.5, "--no-intercept", "--task", "classification")[0] == 0
    provenance = load("a").provenance
    assert provenance["scores"]["damping_used"] == 2.5 and provenance["scores"]["fit_intercept"] is False
    assert provenance["arguments"]["task"] == "classification"


def test_json_is_one_object_and_nothing_else(run, signals):
    code, out, err = run("audit", signals(), "--out", "a", "--json")
    assert (code, err) == (0, "") and out.count("\n") == 1

    def refuse_constant(name):
        raise AssertionError(name)

    said = json.loads(out, parse_constant=refuse_constant)
    assert said["model_risk"] == load("a").model_risk.to_dict()
    assert said["report"] == "a/report.html" and said["records"]["count"] == 40 and said["ranked_by"] == "shift"


def test_quiet_prints_nothing(run, signals):
    assert run("audit", signals(), "--out", "a", "--quiet") == (0, "", "")
    assert run("report", "a", "--quiet") == (0, "", "")
    assert run("gate", "a", "--max-auc", 1, "--quiet") == (0, "", "")


def test_a_function_becomes_a_folder(run, module):
    name = module(TARGET.format(more=", weight_decay=0.1, groups=['a', 'b'] * 15"))
    code, out, err = run("audit", f"{name}:build", "--out", "a", "--json")
    assert (code, err) == (0, "") and json.loads(out)["task"] == "classification"
    audited = load("a")
    assert audited.provenance["scores"]["damping_used"] == pytest.approx(3.0) and set(audited.records["group"]) == {"a", "b"}


@pytest.mark.parametrize(("layers", "stored"), [("all", "all"), ("1", 1)])
def test_more_layers_are_asked_for_by_name_or_number(run, module, layers, stored):
    name = module(TARGET.format(more=", weight_decay=0.1"))
    assert run("audit", f"{name}:build", "--out", "a", "--layers", layers, "--quiet") == (0, "", "")
    audited = load("a")
    assert audited.provenance["arguments"]["layers"] == stored
    assert audited.provenance["scores"]["method"] == "dual" and audited.provenance["scores"]["parameters"] == 12


TWO_HEADS = """
    import torch
    import noshadow as ns

    class TwoHeads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = torch.nn.Linear(3, 5), torch.nn.Linear(3, 4)

        def forward(self, x):
            return {"first": self.first(x), "second": self.second(x)}

    def build():
        x, y = torch.randn(50, 3, generator=torch.Generator().manual_seed(1)), torch.arange(50) % 4
        return ns.Target(TwoHeads(), (x[:30], y[:30]), (x[30:], y[30:]), weight_decay=0.1)
"""


@pytest.mark.parametrize("output", ["second", "1"])
def test_one_of_two_outputs_is_named(run, fails, module, output):
    name = module(TWO_HEADS)
    fails(r"got 'first' \(8, 5\), 'second' \(8, 4\)\. Pass output=", "audit", f"{name}:build", "--out", "a")
    assert run("audit", f"{name}:build", "--out", "a", "--output", output, "--quiet") == (0, "", "")
    assert load("a").provenance["head"] == "Linear 'second' (3 → 4, with bias)"


def test_what_a_users_function_prints_stays_out_of_the_result(run, module):
    name = module("print('imported')\n" + dedent(TARGET.format(more="")).replace("rng =", "print('epoch 1')\n    rng ="))
    code, out, err = run("audit", f"{name}:build", "--out", "a", "--json")
    assert code == 0 and json.loads(out) and err == "imported\nepoch 1\n"


def test_the_report_is_rebuilt_from_the_folder_alone(run, signals):
    run("audit", signals(), "--out", "a", "--quiet")
    page = Path("a/report.html").read_bytes()
    Path("a/report.html").unlink()
    Path("signals.npz").unlink()
    assert run("report", "a") == (0, "a/report.html\n", "")
    assert Path("a/report.html").read_bytes() == page


def test_record_contents_come_from_a_file(run, signals):
    run("audit", signals(train_ids=[f"p{i}" for i in range(40)]), "--out", "a", "--quiet")
    plain, order = Path("a/report.html").read_bytes(), RNG.permutation(40)
    images, texts = RNG.integers(0, 256, (40, 5, 4), dtype=np.uint8), [f"note, {i}" for i in range(40)]
    np.save("images.npy", images)
    np.savez("images.npz", images=images[order], ids=[f"p{i}" for i in order])
    Path("texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8-sig")
    table = pd.DataFrame({"id": [f"p{i}" for i in order], "age": order + 20, "code": "007"})
    table.to_csv("rows.csv", index=False)
    table.to_parquet("rows.parquet")
    pd.DataFrame({"id": [f"p{i}" for i in order], "text": [texts[i] for i in order]}).to_csv("texts.csv", index=False)
    audited = load("a")
    expected = {
        name: noshadow.write_report(audited, f"{name}.html", show_records=contents).read_bytes()
        for name, contents in (("images", images), ("texts", texts), ("rows", table))
    }
    files = ("images.npy", "images.npz", "texts.txt", "texts.csv", "rows.csv", "rows.parquet")
    for file in files:
        assert run("report", "a", "--show-records", file) == (0, "a/report.html\n", "")
        assert Path("a/report.html").read_bytes() == expected[file.split(".")[0]], file
    assert b"007" in Path("a/report.html").read_bytes() and b"never record contents" not in expected["rows"]
    assert run("report", "a", "--show-records", "texts.txt", "--show-top", "3", "--out", "b.html", "--quiet") == (0, "", "")
    assert "Contents of the 3 highest-ranked records are shown" in Path("b.html").read_text(encoding="utf-8")
    assert run("report", "a")[0] == 0 and Path("a/report.html").read_bytes() == plain


def test_record_contents_come_from_a_function(run, signals, tmp_path):
    run("audit", signals(), "--out", "a", "--quiet")
    name = next(MODULES)
    (tmp_path / f"{name}.py").write_text(
        dedent("""
        from noshadow import Target
        LABELS = %r
        def texts():
            print("a word")
            return [f"note {i}" for i in range(40)]
        def target():
            return Target(None, ([[i, 2 * i] for i in range(40)], LABELS), None)
        def loader():
            return Target(None, iter([]), None)
        def backwards():
            return Target(None, ([[i, 2 * i] for i in range(40)], LABELS[::-1]), None)
        def broken():
            raise KeyError("nothing here")
        def forgotten():
            texts()
        """)
        % (LABELS[:40].tolist(),)
    )
    assert run("report", "a", "--show-records", f"{name}:texts") == (0, "a/report.html\n", "a word\n")
    assert "the texts of the 40 highest-ranked records" in Path("a/report.html").read_text(encoding="utf-8")
    assert run("report", "a", "--show-records", f"{name}:target")[0] == 0
    assert "the table rows of the 40 highest-ranked records" in Path("a/report.html").read_text(encoding="utf-8")
    for function, match in (
        ("broken", "must return record contents; it raised KeyError"),
        ("loader", r"the Target of --show-records must hold its training data as \(X, y\); got one with list_iterator"),
        ("nobody", "must be importable from here"),
        (
            "backwards",
            r"the Target of --show-records must have the targets of the audit; got another target for \d+ of 40 records, the first",
        ),
        ("forgotten", "the function of --show-records must return record contents; got None. Is a return missing"),
    ):
        code, out, err = run("report", "a", "--show-records", f"{name}:{function}")
        assert (code, out) == (2, "") and re.search(match, err) and err.removeprefix("a word\n").count("\n") == 1


def test_contents_that_will_not_do_are_one_sentence_and_change_nothing(run, fails, signals):
    run("audit", signals(), "--out", "a", "--quiet")
    page = Path("a/report.html").read_bytes()
    Path("broken.npy").write_bytes(b"no array")
    np.save("objects.npy", np.array([{}] * 40, dtype=object), allow_pickle=True)
    np.savez("two.npz", images=np.zeros((40, 2, 2)), more=np.zeros(3))
    np.savez("short.npz", images=np.zeros((39, 2, 2)))
    Path("latin.txt").write_bytes(b"caf\xe9\n" * 40)
    Path("few.txt").write_text("one\ntwo\n")
    Path("shifted.csv").write_text("name,age\n" + "somebody,3,\n" * 40)
    Path("empty.csv").write_text("")
    pd.DataFrame({"id": range(1, 41), "a": 1}).to_csv("others.csv", index=False)
    Path("broken.parquet").write_bytes(b"PAR1 no table")
    Path("picture.jpg").write_bytes(b"")
    for file, match in (
        ("none.npy", "report: --show-records must be a file that exists; got 'none.npy'"),
        ("shifted.csv", r"must be a readable .csv file; got 'shifted.csv' \(its rows have more fields than its first line has names\)"),
        ("picture.jpg", "must end in .npy, .npz, .txt, .csv, .parquet or name a package.module:function; got 'picture.jpg'"),
        ("broken.npy", "must be a readable .npy file; got 'broken.npy'"),
        ("objects.npy", "must be a readable .npy file; got 'objects.npy'"),
        ("two.npz", "must hold one array of contents and, if you like, ids; got 'two.npz' with images, more"),
        ("short.npz", "must hold one entry for each of the audit's 40 records; got 39"),
        ("latin.txt", "must be a readable .txt file; got 'latin.txt'"),
        ("few.txt", "one entry for each of the audit's 40 records; got 2"),
        ("empty.csv", "must be a readable .csv file; got 'empty.csv'"),
        ("others.csv", "ids of the contents must be the audit's; got 1 that the audit does not know, such as '40' where it has '0'"),
        ("broken.parquet", "must be a readable .parquet file; got 'broken.parquet'"),
    ):
        fails(match, "report", "a", "--show-records", file)
    fails("show_top must be a whole number ≥ 1; got 0", "report", "a", "--show-records", "few.txt", "--show-top", "0")
    fails("requires an argument", "report", "a", "--show-records")
    assert Path("a/report.html").read_bytes() == page and {path.name for path in Path("a").iterdir()} == FOLDER


def test_hostile_ids_are_printed_as_they_are_and_harmless(run, tmp_path):
    ids = [f"[/red]\x1b[31m\r\n<script>alert({i})</script>" for i in range(40)]
    held = arrays()
    train, test = (Signals(*(held[f"{split}_{field}"] for field in ("features", "outputs", "targets"))) for split in ("train", "test"))
    save_splits(tmp_path / "s.npz", train.with_ids(ids), test)
    code, out, err = run("audit", "s.npz", "--out", "[b]odd[/i] name")
    assert (code, err) == (0, "") and "\x1b" not in out and "\r" not in out
    assert "[/red]" in out and "Report: [b]odd[/i] name/report.html" in out
    assert "<script>alert" not in Path("[b]odd[/i] name/report.html").read_text(encoding="utf-8")


def test_without_a_test_split_or_features_the_reasons_are_printed(run, signals):
    nobody = {f"test_{field}": arrays()[f"test_{field}"][:0] for field in ("features", "outputs", "targets")}
    code, out, err = run("audit", signals(**nobody), "--out", "a")
    assert (code, err) == (0, "") and "Model risk: not applicable: the test split is empty" in out and "Most exposed" in out
    code, out, err = run("audit", signals(train_features=None, test_features=None), "--out", "b")
    assert (code, err) == (0, "") and "because no features were given" in out and "by loss" in out and "Loss AUC" in out
    assert "model_risk" in json.loads(run("audit", signals(**nobody), "--out", "c", "--json")[1])["not_applicable"]


def test_notes_are_printed_once_with_one_full_stop(run, signals):
    doubled = {f"{split}_features": np.column_stack([arrays()[f"{split}_features"]] * 2) for split in ("train", "test")}
    _, out, _ = run("audit", signals(**doubled), "--out", "a")
    assert "Note: features have numerical rank 4 of 7: constant, collinear or more features than records.\n" in out
    assert load("a").provenance["scores"]["damping_used"] > 0


# Folders


def test_an_existing_folder_is_refused_before_any_work_and_replaced_by_force(run, fails, signals, monkeypatch):
    assert run("audit", signals(), "--out", "a", "--quiet", "--seed", 1)[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr("noshadow.signals.load_splits", lambda _: pytest.fail("worked before looking at the folder"))
        fails("folder must not exist yet; got 'a'. Choose another name, or overwrite it .--force", "audit", "signals.npz", "--out", "a")
    assert load("a").model_risk.seed == 1
    assert run("audit", "signals.npz", "--out", "a", "--force", "--seed", 2, "--quiet") == (0, "", "")
    assert load("a").model_risk.seed == 2 and {entry.name for entry in Path("a").iterdir()} == FOLDER


def test_a_folder_with_other_files_survives_force(fails, signals):
    Path("a").mkdir()
    Path("a/thesis.tex").write_text("years of work")
    for force in ((), ("--force",)):
        fails("folder must .*; got 'a'", "audit", signals(), "--out", "a", *force)
        fails("folder must .*; got 'a'", "demo", "--out", "a", *force)
    assert [entry.name for entry in Path("a").iterdir()] == ["thesis.tex"]


def test_a_place_that_cannot_be_written_is_refused(fails, signals):
    Path("file").write_text("")
    fails("folder must be writable; got 'file/a' under '.*file'", "audit", signals(), "--out", "file/a")
    fails("folder must be a folder; got the file 'file'", "audit", signals(), "--out", "file", "--force")
    fails("folder must be writable; got 'x+' .*name too long", "audit", signals(), "--out", "x" * 300)
    fails("folder must be writable", "demo", "--out", "file/a")


@pytest.mark.parametrize("command", [("report",), ("gate", "--max-auc", "0.5")])
def test_folders_that_hold_no_audit_are_refused(fails, saved, tmp_path, command):
    fails("load: folder must hold an audit .audit.json.; got 'absent'", *command, "absent")
    manifest = json.loads((saved / "audit.json").read_text())
    for name in ("audit.json", "records.parquet", "losses.npz"):
        (tmp_path / name).write_bytes((saved / name).read_bytes())
    (tmp_path / "losses.npz").write_bytes(b"other")
    fails("folder must be as it was written; got '.' with losses.npz missing or altered", *command, ".")
    (tmp_path / "audit.json").write_text(json.dumps(manifest | {"format": 99}))
    fails("folder must be of format 1; got 99. Run the audit again with this version", *command, ".")


# Wrong input


def bad(array, place, value):
    changed = np.array(array, dtype=float)
    changed[place] = value
    return changed


OBJECTS = np.array([{}] * 40, dtype=object)


@pytest.mark.parametrize(
    ("changes", "options", "match"),
    [
        ({"train_targets": LABELS[:39]}, (), "must have one row per record; got lengths outputs 40, targets 39, features 40"),
        (
            {"train_outputs": bad(LOGITS[:40], (5, 1), np.nan)},
            (),
            r"outputs must be finite; got 1 NaN or infinite values, the first at index \(5, 1\)",
        ),
        (
            {"test_features": bad(X[40:], (2, 0), np.inf)},
            (),
            r"features must be finite; got 1 NaN or infinite values, the first at index \(2, 0\)",
        ),
        ({"train_targets": LABELS[:40] + 1}, (), "targets must be < 3, the number of outputs; got label 3"),
        ({"train_targets": LABELS[:40] - 1}, (), "targets must be ≥ 0; got label -1"),
        ({"train_targets": LABELS[:40] * 1.0}, ("--task", "classification"), "targets must be integers in classification"),
        ({"train_targets": LABELS[:40] * 1.0}, (), "Labels of a classification must be integers"),
        ({"train_targets": np.ones(40, int)}, (), "targets must hold at least two classes; got only class 1"),
        (
            {f"train_{k}": arrays()[f"train_{k}"][:1] for k in ("features", "outputs", "targets")},
            (),
            "train must hold at least 2 records; got 1",
        ),
        ({"train_targets": np.ones((40, 3), int)}, ("--task", "classification"), "Multi-label heads are not supported"),
        (
            {"train_outputs": LOGITS[:40, :1], "test_outputs": LOGITS[40:, :1], "train_targets": (LABELS[:40] > 0) * 1.0},
            (),
            "task must be named",
        ),
        ({"train_logits": LOGITS[:40]}, (), "file must hold keys among .*; got unknown key train_logits"),
        ({"train_outputs": None}, (), "got missing key train_outputs"),
        ({"train_ids": OBJECTS}, (), "Pickled objects are never loaded"),
        ({"train_ids": np.zeros(40, int)}, (), "ids must be unique"),
        ({"loss_traces": np.ones((3, 3))}, (), "train and loss_traces must have one row per record"),
        ({}, ("--task", "ranking"), "'--task'.*'ranking' is not one of 'auto', 'regression', 'classification', 'binary'"),
        ({}, ("--task", "binary"), "outputs must have one column in a binary task"),
        ({}, ("--fpr", "0.001"), "fpr must be at least 0.05, the smallest level that 20 records of the smaller split resolve; got 0.001"),
        ({}, ("--fpr", "2"), "fpr must be a number > 0 and < 1; got 2"),
        ({}, ("--fpr", "low"), "Invalid value for '--fpr'"),
        ({}, ("--damping", "-1"), "damping must be a number ≥ 0; got -1"),
        ({}, ("--weight-decay", "-1"), "weight_decay must be a number ≥ 0; got -1"),
        ({}, ("--seed", "-1"), "Invalid value for '--seed'"),
        ({}, ("--seed", str(2**70)), "seed must be a whole number"),
        ({}, ("--layers", "all"), "--layers must be 'last' for a file of signals; got 'all'"),
        ({}, ("--output", "logits"), "--output must come with a module:function; got 'signals.npz'"),
        ({}, ("--depth", "3"), "No such option: --depth"),
        ({}, ("and", "more"), "unexpected extra argument.*[.] Try --help[.]$"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(fails, signals, changes, options, match):
    fails(match, "audit", signals(**changes), "--out", "a", *options)
    assert not Path("a").exists() and not list(Path().glob(".a.*"))


def test_files_that_cannot_be_read_are_one_line_and_exit_code_2(fails, signals, tmp_path):
    fails("path must be a file that exists; got 'absent.npz'", "audit", "absent.npz", "--out", "a")
    fails("path must be a file that exists; got 'odd:absent.npz'", "audit", "odd:absent.npz", "--out", "a")
    fails(
        "path must end in .npz or .safetensors; got 'model.pkl'. A model is given as package.module:function",
        "audit",
        "model.pkl",
        "--out",
        "a",
    )
    content = (tmp_path / signals()).read_bytes()
    Path("signals.npz").write_bytes(content[: len(content) // 2])
    fails("file must be a .npz archive of plain arrays; got 'signals.npz'", "audit", "signals.npz", "--out", "a")
    Path("s.safetensors").write_bytes(b'\x08\0\0\0\0\0\0\0{\n"x": 1')
    fails("file must be a safetensors file", "audit", "s.safetensors", "--out", "a")


def test_wrong_commands_are_one_line_and_exit_code_2(fails, signals):
    fails("No such command 'audti'", "audti")
    fails("Missing option '--out'", "audit")
    fails("WHAT or --model must be given; got neither", "audit", "--out", "a")
    fails("Missing option '--out'", "audit", signals())
    fails("Invalid value for '--seed'", "demo", "--seed", "x")


@pytest.mark.parametrize(
    ("source", "name", "match"),
    [
        (
            "",
            "absent",
            "must be importable from here; got AttributeError: module '.*' has no attribute 'absent'. Give package.module:function",
        ),
        (
            "import nowhere_at_all",
            "build",
            "must be importable from here; got ModuleNotFoundError: No module named 'nowhere_at_all' .line 1 of users_module",
        ),
        ("def build(:", "build", "must be importable from here; got SyntaxError"),
        ("raise SystemExit(0)", "build", "must be importable from here; got SystemExit: 0 .line 1 of"),
        (
            "def build():\n    raise KeyError('weights\\nmissing')",
            "build",
            "must return a noshadow.Target; it raised KeyError: .*line 2 of users_module",
        ),
        ("def build():\n    raise SystemExit('bye')", "build", "it raised SystemExit: bye .line 2"),
        ("def build(path):\n    return path", "build", r"it raised TypeError: build\(\) missing 1 required positional argument: 'path'\."),
        ("build = 3", "build", "it raised TypeError: 'int' object is not callable"),
        ("def build():\n    return 3", "build", "must return a noshadow.Target; got int. Return Target"),
        ("def build():\n    return None", "build", "must return a noshadow.Target; got NoneType"),
        (
            "import noshadow as ns\ndef build():\n    return ns.Target('model', None, None)",
            "build",
            "model must be an nn.Module, a fitted scikit-learn estimator or a function",
        ),
        ("def build():\n    raise RuntimeError('first line\\n  second line.')", "build", "RuntimeError: first line second line .line 2 of"),
        ("import noshadow as ns\ndef build():\n    return ns.Target(3, None)", "build", "it raised TypeError"),
    ],
)
def test_functions_that_cannot_be_used_are_one_line_and_exit_code_2(fails, module, source, name, match):
    fails(match, "audit", f"{module(source)}:{name}", "--out", "a")


def test_modules_that_do_not_exist_are_one_line_and_exit_code_2(fails):
    fails(
        "'nowhere.at.all:build' must be importable from here; got ModuleNotFoundError: No module named 'nowhere'.",
        "audit",
        "nowhere.at.all:build",
        "--out",
        "a",
    )
    fails("':build' must be importable", "audit", ":build", "--out", "a")
    fails("'json:' must be importable", "audit", "json:", "--out", "a")


def test_options_that_do_not_apply_to_a_function_are_refused(fails, module):
    name = module(TARGET.format(more=", weight_decay=0.1"))
    fails("--no-intercept must come with a file of signals", "audit", f"{name}:build", "--out", "a", "--no-intercept")
    fails("weight_decay must agree with the Target's 0.1; got 0.2", "audit", f"{name}:build", "--out", "a", "--weight-decay", 0.2)
    fails("layers must be one of 'last', 'all'; got 'first'", "audit", f"{name}:build", "--out", "a", "--layers", "first")


def test_a_numerical_failure_is_one_line_and_exit_code_3(fails, signals):
    saturated = {f"{split}_outputs": 1e5 * arrays()[f"{split}_outputs"] for split in ("train", "test")}
    match = "the curvature has 8 non-positive or infinite diagonal entries"
    fails(match, "audit", signals(**saturated), "--out", "a", "--damping", 0, code=3)
    assert not Path("a").exists()


# The gate


def test_the_gate_passes_and_fails_by_exit_code(run, saved):
    risk = load(saved).model_risk
    code, out, err = run("gate", saved, "--max-auc", 1, "--max-tnr", 1)
    assert (code, err) == (0, "") and out.startswith("pass  tnr = ") and "\npass  auc = " in out
    code, out, err = run("gate", saved, "--max-auc", risk.auc - 0.01, "--max-tnr", 1)
    assert (code, err) == (1, "") and "pass  tnr" in out and f"FAIL  auc = {risk.auc:.4g}" in out
    assert run("gate", saved, "--max-auc", repr(risk.auc), "--quiet") == (0, "", "")  # the limit itself is allowed
    assert run("gate", saved, "--max-tnr", 0, "--quiet")[0] == (1 if risk.tnr > 0 else 0)


def test_the_gate_speaks_json(run, saved):
    risk = load(saved).model_risk
    code, out, err = run("gate", saved, "--max-auc", 0.01, "--max-tnr", 1, "--json")
    assert (code, err) == (1, "") and out.count("\n") == 1
    assert json.loads(out) == {
        "passed": False,
        "limits": [
            {"figure": "tnr", "value": risk.tnr, "interval": list(risk.tnr_interval), "limit": 1.0, "passed": True},
            {"figure": "auc", "value": risk.auc, "interval": list(risk.auc_interval), "limit": 0.01, "passed": False},
        ],
    }


def test_the_gate_says_when_a_prediction_is_a_hint(run, saved):
    audited = load(saved)
    for inside, said in ((False, " (outside of the calibration: a hint)\n"), (True, "limit 0.5\n")):
        risk = replace(audited.model_risk, predicted_tpr=0.2, predicted_tpr_interval=(0.1, 0.3), in_calibration_domain=inside)
        replace(audited, model_risk=risk).save("predicted", overwrite=True)
        code, out, _ = run("gate", "predicted", "--max-predicted-tpr", 0.5)
        assert code == 0 and out.endswith(said), out
        (row,) = json.loads(run("gate", "predicted", "--max-predicted-tpr", 0.5, "--json")[1])["limits"]
        assert row["outside_calibration"] is not inside


def test_the_gate_refuses_limits_it_cannot_check(run, fails, signals, saved):
    fails(
        "the audit must hold predicted_tpr for --max-predicted-tpr; got none .*Drop that limit", "gate", saved, "--max-predicted-tpr", 0.1
    )
    fails("the audit must hold predicted_tpr", "gate", saved, "--max-predicted-tpr", 1, "--max-auc", 1, "--json")
    fails("at least one limit must be given; got none. Pass --max-tpr", "gate", saved)
    for value in ("-0.1", "1.5", "nan"):
        fails("limits must be fractions between 0 and 1; got .*auc", "gate", saved, "--max-auc", value)
    nobody = {f"test_{field}": arrays()[f"test_{field}"][:0] for field in ("features", "outputs", "targets")}
    assert run("audit", signals(**nobody), "--out", "untested", "--quiet")[0] == 0
    fails("the audit must hold auc for --max-auc; got none .*the test split is empty", "gate", "untested", "--max-auc", 0.9)


# As a process


def test_in_a_pipe_there_are_no_bars_and_no_colours(tmp_path, signals):
    signals()
    plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS")}
    script = Path(sys.executable).with_name("noshadow")
    command = [str(script)] if script.exists() else MAIN
    done = subprocess.run([*command, "audit", "signals.npz", "--out", "a"], cwd=tmp_path, capture_output=True, env=plain)
    assert done.returncode == 0 and done.stderr == b""
    assert b"\x1b" not in done.stdout and b"\r" not in done.stdout and b"Report: a" in done.stdout


@pytest.mark.parametrize(
    ("changes", "options", "code", "match"),
    [
        ({"train_ids": OBJECTS}, (), 2, "noshadow: load_splits: file must be a .npz archive of plain arrays"),
        ({"train_outputs": 1e5 * LOGITS[:40]}, ("--damping", "0"), 3, "noshadow: audit_signals: the curvature has"),
    ],
)
def test_exit_codes_reach_the_shell_with_one_line(tmp_path, signals, changes, options, code, match):
    signals(**changes)
    done = subprocess.run([*MAIN, "audit", "signals.npz", "--out", "a", *options], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1 and re.match(match, done.stderr)

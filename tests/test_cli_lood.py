"""`noshadow lood`: from a file to a folder, what it refuses, and the commands of its documentation."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression

import noshadow as ns

DOC = Path(__file__).parents[1] / "docs" / "lood.md"
FOLDER = {"lood.json", "records.parquet", "lood.html"}
X, Y = load_digits(return_X_y=True)
X, Y = X[:50] / 16, Y[:50]


@pytest.fixture
def data(tmp_path):
    """Write data.npz, with changes; None leaves a key out."""

    def write(**changes):
        held = {"x": X, "y": Y, "ids": [f"scan {i}" for i in range(50)]} | changes
        np.savez(tmp_path / "data.npz", **{name: value for name, value in held.items() if value is not None})
        return "data.npz"

    return write


@pytest.fixture
def refused(run, tmp_path):
    """The command ends with code 2, prints nothing, says what is wrong in one line and leaves no folder."""

    def call(match, *args):
        code, out, err = run("lood", *args)
        assert (code, out) == (2, ""), err
        assert err.startswith("noshadow: ") and err.count("\n") == 1 and "Traceback" not in err
        assert re.search(match, err), err
        assert not [path for path in tmp_path.iterdir() if path.is_dir() and path.name not in ("kept", "audit")]

    return call


def test_a_file_becomes_a_folder(run, data, tmp_path):
    code, out, err = run("lood", data(), "--out", "leak", "--depth", "1", "--noise", "0.2", "--fpr", "0.01")
    assert (code, err) == (0, "")
    assert {path.name for path in (tmp_path / "leak").iterdir()} == FOLDER
    expected = ns.lood_audit(X, Y, depth=1, noise=0.2, fpr=0.01)
    table = pd.read_parquet(tmp_path / "leak" / "records.parquet")
    np.testing.assert_allclose(table["kl"], expected.records["kl"], rtol=1e-9)
    manifest = json.loads((tmp_path / "leak" / "lood.json").read_text(), parse_constant=pytest.fail)
    assert manifest["kernel"] == {"name": "fc", "depth": 1, "activation": "relu", "weight_variance": 2.0, "bias_variance": 0.0}
    assert {"noise", "summary", "conditioning", "timings", "files"} <= set(manifest)
    assert manifest["provenance"]["versions"]["noshadow"] == ns.__version__
    assert manifest["provenance"]["hashes"]["x"] == expected.provenance["hashes"]["x"]
    assert "fully connected relu network of infinite width with 1 hidden layer" in out
    assert table.sort_values("rank")["id"].iloc[0] in out and "Report: leak/lood.html" in out


def test_json_is_one_object_and_quiet_is_quiet(run, data, tmp_path):
    file = data()
    code, out, err = run("lood", file, "--out", "leak", "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "") and answer["report"] == "leak/lood.html"
    assert [row["rank"] for row in answer["most_exposed"]] == [1, 2, 3, 4, 5]
    assert answer["summary"]["kl"]["max"] == answer["most_exposed"][0]["kl"]
    assert run("lood", file, "--out", "leak", "--quiet", "--force") == (0, "", "")


def test_other_kernels_scalings_and_sweeps_reach_the_library(run, tmp_path):
    x, y = load_breast_cancer(return_X_y=True)
    np.savez(tmp_path / "cells.npz", x=x[:60], y=y[:60])
    options = ("--normalize", "standardize", "--quiet", "--force", "--out", "leak")
    assert run("lood", "cells.npz", *options, "--kernel", "laplace", "--length-scale", "5")[0] == 0
    expected = ns.lood_audit(x[:60], y[:60], kernel="laplace", length_scale=5.0, normalize="standardize")
    np.testing.assert_allclose(ns.load_lood(tmp_path / "leak").records["kl"], expected.records["kl"], rtol=1e-9)
    sweep = ("--sweep", "--sweep-activations", "erf, relu", "--sweep-depths", "1-2")
    assert run("lood", "cells.npz", *options, "--activation", "tanh", "--bias-variance", "0.1", *sweep)[0] == 0
    found = ns.load_lood(tmp_path / "leak")
    assert (found.kernel["activation"], found.kernel["bias_variance"]) == ("tanh", 0.1)
    assert [(row["activation"], row["depth"]) for row in found.sweep] == [("erf", 1), ("erf", 2), ("relu", 1), ("relu", 2)]
    np.savez(tmp_path / "images.npz", x=X[:20], y=np.arange(20) % 2)
    conv = ("--kernel", "conv", "--image-shape", "1x8x8", "--depth", "1", "--filter-size", "2", "--quiet", "--out", "conv")
    assert run("lood", "images.npz", *conv)[0] == 0
    assert ns.load_lood(tmp_path / "conv").kernel["image_shape"] == [1, 8, 8]


def test_an_audit_is_joined_and_its_absence_counted(run, data, tmp_path):
    model = LogisticRegression(max_iter=500).fit(X[:40], Y[:40])
    audit = ns.audit(model, (X[:40], Y[:40]), (X[40:], Y[40:]), ids=[f"scan {i}" for i in range(40)], progress=False)
    audit.save(tmp_path / "audit")
    code, out, err = run("lood", data(), "--out", "leak", "--audit", "audit")
    assert (code, err) == (0, "")
    assert "Spearman of kl with the audit's audit_shift" in out and "10 of 50 records have no partner in the audit" in out
    found = ns.load_lood(tmp_path / "leak")
    assert found.joined["matched"] == 40 and found.records["audit_rank"].notna().sum() == 40
    added = ns.load(tmp_path / "audit")
    np.testing.assert_array_equal(added.records["lood_kl"], found.records["kl"].head(40))
    assert "Added to the audit: audit/report.html" in out
    page = (tmp_path / "audit" / "report.html").read_bytes()
    assert b"What the architecture leaks before training" in page
    answer = json.loads(run("lood", data(), "--out", "leak", "--force", "--audit", "audit", "--json")[1])
    assert answer["audit_report"] == "audit/report.html" and (tmp_path / "audit" / "report.html").read_bytes() == page
    assert ns.load_lood(tmp_path / "leak").records.columns.tolist() == found.records.columns.tolist()
    assert json.loads(run("lood", data(), "--out", "leak", "--force", "--json")[1])["audit_report"] is None


def test_contents_do_not_belong_to_a_leak(run, data):
    run("lood", data(), "--out", "leak", "--quiet")
    code, out, err = run("report", "leak", "--show-records", "data.npz")
    assert (code, out) == (2, "") and "--show-records must come with an audit folder; got 'leak', which noshadow lood wrote" in err
    assert run("report", "leak", "--out", "other.html") == (0, "other.html\n", "")


def test_an_audit_that_cannot_be_written_is_refused_before_the_work(run, refused, data, tmp_path):
    model = LogisticRegression(max_iter=500).fit(X[:40], Y[:40])
    audit = ns.audit(model, (X[:40], Y[:40]), (X[40:], Y[40:]), ids=[f"scan {i}" for i in range(40)], progress=False)
    audit.save(tmp_path / "audit")
    (tmp_path / "audit" / "mine.txt").write_text("mine")
    refused("--out must lie outside of the audit folder, which is replaced whole", data(), "--out", "audit/leak", "--audit", "audit")
    refused("hold an audit and nothing else; got 'audit' with mine.txt", data(), "--out", "leak", "--audit", "audit")


def test_report_rebuilds_the_page(run, data, tmp_path):
    run("lood", data(), "--out", "leak", "--quiet")
    page = tmp_path / "leak" / "lood.html"
    written = page.read_bytes()
    page.unlink()
    assert run("report", "leak") == (0, "leak/lood.html\n", "")
    assert page.read_bytes() == written


def test_help_teaches(run):
    code, out, err = run("lood", "--help")
    text = " ".join(re.sub(r"[│╭╰─╮╯]", " ", out).split())
    assert (code, err) == (0, "") and "noshadow lood" in text.split("Example: ")[1]
    for option in ("--kernel", "--sweep", "--audit", "--normalize", "--image-shape"):
        assert option in text
    assert "lood" in run("--help")[1]


@pytest.mark.parametrize(
    ("changes", "options", "match"),
    [
        ({"x": None}, (), "lood: data must hold the keys x, y and, if you like, ids; got missing key x"),
        ({"x": None, "features": X}, (), "got missing key x; unknown key features"),
        ({"x": np.full((50, 3), np.nan)}, (), "x must be finite; got 150 NaN or infinite values"),
        ({"x": X[:, 0]}, (), "x must have one row a record"),
        ({"y": Y[:20]}, (), "x and y must have one row per record; got lengths x 50, y 20"),
        ({"ids": ["a"] * 50}, (), "ids must be unique"),
        ({"x": X.astype(object)}, (), "Pickled objects are never loaded"),
        ({"ids": np.array([{}] * 50, dtype=object)}, (), "Pickled objects are never loaded"),
        ({}, ("--noise", "0"), "noise must be a number > 0; got 0"),
        ({}, ("--noise", "-1"), "noise must be a number > 0; got -1"),
        ({}, ("--kernel", "ntk"), "Invalid value for '--kernel'"),
        ({}, ("--kernel", "rbf"), "length_scale must be given for kernel 'rbf'"),
        ({}, ("--length-scale", "1"), "length_scale must come with a kernel that has it"),
        ({}, ("--kernel", "conv", "--image-shape", "8,8"), "--image-shape must be channels,height,width, such as 3,32,32; got '8,8'"),
        ({}, ("--sweep-depths", "1-2"), "--sweep-activations, --sweep-depths and --sweep-noise must come with --sweep"),
        ({}, ("--sweep", "--sweep-depths", "3-1"), "--sweep-depths must be a range such as 1-10 or a list such as 2,4,8; got '3-1'"),
        ({}, ("--sweep", "--sweep-depths", "a"), "--sweep-depths must be"),
        ({}, ("--sweep", "--sweep-activations", "swish"), "sweep_activations must be one of"),
        ({}, ("--max-memory", "0.00001"), r"50 records must fit in max_memory \(1e-05 GB\); got a need of 4.25e-05 GB.*lood_bounds"),
        ({}, ("--audit", "nowhere"), "folder must hold an audit"),
    ],
)
def test_wrong_input_is_one_sentence_and_no_folder(refused, data, changes, options, match):
    refused(match, data(**changes), "--out", "leak", *options)


def test_files_and_folders_that_will_not_do(refused, run, data, tmp_path):
    refused("data must be a file that exists; got 'none.npz'", "none.npz", "--out", "leak")
    (tmp_path / "data.csv").write_text("1,2")
    refused("data must end in .npz; got 'data.csv'", "data.csv", "--out", "leak")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no archive")
    refused("file must be a .npz archive of plain arrays", "broken.npz", "--out", "leak")
    file = data()
    run("lood", file, "--out", "kept", "--quiet")
    before = (tmp_path / "kept" / "lood.json").read_bytes()
    refused("lood: folder must not exist yet; got 'kept'", file, "--out", "kept")
    (tmp_path / "kept" / "mine.txt").write_text("mine")
    refused("hold a leave-one-out audit and nothing else; got 'kept' with mine.txt", file, "--out", "kept", "--force")
    assert (tmp_path / "kept" / "lood.json").read_bytes() == before


def test_an_audit_of_other_records_is_refused(refused, data, tmp_path):
    model = LogisticRegression(max_iter=500).fit(X[:40], Y[:40])
    audit = ns.audit(model, (X[:40], Y[:40]), (X[40:], Y[40:]), ids=[f"other {i}" for i in range(40)], progress=False)
    audit.save(tmp_path / "audit")
    refused("audit must share record ids with the data; got 'scan 0', … beside 'other 0'", data(), "--out", "leak", "--audit", "audit")


def test_hostile_ids_stay_text_on_the_terminal(run, data):
    ids = [f"[red]{i}\x1b[2J" for i in range(50)]
    code, out, _ = run("lood", data(ids=ids), "--out", "leak")
    assert code == 0 and "\x1b" not in out and "[red]" in out


def test_the_commands_of_the_documentation_run(run, tmp_path):
    section = DOC.read_text().split("## From the command line")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    exec(compile(code, DOC.name, "exec"), {"__name__": "__main__"})
    commands = re.findall(r"^\$ noshadow (.+)$", section, flags=re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        arguments = shlex.split(command)
        ended, _, err = run(*arguments)
        assert (ended, err) == (0, ""), command
        assert {path.name for path in (tmp_path / arguments[arguments.index("--out") + 1]).iterdir()} == FOLDER

"""`noshadow reference train / status / score`, as a user runs them."""

import contextlib
import io
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import noshadow as ns
from noshadow.cli import main
from noshadow.cli.reference_run import write_table

MODULE = """
import numpy as np
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import noshadow as ns

x, y = load_iris(return_X_y=True)
order = np.random.default_rng(0).permutation(len(x))
x, y = x[order], y[order]


def train_fn(indices, seed):
    return LogisticRegression(C=100.0, max_iter=5000).fit(x[indices], y[indices])


def target():
    names = [f"flower-{row}" for row in range(75)]
    return ns.Target(train_fn(np.arange(75), 0), (x[:75], y[:75]), (x[75:], y[75:]), ids=names, train_fn=train_fn)


def without_train_fn():
    return ns.Target(train_fn(np.arange(75), 0), (x[:75], y[:75]), (x[75:], y[75:]))


def shuffled():
    rows = np.random.default_rng(1).permutation(75)
    return ns.Target(train_fn(np.arange(75), 0), (x[rows], y[rows]), (x[75:], y[75:]), ids=[f"flower-{row}" for row in range(75)])


def failing(indices, seed):
    raise ValueError("no such luck")


def broken():
    return ns.Target(train_fn(np.arange(75), 0), (x[:75], y[:75]), (x[75:], y[75:]), train_fn=failing)
"""


def command(folder, *arguments):
    """The command as the console script runs it, in this process: exit code, standard output and error."""
    out, err, path, argv, here = io.StringIO(), io.StringIO(), sys.path[:], sys.argv, Path.cwd()
    os.chdir(folder)
    sys.argv = ["noshadow", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
            main()
    finally:
        sys.path[:], sys.argv = path, argv
        os.chdir(here)
    return SimpleNamespace(returncode=end.value.code or 0, stdout=out.getvalue(), stderr=err.getvalue())


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "users_flowers.py").write_text(MODULE)
    audited = command(folder, "audit", "users_flowers:target", "--out", "audit", "--quiet")
    assert audited.returncode == 0, audited.stderr
    trained = command(folder, "reference", "train", "users_flowers:target", "--out", "set", "--models", 8, "--workers", 1, "--audited", 2)
    assert trained.returncode == 0, trained.stderr
    assert "8 of 8 models done" in trained.stdout
    assert "noshadow reference score set" in trained.stdout
    return folder


def test_score_adds_ground_truth_to_the_audit_and_its_report(project):
    result = command(project, "reference", "score", "set", "--audit", "audit", "--out", "table.csv")
    assert result.returncode == 0, result.stderr
    assert "LiRA" in result.stdout
    assert "noise ceiling" in result.stdout
    audit = ns.load(project / "audit")
    assert {"lira_success", "lira_d", "rmia_success"} <= set(audit.records.columns)
    assert audit.records["id"].iloc[0] == "flower-0"
    assert audit.ground_truth.models == 8
    assert {row["targets"] for row in audit.ground_truth.agreement} == {1, 2}
    assert "How many of 1,000 people each attack recognises, with 95" in (project / "audit" / "report.html").read_text()
    assert len(pd.read_csv(project / "table.csv")) == 75
    write_table(pd.DataFrame({"id": ["=1+1", "plain"], "lira_d": [-1.5, np.nan]}), project / "hostile.csv")
    assert (project / "hostile.csv").read_text() == "id,lira_d\n'=1+1,-1.5\nplain,\n"
    rebuilt = command(project, "report", "audit", "--quiet")
    assert rebuilt.returncode == 0
    assert "noise ceiling" in (project / "audit" / "report.html").read_text()


def test_score_refuses_an_audit_whose_targets_contradict(project):
    assert command(project, "audit", "users_flowers:shuffled", "--out", "shuffled", "--quiet").returncode == 0
    before = {path.name: path.read_bytes() for path in (project / "shuffled").iterdir()}
    refused = command(project, "reference", "score", "set", "--audit", "shuffled", "--no-shokri")
    assert (refused.returncode, refused.stdout) == (2, "") and refused.stderr.count("\n") == 1
    assert re.search(
        r"with_ground_truth: audit must have the targets .*; got another target for \d+ of 75 records, the first 'flower-\d+'",
        refused.stderr,
    )
    assert {path.name: path.read_bytes() for path in (project / "shuffled").iterdir()} == before


def test_score_without_an_audit_prints_json_of_the_attacks(project):
    result = command(project, "reference", "score", "set", "--json", "--no-shokri", "--variant", "offline", "--fpr", "0.1", "--quiet")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["variants"]["LiRA"]["variant"] == "offline"
    assert [rate["fpr"] for rate in found["attacks"][0]["rates"]] == [0.1]


def test_status_says_how_far_it_is(project):
    result = command(project, "reference", "status", "set", "--json")
    found = json.loads(result.stdout)
    assert (found["done"], found["planned"], found["complete"], found["missing"]) == (8, 8, True, [])
    (project / "set" / "models" / "00003.safetensors").rename(project / "kept")
    try:
        assert "7 of 8 models done" in command(project, "reference", "status", "set").stdout
        refused = command(project, "reference", "score", "set")
        assert refused.returncode == 2
        assert "7 of 8 (missing: 3)" in refused.stderr
    finally:
        Path(project / "kept").rename(project / "set" / "models" / "00003.safetensors")


def test_wrong_input_is_one_sentence(project):
    cases = {
        ("train", "users_flowers:without_train_fn", "--out", "other"): "must return a Target with train_fn",
        ("train", "users_flowers:target", "--out", "set", "--models", "9", "--workers", "1"): "8 → 9",
        ("train", "users_flowers:target", "--out", "x", "--engine", "vectorised"): "Recipe",
        ("train", "users_flowers:broken", "--out", "failed", "--models", "4", "--workers", "1"): "no such luck",
        ("status", "nowhere"): "nowhere",
        ("score", "set", "--audit", "nowhere"): "nowhere",
        ("score", "set", "--out", "table.xlsx"): "end in .parquet or .csv",
        ("score", "set", "--fpr", "0.0001"): "fpr must lie between",
        ("score", "set", "--statistic", "loss"): "statistic must be 'auto' but in a regression",
    }
    for arguments, words in cases.items():
        result = command(project, "reference", *arguments)
        assert result.returncode == 2, (arguments, result.stdout, result.stderr)
        assert words in result.stderr, (arguments, result.stderr)
        assert result.stderr.count("\n") == 1
    assert "no such luck" in command(project, "reference", "status", "failed").stdout

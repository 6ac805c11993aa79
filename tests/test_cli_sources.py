"""Further evidence on the command line: --checkpoint, --out-of-fold and --base reach the audit, or say what is wrong in one line."""

import re
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import torch
from torch import nn

from noshadow import Signals, audit_signals, load, save_splits

MODULE = """
    import numpy as np
    import torch
    import noshadow as ns

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 3)).astype(np.float32), rng.integers(0, 3, 80)
    X, Y = x, y

    def scaled(k):
        model = torch.nn.Linear(3, 3)
        with torch.no_grad():
            model.weight.copy_(k * torch.eye(3))
            model.bias.zero_()
        return model

    def build(**more):
        return ns.Target(scaled(1.0), (x[:50], y[:50]), (x[50:], y[50:]), weight_decay=0.01, **more)

    def with_base():
        return build(base=scaled(0.5))

    def base():
        return scaled(0.5)

    def nothing():
        pass
"""


def state(k):
    return {"weight": k * torch.eye(3), "bias": torch.arange(3.0) * (1 - k)}


@pytest.fixture
def target(tmp_path, monkeypatch):
    """A module of the user, two checkpoints of its model and out-of-fold outputs."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "sourced.py").write_text(dedent(MODULE), encoding="utf-8")
    torch.save(state(0.4), tmp_path / "early.pt")
    torch.save(state(0.7), tmp_path / "later.pt")
    rng = np.random.default_rng(0)
    x, _ = rng.normal(size=(80, 3)).astype(np.float32), rng.integers(0, 3, 80)
    np.save(tmp_path / "folds.npy", x[:50] + 0.3 * np.random.default_rng(1).normal(size=(50, 3)))
    return "sourced:build"


def test_sources_reach_the_audit_of_a_function(run, target):
    options = ("--checkpoint", "early.pt", "--checkpoint", "later.pt", "--out-of-fold", "folds.npy", "--base", "sourced:base")
    code, out, err = run("audit", target, "--out", "a", *options)
    assert (code, err) == (0, "") and "Most exposed records, by exposure_score" in out
    audit = load("a")
    assert [entry.source for entry in audit.evidence][-4:] == ["checkpoints", "out-of-fold outputs", "base model", "exposure"]
    assert len(next(entry for entry in audit.evidence if entry.source == "checkpoints").stamp["checkpoints"]) == 2
    assert run("report", "a", "--quiet")[0] == 0
    assert "out_of_fold_loss" in Path("a/report.html").read_text(encoding="utf-8")


def test_the_base_may_be_a_file_of_weights(run, target):
    assert run("audit", target, "--out", "by-file", "--quiet", "--base", "early.pt")[0] == 0
    model = nn.Linear(3, 3)
    model.load_state_dict(state(0.4))
    audit = load("by-file")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 3)).astype(np.float32), rng.integers(0, 3, 80)
    with torch.no_grad():
        losses = nn.functional.cross_entropy(model(torch.tensor(x[:50])).double(), torch.tensor(y[:50]), reduction="none")
    np.testing.assert_allclose(audit.records["base_loss"], losses.numpy(), rtol=1e-6)


def test_sources_reach_the_audit_of_a_file(run, tmp_path):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(90, 4)), rng.integers(0, 3, 90)
    pairs = [[Signals(x[rows], x[rows] @ head, y[rows]) for rows in (slice(0, 60), slice(60, 90))] for head in rng.normal(size=(2, 4, 3))]
    for name, pair in zip(("final", "early"), pairs, strict=True):
        save_splits(tmp_path / f"{name}.npz", *pair)
    expected = audit_signals(*pairs[0], checkpoint=tuple(pairs[1]), progress=False)
    assert run("audit", "final.npz", "--out", "a", "--quiet", "--checkpoint", "early.npz")[0] == 0
    assert load("a").records.equals(expected.records)


@pytest.mark.parametrize(
    ("what", "options", "says"),
    [
        ("sourced:build", ("--checkpoint", "absent.pt"), "'--checkpoint'.* does not exist"),
        ("sourced:build", ("--out-of-fold", "early.pt"), "out_of_fold must end in .npy, .npz, .csv, .parquet"),
        ("sourced:build", ("--checkpoint", "folds.npy"), "checkpoint must end in .safetensors, .pt"),
        ("sourced:build", ("--base", "sourced:nothing"), "--base must name a function that returns a model; got 'sourced:nothing'"),
        ("sourced:build", ("--base", "absent.pt"), "base must be a file that exists; got 'absent.pt'"),
        ("sourced:with_base", ("--base", "early.pt"), "base must come from one place; got 'early.pt' beside that of the Target"),
    ],
)
def test_wrong_sources_are_one_line_and_exit_code_2(run, target, what, options, says):
    code, out, err = run("audit", what, "--out", "a", *options)
    assert (code, out) == (2, "") and err.count("\n") == 1 and re.search(says, err), err

"""The next step advises what its source can do: arrays and files train no models, and a limit lies above its figure."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import noshadow as ns
from file_models import NUMBERS, TRAIN, write_tables
from noshadow._answer import next_action, verdict
from test_answer import attack, predicted, truth
from test_findings import made

RNG = np.random.default_rng(2)
X, Y = RNG.normal(size=(800, 3)), RNG.integers(0, 2, 800)
IN, OUT = slice(0, 400), slice(400, 800)
UNCERTAIN = predicted(0.02, (0.0, 0.3)).model_risk


def uncertain(audit):
    """The audit with a rate that more evidence would make certain."""
    return replace(audit, model_risk=replace(UNCERTAIN, predicted_tpr_interval=(0.0, 0.3)))


def read():
    return LogisticRegression().fit(X[IN], Y[IN]), (X[IN], Y[IN]), (X[OUT], Y[OUT])


@pytest.mark.parametrize(("given", "needs"), [({}, True), ({"train_fn": lambda rows, seed: None}, False)], ids=["without", "with train_fn"])
def test_models_are_trained_only_where_the_caller_said_how(given, needs):
    action = next_action(uncertain(ns.audit(*read(), progress=False, **given)))
    assert "--reference-models 4" in action.command and ("train_fn=f" in action.sentence) == needs


def test_arrays_are_no_model_that_could_be_trained_again(tmp_path):
    signals = [ns.Signals(X[part], X[part] @ np.ones((3, 2)), Y[part]) for part in (IN, OUT)]
    audit = ns.audit_signals(*signals, progress=False)
    action = next_action(uncertain(audit))
    assert action.sentence.startswith("Arrays cannot be trained again. Let a function return ns.Target(model, train, test, train_fn=f)")
    few = replace(audit, model_risk=replace(UNCERTAIN, n_members=20))
    assert verdict(few).remedy and next_action(few).command == "noshadow audit signals.npz --out new-audit"
    again = ns.load(audit.save(tmp_path / "a"))
    assert next_action(uncertain(again)) == action


def test_a_model_file_is_audited_again_from_its_file(run, tmp_path):
    skops = pytest.importorskip("skops.io")
    skops.dump(LogisticRegression(max_iter=1000).fit(TRAIN[NUMBERS], TRAIN["state"]), tmp_path / "m.skops")
    train, test = write_tables(tmp_path, NUMBERS, "state")
    tables = ("--train", train, "--test", test, "--target", "state", "--id", "patient")
    assert run("audit", "--model", tmp_path / "m.skops", *tables, "--out", "a", "--quiet")[0] == 0
    audit = ns.load("a")
    assert next_action(uncertain(audit)).sentence.startswith("A file cannot be trained again.")
    few = replace(audit, model_risk=replace(UNCERTAIN, n_members=20))
    assert next_action(few).command == "noshadow audit --model FILE --train FILE --test FILE --out new-audit"


def test_a_folder_that_does_not_say_is_advised_as_before():
    assert next_action(made(300)).command == "noshadow audit package.module:function --out new-audit --reference-models 4"


@pytest.mark.parametrize(
    ("rate", "fpr", "spread", "limit"),
    [(0.004, 1 / 300, 0.03, "0.034"), (0.004, 1 / 300, 0.0298, "0.034"), (0.006, 0.005, 0.02, "0.05"), (0.0005, 0.0005, 0.001, "0.01")],
)
def test_the_limit_that_is_suggested_lies_above_the_interval(rate, fpr, spread, limit):
    audit = replace(made(), ground_truth=truth(attack("LiRA", rate, fpr=fpr, spread=spread)))
    found = verdict(audit)
    assert found.level == "none" and next_action(audit).command == f"noshadow gate this-audit --max-tpr {limit}"
    assert float(limit) >= found.known.interval[1]

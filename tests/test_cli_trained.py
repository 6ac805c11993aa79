"""`noshadow audit` with models trained as evidence, as a user runs it: options, the work folder, and a run that is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import noshadow as ns
from noshadow.reference import status
from test_cli_reference import command

MODULE = """
import os
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

import noshadow as ns

rng = np.random.default_rng(0)
x = rng.normal(size=(600, 5))
y = (x @ rng.normal(size=(5, 3)) + rng.normal(size=(600, 3))).argmax(1)


def train_fn(indices, seed, stop=1.0):
    with Path("trained.log").open("a") as log:
        log.write(f"{len(indices)} {stop}\\n")
    time.sleep(float(os.environ.get("USERS_PAUSE", "0")))
    return LogisticRegression(C=10.0 * stop, tol=1e-8, max_iter=2000).fit(x[indices], y[indices])


def target(**more):
    model = LogisticRegression(C=10.0, tol=1e-8, max_iter=2000).fit(x[:300], y[:300])
    return ns.Target(model, (x[:300], y[:300]), (x[300:], y[300:]), train_fn=train_fn, **more)


def with_folds():
    return target(folds=2, training_options={"workers": 1})


def without_train_fn():
    made = target()
    return ns.Target(made.model, made.train, made.test)
"""
HERE = ("--training-option", "workers=1")


@pytest.fixture
def project(tmp_path):
    name = f"users_trained_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODULE)
    return tmp_path, name


def trained(folder):
    return (folder / "trained.log").read_text().splitlines()


def test_models_are_trained_beside_the_audit_and_kept(project):
    folder, name = project
    asked = ("--folds", 3, "--reference-models", 4, "--short-references", 2, "--stop", 0.1, *HERE)
    result = command(folder, "audit", f"{name}:target", "--out", "made", *asked)
    assert result.returncode == 0, result.stderr
    audit = ns.load(folder / "made")
    models = {entry.source: entry.stamp.get("models") for entry in audit.evidence}
    assert (models["folds"], models["few references"], models["short references"]) == (3, 4, 2)
    assert audit.ranked_by == "exposure_score" and {"fold_loss", "exposure", "attack_rate"} <= set(audit.records)
    assert sorted(entry.name for entry in (folder / "made-work").iterdir()) == ["folds-3", "references-4", "short-references-2-0.1"]
    assert trained(folder) == ["200 1.0"] * 3 + ["300 1.0"] * 4 + ["300 0.1"] * 2
    # Again, and nothing is trained; a set is read from its folder as well, and so is one of `reference train`.
    again = command(folder, "audit", f"{name}:target", "--out", "made", "--force", "--json", *asked)
    assert again.returncode == 0 and json.loads(again.stdout) and len(trained(folder)) == 9
    read = command(folder, "audit", f"{name}:target", "--out", "read", "--reference-models", "made-work/references-4", "--quiet")
    assert read.returncode == 0 and len(trained(folder)) == 9 and not (folder / "read-work").exists()
    one, other = (ns.load(folder / out) for out in ("made", "read"))
    assert next(e.stamp for e in other.evidence if e.source == "few references") == next(
        e.stamp for e in one.evidence if e.source == "few references"
    )


def test_a_killed_audit_goes_on(project):
    folder, name = project
    arguments = ["audit", f"{name}:target", "--out", "made", "--work", "kept", "--reference-models", "3", "--quiet", *HERE]
    environment = os.environ | {"USERS_PAUSE": "1.0", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "noshadow", *arguments], cwd=folder, env=environment, start_new_session=True, stderr=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 120
        while not list((folder / "kept" / "references-3" / "models").glob("[0-9]*")):
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    done, started = status(folder / "kept" / "references-3").done, len(trained(folder))
    assert 1 <= done < 3 and not (folder / "made").exists()
    assert command(folder, *arguments).returncode == 0
    assert len(trained(folder)) == started + 3 - done
    whole = command(folder, "audit", f"{name}:target", "--out", "whole", "--reference-models", "3", "--quiet", *HERE)
    assert whole.returncode == 0
    killed, never = (ns.load(folder / out).records for out in ("made", "whole"))
    np.testing.assert_array_equal(killed["exposure_score"], never["exposure_score"])


def test_a_target_may_ask_itself_and_is_not_contradicted(project):
    folder, name = project
    assert command(folder, "audit", f"{name}:with_folds", "--out", "made", "--quiet").returncode == 0
    assert (folder / "made-work" / "folds-2").is_dir() and "fold_loss" in ns.load(folder / "made").records
    refused = command(folder, "audit", f"{name}:with_folds", "--out", "other", "--folds", 3)
    assert refused.returncode == 2 and "audit: folds must come from one place; got '3'" in refused.stderr


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("without_train_fn", ("--folds", 3), "audit: train_fn must be given with folds; got none. Pass train_fn=f"),
        ("target", ("--short-references", 2), "audit: stop must be given unless loss_traces hold losses of unseen records"),
        ("target", ("--short-references", 2, "--stop", "soon"), "audit: --stop must be a share of the training or an epoch; got 'soon'"),
        (
            "target",
            ("--reference-models", "nowhere"),
            "audit: reference_models must be a number of models, or the folder of such a set; got 'nowhere'",
        ),
        ("target", ("--training-option", "workers=1"), "training_options must come with folds, reference_models or short_references"),
        ("target", ("--folds", 2, "--training-option", "models=1"), "training_options must name options of train_references"),
    ],
)
def test_wrong_options_get_one_sentence(project, target, options, said):
    folder, name = project
    result = command(folder, "audit", f"{name}:{target}", "--out", "made", *options)
    assert result.returncode == 2 and said in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert not (folder / "made").exists()


def test_a_file_of_signals_trains_nothing(tmp_path):
    rng = np.random.default_rng(0)
    splits = [ns.Signals(rng.normal(size=(30, 2)), rng.normal(size=30), rng.normal(size=30)) for _ in range(2)]
    ns.save_splits(tmp_path / "signals.npz", *splits)
    for options, named in ((("--folds", 2), "--folds"), (("--reference-models", 2), "--reference-models"), (HERE, "--training-option")):
        result = command(tmp_path, "audit", "signals.npz", "--out", "made", *options)
        assert result.returncode == 2 and f"audit: {named} must come with a module:function; got 'signals.npz'" in result.stderr

"""Training reference models: what is recorded, how a run ends badly, and that it goes on as if nothing had happened."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logsumexp
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from noshadow import InputError, audit, collect_signals
from noshadow.losses import record_margins
from noshadow.reference import fold_plan, ground_truth, load_references, mirrored, model_writing, shifted, status, train_references
from noshadow.reference.opening import stored_plan
from noshadow.reference.pool import record_pool
from noshadow.reference.recipe import Recipe
from noshadow.reference.recorded import Reading
from noshadow.reference.work import ReferenceJob, ReferenceTask, packed_members, task_outcomes
from noshadow.storage.digests import file_sha256
from noshadow.views import collect_outputs
from reference_training import PAUSE, RECORDS, Stacked, always_dying, data, fit, fit_after_a_death, splits

X, Y = data()
TRAIN, TEST = splits()
HERE = Path(__file__).parent


def trained(folder, train_fn=fit, train=TRAIN, test=TEST, **options):
    return train_references(folder, train_fn, train, test, **({"models": 6, "workers": 1, "progress": False} | options))


def refused(match, *args, **options):
    with pytest.raises(InputError, match=match) as caught:
        trained(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def arrays_of(folder):
    """Every array of every model, as bytes."""
    references = load_references(folder)
    found = {}
    for t in range(references.plan.models):
        there = references.model(t).layout
        found |= {(t, name): (there.array(name).dtype.str, there.array(name).shape, there.array(name).tobytes()) for name in there.places}
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("plain") / "r", model=fit(np.arange(30), 1))


def linear_outputs(indices, seed):
    """Least squares by hand on the rows given: a model of no framework."""
    weights, *_ = np.linalg.lstsq(X[indices].astype(float), np.eye(3)[Y[indices]], rcond=None)
    return X.astype(float) @ weights


def forest(indices, seed):
    return RandomForestClassifier(5, random_state=seed).fit(X[indices], Y[indices])


def ridge_less(indices, seed):
    return LinearRegression().fit(X[indices], X[indices, 0] * 2 + X[indices, 1] ** 2)


def test_a_model_is_trained_on_its_rows_with_its_seed(tmp_path):
    calls = {}

    def spy(indices, seed):
        calls[seed] = indices
        return linear_outputs(indices, seed)

    references = trained(tmp_path / "r", spy)
    assert len(calls) == 6
    for t in range(6):
        given = calls[int(references.plan.seeds[t])]
        assert given.dtype == np.int64 and (np.diff(given) > 0).all()
        np.testing.assert_array_equal(given, np.flatnonzero(references.membership[t]))


def test_margins_losses_correctness_and_outputs_are_those_of_the_model(plain):
    for t in (0, 5):
        torch.manual_seed(int(plain.plan.seeds[t]))
        model = fit(plain.plan.members(t), int(plain.plan.seeds[t]))
        logits = model.eval()(torch.from_numpy(X)).detach().double().numpy()
        log_p = logits - logsumexp(logits, axis=1, keepdims=True)
        others = np.array([logsumexp(np.delete(row, label)) for row, label in zip(log_p, Y, strict=True)])
        own = log_p[np.arange(RECORDS), Y]
        # float64 formulas from the same float32 logits, batch by batch the same: rounding of logsumexp only
        np.testing.assert_allclose(plain.statistic[t], own - others, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(plain.loss[t], -own, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(plain.correct[t], logits.argmax(1) == Y)
        # one batch of 60 here, splits of 30 there
        np.testing.assert_allclose(plain.outputs(t), logits, rtol=1e-5, atol=1e-6)
        assert plain.outputs(t).dtype == np.float32


def test_the_target_is_recorded_like_the_others(tmp_path):
    target = fit(np.arange(30), 1)
    references = trained(tmp_path / "r", linear_outputs, model=target)
    logits = target.eval()(torch.from_numpy(X)).detach().numpy()
    # one batch of 60 here, splits of 30 there
    np.testing.assert_allclose(references.target.outputs, logits, rtol=1e-5, atol=1e-6)
    losses = nn.functional.cross_entropy(torch.from_numpy(logits).double(), torch.from_numpy(Y), reduction="none")
    np.testing.assert_allclose(references.target.loss, losses.numpy(), rtol=1e-4, atol=1e-6)
    assert references.target.statistic.shape == (RECORDS,) and references.target.traces is None and references.target.extra == {}
    assert references.member.tolist() == [True] * 30 + [False] * 30 and references.ids.tolist() == list(range(RECORDS))
    np.testing.assert_array_equal(references.targets, Y)
    expected = audit(target, TRAIN, TEST, damping=1.0, progress=False).provenance["hashes"]["weights"]
    assert references.weights_sha256 == expected and references.task == "classification"
    trees = trained(tmp_path / "s", forest, model=forest(np.arange(30), 0), keep_outputs=False)
    expected = audit(forest(np.arange(30), 0), TRAIN, TEST, progress=False).provenance["hashes"]["weights"]
    assert trees.weights_sha256 == expected and trees.target.outputs is None and not trees.has_outputs


def test_logits_are_recorded_even_when_the_model_ends_in_a_softmax(tmp_path):
    def ending(indices, seed):
        return nn.Sequential(fit(indices, seed), nn.Softmax(-1))

    raw, ended = trained(tmp_path / "a"), trained(tmp_path / "b", ending)
    np.testing.assert_array_equal(raw.statistic, ended.statistic)
    np.testing.assert_array_equal(raw.outputs(1), ended.outputs(1))


def test_a_module_without_a_linear_head_gives_its_own_output_unless_it_is_probabilities(tmp_path):
    class Convolved(nn.Module):
        def __init__(self, probabilities):
            super().__init__()
            self.layer, self.probabilities = nn.Conv1d(1, 3, 4), probabilities

        def forward(self, x):
            out = self.layer(x[:, None])[:, :, 0]
            return out.softmax(1) if self.probabilities else out

    references = trained(tmp_path / "a", lambda indices, seed: Convolved(False).double())
    torch.manual_seed(int(references.plan.seeds[2]))
    expected = Convolved(False).double()(torch.from_numpy(X).double()).detach().numpy()
    assert references.outputs(2).dtype == np.float64  # kept when the model is in double precision
    np.testing.assert_allclose(references.outputs(2), expected, rtol=1e-12, atol=1e-12)
    refused("give logits, not probabilities, when no nn.Linear gives its output", tmp_path / "b", lambda indices, seed: Convolved(True))


def test_any_framework_may_return_outputs(tmp_path):
    references = trained(tmp_path / "r", linear_outputs)
    members = references.plan.members(4)
    np.testing.assert_array_equal(references.outputs(4), linear_outputs(members, 0))
    assert references.outputs(4).dtype == np.float64


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        (np.zeros((RECORDS - 1, 3)), r"outputs of all records \(60, m\), members or not; got an array of shape \(59, 3\)"),
        (None, "return an nn.Module, a fitted scikit-learn estimator or the outputs of all records; got an object of type NoneType"),
        (LogisticRegression, "got the class ABCMeta|got the class LogisticRegression"),
        (np.full((RECORDS, 3), np.nan), "model 0: train_references: outputs must be finite; got 180 NaN or infinite values"),
        (np.zeros((RECORDS, 2)), "targets must be < 2, the number of outputs"),
    ],
)
def test_what_cannot_be_recorded_is_a_failure_with_a_reason(tmp_path, returned, match):
    refused(match, tmp_path / "r", lambda indices, seed: returned)


def test_scikit_learn_models_of_each_kind(tmp_path):
    trees = trained(tmp_path / "a", forest)
    expected = np.log(np.maximum(forest(trees.plan.members(1), int(trees.plan.seeds[1])).predict_proba(X), 1e-15))
    np.testing.assert_allclose(trees.outputs(1), expected, rtol=0, atol=0)
    values = X[:, 0] * 2 + X[:, 1] ** 2
    lines = trained(tmp_path / "b", ridge_less, (X[:30], values[:30]), (X[30:], values[30:]))
    residual = values.astype(np.float64) - ridge_less(lines.plan.members(2), 0).predict(X)
    np.testing.assert_array_equal(lines.statistic[2], residual)
    np.testing.assert_allclose(lines.loss[2], residual**2, rtol=1e-12)
    assert lines.task == "regression" and lines.correct is None and lines.residuals == 1


def test_text_labels_are_numbered_by_name_and_frames_keep_their_index(tmp_path):
    names = np.array(["cat", "ant", "bee"])[Y]
    frame = pd.DataFrame(X, index=[f"p{i}" for i in range(RECORDS)], columns=list("abcd"))

    def named(indices, seed):
        return LogisticRegression().fit(frame.iloc[indices], names[indices])

    references = trained(tmp_path / "r", named, (frame[:30], names[:30]), (frame[30:], names[30:]))
    np.testing.assert_array_equal(references.targets, np.array([2, 0, 1])[Y])
    assert references.ids[0] == "p0" and references.ids[59] == "p59"
    assert any("ant, bee, cat" in note for note in references.notes)


def test_regressions_with_several_outputs_have_a_residual_each(tmp_path):
    values = X[:, :2] * 3

    def several(indices, seed):
        return values + np.arange(RECORDS)[:, None] * [1.0, -2.0]

    pair = (X[:30], values[:30]), (X[30:], values[30:])
    references = trained(tmp_path / "r", several, *pair)
    assert references.statistic.shape == (6, RECORDS, 2) and references.residuals == 2
    # float32 targets: their difference from values + c is -c to float32 rounding of values + c ≤ 200
    np.testing.assert_allclose(references.statistic[3], -np.arange(RECORDS)[:, None] * [1.0, -2.0], atol=2e-5)
    refused(
        "queries must be empty in a regression with several outputs; got 1 beside 2 outputs",
        tmp_path / "q",
        several,
        *pair,
        queries=(mirrored,),
    )


def test_datasets_and_loaders_are_recorded_like_arrays(tmp_path, plain):
    whole = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    train = DataLoader(Subset(whole, list(range(30))), batch_size=7, shuffle=True)
    references = trained(tmp_path / "r", train=train, test=Subset(whole, list(range(30, 60))))
    np.testing.assert_array_equal(references.statistic, plain.statistic)
    np.testing.assert_array_equal(references.targets, Y)


def test_the_pool_may_be_the_training_records_alone(tmp_path):
    references = trained(tmp_path / "r", lambda indices, seed: linear_outputs(indices, seed)[:30], pool="train")
    assert references.plan.records == 30 and references.member.all() and references.membership.shape == (6, 30)
    refused("test must be given with pool='all'; got None. Pass pool='train'", tmp_path / "q", test=None)


def test_queries_are_asked_beside_the_plain_record(tmp_path):
    images = X.reshape(RECORDS, 1, 2, 2)

    class Flat(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x.flatten(1))

    def flat(indices, seed):
        return Flat(fit(indices, seed))

    pair = (images[:30], Y[:30]), (images[30:], Y[30:])
    right = partial(shifted, rows=0, columns=1)
    references = trained(tmp_path / "r", flat, *pair, queries=(mirrored, right))
    plain = trained(tmp_path / "p", flat, *pair)
    by_hand = trained(tmp_path / "m", flat, (mirrored(images[:30]), Y[:30]), (mirrored(images[30:]), Y[30:]))
    np.testing.assert_array_equal(references.statistic[:, :, 0], plain.statistic)
    np.testing.assert_array_equal(references.loss, plain.loss)
    np.testing.assert_array_equal(references.statistic[:, :, 1], by_hand.statistic)
    assert (references.statistic[:, :, 2] != references.statistic[:, :, 0]).any() and references.statistic.shape == (6, RECORDS, 3)
    assert references.queries[0] == "plain" and references.queries[2].endswith("shifted(columns=1, rows=0)")
    loader = DataLoader(TensorDataset(torch.from_numpy(images), torch.from_numpy(Y)), batch_size=11)
    streamed = trained(tmp_path / "l", lambda i, s: flat(i, s), loader, None, pool="train", queries=(mirrored,))
    # splits of 30 there, one of 60 here: batches of other sizes round differently
    np.testing.assert_allclose(streamed.statistic, references.statistic[:, :, :2], rtol=1e-4, atol=1e-4)
    refused("return a model when there are queries", tmp_path / "a", linear_outputs, queries=(np.negative,))
    refused("queries must be callables on a batch of inputs; got 3", tmp_path / "b", queries=(3,))


def test_the_callers_random_states_and_threads_are_left_alone(tmp_path):
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 - the state train_fn may draw from
    random.seed(5)
    before = torch.get_rng_state().clone(), np.random.get_state()[1].copy(), random.getstate(), torch.get_num_threads()  # noqa: NPY002
    seen = []

    def noting(indices, seed):
        seen.append((torch.get_num_threads(), torch.rand(1).item(), np.random.rand(), random.random()))  # noqa: NPY002
        return linear_outputs(indices, seed)

    trained(tmp_path / "r", noting, threads=1)
    assert {threads for threads, *_ in seen} == {1} and len({tuple(draws) for _, *draws in seen}) == 6
    first = list(seen)
    trained(tmp_path / "s", noting, threads=1)
    assert seen[6:] == first
    assert torch.equal(torch.get_rng_state(), before[0]) and (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
    assert random.getstate() == before[2] and torch.get_num_threads() == before[3]


def test_traces_of_a_function_are_the_losses_before_training_and_after_each_epoch(tmp_path):
    references = trained(tmp_path / "r", traces=True)
    assert references.traces(0).shape == (RECORDS, 5)
    np.testing.assert_array_equal(references.traces(3)[:, -1], references.loss[3])
    assert references.traces(3)[:, 0].mean() > references.traces(3)[:, -1].mean()
    untraced = trained(tmp_path / "u")
    np.testing.assert_array_equal(untraced.statistic, references.statistic)
    with pytest.raises(InputError, match=r"traces must have been recorded \(traces=True\)"):
        untraced.traces(0)
    refused("train_fn must take a third argument 'record' when traces=True", tmp_path / "a", linear_outputs, traces=True)
    refused(
        r"call record\(model\) before training and after each epoch when traces=True; got 0 calls",
        tmp_path / "b",
        lambda indices, seed, record: fit(indices, seed),
        traces=True,
    )


def test_extra_columns_are_kept_for_the_first_models(tmp_path):
    def columns(model, indices, seed):
        signals = collect_signals(model, (X[indices], Y[indices]))
        return {"norm": np.linalg.norm(signals.features, axis=1), "row": np.arange(RECORDS)}

    references = trained(tmp_path / "r", extra=columns, extra_models=2)
    assert set(references.extra(1)) == {"norm", "row"} and references.extra(2) == {}
    assert references.extra(0)["norm"].shape == (30,) and references.extra(0)["row"].tolist() == list(range(RECORDS))
    refused(
        "return numeric arrays over all 60 records or the model's 30; got 'a'", tmp_path / "a", extra=lambda *_: {"a": [1]}, extra_models=1
    )
    refused("extra must return a dict of arrays; got list", tmp_path / "b", extra=lambda *_: [1], extra_models=1)


def test_the_engine_is_chosen_named_and_never_switched_silently(tmp_path):
    recipe = Stacked()
    references = trained(tmp_path / "a", recipe, stack=4)
    assert references.describe["train"]["engine"] == "vectorised" and [len(c) for c in recipe.calls] == [4, 2]
    assert references.describe["train"]["settings"] == {"epochs": 4} and references.notes == ()
    slow = trained(tmp_path / "b", Stacked("it uses batch normalisation"))
    assert slow.describe["train"]["engine"] == "one-by-one" and slow.describe["train"]["stack"] is None
    assert slow.notes == ("Models are trained one by one: it uses batch normalisation.",)
    assert slow.describe["engine_reason"] == slow.notes[0]
    refused(
        "engine must be 'auto' or 'one-by-one' here; got 'vectorised'. It uses", tmp_path / "c", Stacked("it uses"), engine="vectorised"
    )
    refused("Train_fn trains one model at a time", tmp_path / "c", fit, engine="vectorised")
    refused("engine must be one of 'auto'", tmp_path / "c", fit, engine="fast")
    traced = trained(tmp_path / "d", Stacked(), stack=4, traces=True)
    assert (traced.traces(5) == traced.plan.seeds[5]).all()
    assert trained(tmp_path / "e", Stacked("x"), traces=True).traces(0).shape == (RECORDS, 5)


def test_a_model_that_raises_is_reported_and_tried_again(tmp_path):
    calls, broken = [], [3, 5]
    seeds = record_seeds(tmp_path)

    def sometimes(indices, seed):
        calls.append(seeds.index(seed))
        if calls[-1] in broken:
            raise ZeroDivisionError(f"no luck with {calls[-1]}\nand more")
        return linear_outputs(indices, seed)

    message = refused(r"2 of 6 that failed \(model 3: ZeroDivisionError: no luck with 3; model 5:", tmp_path / "r", sometimes)
    assert str(tmp_path / "r" / "failures") in message and sorted(calls) == list(range(6))
    assert "sometimes" in (tmp_path / "r" / "failures" / "00003.txt").read_text()
    seen = status(tmp_path / "r")
    assert (seen.planned, seen.done, seen.missing) == (6, 4, (3, 5)) and not seen.complete
    assert seen.failed == ((3, "ZeroDivisionError: no luck with 3"), (5, "ZeroDivisionError: no luck with 5"))
    calls.clear()
    broken.remove(3)
    refused("1 of 6 that failed", tmp_path / "r", sometimes)
    assert calls == [3, 5] and [f.name for f in (tmp_path / "r" / "failures").iterdir()] == ["00005.txt"]
    broken.clear()
    assert trained(tmp_path / "r", sometimes).plan.models == 6 and not list((tmp_path / "r" / "failures").iterdir())


def record_seeds(tmp_path):
    return trained(tmp_path / "seeds", linear_outputs).plan.seeds.tolist()


def test_sys_exit_in_training_fails_that_model_only(tmp_path):
    def leaving(indices, seed):
        sys.exit("enough")

    refused(r"6 of 6 that failed \(model 0: SystemExit: enough.*and 1 more", tmp_path / "r", leaving)


def test_models_of_another_form_are_named(tmp_path):
    seeds = record_seeds(tmp_path)
    refused(
        r"1 of 6 that failed \(model 2: Its outputs differ in form from the other models': classification with statistic \(60,\), outputs",
        tmp_path / "r",
        lambda indices, seed: np.ones((RECORDS, 4 if seed == seeds[2] else 3)),
    )


def test_a_full_disk_stops_cleanly_and_the_run_goes_on_later(tmp_path, monkeypatch):
    whole = model_writing.write_safetensors

    def full(path, arrays, metadata):
        if path.name == "00003.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(path, arrays, metadata)

    with monkeypatch.context() as patched:
        patched.setattr(model_writing, "write_safetensors", full)
        refused("the disk is full. .* run again when there is room: 3 of 6 models are kept", tmp_path / "r", linear_outputs)
    assert sorted(f.name for f in (tmp_path / "r" / "models").iterdir()) == [f"0000{t}.safetensors" for t in range(3)]
    trained(tmp_path / "r", linear_outputs)
    trained(tmp_path / "s", linear_outputs)
    assert arrays_of(tmp_path / "r") == arrays_of(tmp_path / "s")


def test_no_torn_file_is_left_when_writing_fails_halfway(tmp_path):
    def chunks():
        yield b"begun"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        model_writing.write_private(tmp_path / "x", chunks())
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_a_folder_to_go_on_with(tmp_path):
    calls = []

    def interrupted(indices, seed):
        calls.append(seed)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return linear_outputs(indices, seed)

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "r", interrupted)
    assert status(tmp_path / "r").done == 3
    assert trained(tmp_path / "r", interrupted).plan.models == 6 and len(calls) == 7


@pytest.mark.parametrize("engine", ["one-by-one", "vectorised"])
def test_a_run_killed_midway_ends_with_the_same_arrays(tmp_path, engine):
    folder = tmp_path / "killed"
    command = [sys.executable, str(HERE / "reference_training.py"), str(folder), engine]
    environment = os.environ | {"PYTHONPATH": str(HERE), PAUSE: "0.15", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 120
        while len(list((folder / "models").glob("[0-9]*"))) < 3:
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    done = status(folder).done
    assert 3 <= done < 10
    with pytest.raises(InputError, match=rf"hold all 10 models of its plan; got {done} of 10 \(missing: .*trains only what is missing"):
        load_references(folder)
    # a stack that was cut while its files were written
    (folder / "models" / "00001.safetensors").unlink()
    (folder / "models" / f".00009.safetensors.partial-{process.pid}").write_bytes(b"torn")
    train_fn = fit if engine == "one-by-one" else Stacked()
    options = {"models": 10, "stack": 4, "engine": engine}
    trained(folder, train_fn, **options)
    if engine == "vectorised":
        assert len(train_fn.calls[0]) == 4  # the first stack was trained whole again
    trained(tmp_path / "whole", fit if engine == "one-by-one" else Stacked(), **options)
    assert arrays_of(folder) == arrays_of(tmp_path / "whole")
    assert not list((folder / "models").glob(".*"))


def test_workers_in_other_processes_give_the_same_arrays_and_their_death_loses_nothing(tmp_path):
    # Not through the environment: loky may hand over workers that an earlier test started.
    fatal = partial(fit_after_a_death, marker=str(tmp_path / "died"))
    references = trained(tmp_path / "r", fatal, workers=2)
    assert (tmp_path / "died").exists()
    alone = trained(tmp_path / "s", fatal, workers=1)
    assert arrays_of(tmp_path / "r") == arrays_of(tmp_path / "s")
    assert references.plan.models == alone.plan.models
    message = refused(
        r"workers must stay alive; got 1 rounds in which workers died and no model arrived \(.*\), with 6 models left",
        tmp_path / "d",
        always_dying,
        workers=2,
        attempts=1,
    )
    assert "Is memory short?" in message
    held = (tmp_path / "open").open("w")
    with held:
        refused(
            "must be able to travel to worker processes; got .*Pass workers=1 to train in this process",
            tmp_path / "e",
            lambda indices, seed: held,
            workers=2,
        )


def test_folds_are_trained_on_the_training_records_alone(tmp_path):
    calls = {}

    def spy(indices, seed):
        calls[seed] = indices
        return linear_outputs(indices, seed)

    references = trained(tmp_path / "r", spy, models=3, design="folds", seed=4)
    np.testing.assert_array_equal(references.membership, fold_plan(30, 30, folds=3, seed=4).membership)
    for t, seed in enumerate(references.plan.seeds):
        np.testing.assert_array_equal(calls[int(seed)], np.flatnonzero(references.membership[t]))
        outputs = linear_outputs(calls[int(seed)], 0)
        # The same float64 least squares on the same rows.
        np.testing.assert_allclose(references.statistic[t], record_margins(outputs, Y, "classification"), rtol=1e-12)
    assert references.describe["plan"]["design"] == "folds" and "design" not in trained(tmp_path / "h").describe["plan"]


@pytest.mark.parametrize("options", [{"models": 3, "design": "folds"}, {"models": 1}, {"models": 2}])
def test_a_killed_run_of_few_models_goes_on(tmp_path, options):
    whole = trained(tmp_path / "whole", **options)
    trained(tmp_path / "r", **options)
    (tmp_path / "r" / "models" / "00000.safetensors").unlink()
    again = trained(tmp_path / "r", **options)
    np.testing.assert_array_equal(again.statistic, whole.statistic)
    refused("folder must hold the same experiment; got other values .*models", tmp_path / "r", models=4)


def test_a_folder_of_folds_with_another_membership_is_refused(tmp_path):
    trained(tmp_path / "r", models=3, design="folds")
    membership = np.array(np.load(tmp_path / "r" / "membership.npy"))
    membership[:2, 0] = ~membership[:2, 0]
    membership[2, 0] = True
    for changed in (np.roll(membership, 1, axis=1), np.where(np.arange(60) == 59, True, membership)):
        np.save(tmp_path / "r" / "membership.npy", changed)
        manifest = json.loads((tmp_path / "r" / "plan.json").read_text())
        manifest["hashes"]["membership"] = file_sha256(tmp_path / "r" / "membership.npy")
        (tmp_path / "r" / "plan.json").write_text(json.dumps(manifest))
        with pytest.raises(InputError, match="leave each training record out of one fold's model, and test records out of all"):
            stored_plan(tmp_path / "r", manifest)


@pytest.mark.parametrize(("options", "got"), [({"models": 3}, "got 3"), ({"models": 5, "design": "folds"}, "got 5 models, each without")])
def test_attacks_need_four_models_on_parts_of_all_records(tmp_path, options, got):
    with pytest.raises(InputError, match=f"ground_truth: references must hold at least 4 models on random parts of all records; {got}"):
        ground_truth(trained(tmp_path / "r", **options), progress=False)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"train_fn": 3}, "train_fn must be callable as train_fn"),
        ({"workers": 0}, "workers must be a whole number ≥ 1"),
        ({"threads": 0}, "threads must be a whole number ≥ 1"),
        ({"attempts": 0}, "attempts must be a whole number ≥ 1"),
        ({"extra_models": -1}, "extra_models must be a whole number ≥ 0"),
        ({"stack": 0}, "stack must be a whole number ≥ 1"),
        ({"models": 0}, "train_references: models must be a whole number ≥ 1"),
        ({"models": 1, "design": "folds"}, "train_references: models must be a whole number ≥ 2"),
        ({"models": 31, "design": "folds"}, "train_references: models must be at most the 30 training records"),
        ({"design": "folds", "fraction": 0.4}, "train_references: fraction must be left out with design='folds'"),
        ({"design": "thirds"}, "design must be one of 'halves', 'folds'"),
        ({"pool": "test"}, "pool must be one of 'all', 'train'"),
        ({"backend": "slurm"}, "backend must be one of 'loky', 'ray', 'dask'"),
        ({"address": "somewhere:1"}, "address must be None with the backend 'loky'"),
        ({"train": None}, "train must hold the target's training records"),
        ({"ids": [1, 2]}, "ids are for all 60 records of the pool, train before test"),
        ({"ids": [1] * 60}, "must be unique"),
        ({"task": "regression"}, "targets must have the shape of the outputs"),
        ({"settings": {"a": object()}}, "settings must be plain numbers"),
        ({"train": (X[:30], Y[:29])}, "X and y must have one row per record"),
        ({"test": (X[:30], np.eye(3)[Y[:30]])}, "train and test must have targets of the same form"),
    ],
)
def test_wrong_arguments_get_one_sentence(tmp_path, options, match):
    refused(match, tmp_path / "r", **options)


def test_missing_extras_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused(r"backend='ray' must be installed; got .*pip install noshadow\[ray\]", tmp_path / "r", backend="ray")
    refused(r"backend='dask' must be installed; got .*pip install noshadow\[dask\]", tmp_path / "r", backend="dask")


def test_the_data_hash_sees_values_order_and_targets_but_not_batches():
    def hashes(x, y):
        return record_pool((x, y), None, pool="train", ids=None).hashes["data"]

    base = hashes(X, Y)
    assert base == hashes(X.copy(), Y.copy()) and base != hashes(X[::-1], Y[::-1])
    changed = X.copy()
    changed[59, 3] += 1e-6
    assert len({base, hashes(changed, Y), hashes(X, np.roll(Y, 1)), hashes(X.astype(np.float64), Y)}) == 4
    frame = pd.DataFrame({"a": ["x", "y"], "b": [1.0, 2.0]})
    assert hashes(frame, [0, 1]) != hashes(frame.assign(a=["x", "z"]), [0, 1])


def test_test_records_get_fresh_ids_where_train_has_its_own():
    whole = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    pool = record_pool(Subset(whole, [5, 9]), (X[:2], Y[:2]), pool="all", ids=None)
    assert pool.ids.tolist() == [5, 9, 10, 11]
    apart = record_pool(Subset(whole, [5, 9]), Subset(whole, [1, 2]), pool="all", ids=None)
    assert apart.ids.tolist() == [5, 9, 1, 2]
    given = record_pool((X[:2], Y[:2]), (X[2:4], Y[2:4]), pool="all", ids=list("abcd"))
    assert given.ids.tolist() == list("abcd")


def test_the_plan_file_is_strict_json(plain):
    text = (plain.folder / "plan.json").read_text()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == plain.describe
    assert set(plain.stamp()) >= {"plan_digest", "hashes", "versions", "plan"}


def test_a_recipe_trains_in_stacks_of_the_plan_and_its_records_are_the_pools(tmp_path):
    recipe = Recipe(partial(nn.Linear, 4, 3), X, Y, epochs=3, batch_size=16, lr=0.1)
    stacked = trained(tmp_path / "v", recipe, stack=4, traces=True)
    assert stacked.describe["train"]["engine"] == "vectorised" and stacked.describe["train"]["settings"]["epochs"] == 3
    single = trained(tmp_path / "o", recipe, engine="one-by-one", traces=True)
    # the same training, with the products of a stack: rounding of float32 over a dozen steps
    np.testing.assert_allclose(stacked.statistic, single.statistic, rtol=1e-3, atol=1e-4)
    assert stacked.traces(5).shape == (RECORDS, 4)
    np.testing.assert_allclose(stacked.traces(5), single.traces(5), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(stacked.traces(5)[:, -1], stacked.loss[5], rtol=1e-4, atol=1e-5)
    before = arrays_of(tmp_path / "v")
    (tmp_path / "v" / "models" / "00002.safetensors").unlink()
    trained(tmp_path / "v", recipe, stack=4, traces=True)
    assert arrays_of(tmp_path / "v") == before
    short = Recipe(partial(nn.Linear, 4, 3), X[:40], Y[:40], epochs=3, batch_size=16, lr=0.1)
    refused("hold the 60 records of the pool, train before test; got a Recipe of 40", tmp_path / "a", short)
    turned = Recipe(partial(nn.Linear, 4, 3), X[::-1], Y[::-1], epochs=3, batch_size=16, lr=0.1)
    refused("hold the targets of the pool in its order", tmp_path / "b", turned)


def test_tasks_in_threads_of_one_process_do_not_mix_their_random_states():
    pool = record_pool(TRAIN, TEST, pool="all", ids=None)
    job = ReferenceJob(fit, pool, Reading(), False, False, None, 0, 1)
    members = np.arange(RECORDS) % 2 == 0
    tasks = [ReferenceTask((t,), (100 + t,), packed_members(members[None]), frozenset({t})) for t in range(6)]
    alone = [task_outcomes(job, task)[1][0].arrays["statistic"] for task in tasks]
    with ThreadPoolExecutor(3) as threads:
        together = [outcomes[0].arrays["statistic"] for _, outcomes in threads.map(partial(task_outcomes, job), tasks)]
    np.testing.assert_array_equal(together, alone)
    assert len({row.tobytes() for row in alone}) == 6


def test_queries_get_the_tuple_or_the_dict_of_several_inputs():
    class Summed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, a, b):
            return self.layer(a + 2 * b)

    model = Summed()
    first, second = X, X[::-1].copy()
    expected, _ = collect_outputs(model, ((second, first), Y))
    swapped, _ = collect_outputs(model, ((first, second), Y), transform=lambda inputs: inputs[::-1])
    np.testing.assert_array_equal(swapped.outputs, expected.outputs)
    named, _ = collect_outputs(model, ({"a": first, "b": second}, Y), transform=lambda inputs: {"a": inputs["b"], "b": inputs["a"]})
    np.testing.assert_array_equal(named.outputs, expected.outputs)
    with pytest.raises(InputError, match=r"queries must accept the data's inputs; got ZeroDivisionError"):
        collect_outputs(model, ((first, second), Y), transform=lambda inputs: 1 / 0)


def test_the_ending_of_a_model_settles_its_task(tmp_path):
    halves = (Y > 0).astype(np.float32)
    pair = (X[:30], halves[:30]), (X[30:], halves[30:])

    def sigmoid(indices, seed, outputs=1):
        return nn.Sequential(nn.Linear(4, outputs), nn.Sigmoid())

    references = trained(tmp_path / "r", sigmoid, *pair)
    assert references.task == "binary"
    np.testing.assert_array_equal(references.statistic[0], np.where(halves > 0.5, 1, -1) * references.outputs(0)[:, 0].astype(np.float64))
    refused("predict one label per record; got a sigmoid of 2 outputs", tmp_path / "m", partial(sigmoid, outputs=2), *pair)
    refused("task must be 'auto' or 'binary' for this Sequential; got 'regression'", tmp_path / "t", sigmoid, *pair, task="regression")

"""Checkpoints and base models beside the audited one: read as it is read, held against it, and never changed."""

import copy
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from torch import nn

import noshadow as ns
from noshadow._audit.exposing import statistic_of
from noshadow._exposure import Source, weighed
from noshadow.checks import InputError
from noshadow.results.audit_record import ranks
from noshadow.signals import save_splits
from tiny_language_models import gpt2

EARLY, LATE = 30, 400
FREE = ("shift", "leverage", "newton", "margin_leverage", "entropy")


def network(width=24, outputs=10):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, outputs))


@pytest.fixture(scope="module")
def trained():
    """A network that learns digits by heart, with its state after every tenth of the training; a fifth of the labels are wrong."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(x))
    x, y = torch.tensor(x[order] / 16, dtype=torch.float32), torch.tensor(y[order])
    y = torch.where(torch.tensor(rng.random(len(y)) < 0.2), torch.tensor(rng.integers(0, 10, len(y))), y)
    train, test = (x[:300], y[:300]), (x[300:700], y[300:700])
    model, states = network(), {}
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(LATE):
        if step in (0, EARLY, LATE // 2):
            states[step] = copy.deepcopy(model.state_dict())
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(train[0]), train[1]).backward()
        optimiser.step()
    return model, train, test, states


def entry_of(audit, source):
    return next(entry for entry in audit.evidence if entry.source == source)


def with_state(model, state):
    made = copy.deepcopy(model)
    made.load_state_dict(state)
    return made


def audited(model, train, test, **more):
    return ns.audit(model, train, test, progress=False, **more)


# Checkpoints


def test_the_columns_of_a_checkpoint_are_those_of_its_own_audit(trained):
    model, train, test, states = trained
    early = with_state(model, states[EARLY])
    for how in ({"weight_decay": 1e-4}, {"damping": 0.3}, {"sample_weight": np.linspace(0.5, 2, 300), "weight_decay": 1e-4}):
        alone = audited(early, train, test, **how)
        beside = audited(model, train, test, checkpoint=states[EARLY], **how)
        np.testing.assert_array_equal(beside.records["checkpoint_loss"], alone.records["loss"])
        np.testing.assert_array_equal(beside.records["checkpoint_shift"], alone.records["shift"])
        assert entry_of(beside, "checkpoints").stamp["checkpoints"][0]["test_loss"] == pytest.approx(
            alone.nonmember_losses.mean(), rel=1e-12
        )


def test_the_rank_follows_what_is_weighed(trained):
    """The audit hands the covariates of both states to `weighed`, and ranks by what comes back."""
    model, train, test, states = trained
    final, early = (audited(each, train, test, weight_decay=1e-4).records for each in (model, with_state(model, states[EARLY])))
    audit = audited(model, train, test, weight_decay=1e-4, checkpoint=states[EARLY])
    covariates = {f"checkpoint_{name}": early[name].to_numpy() for name in ("loss", *FREE)}
    expected = weighed(
        -np.log(np.expm1(final["loss"].to_numpy())),
        np.zeros(0),
        [Source("checkpoints", covariates=covariates)],
        free={name: final[name].to_numpy() for name in FREE},
    )
    np.testing.assert_array_equal(audit.records["exposure_score"], expected.score)
    np.testing.assert_array_equal(audit.records["rank"], ranks(expected.score))
    assert audit.ranked_by == "exposure_score" and entry_of(audit, "exposure").stamp["rule"] == expected.rule
    assert "order of the records only" in audit.not_applicable["exposure"]


def test_every_form_of_a_checkpoint_says_the_same(trained, tmp_path):
    model, train, test, states = trained
    save_file(states[EARLY], tmp_path / "early.safetensors")
    torch.save(states[EARLY], tmp_path / "early.pt")
    torch.save({"state_dict": {f"model.{k}": v for k, v in states[EARLY].items()}, "epoch": 3}, tmp_path / "early.ckpt")
    before = copy.deepcopy(model.state_dict())
    forms = [
        with_state(model, states[EARLY]),
        states[EARLY],
        tmp_path / "early.safetensors",
        str(tmp_path / "early.pt"),
        tmp_path / "early.ckpt",
        {f"module.{k}": v for k, v in states[EARLY].items()},
        [states[EARLY]],
    ]
    tables = [audited(model, train, test, checkpoint=form).records for form in forms]
    assert all(table.equals(tables[0]) for table in tables[1:])
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_of_several_checkpoints_the_best_on_test_records_is_shown(trained):
    model, train, test, states = trained
    one = audited(model, train, test, checkpoint=states[EARLY])
    several = audited(model, train, test, checkpoint=[states[LATE // 2], states[EARLY]])
    stamp = entry_of(several, "checkpoints").stamp
    losses = [told["test_loss"] for told in stamp["checkpoints"]]
    assert stamp["used"] == 1 == int(np.argmin(losses)) and len({told["weights"] for told in stamp["checkpoints"]}) == 2
    for name in ("checkpoint_loss", "checkpoint_shift"):
        np.testing.assert_array_equal(several.records[name], one.records[name])
    untested = audited(model, train, None, checkpoint=[states[LATE // 2], states[EARLY]])
    assert entry_of(untested, "checkpoints").stamp["used"] == 0


def test_a_checkpoint_that_is_worse_on_test_records_gets_a_note(trained):
    model, train, test, states = trained
    told = audited(with_state(model, states[EARLY]), train, test, checkpoint=model)
    assert any("it is not the state from before records were learnt by heart" in note for note in told.notes)
    assert not any("by heart" in note for note in audited(model, train, test, checkpoint=states[EARLY]).notes)


def test_more_layers_are_weighed_with_the_last_layer_of_the_checkpoint(trained):
    model, train, test, states = trained
    early = audited(with_state(model, states[EARLY]), train, test, weight_decay=1e-3).records["shift"]
    audit = audited(model, train, test, weight_decay=1e-3, layers="all", checkpoint=states[EARLY])
    np.testing.assert_allclose(audit.records["checkpoint_shift"], early, rtol=1e-6)


def test_checkpoints_that_are_none_are_refused(trained, tmp_path):
    model, train, test, states = trained
    state = states[EARLY]
    (tmp_path / "text.pt").write_text("no weights")
    with (tmp_path / "pickled.pt").open("wb") as file:
        pickle.dump({"a": print}, file)
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    cases = [
        (model, "another model's outputs; got the audited model's own. Give weights from earlier"),
        (model.state_dict(), "another model's outputs; got the audited model's own"),
        ({k: v for k, v in state.items() if k != "2.bias"}, "parameters of the audited model; got weights without 2.bias"),
        (state | {"9.bias": torch.zeros(3)}, "got weights with unknown 9.bias"),
        (state | {"2.bias": torch.zeros(3)}, r"got weights with 2.bias of shape \(3,\) for \(10,\)"),
        (network(outputs=7), r"outputs of the audited model's shape \(300, 10\); got shape \(300, 7\) for train"),
        ({"a": 1}, "be a state dict; got one that is none \\('a' is no tensor\\)"),
        (tmp_path / "text.pt", "be a file of weights; got"),
        (tmp_path / "pickled.pt", "be a file of weights; got"),
        (tmp_path / "empty.pt", "'epoch' is no tensor"),
        ("early.bin", "end in .safetensors, .pt, .pth, .ckpt"),
        ("early.pt", "be a file that exists"),
        ([], "be a model or a list of models; got an empty list"),
        (3, "a state dict or the path of its file; got an object of type int"),
        (gpt2(), "be a classifier or a regression; got the language model"),
        (nn.Linear(3, 10), "be readable as the audited model is; got this: model must"),
    ]
    for given, says in cases:
        with pytest.raises(InputError, match=f"^audit: checkpoint must .*{says}"):
            audited(model, train, test, checkpoint=given)


def test_a_fitted_estimator_is_a_checkpoint_of_another():
    x, y = load_digits(return_X_y=True)
    train, test = (x[:400], y[:400]), (x[400:800], y[400:800])
    early, late = (LogisticRegression(C=c, max_iter=5000).fit(*train) for c in (1e-4, 1e-2))
    audit = audited(late, train, test, checkpoint=early)
    alone = audited(early, train, test)
    np.testing.assert_array_equal(audit.records["checkpoint_loss"], alone.records["loss"])
    np.testing.assert_array_equal(audit.records["checkpoint_shift"], alone.records["shift"])
    with pytest.raises(InputError, match="be a fitted estimator where the model is none of torch"):
        audited(late, train, test, checkpoint={"coef": torch.zeros(3)})
    renamed = LogisticRegression(C=1e-4, max_iter=5000).fit(x[:400], np.array(list("abcdefghij"))[y[:400]])
    with pytest.raises(InputError, match="checkpoint must"):
        audited(late, train, test, checkpoint=renamed)


def test_a_checkpoint_without_a_head_has_losses_alone():
    x, y = load_digits(return_X_y=True)
    train, test = (x[:400], y[:400]), (x[400:800], y[400:800])
    few, many = (RandomForestClassifier(trees, random_state=0).fit(*train) for trees in (5, 50))
    audit = audited(many, train, test, checkpoint=few)
    np.testing.assert_array_equal(audit.records["checkpoint_loss"], audited(few, train, test).records["loss"])
    assert "checkpoint_shift" not in audit.records and "checkpoint_shift" in audit.not_applicable


# The base model


def test_the_base_is_a_model_without_the_records(trained):
    model, train, test, states = trained
    base = with_state(model, states[EARLY])
    audit, alone = audited(model, train, test, base=base, weight_decay=1e-4), audited(base, train, test, weight_decay=1e-4)
    np.testing.assert_array_equal(audit.records["base_loss"], alone.records["loss"])
    margins = [[-np.log(np.expm1(losses)) for losses in (each.member_losses, each.nonmember_losses)] for each in (audit, alone)]
    source = Source("base model", {}, margins[1][0][None, :], np.zeros((1, 300), bool), margins[1][1][None, :])
    free = {name: audit.records[name].to_numpy() for name in FREE}
    expected = weighed(*margins[0], [source], free=free)
    # Margins from losses and from logits differ in their last digits.
    np.testing.assert_allclose(audit.records["exposure_score"], expected.score, rtol=1e-5, atol=1e-6)
    line = entry_of(audit, "exposure").stamp["lines"]["base model"]
    assert line["records"] == 400 and line["slope"] == pytest.approx(margins[0][1].std() / margins[1][1].std(), rel=1e-6)
    assert audit.ranked_by == "exposure_score" and "order of the records only" in audit.not_applicable["attack_rate"]


def test_a_base_of_a_regression_has_residuals_of_either_sign():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(400, 6))
    y = x @ rng.normal(size=6) + rng.normal(size=400)
    train, test = (x[:200], y[:200]), (x[200:], y[200:])
    base, model = Ridge(alpha=500).fit(*test), Ridge(alpha=1).fit(*train)
    audit = audited(model, train, test, base=base)
    np.testing.assert_allclose(audit.records["base_loss"], (train[1] - base.predict(train[0])) ** 2, rtol=1e-9)
    assert entry_of(audit, "exposure").stamp["direction"] == "either"


def test_bases_that_are_none_are_refused(trained):
    model, train, test, _ = trained
    opposite = copy.deepcopy(model)
    with torch.no_grad():
        opposite[2].weight.mul_(-1), opposite[2].bias.mul_(-1)
    for given, says in (
        (model, "be another model's outputs; got the audited model's own. Give the model before"),
        (opposite, "know the audited model's classes; got margins that fall where its own rise"),
        (network(outputs=4), "give outputs of the audited model's shape"),
    ):
        with pytest.raises(InputError, match=f"^audit: base must {says}"):
            audited(model, train, test, base=given)


# Sources together, from a Target, from arrays, and from a folder


def test_all_sources_stand_beside_each_other_and_come_back(trained, tmp_path):
    model, train, test, states = trained
    rng = np.random.default_rng(1)
    with torch.no_grad():
        folds = with_state(model, states[EARLY])(train[0]).numpy() + 0.3 * rng.normal(size=(300, 10))
    audit = audited(model, train, test, checkpoint=states[EARLY], base=states[LATE // 2], out_of_fold=folds)
    sources = [entry.source for entry in audit.evidence]
    assert sources[-4:] == ["checkpoints", "out-of-fold outputs", "base model", "exposure"]
    assert {"checkpoint_loss", "checkpoint_shift", "out_of_fold_loss", "base_loss", "exposure_score"} <= set(audit.records)
    again = ns.load(audit.save(tmp_path / "audit"))
    assert again.records.equals(audit.records) and again.evidence == audit.evidence and ns.findings(again) == audit.findings
    assert {"checkpoints_seconds", "base_model_seconds", "exposure_seconds"} <= set(again.timings)
    same = audited(model, train, test, checkpoint=states[EARLY], base=states[LATE // 2], out_of_fold=folds)
    assert same.evidence == audit.evidence  # no time among the stamps


def test_a_target_states_its_sources_and_an_option_may_not_contradict(trained):
    model, train, test, states = trained
    direct = audited(model, train, test, checkpoint=states[EARLY], base=states[0])
    target = ns.Target(model, train, test, checkpoint=states[EARLY], base=states[0])
    assert ns.audit(target, progress=False).records.equals(direct.records)
    bare = ns.Target(model, train, test)
    assert ns.audit(bare, checkpoint=states[EARLY], base=states[0], progress=False).records.equals(direct.records)
    for name in ("checkpoint", "base"):
        with pytest.raises(InputError, match=f"audit: {name} must come from one place"):
            ns.audit(target, **{name: states[EARLY]}, progress=False)


def test_arrays_take_the_signals_of_other_models(trained, tmp_path):
    model, train, test, states = trained
    early = with_state(model, states[EARLY])
    pairs = [tuple(ns.collect_signals(each, split) for split in (train, test)) for each in (model, early)]
    expected = audited(model, train, test, damping=0.5, checkpoint=early, base=early)
    audit = ns.audit_signals(*pairs[0], damping=0.5, checkpoint=pairs[1], base=pairs[1], progress=False)
    for name in ("checkpoint_loss", "checkpoint_shift", "base_loss", "exposure_score", "rank"):
        np.testing.assert_allclose(audit.records[name], expected.records[name], rtol=1e-9, err_msg=name)
    save_splits(tmp_path / "early.npz", *pairs[1])
    by_file = ns.audit_signals(*pairs[0], damping=0.5, checkpoint=[tmp_path / "early.npz"], base=tmp_path / "early.npz", progress=False)
    assert by_file.records.equals(audit.records)
    named = ns.Signals(pairs[1][0].features, pairs[1][0].outputs, pairs[1][0].targets, np.arange(300)[::-1])
    own = ns.Signals(pairs[0][0].features, pairs[0][0].outputs, pairs[0][0].targets, np.arange(300))
    for given, says in (
        (early, "be a pair .train, test. of Signals or the path of their file; got Sequential. Models are given to audit"),
        ((named, pairs[1][1]), "hold the records of train in its order; got other ids"),
        (pairs[0], "be another model's outputs; got the audited model's own"),
        ((pairs[1][1], pairs[1][0]), "give outputs of the audited model's shape"),
    ):
        with pytest.raises(InputError, match=f"^audit_signals: checkpoint must {says}"):
            ns.audit_signals(own, pairs[0][1], checkpoint=given, progress=False)
    with pytest.raises(InputError, match="base must be one model's signals; got 2"):
        ns.audit_signals(*pairs[0], base=[pairs[1], pairs[1]], progress=False)


def test_the_statistic_is_the_margin_or_the_signed_residual():
    logits, labels = np.array([[2.0, 0.5, -1.0], [0.0, 1.0, 0.0]]), np.array([0, 2])
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    own = p[[0, 1], labels]
    np.testing.assert_allclose(statistic_of(logits, labels, "classification"), np.log(own / (1 - own)), rtol=1e-12)
    np.testing.assert_array_equal(statistic_of(np.array([[1.0], [4.0]]), np.array([[3.0], [1.0]]), "regression"), [2.0, -3.0])

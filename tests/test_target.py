"""`ns.audit(target)`: one way for a function's target, a notebook's and the command's."""

import inspect
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import noshadow as ns
from noshadow import InputError, Target

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4))
Y = (X[:, 0] + RNG.normal(size=80) > 0).astype(int)
TRAIN, TEST = (X[:40], Y[:40]), (X[40:], Y[40:])
MODEL = LogisticRegression().fit(*TRAIN)
DATA = ("model", "train", "test")
OPTIONS = [field for field in fields(Target) if field.name not in DATA]


@pytest.fixture
def handed_on(monkeypatch):
    """What reaches the audit of the model itself, beside the arguments of the call."""

    def call(target, **options):
        received = {}
        with monkeypatch.context() as patch:
            # In the function's own module: one that is collected for its doctests is there twice.
            patch.setitem(inspect.unwrap(ns.audit).__globals__, "audit", lambda **given: received.update(given))
            outer(target, **options)
        return received

    outer = ns.audit
    return call


def test_every_field_is_an_argument_of_audit_with_the_same_default():
    arguments = inspect.signature(ns.audit).parameters
    assert {field.name: field.default for field in OPTIONS} == {field.name: arguments[field.name].default for field in OPTIONS}


@pytest.mark.parametrize("name", [field.name for field in OPTIONS])
def test_every_field_reaches_the_audit(handed_on, name):
    marker = {"score_options": {"precision": "mixed"}, "training_options": {"threads": 2}}.get(name, f"marker of {name}")
    received = handed_on(replace(Target(MODEL, TRAIN, TEST), **{name: marker}))
    arguments = inspect.signature(ns.audit).parameters
    assert received[name] == marker and set(received) == set(arguments)
    assert (received["model"], received["train"], received["test"]) == (MODEL, TRAIN, TEST)
    others = {field.name for field in OPTIONS} - {name, "score_options"}
    assert all(received[other] == arguments[other].default for other in others)


@pytest.mark.parametrize("name", [field.name for field in OPTIONS])
def test_every_option_may_come_from_the_call_instead(handed_on, name):
    marker = {"score_options": {"precision": "mixed"}}.get(name, f"marker of {name}")
    assert handed_on(Target(MODEL, TRAIN, TEST), **{name: marker})[name] == marker


def test_options_that_a_target_cannot_state_are_the_calls(handed_on):
    received = handed_on(Target(MODEL, TRAIN, TEST), fpr=0.1, seed=7, layers="all", progress=False)
    assert (received["fpr"], received["seed"], received["layers"], received["progress"]) == (0.1, 7, "all", False)


@pytest.mark.parametrize(
    "name", sorted({field.name for field in OPTIONS} - {"task", "weight_decay", "output", "output_scale", "score_options"})
)
def test_what_both_state_is_refused(name):
    target = replace(Target(MODEL, TRAIN, TEST), **{name: np.arange(40)})
    with pytest.raises(InputError, match=rf"^audit: {name} must come from one place; got ndarray beside that of the Target\."):
        ns.audit(target, **{name: np.arange(40)})
    with pytest.raises(InputError, match=rf"^audit: {name} must come from one place; got 'a/file' beside"):
        ns.audit(target, **{name: Path("a/file")})


def test_data_beside_a_target_and_a_model_without_data_are_refused():
    target = Target(MODEL, TRAIN, TEST)
    with pytest.raises(InputError, match=r"^audit: train must be left out beside a Target, which has its own; got tuple\.$"):
        ns.audit(target, TRAIN)
    with pytest.raises(InputError, match=r"^audit: test must be left out beside a Target"):
        ns.audit(target, test=TEST)
    with pytest.raises(InputError, match=r"^audit: the Target's model must be a model; got another Target\.$"):
        ns.audit(Target(target, TRAIN, TEST))
    with pytest.raises(InputError, match=r"^audit: train must be given with a model that is no Target; got nothing\.$"):
        ns.audit(MODEL)
    with pytest.raises(InputError, match=r"^audit: test must be given with a model that is no Target; got nothing\.$"):
        ns.audit(MODEL, TRAIN)


def test_a_target_without_test_records_has_no_model_risk():
    assert ns.audit(Target(MODEL, TRAIN, None), progress=False).model_risk is None


def test_a_target_gives_the_audit_of_its_parts():
    how = {"ids": [f"person {i}" for i in range(40)], "groups": ["a", "b"] * 20}
    by_parts = ns.audit(MODEL, TRAIN, TEST, seed=3, progress=False, **how)
    by_target = ns.audit(Target(MODEL, TRAIN, TEST, **how), seed=3, progress=False)
    assert by_target.records.equals(by_parts.records) and by_target.model_risk == by_parts.model_risk
    assert by_target.findings == by_parts.findings and by_target.provenance == by_parts.provenance

"""A rate is predicted for the families of models the calibration has seen, and for no others."""

import functools
import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import noshadow as ns
from noshadow import Calibration, Signals, audit_signals, fit_calibration, model_risk
from noshadow.checks import InputError
from noshadow.tail.prediction import shipped_calibration
from noshadow.views import model_family
from test_tail_calibration import table

X, Y = make_classification(1200, 20, n_informative=6, flip_y=0.2, random_state=0)
A, B = slice(0, 600), slice(600, None)


def audited(model):
    return ns.audit(model.fit(X[A], Y[A]), (X[A], Y[A]), (X[B], Y[B]), progress=False)


def of(audit, code):
    return next(finding for finding in audit.findings if finding.code == code)


def test_a_family_without_setups_gets_no_predicted_rate_and_the_reason_says_why():
    audit = audited(ExtraTreesClassifier(100, min_samples_leaf=3, random_state=0))
    risk = audit.model_risk
    # By its losses it is like the set-ups: without its family it would be predicted, and was.
    vouched = model_risk(audit.member_losses, audit.nonmember_losses, resamples=100)
    assert vouched.in_calibration_domain and vouched.predicted_tpr is not None and "this model is like them" in vouched.reason
    assert risk.predicted_tpr is None and risk.predicted_tpr_interval is None and risk.in_calibration_domain is False
    assert risk.reason == (
        "The calibration was made from linear models, networks, forests with bootstrap and boosted trees, and this model is of another "
        "family (ExtraTreesClassifier without bootstrap); the rate of a reference-model attack is not predicted, and reference models "
        "would measure it (noshadow reference train)."
    )
    assert risk.reason in audit.not_applicable["predicted_tpr of the model"]
    assert audit.provenance["inputs"]["family"] == "ExtraTreesClassifier without bootstrap"
    assert of(audit, "NS003").status == "not applicable" and "another family" in of(audit, "NS003").sentence
    # The headline rests on what was measured.
    assert of(audit, "NS001").figure == risk.tnr
    # What was measured does not depend on the family; tails are fitted to margins as before.
    assert (risk.tnr, risk.auc) == (vouched.tnr, vouched.auc) and risk.extrapolated is not None


@pytest.mark.parametrize(
    ("model", "family"),
    [
        (KNeighborsClassifier(25), "KNeighborsClassifier"),
        (HistGradientBoostingClassifier(max_iter=20), "HistGradientBoostingClassifier"),
        (CalibratedClassifierCV(LogisticRegression()), "CalibratedClassifierCV"),
        (make_pipeline(StandardScaler(), RandomForestClassifier(10)), "RandomForestClassifier"),
        (GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2), "linear"),
        (LogisticRegression(), "linear"),
        (LogisticRegressionCV(Cs=2, cv=2), "linear"),
        (SGDClassifier(loss="log_loss"), "linear"),
        (SGDClassifier(loss="modified_huber"), "SGDClassifier"),
        (MLPClassifier((4,), max_iter=5), "network"),
        (make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=5)), "network"),
        (Ridge(), "Ridge"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.filterwarnings("ignore")
def test_families_of_estimators(model, family):
    assert model_family(model.fit(X[:200], Y[:200])) == family


def test_modules_are_networks_and_other_things_have_no_family():
    assert model_family(nn.Linear(3, 2)) == model_family(nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(), nn.Linear(4, 2))) == "network"
    assert model_family("a model") is None


@pytest.mark.parametrize("model", [LogisticRegression(C=10.0), nn.Linear(20, 2)], ids=["logistic regression", "module"])
def test_families_behind_the_calibration_are_predicted(model):
    if isinstance(model, nn.Module):
        optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
        x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(Y)
        for _ in range(50):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[A]), y[A]).backward()
            optimiser.step()
        audit = ns.audit(model, (x[A], y[A]), (x[B], y[B]), progress=False)
    else:
        audit = audited(model)
    assert audit.model_risk.predicted_tpr is not None and audit.provenance["inputs"]["family"] in ("linear", "network")


# Arrays, of which nobody knows the model


@functools.cache
def forest_logs():
    return np.log(np.maximum(RandomForestClassifier(100, min_samples_leaf=3, random_state=0).fit(X[A], Y[A]).predict_proba(X), 1e-15))


def signals(features, outputs):
    return [Signals(None if features is None else features[part], outputs[part], Y[part]) for part in (A, B)]


LOGITS = LogisticRegression(C=10.0).fit(X[A], Y[A]).decision_function(X)


@pytest.mark.parametrize(
    ("features", "outputs", "given", "predicted", "family"),
    [
        (None, LOGITS, "auto", False, "unknown"),
        (None, LOGITS, "linear", True, "linear"),
        (None, LOGITS, "network", True, "network"),
        (None, LOGITS, "random forest", False, "random forest"),
        (X, LOGITS, "auto", True, "linear"),
        (X, LOGITS, "boosted trees", False, "boosted trees"),
        (X, forest_logs(), "auto", False, "unknown"),
        (X[:, :5], LOGITS, "auto", False, "unknown"),
    ],
)
def test_arrays_are_of_the_family_their_features_show_or_the_caller_names(features, outputs, given, predicted, family):
    audit = audit_signals(*signals(features, outputs), family=given, damping=1.0, progress=False)
    assert (audit.model_risk.predicted_tpr is not None) == predicted and audit.provenance["inputs"]["family"] == family
    if family == "unknown":
        assert "nothing says that this model is one of them: name it with family= (--family) if it is" in audit.model_risk.reason


def test_features_that_span_the_records_show_no_linear_head():
    """700 columns explain any outputs of 600 records: that says nothing about the model."""
    wide = np.random.default_rng(0).normal(size=(1200, 700))
    audit = audit_signals(*signals(wide, forest_logs()), damping=1.0, progress=False)
    assert audit.provenance["scores"]["head_residual"] < 1e-3
    assert audit.provenance["inputs"]["family"] == "unknown" and audit.model_risk.predicted_tpr is None


def test_a_family_is_a_name():
    with pytest.raises(InputError, match=r"audit_signals: family must be 'auto' or a name; got None"):
        audit_signals(*signals(X, LOGITS), family=None)
    with pytest.raises(InputError, match=r"model_risk: family must be a name or None; got 3"):
        model_risk([0.1, 0.2], [0.3, 0.4], family=3)


# The calibration knows them


def test_the_shipped_calibration_names_the_family_of_every_setup():
    calibration = shipped_calibration()
    assert calibration.families == ("linear", "network")
    by_name = {row["setup"]: row["family"] for row in calibration.setups}
    assert {name for name, family in by_name.items() if family == "linear"} == {name for name in by_name if name.endswith("_linear")}
    assert set(by_name.values()) == set(calibration.families)


def test_own_calibrations_know_the_families_of_their_table(tmp_path):
    losses = [np.random.default_rng(0).exponential(scale, 2000) for scale in (0.2, 2)]
    frame = table()
    known = fit_calibration(frame.assign(family="random forest"), predictors=("tnr",), name="mine")
    assert Calibration.load(known.save(tmp_path / "mine.json")) == known and known.families == ("random forest",)
    assert known.setups[0]["family"] == "random forest"
    forest, network = (model_risk(*losses, calibration=known, family=name, resamples=100) for name in ("random forest", "network"))
    assert (
        forest.predicted_tpr > 0
        and network.predicted_tpr is None
        and "made from random forest, and this model is of another" in network.reason
    )
    # A calibration that names none takes every model, as one written before they were named does.
    unnamed = fit_calibration(frame, predictors=("tnr",))
    assert unnamed.families == () and model_risk(*losses, calibration=unnamed, family="network", resamples=100).predicted_tpr > 0
    content = json.loads(unnamed.save(tmp_path / "old.json").read_text())
    assert Calibration.from_dict({name: value for name, value in content.items() if name != "families"}) == unnamed
    with pytest.raises(InputError, match=r"families must be names"):
        Calibration.from_dict(content | {"families": [3]})
    for bad in (pd.Series(["a", "b"] * (len(frame) // 2)), None):
        with pytest.raises(InputError, match=r"table must name one family in all rows of a setup; got several, or none"):
            fit_calibration(frame.assign(family=bad), predictors=("tnr",))

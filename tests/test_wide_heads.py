"""A head too wide for its scores keeps the rest of its audit: the model's risk does not need them."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import nn

import noshadow as ns
from noshadow import InputError, Signals, audit, audit_signals
from noshadow.errors import DoesNotFit
from noshadow.scores.last_layer.damping import linear_residual

RNG = np.random.default_rng(11)
CLASSES = 6
X = RNG.normal(size=(600, 8)).astype(np.float32)
WEIGHTS = RNG.normal(size=(8, CLASSES)).astype(np.float32)
Y = (2 * X @ WEIGHTS + RNG.gumbel(size=(600, CLASSES))).argmax(1)
A, B = slice(0, 300), slice(300, None)
SMALL = {"max_memory": 1000.0}  # bytes: neither the exact curvature nor EK-FAC's factors fit


def halves():
    return [Signals(X[part], 3 * X[part] @ WEIGHTS, Y[part]) for part in (A, B)]


def network():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    torch.manual_seed(0)
    for layer in (model[0], model[2]):
        layer.reset_parameters()
    return model


def assert_the_rest_is_unharmed(wide, whole):
    """Everything that needs no record scores is as in the audit that has them, to the last digit: nothing else is computed.

    A prediction may read the scores. Without them it is the one that losses alone give.
    """
    found, expected = asdict(wide.model_risk), asdict(whole.model_risk)
    if whole.model_risk.predicted_from != wide.model_risk.predicted_from:
        assert "leverage" in whole.model_risk.reason and "leverage" not in wide.model_risk.reason
        predicted = {name for name in expected if name.startswith("predicted")} | {"calibration", "reason", "prediction_level"}
        expected |= {name: found[name] for name in predicted}
    assert found == expected
    assert [asdict(row) for row in wide.class_risk] == [asdict(row) for row in whole.class_risk]
    for name in ("id", "target", "loss", "entropy"):
        np.testing.assert_array_equal(wide.records[name], whole.records[name])
    assert wide.provenance["inputs"]["family"] == whole.provenance["inputs"]["family"]
    assert wide.ranked_by == "loss" and whole.ranked_by == "shift"
    reason = wide.not_applicable["shift"]
    assert reason.startswith("does not fit: EK-FAC of 6 classes × 9 dimensions needs 0.0 GB")
    assert "score_options={'max_memory': …}, --score-option max_memory=…" in reason
    for name in ("leverage", "influence", "newton", "loo", "margin_leverage", "gradient_norm"):
        assert name not in wide.records and wide.not_applicable[name] == reason
    skipped = {finding.code: finding for finding in wide.findings if finding.status == "skipped"}
    assert "max_memory" in skipped["NS010"].next_step


@pytest.mark.parametrize("damping", [0.5, 0.0, "auto"])
def test_arrays_of_a_wide_head_keep_their_model_risk(damping):
    whole = audit_signals(*halves(), damping=damping, progress=False)
    wide = audit_signals(*halves(), damping=damping, progress=False, score_options=SMALL)
    assert whole.provenance["inputs"]["family"] == "linear"  # seen without the scores too
    assert_the_rest_is_unharmed(wide, whole)


def test_a_network_with_a_wide_head_keeps_its_model_risk(tmp_path):
    data = ((X[A], Y[A]), (X[B], Y[B]))
    whole = audit(network(), *data, weight_decay=0.1, progress=False)
    wide = audit(network(), *data, weight_decay=0.1, progress=False, score_options=SMALL)
    assert_the_rest_is_unharmed(wide, whole)
    again = ns.load(wide.save(tmp_path / "wide"))
    assert again.not_applicable == wide.not_applicable
    assert "oes not fit" in ns.write_report(wide, tmp_path / "wide.html").read_text()


def test_the_command_keeps_the_model_risk_of_a_wide_head(run, tmp_path):
    ns.save_splits(tmp_path / "splits.npz", *halves())
    code, out, err = run("audit", "splits.npz", "--out", "a", "--score-option", "max_memory=1000", "--json", "--quiet")
    assert (code, err) == (0, "")
    assert json.loads(out)["model_risk"]["auc"] == audit_signals(*halves(), progress=False).model_risk.auc
    assert "oes not fit" in ns.load(tmp_path / "a").not_applicable["shift"]


def test_a_method_asked_for_by_name_is_refused_and_so_are_scores_alone():
    for method in ("exact", "ekfac"):
        with pytest.raises(InputError, match=r"audit_signals: .* must be small enough"):
            audit_signals(*halves(), damping=0.5, progress=False, score_options=SMALL | {"method": method})
    with pytest.raises(DoesNotFit, match=r"record_scores: .* Raise max_memory, or score a narrower representation"):
        ns.record_scores(X, X @ WEIGHTS, Y, damping=0.5, **SMALL)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_linearity_without_scores_is_that_of_the_scores(fit_intercept):
    outputs = 3 * X @ WEIGHTS + np.abs(X[:, :1]) * np.arange(CLASSES) + 2.0
    scores = ns.record_scores(X, outputs, Y, damping=0.1, fit_intercept=fit_intercept)
    residual, rank = linear_residual(X, outputs, fit_intercept=fit_intercept, task="classification")
    # The same sums in float64; blocks of the same length, so that only the order of two additions differs.
    assert residual == pytest.approx(scores.head_residual, rel=1e-12) and residual > 0.01
    assert rank == scores.rank

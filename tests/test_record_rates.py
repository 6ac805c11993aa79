import numpy as np
import pytest
from benchmarks.tail_calibration.curve_fit import fitted_curve
from scipy.special import expit, logit
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from statsmodels.api import GLM, families

import noshadow as ns
from noshadow.tail.record_rates import curve_rates, rates_averaging_to, record_rates, shipped_curves


def test_the_curve_is_the_maximum_of_the_binomial_likelihood():
    rng = np.random.default_rng(0)
    rate, z = rng.uniform(0.01, 0.5, 300), rng.normal(size=300)
    design = np.stack((np.ones(300), logit(rate), z, logit(rate) * z, z**2), axis=1)
    count = rng.integers(5, 40, 300)
    found = rng.binomial(count, expit(design @ [0.1, 1.1, 0.6, -0.2, -0.05]))
    expected = GLM(np.stack((found, count - found), axis=1), design, family=families.Binomial()).fit().params
    np.testing.assert_allclose(fitted_curve(rate, z, count, found, np.ones(300)), expected, atol=1e-6)


@pytest.mark.parametrize("rate", [0.002, 0.05, 0.4])
def test_chances_average_to_the_models_rate_and_rise_with_the_score(rate):
    rng = np.random.default_rng(1)
    score = rng.random(2000)
    chances, low, high = record_rates(score, rate, 1e-3)
    assert chances.mean() == pytest.approx(rate, rel=1e-6)
    assert (np.diff(chances[np.argsort(score)]) >= 0).mean() > 0.95  # the square of z may bend the very end
    assert (low <= chances).all() and (chances <= high).all() and low.min() >= 0 and high.max() <= 1
    assert chances.min() >= 1e-3


def test_between_the_calibrated_rates_chances_lie_between():
    score = np.random.default_rng(2).random(500)
    ends = [record_rates(score, 0.1, fpr)[0] for fpr in (1e-3, 1e-2)]
    middle = record_rates(score, 0.1, np.sqrt(1e-5))[0]
    # Chances are never below the false-positive rate asked for, which differs between the three.
    assert (middle >= np.minimum(*ends) - 0.01).all() and (middle <= np.maximum(*ends) + 0.01).all()
    assert record_rates(score, 0.1, 0.05) is None


def test_equal_scores_have_equal_chances_and_certain_models_certain_records():
    chances = record_rates(np.ones(100), 0.2, 1e-3)[0]
    np.testing.assert_allclose(chances, 0.2, rtol=1e-6)
    coefficients = shipped_curves()[0].coefficients
    assert (rates_averaging_to(coefficients, 1.0, np.zeros(5), 1e-3) == 1).all()
    assert np.isfinite(curve_rates(coefficients, 0.0, np.linspace(-5, 5, 11))).all()


def test_audits_of_classifiers_carry_it_where_the_model_is_like_the_setups():
    x, y = load_digits(return_X_y=True)
    x = x / 16 + np.random.default_rng(0).normal(0, 0.4, x.shape)
    model = LogisticRegression(C=100.0, max_iter=5000).fit(x[:900], y[:900])
    audit = ns.audit(model, (x[:900], y[:900]), (x[900:], y[900:]), progress=False)
    assert audit.model_risk.in_calibration_domain
    records = audit.records.sort_values("rank")
    assert (records["predicted_tpr_low"] <= records["predicted_tpr"]).all()
    assert records["predicted_tpr"].mean() == pytest.approx(audit.model_risk.predicted_tpr, rel=1e-6)
    assert records["predicted_tpr"].iloc[0] > 2 * records["predicted_tpr"].iloc[-1]
    few = ns.audit(model, (x[:300], y[:300]), (x[900:], y[900:]), progress=False)
    assert "predicted_tpr" not in few.records and "300 records in the smaller split" in few.not_applicable["predicted_tpr"]
    assert len(audit.class_risk) == 10


def test_converged_heads_and_soft_targets_are_audited_without_a_wrong_prediction():
    rng = np.random.default_rng(0)
    x, y, one_hot = rng.normal(size=(600, 3)), rng.integers(0, 3, 600), np.eye(3)
    # Logits that were clipped: margins are tied at the largest one, and what lies behind it is not known.
    clipped = [np.clip(scale * (2 * one_hot[y] - 1) + rng.normal(size=(600, 3)), -30, 30) for scale in (60, 2)]
    risk = ns.audit_signals(*(ns.Signals(logits, logits, y) for logits in clipped), progress=False).model_risk
    assert risk.extrapolated is None and risk.predicted_tpr is None and "clipped or rounded" in risk.reason
    smooth = 0.9 * one_hot[y] + 0.1 / 3
    soft = [ns.Signals(x, scale * one_hot[y] + rng.normal(size=(600, 3)), smooth) for scale in (3, 2)]
    audit = ns.audit_signals(*soft, task="classification", progress=False)
    assert audit.model_risk.predicted_tpr is None and "soft targets" in audit.model_risk.reason
    assert "soft targets" in audit.not_applicable["predicted_tpr"]

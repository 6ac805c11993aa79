"""One-logit columns against statsmodels, refits and the two-class softmax."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit

import noshadow as ns
import oracles


@pytest.fixture
def data():
    rng = np.random.default_rng(11)
    features = rng.normal(size=(80, 4)) * [1, 3, 0.2, 1]
    labels = (rng.random(80) < expit(features @ [1, -0.5, 2, 0.3] + 0.4)).astype(int)
    return features, labels


def test_leverage_and_newton_step_equal_statsmodels(data):
    features, labels = data
    design = oracles.with_bias(features)
    fit = sm.Logit(labels, design).fit(disp=0, method="newton", tol=1e-14)
    logits = design @ fit.params
    scores = ns.record_scores(features, logits, labels, damping=0.0)
    maximum_likelihood = fit.get_influence()
    generalised_linear = sm.GLM(labels, design, family=sm.families.Binomial()).fit(tol=1e-14).get_influence()
    # both reach the optimum to ~1e-9 in the parameters
    np.testing.assert_allclose(scores.leverage, maximum_likelihood.hat_matrix_diag, rtol=1e-8)
    np.testing.assert_allclose(scores.leverage, generalised_linear.hat_matrix_diag, rtol=1e-7)
    # d_params = θ − θ₋ᵢ by one Newton step, so our leave-one-out logit is z − g̃·d_params
    step = -(design * maximum_likelihood.d_params).sum(1)
    sign = 2 * labels - 1
    np.testing.assert_allclose(scores.shift, -sign * step, rtol=1e-7)
    moved = np.logaddexp(0, -sign * (logits + step)) - np.logaddexp(0, -sign * logits)
    np.testing.assert_allclose(scores.loo, moved, rtol=1e-6)
    p = expit(logits)
    np.testing.assert_allclose(scores.influence, (labels - p) ** 2 / (p * (1 - p)) * scores.leverage, rtol=1e-9)
    np.testing.assert_allclose(scores.newton, scores.influence / (1 - scores.leverage), rtol=1e-12)
    assert scores.effective_dof == pytest.approx(5, abs=1e-8)


@pytest.mark.parametrize("damping", [1e-3, 0.4, 10.0])
@pytest.mark.parametrize("soft", [False, True])
def test_one_logit_equals_two_softmax_logits_with_twice_the_damping(data, damping, soft):
    features, labels = data
    rng = np.random.default_rng(12)
    logits = oracles.with_bias(features) @ rng.normal(size=5)
    weight = rng.uniform(0.5, 2, 80)
    targets = np.clip(labels * 0.9 + 0.02, 0, 1) if soft else labels
    two_targets = np.column_stack([1 - targets, targets]) if soft else labels
    one = ns.record_scores(features, logits, targets, task="binary", damping=damping, sample_weight=weight)
    pair = np.column_stack([np.zeros(80), logits])
    two = ns.record_scores(features, pair, two_targets, task="classification", damping=2 * damping, sample_weight=weight)
    for name in ("loss", "entropy", "leverage", "influence", "newton", "loo", "shift", "margin_leverage"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-8, err_msg=name)
    np.testing.assert_allclose(one.gradient_norm * np.sqrt(2), two.gradient_norm, rtol=1e-10)


def test_two_softmax_logits_meet_the_unpenalised_logit_as_damping_vanishes(data):
    """[RET] erratum 2: the binary formulas are the limit of the singular softmax problem."""
    features, labels = data
    logits = oracles.with_bias(features) @ [0.5, -0.2, 1, 0.1, 0.3]
    one = ns.record_scores(features, logits, labels, damping=0.0)
    two = ns.record_scores(features, np.column_stack([-logits / 2, logits / 2]), labels, damping=1e-10)
    np.testing.assert_allclose(one.newton, two.newton, rtol=1e-8)


def test_saturated_logits_stay_finite(data):
    features, labels = data
    logits = np.where(labels == 1, 40.0, -700.0)
    logits[:4] *= -1  # confidently wrong
    scores = ns.record_scores(features, logits, labels, damping=1e-2)
    for name, column in scores.columns().items():
        assert np.isfinite(column).all(), name
        assert (column >= 0).all(), name
    # p(1 − p) = e^{−40}: influence must keep its relative precision instead of dividing by a rounded w
    right = (labels == 1) & (np.arange(80) >= 4)
    quotient = scores.influence[right] / np.exp(-40.0) ** 2
    design = oracles.with_bias(features)
    p = expit(logits)
    curvature = (design * (p * expit(-logits))[:, None]).T @ design + 1e-2 * np.eye(5)
    expected = np.einsum("ij,ij->i", design @ np.linalg.inv(curvature), design)[right]
    np.testing.assert_allclose(quotient, expected, rtol=1e-9)

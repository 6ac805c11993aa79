"""Regression columns against statsmodels and against real refits."""

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LinearRegression, Ridge

import noshadow as ns
import oracles

# float64 refits and our algebra agree to rounding times the condition of these designs
REFIT = 1e-10
# predictions are of size 100, so residuals, and gaps that are differences of their squares, carry ~1e-13 of rounding
ROUNDING = 1e-12


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(40, 5)) * [1, 10, 0.1, 3, 1] + [0, 100, 0, 0, 5]
    targets = features @ rng.normal(size=5) + rng.standard_t(3, size=40)
    return features, targets


def refit_columns(design, targets, penalty, sample_weight=None):
    """Leave-one-out losses and residual shifts by n real refits."""
    n = len(design)
    weight = np.ones(n) if sample_weight is None else sample_weight
    full = oracles.ridge_refit(design, targets, penalty, weight)
    loo, shift = np.empty(n), np.empty(n)
    for i in range(n):
        keep = np.arange(n) != i
        without = oracles.ridge_refit(design[keep], targets[keep], penalty, weight[keep])
        inside, outside = targets[i] - design[i] @ full, targets[i] - design[i] @ without
        loo[i] = weight[i] * (np.sum(outside**2) - np.sum(inside**2))
        shift[i] = np.linalg.norm(outside) - np.linalg.norm(inside)
    return design @ full, loo, shift


def test_ols_equals_statsmodels(data):
    features, targets = data
    fit = sm.OLS(targets, oracles.with_bias(features)).fit()
    scores = ns.record_scores(features, fit.fittedvalues, targets, damping=0.0)
    influence = fit.get_influence()
    # hat diagonals through QR: agreement to rounding
    np.testing.assert_allclose(scores.leverage, influence.hat_matrix_diag, rtol=1e-11)
    residual = targets - fit.fittedvalues
    press = influence.resid_press
    np.testing.assert_allclose(np.abs(residual) + scores.shift, np.abs(press), rtol=REFIT)
    np.testing.assert_allclose(scores.loo, press**2 - residual**2, rtol=REFIT)
    np.testing.assert_allclose(scores.influence, 2 * residual**2 * influence.hat_matrix_diag, rtol=REFIT)
    np.testing.assert_allclose(scores.newton, 2 * residual * press * influence.hat_matrix_diag, rtol=REFIT)
    assert scores.effective_dof == pytest.approx(6, abs=1e-10)
    assert scores.stationarity < 1e-8


@pytest.mark.parametrize("damping", [0.0, 0.3, 50.0])
@pytest.mark.parametrize("penalize_intercept", [True, False])
@pytest.mark.parametrize("outputs", [1, 3])
def test_ridge_gap_equals_n_refits(data, damping, penalize_intercept, outputs):
    features, _ = data
    targets = features[:, :outputs] ** 2 / 50 + np.random.default_rng(2).normal(size=(40, outputs))
    design = oracles.with_bias(features)
    penalty = np.full(6, damping)
    penalty[-1] *= penalize_intercept
    predictions, loo, shift = refit_columns(design, targets, penalty)
    scores = ns.record_scores(features, predictions, targets, damping=damping, penalize_intercept=penalize_intercept)
    np.testing.assert_allclose(scores.loo, loo, rtol=REFIT, atol=ROUNDING)
    np.testing.assert_allclose(scores.shift, shift, rtol=REFIT, atol=ROUNDING)
    assert scores.stationarity < 1e-7


def test_sample_weights_equal_weighted_refits(data):
    features, targets = data
    weight = np.random.default_rng(3).uniform(0.2, 3, 40)
    predictions, loo, shift = refit_columns(oracles.with_bias(features), targets, np.full(6, 0.5), weight)
    scores = ns.record_scores(features, predictions, targets, damping=0.5, sample_weight=weight)
    np.testing.assert_allclose(scores.loo, loo, rtol=REFIT, atol=ROUNDING)
    np.testing.assert_allclose(scores.shift, shift, rtol=REFIT, atol=ROUNDING)
    np.testing.assert_allclose(scores.loss, weight * (targets - predictions) ** 2, rtol=1e-12)


@pytest.mark.parametrize("estimator", [Ridge(alpha=2.0), Ridge(alpha=0.5, fit_intercept=False), LinearRegression()])
def test_scikit_learn_fits_equal_refits(data, estimator):
    features, targets = data
    fit = estimator.fit(features, targets)
    scores = ns.record_scores(
        features,
        fit.predict(features),
        targets,
        damping=getattr(estimator, "alpha", 0.0),
        fit_intercept=estimator.fit_intercept,
        penalize_intercept=False,
    )
    before = (targets - fit.predict(features)) ** 2
    for i in range(0, 40, 3):
        keep = np.arange(40) != i
        other = estimator.fit(features[keep], targets[keep])
        after = (targets[i] - other.predict(features[i : i + 1])[0]) ** 2
        # scikit-learn centres and solves on its own: rounding of its solver, amplified by 1/(1 − h)
        assert scores.loo[i] == pytest.approx(after - before[i], rel=1e-8, abs=1e-10)


def test_gradient_norm_is_that_of_the_squared_loss(data):
    features, targets = data
    scores = ns.record_scores(features, np.zeros(40), targets)
    design = oracles.with_bias(features)
    expected = [np.linalg.norm(-2 * targets[i] * design[i]) for i in range(40)]
    np.testing.assert_allclose(scores.gradient_norm, expected, rtol=1e-12)


def test_more_features_than_records():
    rng = np.random.default_rng(4)
    features, targets = rng.normal(size=(12, 40)), rng.normal(size=12)
    design = oracles.with_bias(features)
    predictions, loo, _ = refit_columns(design, targets, np.full(41, 0.7))
    scores = ns.record_scores(features, predictions, targets, damping=0.7)
    np.testing.assert_allclose(scores.loo, loo, rtol=REFIT, atol=ROUNDING)
    assert scores.rank == 12
    assert any("rank 12 of 41" in note for note in scores.notes)


def test_collinear_and_constant_features_change_nothing():
    rng = np.random.default_rng(5)
    features, targets = rng.normal(size=(30, 3)), rng.normal(size=30)
    # doubling a column under an isotropic penalty equals scaling it by √2; a zero column adds nothing
    doubled = np.column_stack([features, features[:, 0], np.zeros(30)])
    scaled = features * [np.sqrt(2), 1, 1]
    first = ns.record_scores(doubled, np.zeros(30), targets, damping=0.9)
    second = ns.record_scores(scaled, np.zeros(30), targets, damping=0.9)
    np.testing.assert_allclose(first.leverage, second.leverage, rtol=1e-9)
    assert first.rank == 4
    assert first.jitter == 0.0


def test_badly_scaled_columns_are_not_mistaken_for_collinear_ones():
    rng = np.random.default_rng(6)
    features = rng.normal(size=(50, 3))
    plain = ns.record_scores(features, np.zeros(50), rng.normal(size=50), damping=0.0)
    scaled = ns.record_scores(features * [1e-8, 1.0, 1e8], np.zeros(50), rng.normal(size=50), damping=0.0)
    assert scaled.rank == 4
    np.testing.assert_allclose(plain.leverage, scaled.leverage, rtol=1e-9)


def test_interpolated_records_are_infinite_and_noted():
    rng = np.random.default_rng(7)
    features = rng.normal(size=(20, 2))
    features = np.column_stack([features, np.eye(20)[:, 4]])  # record 4 alone sees the last column
    design = oracles.with_bias(features)
    targets = rng.normal(size=20)
    fitted = design @ oracles.ridge_refit(design, targets, np.zeros(4))
    scores = ns.record_scores(features, fitted, targets, damping=0.0)
    infinite = np.isinf(scores.loo)
    assert infinite.nonzero()[0].tolist() == [4]
    assert (np.isinf(scores.newton) == infinite).all()
    assert (np.isinf(scores.shift) == infinite).all()
    assert scores.leverage[4] == pytest.approx(1.0)
    assert any("1 interpolated records" in note for note in scores.notes)
    assert not any(np.isnan(column).any() for column in scores.columns().values())

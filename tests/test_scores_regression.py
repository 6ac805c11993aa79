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


def test_timestamps_and_other_offsets_keep_their_directions():
    """Columns whose mean is a million times their spread: the refits, on centred columns, are the truth."""
    rng = np.random.default_rng(0)
    times = 1.7e9 + np.sort(rng.uniform(0, 3000, 40))
    features = np.column_stack([rng.normal(size=40), times])
    targets = features[:, 0] + np.sin((times - 1.7e9) / 500) + (times - 1.7e9) / 1000 + 0.3 * rng.normal(size=40)
    centred = oracles.with_bias(features - features.mean(0))
    predictions, loo, shift = refit_columns(centred, targets, np.array([1.0, 1.0, 0.0]))
    scores = ns.record_scores(features, predictions, targets, damping=1.0, penalize_intercept=False)
    np.testing.assert_allclose(scores.loo, loo, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(scores.shift, shift, rtol=1e-8, atol=1e-12)
    assert scores.rank == 3
    assert scores.head_residual < 1e-6
    assert scores.stationarity < 1e-6


@pytest.mark.parametrize("degree", [8, 10, 12])
def test_polynomials_keep_their_rank(degree):
    features = np.vander(np.linspace(0, 1, 60), degree + 1)[:, :-1]
    scores = ns.record_scores(features, np.zeros(60), np.linspace(2, 3, 60), damping=0.0)
    orthonormal, _ = np.linalg.qr(np.polynomial.legendre.legvander(np.linspace(-1, 1, 60), degree))
    assert scores.rank == degree + 1
    # the monomials' condition of 1e10 times rounding
    np.testing.assert_allclose(scores.leverage, (orthonormal**2).sum(1), rtol=1e-4)


@pytest.mark.parametrize("constant", [1e-6, 1e-8, 1e-9, 1e-12, 1e9])
@pytest.mark.parametrize("penalize_intercept", [True, False])
def test_a_constant_column_only_shares_the_bias(constant, penalize_intercept):
    rng = np.random.default_rng(8)
    x, targets = rng.normal(size=(12, 2)), rng.normal(size=12)
    both = ns.record_scores(
        np.column_stack([x, np.full(12, constant)]), 0 * targets, targets, damping=1.0, penalize_intercept=penalize_intercept
    )
    # two ways to a constant with unit penalties: as one bias column of length √(1 + c²); free if the bias is
    scale = np.hypot(1.0, constant)
    design = np.column_stack([x, np.full(12, scale)])
    penalty = np.diag([1.0, 1.0, float(penalize_intercept)])
    expected = np.einsum("ij,ij->i", design @ np.linalg.inv(design.T @ design + penalty), design)
    np.testing.assert_allclose(both.leverage, expected, rtol=1e-8)


@pytest.mark.parametrize("factor", [10.0, 1e-6])
def test_a_scaled_copy_of_a_column_is_one_longer_column(factor):
    rng = np.random.default_rng(9)
    x, targets = rng.normal(size=(30, 2)), rng.normal(size=30)
    doubled = ns.record_scores(np.column_stack([x, factor * x[:, 0]]), 0 * targets, targets, damping=1.0)
    longer = ns.record_scores(x * [np.hypot(1.0, factor), 1.0], 0 * targets, targets, damping=1.0)
    np.testing.assert_allclose(doubled.leverage, longer.leverage, rtol=1e-7)


@pytest.mark.parametrize("extra", ["constant", "copy", "one-hot", "wide"])
def test_a_fitted_head_is_stationary_whatever_its_rank(extra):
    rng = np.random.default_rng(10)
    n = 40
    x = rng.normal(size=(n, 3))
    columns = {"constant": np.ones((n, 1)), "copy": 10 * x[:, :1], "one-hot": np.eye(4)[np.arange(n) % 4], "wide": rng.normal(size=(n, 60))}
    features = np.column_stack([x, columns[extra]])
    targets = x @ [1.0, 2.0, 3.0] + rng.normal(size=n) + 5
    fit = Ridge(alpha=10.0, solver="svd").fit(features, targets)
    scores = ns.record_scores(features, fit.predict(features), targets, damping=10.0, penalize_intercept=False)
    assert scores.stationarity < 1e-9
    assert not any("not at a minimum" in note for note in scores.notes)
    off = ns.record_scores(features, fit.predict(features) + 0.5 * x[:, 0], targets, damping=10.0, penalize_intercept=False)
    assert off.stationarity > 1
    assert any("not at a minimum" in note for note in off.notes)


def test_whole_number_features_and_constant_outputs():
    rng = np.random.default_rng(11)
    features = rng.integers(-5, 5, size=(20, 2)) * 2_000_000_000
    targets = rng.normal(size=20)
    scores = ns.record_scores(features, np.full(20, 0.1), targets, damping=1.0)
    floats = ns.record_scores(features.astype(float), np.full(20, 0.1), targets, damping=1.0)
    np.testing.assert_array_equal(scores.gradient_norm, floats.gradient_norm)
    assert scores.head_residual < 1e-3
    assert not any("linear function" in note for note in scores.notes)


def test_a_constant_column_of_many_records_stays_constant():
    rng = np.random.default_rng(12)
    x, targets = rng.normal(size=(99_991, 2)), rng.normal(size=99_991)
    scores = ns.record_scores(np.column_stack([x, np.full(99_991, 0.1)]), 0 * targets, targets, damping=1.0, columns=["leverage"])
    design = np.column_stack([x, np.full(99_991, np.hypot(1.0, 0.1))])
    expected = np.einsum("ij,ij->i", design @ np.linalg.inv(design.T @ design + np.eye(3)), design)
    np.testing.assert_allclose(scores.leverage, expected, rtol=1e-12)

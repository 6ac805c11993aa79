"""Softmax columns against a dense Hessian, perturbed labels and real refits."""

import numpy as np
import pytest
from scipy.special import softmax

import noshadow as ns
import oracles

COLUMNS = ("loss", "gradient_norm", "entropy", "leverage", "influence", "newton", "loo", "shift")


def head(n, d, m, *, seed, scale=1.0):
    """Features, a random linear head's logits and labels drawn from them."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d)) * rng.uniform(0.3, 3, d) + rng.normal(size=d)
    theta = scale * rng.normal(size=(d + 1, m)) / np.sqrt(d)
    logits = oracles.with_bias(features) @ theta
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    labels[:m] = np.arange(m)
    return features, theta, logits, labels


def converged_head(n, d, m, *, damping, seed):
    features, _, _, labels = head(n, d, m, seed=seed)
    design = oracles.with_bias(features)
    theta = oracles.softmax_refit(design, np.eye(m)[labels], np.full(d + 1, damping))
    return features, labels, theta


# (3, 7): fewer features than pairs of classes; (2, 9) and (3, 9): more, the other layout of the products
@pytest.mark.parametrize(("d", "m"), [(3, 7), (9, 2), (9, 3), (5, 4)])
@pytest.mark.parametrize("damping", [1e-3, 2.0])
def test_columns_equal_those_of_the_autograd_hessian(d, m, damping):
    features, theta, logits, labels = head(50, d, m, seed=d + m)
    design = oracles.with_bias(features)
    penalty = np.full(d + 1, damping)
    curvature = oracles.autograd_softmax_curvature(design, theta, labels, penalty)
    np.testing.assert_allclose(curvature, oracles.dense_softmax_curvature(design, logits, penalty), rtol=1e-9, atol=1e-9)
    expected = oracles.softmax_columns(design, logits, labels, curvature)
    scores = ns.record_scores(features, logits, labels, damping=damping)
    for name in COLUMNS:
        # the dense oracle loses digits to the damped class-shift direction: condition ~1e6 of rounding
        np.testing.assert_allclose(getattr(scores, name), expected[name], rtol=1e-7, atol=1e-12, err_msg=name)
    assert scores.effective_dof == pytest.approx(expected["leverage"].sum(), rel=1e-8)


@pytest.mark.parametrize("penalize_intercept", [True, False])
def test_weights_soft_targets_and_free_intercepts(penalize_intercept):
    features, _, logits, labels = head(40, 4, 5, seed=1)
    rng = np.random.default_rng(2)
    weight = rng.uniform(0.1, 3, 40)
    soft = 0.85 * np.eye(5)[labels] + 0.03
    design = oracles.with_bias(features)
    penalty = np.array([0.3] * 4 + [0.3 * penalize_intercept])
    expected = oracles.softmax_columns(design, logits, soft, oracles.dense_softmax_curvature(design, logits, penalty, weight), weight)
    scores = ns.record_scores(
        features, logits, soft, task="classification", damping=0.3, sample_weight=weight, penalize_intercept=penalize_intercept
    )
    for name in COLUMNS:
        np.testing.assert_allclose(getattr(scores, name), expected[name], rtol=1e-8, atol=1e-12, err_msg=name)


def test_margin_leverage_primal_and_dual_equal_the_dense_problem():
    for n in (15, 120):  # 15 records < 4·6 contrasts takes the dual, 120 the primal
        features, _, logits, labels = head(n, 5, 5, seed=n)
        expected = oracles.dense_margin_leverage(oracles.with_bias(features), logits, labels, 0.2)
        scores = ns.record_scores(features, logits, labels, damping=0.2, columns=["margin_leverage"])
        np.testing.assert_allclose(scores.margin_leverage, expected, rtol=1e-10)
        assert scores.leverage is None


def test_margin_leverage_without_intercept_penalty_uses_the_primal():
    features, _, logits, labels = head(12, 5, 4, seed=3)
    free = ns.record_scores(features, logits, labels, damping=0.2, penalize_intercept=False).margin_leverage
    near = ns.record_scores(features * 1e-6, logits, labels, damping=0.2 * 1e-12).margin_leverage
    # scaling features and penalty down leaves the weights' problem as it was and takes the penalty off the unit bias column
    np.testing.assert_allclose(free, near, rtol=1e-6)


def test_gls_matrix_is_the_response_to_the_label():
    """Perturb one record's soft label, refit to convergence, difference the predictions ([GLS] Definition 4.1)."""
    features, labels, theta = converged_head(30, 3, 3, damping=0.5, seed=4)
    design, targets = oracles.with_bias(features), np.eye(3)[labels]
    records = [0, 7, 19]
    probability = ns.last_layer_leverage(features, design @ theta, labels, damping=0.5, records=records)
    logit = ns.last_layer_leverage(features, design @ theta, labels, damping=0.5, records=records, space="logit")
    centring = np.eye(3) - 1 / 3
    step = 1e-4
    for k, i in enumerate(records):
        response, logit_response = np.empty((3, 3)), np.empty((3, 3))
        for c in range(3):
            moved = []
            for sign in (1, -1):
                # a contrast keeps the label's total, so every perturbed problem is a proper soft label
                changed = targets.copy()
                changed[i] += sign * step * centring[c]
                moved.append(design[i] @ oracles.softmax_refit(design, changed, np.full(4, 0.5), start=theta))
            response[:, c] = (softmax(moved[0]) - softmax(moved[1])) / (2 * step)
            logit_response[:, c] = centring @ (moved[0] - moved[1]) / (2 * step)
        # central differences: O(step²)
        np.testing.assert_allclose(probability.matrix[k], response, atol=1e-7)
        np.testing.assert_allclose(logit.matrix[k], logit_response, atol=1e-6)
    scores = ns.record_scores(features, design @ theta, labels, damping=0.5)
    np.testing.assert_allclose(probability.trace, scores.leverage[records], rtol=1e-9)
    np.testing.assert_allclose(probability.frobenius, [np.linalg.norm(m) for m in probability.matrix], rtol=1e-12)
    np.testing.assert_allclose(probability.spectral, [np.linalg.svd(m)[1][0] for m in probability.matrix], rtol=1e-12)
    assert scores.stationarity < 1e-8
    assert scores.head_residual < 1e-12


@pytest.mark.parametrize(("space", "task"), [("probability", "binary"), ("logit", "binary"), ("probability", "regression")])
def test_gls_of_one_number_tasks(space, task):
    rng = np.random.default_rng(5)
    features, logits = rng.normal(size=(20, 2)), rng.normal(size=20)
    targets = (rng.random(20) < 0.5).astype(int) if task == "binary" else rng.normal(size=20)
    gls = ns.last_layer_leverage(features, logits, targets, task=task, damping=0.1, space=space)
    scores = ns.record_scores(features, logits, targets, task=task, damping=0.1)
    p = 1 / (1 + np.exp(-logits))
    expected = scores.leverage / (p * (1 - p)) if space == "logit" else scores.leverage
    np.testing.assert_allclose(gls.matrix[:, 0, 0], expected, rtol=1e-10)


def loo_errors(n, *, seed):
    """Median relative error of influence, newton and loo against true leave-one-out refits, riskier half of the records."""
    damping = 0.02 * n / 10
    features, labels, theta = converged_head(n, 3, 3, damping=damping, seed=seed)
    design, targets = oracles.with_bias(features), np.eye(3)[labels]
    scores = ns.record_scores(features, design @ theta, labels, damping=damping)
    truth = np.empty(n)
    for i in range(n):
        keep = np.arange(n) != i
        without = oracles.softmax_refit(design[keep], targets[keep], np.full(4, damping), start=theta)
        truth[i] = np.log(softmax(design[i] @ theta)[labels[i]]) - np.log(softmax(design[i] @ without)[labels[i]])
    top = truth >= np.median(truth)
    return {name: float(np.median(np.abs(getattr(scores, name)[top] / truth[top] - 1))) for name in ("influence", "newton", "loo")}


@pytest.mark.slow
def test_true_refits_loo_beats_newton_beats_influence_and_all_improve_with_n():
    small, large = loo_errors(30, seed=6), loo_errors(120, seed=6)
    for errors in (small, large):
        assert errors["loo"] < errors["newton"] < errors["influence"], errors
    for name in small:
        # first-order gaps have relative error O(1/n), the Newton refit O(1/n²) at best: at least halved by 4 × n
        assert large[name] < 0.5 * small[name], (name, small, large)


@pytest.mark.parametrize(("n", "d", "m"), [(400, 20, 12), (600, 40, 4)])
def test_mixed_precision_equals_float64_and_knows_its_error(n, d, m):
    features, _, logits, labels = head(n, d, m, seed=n, scale=3.0)
    exact = ns.record_scores(features, logits, labels, damping=1e-2 * n, precision="float64")
    mixed = ns.record_scores(features, logits, labels, damping=1e-2 * n, precision="mixed")
    assert exact.precision_error is None
    for name in ("leverage", "influence", "newton", "loo", "shift"):
        truth, value = getattr(exact, name), getattr(mixed, name)
        top = truth >= np.quantile(truth, 0.95)
        np.testing.assert_allclose(value[top], truth[top], rtol=1e-4, err_msg=name)
    probes = np.argsort(-exact.newton)[:8]
    worst = np.abs(mixed.newton[probes] / exact.newton[probes] - 1).max()
    # the estimate covers these records and more, and is right to first order
    assert 0.5 * worst <= mixed.precision_error <= 1e-4


def test_automatic_precision_falls_back_when_float32_cannot_hold(monkeypatch):
    monkeypatch.setattr("noshadow.scores.last_layer.softmax_solver.MIXED_FROM_FLOPS", 0)
    features, _, logits, labels = head(30, 12, 6, seed=8, scale=4.0)
    scores = ns.record_scores(features, logits, labels, damping=1e-4)  # more parameters than records: near interpolation
    exact = ns.record_scores(features, logits, labels, damping=1e-4, precision="float64")
    assert scores.precision == "float64"
    assert any("redone in float64" in note for note in scores.notes)
    np.testing.assert_array_equal(scores.newton, exact.newton)


def test_automatic_precision_keeps_float32_where_it_holds(monkeypatch):
    monkeypatch.setattr("noshadow.scores.last_layer.softmax_solver.MIXED_FROM_FLOPS", 0)
    features, _, logits, labels = head(300, 6, 4, seed=9)
    scores = ns.record_scores(features, logits, labels, damping=1.0)
    assert scores.precision == "mixed"
    assert scores.precision_error < 1e-5
    assert not any("float64" in note for note in scores.notes)


def test_rare_classes_do_not_drown_the_others_in_float32():
    features, _, logits, labels = head(300, 4, 6, seed=10)
    logits[:, 5] -= 60.0  # never predicted: its variance is the prior's, 1/λ
    labels[labels == 5] = 0
    exact = ns.record_scores(features, logits, labels, damping=1e-3, precision="float64")
    mixed = ns.record_scores(features, logits, labels, damping=1e-3, precision="mixed")
    np.testing.assert_allclose(mixed.newton, exact.newton, rtol=1e-4)
    np.testing.assert_allclose(mixed.leverage, exact.leverage, rtol=1e-5)


def test_interpolated_softmax_record_is_infinite():
    rng = np.random.default_rng(11)
    features = np.column_stack([rng.normal(size=(25, 2)), np.eye(25)[:, 3]])
    logits = rng.normal(size=(25, 3))
    scores = ns.record_scores(features, logits, rng.integers(0, 3, 25), damping=0.0)
    assert np.isinf(scores.newton).nonzero()[0].tolist() == [3]
    assert np.isinf(scores.loo).nonzero()[0].tolist() == [3]
    assert np.isinf(scores.shift).nonzero()[0].tolist() == [3]
    assert scores.leverage[3] == pytest.approx(2.0)  # m − 1
    assert not any(np.isnan(column).any() for column in scores.columns().values())


def test_a_head_that_is_not_linear_in_the_features_is_noted():
    features, _, logits, labels = head(60, 3, 3, seed=12)
    scores = ns.record_scores(features, np.tanh(logits), labels)
    assert scores.head_residual > 0.01
    assert any("not a linear function of the features" in note for note in scores.notes)


def test_memory_is_refused_before_it_is_taken():
    features, _, logits, labels = head(30, 3, 3, seed=13)
    with pytest.raises(ns.InputError, match=r"record_scores: \(classes − 1\) × features must be small enough.*Raise max_memory"):
        ns.record_scores(features, logits, labels, max_memory=1000)


def test_float32_is_not_trusted_with_a_class_that_never_occurs(monkeypatch):
    """Its logit's variance is the prior's, and the difference that moves it is lost in float32: shift must not be ranked on that."""
    monkeypatch.setattr("noshadow.scores.last_layer.softmax_solver.MIXED_FROM_FLOPS", 0)
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(300, 3)), np.arange(300) % 4
    logits = np.column_stack([features @ rng.normal(size=(3, 4)), features[:, 0] - 26])
    exact = ns.record_scores(features, logits, labels, damping=1e-8, precision="float64")
    assert ns.record_scores(features, logits, labels, damping=1e-8, precision="mixed").precision_error > 1e-4
    automatic = ns.record_scores(features, logits, labels, damping=1e-8)
    assert automatic.precision == "float64"
    np.testing.assert_array_equal(automatic.shift, exact.shift)


@pytest.mark.parametrize(("scale", "offset", "damping"), [(20.0, 0.0, 1e-8), (1.0, -50.0, 1e-12), (1.0, -30.0, 1e-6)])
def test_gls_trace_equals_leverage_for_saturated_and_rare_classes(scale, offset, damping):
    features, _, logits, labels = head(40, 2, 3, seed=30)
    logits = logits * scale
    logits[:, 2] += offset
    labels[labels == 2] = 0
    scores = ns.record_scores(features, logits, labels, damping=damping, columns=["leverage"])
    gls = ns.last_layer_leverage(features, logits, labels, damping=damping)
    np.testing.assert_allclose(gls.trace, scores.leverage, rtol=1e-7)
    np.testing.assert_allclose(gls.matrix.sum(1), 0, atol=1e-9 * np.abs(gls.matrix).max())


def test_margin_leverage_that_cannot_be_factored_leaves_the_rest():
    features, _, logits, labels = head(40, 2, 3, seed=31)
    logits[:, 2] -= 60
    labels[labels == 2] = 0
    scores = ns.record_scores(features, logits, labels, damping=0.0)
    assert scores.margin_leverage is None
    assert scores.not_applicable["margin_leverage"].startswith("not available: ")
    assert np.isfinite(scores.leverage).all()


def test_one_hot_floats_are_labels_and_soft_rows_are_scaled_to_one():
    features, _, logits, labels = head(30, 3, 3, seed=32)
    logits[:3] *= 40
    one_hot = ns.record_scores(features, logits, np.eye(3)[labels], task="classification", damping=1.0)
    plain = ns.record_scores(features, logits, labels, damping=1.0)
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(one_hot, name), getattr(plain, name), err_msg=name)
    soft = 0.9 * np.eye(3)[labels] + 0.1 / 3
    soft[0] *= 1.00005
    moved = logits.copy()
    moved[0] += 1e4
    first = ns.record_scores(features, logits, soft, task="classification", damping=1.0)
    second = ns.record_scores(features, moved, soft, task="classification", damping=1.0)
    np.testing.assert_allclose(first.loss, second.loss, rtol=1e-9)

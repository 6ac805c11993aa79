"""Invariants of every score, on random heads of every task."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

import noshadow as ns

TASKS = ("regression", "binary", "classification")
# rotations and permutations reorder sums: rounding times the condition of these small random designs
ROUNDING = {"rtol": 1e-6, "atol": 1e-9}


def problem(task, seed, *, n=None):
    """A random head: features of mixed scales, outputs linear in them, targets with noise."""
    rng = np.random.default_rng(seed)
    n = n or int(rng.integers(8, 40))
    d, m = int(rng.integers(1, 6)), int(rng.integers(2, 5))
    features = rng.normal(size=(n, d)) * np.exp(rng.normal(size=d))
    outputs = features @ rng.normal(size=(d, m if task != "binary" else 1)) + rng.normal(size=m if task != "binary" else 1)
    if task == "regression":
        return features, outputs, outputs + rng.normal(size=outputs.shape)
    labels = rng.integers(0, m if task == "classification" else 2, n)
    labels[:2] = [0, 1]
    return features, outputs, labels


def scored(task, features, outputs, targets, **options):
    return ns.record_scores(features, outputs, targets, task=task, **({"damping": 0.1} | options))


def assert_same(first, second, **tolerance):
    assert first.columns().keys() == second.columns().keys()
    for name, column in first.columns().items():
        np.testing.assert_allclose(column, second.columns()[name], err_msg=name, **(ROUNDING | tolerance))


seeds = st.integers(0, 2**32 - 1)
tasks = st.sampled_from(TASKS)
light = settings(max_examples=25, deadline=None)


@light
@given(tasks, seeds, st.sampled_from([1e-6, 0.1, 10.0]))
def test_ranges_and_order_of_the_gaps(task, seed, damping):
    features, outputs, targets = problem(task, seed)
    scores = scored(task, features, outputs, targets, damping=damping)
    m = outputs.shape[1]
    top = m - 1 if task == "classification" else 1
    assert (scores.leverage >= 0).all()
    assert (scores.leverage <= top + 1e-9).all()
    assert scores.effective_dof == pytest.approx(scores.leverage.sum(), rel=1e-12)
    assert scores.effective_dof <= (features.shape[1] + 1) * top + 1e-9
    assert (scores.newton >= scores.influence * (1 - 1e-9)).all()
    for name in ("influence", "newton", "loo", "shift"):
        assert (getattr(scores, name) >= -1e-12).all(), name
    if task != "regression":
        assert ((scores.margin_leverage >= 0) & (scores.margin_leverage <= 1)).all()
        assert (scores.entropy >= 0).all()


@light
@given(tasks, seeds)
def test_degrees_of_freedom_equal_the_trace(task, seed):
    """Σh = tr(𝓗₀(𝓗₀ + λI)⁻¹), from the eigenvalues of a dense curvature."""
    features, outputs, targets = problem(task, seed)
    design = np.column_stack([features, np.ones(len(features))])
    if task == "classification":
        p = np.exp(outputs - outputs.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        dense = sum(np.kron(np.diag(q) - np.outer(q, q), np.outer(g, g)) for q, g in zip(p, design, strict=True))
    else:
        q = 1 / (1 + np.exp(-outputs[:, 0]))
        weight = q * (1 - q) if task == "binary" else np.ones(len(q))
        dense = (design * weight[:, None]).T @ design
    values = np.clip(np.linalg.eigvalsh(dense), 0, None)
    assert scored(task, features, outputs, targets).effective_dof == pytest.approx((values / (values + 0.1)).sum(), rel=1e-8)


@light
@given(tasks, seeds)
def test_permuting_records_permutes_scores(task, seed):
    features, outputs, targets = problem(task, seed)
    order = np.random.default_rng(seed).permutation(len(features))
    straight = scored(task, features, outputs, targets)
    shuffled = scored(task, features[order], outputs[order], targets[order])
    for name, column in straight.columns().items():
        np.testing.assert_allclose(column[order], shuffled.columns()[name], err_msg=name, **ROUNDING)


@light
@given(tasks, seeds)
def test_rotating_features_changes_nothing_under_isotropic_damping(task, seed):
    features, outputs, targets = problem(task, seed)
    rotation = ortho_group.rvs(features.shape[1], random_state=seed % 2**31) if features.shape[1] > 1 else np.array([[-1.0]])
    assert_same(scored(task, features, outputs, targets), scored(task, features @ rotation, outputs, targets))


@light
@given(seeds)
def test_relabelling_classes_changes_nothing(seed):
    features, outputs, targets = problem("classification", seed)
    order = np.random.default_rng(seed).permutation(outputs.shape[1])
    renamed = np.argsort(order)[targets]
    first = scored("classification", features, outputs, targets)
    assert_same(first, scored("classification", features, outputs[:, order], renamed))


@light
@given(tasks, seeds)
def test_duplicates_share_leverage(task, seed):
    features, outputs, targets = problem(task, seed)
    twice = [np.concatenate([a, a[:1]]) for a in (features, outputs, targets)]
    alone, shared = scored(task, features, outputs, targets), scored(task, *twice)
    assert shared.leverage[0] == pytest.approx(shared.leverage[-1], rel=1e-9)
    assert shared.leverage[0] < alone.leverage[0]
    assert shared.newton[0] <= alone.newton[0]


@light
@given(tasks, seeds)
def test_damping_limits(task, seed):
    features, outputs, targets = problem(task, seed, n=30)
    heavy = scored(task, features, outputs, targets, damping=1e12)
    assert heavy.effective_dof < 1e-6
    assert heavy.newton.max() < 1e-6
    assert heavy.loo.max() < 1e-6
    light_damping, none = scored(task, features, outputs, targets, damping=1e-12), scored(task, features, outputs, targets, damping=0.0)
    np.testing.assert_allclose(light_damping.leverage, none.leverage, rtol=1e-6, atol=1e-9)


@light
@given(tasks, seeds, st.integers(1, 50))
def test_block_size_does_not_matter(task, seed, block_size):
    features, outputs, targets = problem(task, seed)
    assert_same(scored(task, features, outputs, targets), scored(task, features, outputs, targets, block_size=block_size))


@light
@given(tasks, seeds)
def test_dtype_and_container_do_not_matter(task, seed):
    features, outputs, targets = problem(task, seed)
    narrow = features.astype(np.float32), outputs.astype(np.float32)
    double = scored(task, narrow[0].astype(np.float64), narrow[1].astype(np.float64), targets)
    assert_same(double, scored(task, *narrow, targets))
    lists = scored(task, narrow[0].tolist(), narrow[1].tolist(), targets.tolist())
    assert_same(double, lists)


@pytest.mark.parametrize("task", TASKS)
def test_inputs_are_untouched_and_results_repeat(task):
    features, outputs, targets = problem(task, 7)
    arrays = (features, outputs, targets)
    copies = [a.copy() for a in arrays]
    for a in arrays:
        a.flags.writeable = False
    first, second = scored(task, *arrays), scored(task, *arrays)
    for a, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(a, copy)
    for name, column in first.columns().items():
        assert column.dtype == np.float64
        assert column.shape == (len(features),)
        np.testing.assert_array_equal(column, second.columns()[name])


@pytest.mark.parametrize("task", TASKS)
def test_an_outlier_outranks_a_duplicate(task):
    features, outputs, targets = problem(task, 21, n=40)
    features[1] = features[0]
    outputs[1] = outputs[0]
    targets[1] = targets[0]
    features[2] *= 30
    scores = scored(task, features, outputs, targets)
    assert scores.leverage[2] > scores.leverage[0]


def test_automatic_damping_is_small_relative_and_reported():
    features, outputs, targets = problem("classification", 3)
    scores = ns.record_scores(features, outputs, targets)
    rescaled = ns.record_scores(features * 10, outputs, targets, fit_intercept=False)
    plain = ns.record_scores(features, outputs, targets, fit_intercept=False)
    assert scores.damping_source.startswith("automatic")
    assert rescaled.damping_used == pytest.approx(100 * plain.damping_used)


def test_errors_name_the_rule():
    features, outputs, targets = problem("classification", 3)
    with pytest.raises(ns.InputError, match=r"record_scores: damping must be a number ≥ 0; got -0\.1"):
        scored("classification", features, outputs, targets, damping=-0.1)
    with pytest.raises(ns.InputError, match="record_scores: damping must be a number ≥ 0; got 'small'"):
        scored("classification", features, outputs, targets, damping="small")
    with pytest.raises(ns.InputError, match=r"record_scores: columns must be among loss, .*; got 'risk'"):
        scored("classification", features, outputs, targets, columns=["risk"])
    with pytest.raises(ns.InputError, match="record_scores: columns must be a list of column names; got 'loss'"):
        scored("classification", features, outputs, targets, columns="loss")
    with pytest.raises(ns.InputError, match="record_scores: precision must be one of"):
        scored("classification", features, outputs, targets, precision="float16")
    with pytest.raises(ns.InputError, match="record_scores: sample_weight must be ≥ 0 and not all zero"):
        scored("classification", features, outputs, targets, sample_weight=-np.ones(len(features)))
    with pytest.raises(ns.InputError, match="record_scores: block_size must be a whole number ≥ 1; got 0"):
        scored("classification", features, outputs, targets, block_size=0)
    with pytest.raises(ns.InputError, match=r"outputs must have at least 2 columns in classification.*Pass task='binary'"):
        scored("classification", features, outputs[:, :1], targets)
    with pytest.raises(ns.InputError, match="outputs must have one column in a binary task"):
        scored("binary", features, outputs, targets)
    with pytest.raises(ns.InputError, match="features must not all be zero"):
        scored("classification", features * 0, outputs, targets, fit_intercept=False)
    with pytest.raises(ns.InputError, match="features must have at least one column when fit_intercept=False"):
        scored("classification", features[:, :0], outputs, targets, fit_intercept=False)
    with pytest.raises(ns.InputError, match="record_scores: features must stay within"):
        scored("classification", features * 1e160, outputs, targets)
    with pytest.raises(ns.NumericalError, match="non-positive or infinite diagonal entries"):
        scored("classification", features * 1e-160, outputs, targets, damping=0.0, fit_intercept=False)
    with pytest.raises(ns.NumericalError, match="Raise the damping"):
        scored("classification", features, np.eye(outputs.shape[1])[targets] * 1e4, targets, damping=0.0)
    with pytest.raises(ns.InputError, match="last_layer_leverage: records must be row numbers from 0 to"):
        ns.last_layer_leverage(features, outputs, targets, records=[10_000])
    with pytest.raises(ns.InputError, match="last_layer_leverage: space must be one of"):
        ns.last_layer_leverage(features, outputs, targets, space="loss")


def test_not_applicable_columns_say_why():
    features, outputs, targets = problem("regression", 3)
    scores = scored("regression", features, outputs, targets)
    assert scores.entropy is None
    assert scores.margin_leverage is None
    assert set(scores.not_applicable) == {"entropy", "margin_leverage"}
    assert all(reason.startswith("not applicable: ") for reason in scores.not_applicable.values())
    only = scored("regression", features, outputs, targets, columns=["loo"])
    assert list(only.columns()) == ["loo"]
    assert not only.not_applicable

"""Features that training has all but switched off: scores are those without them, for every head and however they are read."""

import numpy as np
import pytest

import noshadow as ns

N = 120
TASKS = ("classification", "binary", "regression")
# Scores without a feature of size 1e-6 and less differ from those with it by n·1e-12/λ, about 1e-9; the rest is rounding.
CLOSE = {"rtol": 1e-6, "atol": 1e-9}


def made(task, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 4))
    outputs = x @ rng.normal(size=(4, 3))
    labels = (outputs + rng.gumbel(size=outputs.shape)).argmax(1)
    if task == "classification":
        return x, outputs, labels
    return (x, outputs[:, :1], (labels == 0).astype(int)) if task == "binary" else (x, outputs[:, :1], outputs[:, 0] + rng.normal(size=N))


def rarely_active(size, seed=1):
    rng = np.random.default_rng(seed)
    return size * rng.random((N, 1)) * (rng.random((N, 1)) < 0.05)


def same(a, b):
    for name, values in a.columns().items():
        if name != "gradient_norm":
            np.testing.assert_allclose(b.columns()[name], values, **CLOSE, err_msg=name)


@pytest.mark.parametrize("size", [1e-6, 1e-8, 1e-13, 1e-32, 1e-150])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("bias", [{}, {"penalize_intercept": False}, {"fit_intercept": False}])
def test_a_faint_feature_changes_nothing(task, size, bias):
    x, outputs, y = made(task)
    plain = ns.record_scores(x, outputs, y, task=task, damping=0.1, **bias)
    found = ns.record_scores(np.c_[x[:, :2], rarely_active(size), x[:, 2:]], outputs, y, task=task, damping=0.1, **bias)
    same(plain, found)
    assert found.effective_dof == pytest.approx(plain.effective_dof, rel=1e-8)
    assert any("were left out" in note for note in found.notes) and found.rank == plain.rank + 1
    assert found.condition < 1e4 and found.jitter == 0


@pytest.mark.parametrize("task", TASKS)
def test_a_nearly_collinear_feature_changes_nothing(task):
    """Its direction is faint, its column is not: the two columns share the weight, as one √2 times as long would."""
    x, outputs, y = made(task)
    twin = x[:, :1] + 1e-9 * np.random.default_rng(2).normal(size=(N, 1))
    found = ns.record_scores(np.c_[x, twin], outputs, y, task=task, damping=0.1)
    longer = ns.record_scores(np.c_[np.sqrt(2) * x[:, :1], x[:, 1:]], outputs, y, task=task, damping=0.1)
    same(longer, found)


@pytest.mark.parametrize("task", TASKS)
def test_shards_leave_out_the_same(task):
    x, outputs, y = made(task)
    wide = np.c_[x, rarely_active(1e-12)]
    for damping in (0.1, "auto"):
        whole = ns.record_scores(wide, outputs, y, task=task, damping=damping)
        parts = ns.sharded_record_scores(wide, outputs, y, task=task, damping=damping, shards=3, workers=1)
        same(whole, parts)
        assert parts.rank == whole.rank and any("were left out" in note for note in parts.notes)


def test_leverage_matrices_leave_it_out_too():
    x, outputs, y = made("classification")
    plain = ns.last_layer_leverage(x, outputs, y, damping=0.1)
    found = ns.last_layer_leverage(np.c_[x, rarely_active(1e-13)], outputs, y, damping=0.1)
    np.testing.assert_allclose(found.matrix, plain.matrix, **CLOSE)


@pytest.mark.parametrize("task", TASKS)
def test_small_units_are_not_faint_while_the_penalty_is_as_small(task):
    """Without a penalty, or with one in the feature's own units, a feature counts whatever its units are."""
    x, outputs, y = made(task)
    small = np.c_[x[:, :3], 1e-9 * x[:, 3:]]
    for damping in (0.0, 1e-20):
        found = ns.record_scores(small, outputs, y, task=task, damping=damping)
        assert not any("were left out" in note for note in found.notes)
        dof = ns.record_scores(x, outputs, y, task=task, damping=0.0).effective_dof
        assert found.effective_dof == pytest.approx(dof, rel=0.02 if damping else 1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_an_enormous_penalty_leaves_every_direction(task):
    x, outputs, y = made(task)
    found = ns.record_scores(x, outputs, y, task=task, damping=1e30)
    assert found.rank == 5 and not any("were left out" in note for note in found.notes)
    assert 0 < found.leverage.max() < 1e-25

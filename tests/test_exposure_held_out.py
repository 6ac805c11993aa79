"""Margins of left-out references held against their spread: by dense algebra, on data from the model, and at two ends."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import noshadow as ns
from noshadow import NotApplicable
from noshadow._exposure import entry
from noshadow._exposure.held_out import FARTHER, left_out_margins, tail_of
from noshadow._exposure.posterior import level_variances
from noshadow._exposure.spread import Spreads
from test_exposure import drawn

SLOPES = np.array([[1.0, -0.4], [-0.4, 0.5]])


def known_spreads(n, out=1.0, inside=1.0):
    level = np.array([np.full(n, out), np.full(n, inside)])
    return Spreads(level, level, np.full((2, n), np.inf), np.inf, np.zeros((2, 2)))


def two_ends(n, models, seed):
    """A network that is sure of its mistakes: without a record it is surely right or surely wrong, and the record decides how often."""
    rng = np.random.default_rng(seed)
    chance = rng.uniform(0.45, 0.55, n)
    inside = rng.random((models, n)) < 0.5
    right = inside | (rng.random((models, n)) < chance)
    return 4.0 + 0.4 * rng.normal(size=n), {"shift": -chance}, np.where(right, 4.0, -4.0) + 0.4 * rng.normal(size=(models, n)), inside


def test_variances_of_levels_are_those_of_the_joint_posterior():
    counts, variances, scales = np.array([[2.0], [1.0]]), np.array([[0.5], [0.8]]), np.array([[1.3], [0.7]])
    prior = np.diag(scales[:, 0]) @ SLOPES @ np.diag(scales[:, 0])
    design = np.array([[1.0, 0.0], [1.0, 1.0]])
    joint = np.linalg.inv(np.linalg.inv(prior) + design.T @ np.diag(counts[:, 0] / variances[:, 0]) @ design)
    expected = [design[side] @ joint @ design[side] for side in (0, 1)]
    # The prior is inverted with a jitter of 1e-10 of its trace.
    np.testing.assert_allclose(level_variances(counts, SLOPES, variances, scales)[:, 0], expected, rtol=1e-8)


def test_a_left_out_margin_is_measured_by_what_the_others_say():
    """Models 0 and 3 had not seen the record; each is left out in turn, (a, b) given the three others by dense algebra."""
    inside = np.array([[False], [True], [True], [False]])
    rows, expected, variances = np.array([[0.3], [9.0], [1.4], [-2.0]]), np.array([[0.2], [0.9]]), np.array([0.6, 0.4])
    found = left_out_margins(rows, inside, expected, SLOPES, known_spreads(1, *variances), None)
    wanted = []
    for left in (0, 3):
        others = [k for k in range(4) if k != left]
        design, noise = np.array([[1.0, float(inside[k, 0])] for k in others]), np.array([variances[int(inside[k, 0])] for k in others])
        joint = np.linalg.inv(np.linalg.inv(SLOPES) + design.T @ np.diag(1 / noise) @ design)
        level = (joint @ design.T @ ((rows[others, 0] - design @ expected[:, 0]) / noise) + expected[:, 0])[0]
        wanted.append((rows[left, 0] - level) / np.sqrt(variances[0] + joint[0, 0]))
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


def test_a_left_out_margin_is_not_part_of_its_own_spread():
    """The record's spread is shrunk from the three other margins without it: with its own it would never seem far."""
    rows, inside = np.array([[0.1], [-0.2], [0.3], [8.0]]), np.zeros((4, 1), dtype=bool)
    spreads = replace(known_spreads(1), prior=2.0, record=np.array([[(2 + np.var(rows) * 4) / 5], [1.0]]))
    found = left_out_margins(rows, inside, np.zeros((2, 1)), SLOPES, spreads, None)
    wanted = []
    for left in range(4):
        others = np.delete(rows[:, 0], left)
        spread = (2.0 + 3 * np.var(others)) / (2.0 + 2)
        variance = 1 / (1 / SLOPES[0, 0] + 3 / spread)
        wanted.append((rows[left, 0] - variance * others.sum() / spread) / np.sqrt(spread + variance))
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
    assert found[3] > 6


def test_margins_are_judged_as_they_were_given(monkeypatch):
    """What all records share is estimated from margins that are drawn in; a margin that is far is far."""
    margins, covariates, references, inside, _ = drawn(1000, 4, 0)
    references[:, 0] += np.array([300.0, 0.0, 0.0, -300.0])
    asked = []
    monkeypatch.setattr(entry, "left_out_margins", lambda rows, *more: asked.append(rows) or left_out_margins(rows, *more))
    ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    np.testing.assert_array_equal(asked, [references])


def test_models_of_one_record_and_unknown_margins_are_not_asked():
    inside = np.zeros((2, 3), dtype=bool)
    rows = np.array([[1.0, np.nan, 0.0], [0.5, 2.0, np.nan]])
    assert len(left_out_margins(rows, inside, np.zeros((2, 3)), SLOPES, known_spreads(3), None)) == 2


@pytest.mark.parametrize("models", [2, 4, 8, 32])
def test_on_data_from_the_model_margins_reach_as_far_as_they_say(models):
    margins, covariates, references, inside, _ = drawn(4000, models, models)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    # A spread that is estimated from few margins makes tails a little longer.
    assert found.state.tail.ratio == pytest.approx(1.0, abs=0.05) and not found.order_only
    assert found.state.tail.margins == (~inside).sum()


@pytest.mark.parametrize(("models", "records", "judged"), [(4, 30_000, 20_000), (16, 12_000, 10_000), (80, 3000, 2500)])
def test_of_many_records_a_part_is_judged(models, records, judged):
    margins, covariates, references, inside, _ = drawn(records, models, 1)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    asked = inside[np.linspace(0, models - 1, min(models, 64)).astype(int)][:, np.linspace(0, records - 1, judged).astype(int)]
    assert found.state.tail.margins == (~asked).sum()
    assert found.state.tail.ratio == pytest.approx(1.0, abs=0.03) and not found.order_only


@pytest.mark.parametrize("seed", range(4))
def test_offsets_of_whole_models_are_no_short_reach(seed):
    """Every model is asked: the mean offset of a part of them would move the reach, and refuse one set in twenty."""
    margins, covariates, references, inside, _ = drawn(1000, 32, seed)
    moved = references + 0.5 * np.random.default_rng(seed).normal(size=(32, 1))
    found = ns.exposure(margins, covariates=covariates, references=moved, membership=inside)
    assert found.state.tail.ratio == pytest.approx(1.0, abs=0.04) and not found.order_only
    # Nor does it matter which of them comes first.
    turned = ns.exposure(margins, covariates=covariates, references=moved[::-1], membership=inside[::-1])
    assert turned.state.tail.ratio == pytest.approx(found.state.tail.ratio, rel=1e-6)


def test_where_no_left_out_margin_can_be_asked_nothing_is_refused_and_nothing_stored():
    margins, covariates, references, inside, _ = drawn(400, 100, 0)
    # The 64 models that would be left out say nothing of records that they had not.
    asked = np.linspace(0, 99, 64).astype(int)
    references[asked] = np.where(inside[asked], references[asked], np.nan)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    assert found.state.tail is None and not found.order_only


def test_signed_residuals_reach_as_far_on_both_sides():
    rng = np.random.default_rng(0)
    inside, level = rng.random((6, 3000)) < 0.5, rng.normal(size=3000)
    references = level * np.where(inside, 0.4, 1.0) + 0.5 * rng.normal(size=(6, 3000))
    margins = 0.4 * level + 0.5 * rng.normal(size=3000)
    found = ns.exposure(margins, references=references, membership=inside, direction="either")
    assert found.state.tail.ratio == pytest.approx(1.0, abs=0.06) and not found.order_only


def test_margins_at_two_ends_give_the_order_only():
    margins, covariates, references, inside = two_ends(4000, 16, 0)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    assert found.order_only and np.isnan(found.interval).all() and "times as far as their spread says" in found.reason
    # The order is that of known sizes.
    assert found.rule == "separation / √spread"
    with pytest.raises(NotApplicable, match="sure of its mistakes"):
        found.tpr(0.05)


@pytest.mark.parametrize("either", [False, True])
@pytest.mark.parametrize(
    ("far", "refused"), [(0.7, True), (0.8, True), (0.86, False), (0.93, False), (1.0, False), (1.07, False), (1.3, False)]
)
def test_margins_that_end_too_early_are_refused(far, refused, either):
    tail = tail_of(far * norm.ppf((np.arange(50_000) + 0.5) / 50_000), either)
    assert tail.ratio == pytest.approx(far, rel=1e-3) and tail.refused == refused
    assert FARTHER == 1.2


@pytest.mark.parametrize("either", [False, True])
def test_the_tail_knows_its_error(either):
    rng = np.random.default_rng(0)
    ratios = np.array([tail_of(1.2 * rng.normal(size=500), either).ratio for _ in range(300)])
    # The quantile of 500 margins: three standard errors of the mean of 300, and of their deviation.
    assert ratios.mean() == pytest.approx(1.2, abs=0.02)
    assert ratios.std() / 1.2 == pytest.approx(tail_of(rng.normal(size=500), either).error, rel=0.15)


def test_few_margins_are_not_taken_for_another_law():
    rng = np.random.default_rng(0)
    assert np.mean([tail_of(rng.normal(size=150), False).refused for _ in range(400)]) < 0.02

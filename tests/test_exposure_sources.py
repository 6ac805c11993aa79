"""Sources of evidence on one scale: the line through test records, levels of short references, and what gives order only."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from noshadow._exposure import Source, line_to, weighed
from noshadow._exposure.sources import level_without
from noshadow.metrics import spearman
from noshadow.sizing import LEAST_TEST_RECORDS

N, TEST = 1500, 800


def drawn(models, seed, *, offset=0.0, scale=1.0, early=False):
    """An audited model's margins and a source of other models, whose margins are on another scale: y → (y − offset) / scale."""
    rng = np.random.default_rng(seed)
    level, slope = rng.normal(size=N), 1 + 0.5 * rng.normal(size=N)
    inside = rng.random((models, N)) < 0.5
    noise = 0.6
    margins = level + slope + noise * rng.normal(size=N)
    rows = level + inside * slope + noise * rng.normal(size=inside.shape)
    unseen = rng.normal(size=TEST)
    test = unseen + noise * rng.normal(size=TEST)
    theirs = unseen + noise * rng.normal(size=(models, TEST))
    theirs[rng.random(theirs.shape) < 0.5] = np.nan
    source = Source("reference models", {}, (rows - offset) / scale, inside, (theirs - offset) / scale, early=early, trainings=models)
    return margins, test, source, level, slope / noise


def test_the_line_of_an_equal_model_is_the_identity():
    """A regression of one noisy margin on the other would have the slope 1 / (1 + 0.36) = 0.74."""
    _, test, source, _, _ = drawn(8, 0)
    line = line_to(source, test)
    # 800 records that both share: the ratio of two standard deviations has an error of about 0.02.
    assert line.slope == pytest.approx(1, abs=0.06)
    assert line.offset == pytest.approx(0, abs=0.06)


def test_a_source_on_another_scale_says_the_same():
    plain = drawn(6, 1)
    moved = drawn(6, 1, offset=-3.0, scale=0.2)
    ours, theirs = (weighed(margins, test, [source]) for margins, test, source, _, _ in (plain, moved))
    assert not theirs.order_only
    # An affine map is undone to rounding; the likelihood's optimiser stops at about 1e-6.
    np.testing.assert_allclose(theirs.d_prime, ours.d_prime, rtol=1e-4, atol=1e-4)


def test_an_offset_without_the_line_would_pass_for_leakage():
    margins, test, source, _, truth = drawn(6, 2, offset=1.0)
    on_scale = weighed(margins, test, [source])
    assert np.median(on_scale.d_prime) == pytest.approx(np.median(truth), abs=0.25)
    assert abs(np.mean((on_scale.interval[:, 0] <= truth) & (truth <= on_scale.interval[:, 1])) - 0.9) < 0.05


def test_without_test_records_there_is_an_order_only():
    margins, test, source, _, truth = drawn(4, 3)
    few = LEAST_TEST_RECORDS - 1
    found = weighed(margins, test[:few], [replace(source, test_margins=source.test_margins[:, :few])])
    assert found.order_only and np.isnan(found.interval).all()
    known = int((~np.isnan(source.test_margins[:, :few])).any(0).sum())
    assert f"there are {known}" in found.reason
    assert spearman(truth, found.score) > 0.5
    assert weighed(margins, test, [replace(source, test_margins=None)]).order_only


def test_short_references_rank_by_the_level_without_the_record():
    margins, test, source, level, _ = drawn(3, 4, early=True)
    found = weighed(margins, test, [source])
    assert found.order_only and "level without the record" in found.rule
    estimate = level_without(source, margins, {}, "larger")
    assert np.array_equal(found.score, -estimate)
    outside = np.where(source.membership, np.nan, source.margins)
    seen = ~source.membership.all(0)
    plain = np.nanmean(outside[:, seen], axis=0)
    # Shrinking three margins must beat their plain mean, whose error is at least 0.36 / 3.
    assert np.mean((estimate - level)[seen] ** 2) < 0.8 * np.mean((plain - level[seen]) ** 2)


def test_one_reference_ranks_with_the_free_columns_and_the_level():
    """With one model per record the separation is known badly: the free columns and the level without the record count as much."""
    margins, test, source, _, truth = drawn(1, 6)
    shift = truth + np.random.default_rng(0).normal(size=N)
    alone, told = (weighed(margins, test, [source], free=free) for free in ({}, {"shift": shift}))
    assert told.order_only and told.rule == "mean rank of separation, level without the record and free columns"
    assert spearman(truth, told.score) > spearman(truth, alone.score) + 0.1


def test_the_best_order_without_a_single_other_model():
    rng = np.random.default_rng(5)
    margins, columns = rng.normal(size=N), {name: rng.normal(size=N) for name in ("shift", "early_loss")}
    assert weighed(margins, np.empty(0), [], free={"shift": columns["shift"]}).rule == "shift"
    traced = weighed(margins, np.empty(0), [Source("traces", {"early_loss": columns["early_loss"]})], free={"shift": columns["shift"]})
    assert traced.rule == "mean rank of shift, early_loss"
    # Two columns count alike: their normal scores are added.
    ranks = sum(norm.ppf((rankdata(columns[name]) - 0.5) / N) for name in columns)
    np.testing.assert_array_equal(np.argsort(traced.score), np.argsort(ranks))
    alone = weighed(margins, np.empty(0), [Source("traces", {"early_loss": columns["early_loss"]})])
    assert alone.rule == "early_loss" and np.array_equal(alone.score, columns["early_loss"])
    assert weighed(margins, np.empty(0), []).rule == "−margin"

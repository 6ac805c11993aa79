"""Sources of evidence on one scale: the line through test records, levels of short references, and what gives order only."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from noshadow._exposure import Source, line_to, parted, weighed
from noshadow._exposure.sources import FOLDS, ORIGIN, REFERENCES, level_without
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


def started_from(level, seed, *, noise):
    """A base: its margins of the records and of test records, a level and noise; an untrained head is noise alone."""
    rng = np.random.default_rng(seed)
    margins = level + noise * rng.normal(size=N)
    return Source("base model", {}, margins[None], np.zeros((1, N), bool), noise * rng.normal(size=(1, TEST)), role=ORIGIN)


@pytest.mark.parametrize("models", [2, 4])
@pytest.mark.parametrize("first", [True, False])
def test_an_untrained_base_beside_references_moves_neither_spread_nor_size(models, first):
    """As one more model without the records it would be their spread: rates far below a guess, and the order upside down."""
    margins, test, source, _, truth = drawn(models, 7)
    nothing = started_from(np.zeros(N), 8, noise=2.0)
    alone, both = (weighed(margins, test, sources) for sources in ([source], [nothing, source] if first else [source, nothing]))
    assert not both.order_only
    # A column of noise takes a few of 1,500 records' worth: a percent of the spread, and of the rates.
    assert np.median(both.spread_out) == pytest.approx(np.median(alone.spread_out), rel=0.03)
    assert both.tpr(0.05).mean() == pytest.approx(alone.tpr(0.05).mean(), rel=0.03)
    assert spearman(truth, both.score) > spearman(truth, alone.score) - 0.02


def test_a_good_base_beside_references_helps_or_does_no_harm():
    told = {"alone": [], "beside": []}
    for seed in range(4):
        margins, test, source, level, truth = drawn(2, 20 + seed)
        base = started_from(level, 40 + seed, noise=0.6)
        for name, sources in (("alone", [source]), ("beside", [base, source])):
            found = weighed(margins, test, sources)
            cover = ((found.interval[:, 0] <= truth) & (truth <= found.interval[:, 1])).mean()
            told[name].append((spearman(truth, found.score), cover))
    (order, _), (better, cover) = np.mean(told["alone"], axis=0), np.mean(told["beside"], axis=0)
    # 6,000 records: a cover of 0.9 has a standard error of 0.004, the variances' own noise some 0.01 beside it.
    assert better > order and abs(cover - 0.9) < 0.03


def test_a_base_is_an_observation_only_where_nothing_else_has_margins():
    margins, test, source, level, _ = drawn(1, 9)
    base, early = started_from(level, 10, noise=0.6), replace(source, name="short references", early=True)
    unscaled = replace(started_from(level, 11, noise=0.6), name="out of fold", test_margins=None, role=FOLDS)
    for beside in (source, early, unscaled):
        parts = parted([base, beside], test)
        assert parts.aside == (base,) and parts.rows == (() if beside is early else (beside,))
        assert (
            not np.array_equal(weighed(margins, test, [beside]).score, weighed(margins, test, [base, beside]).score) or beside is unscaled
        )
    assert parted([base], test).rows == (base,) and weighed(margins, test, [base]).order_only


def test_a_base_identifies_no_sizes():
    """Three references of which each record is in two: the base would be the second margin without it."""
    margins, test, source, level, _ = drawn(3, 12)
    inside = np.arange(3)[:, None] != np.arange(N) % 3
    found = weighed(margins, test, [started_from(level, 13, noise=0.6), replace(source, membership=inside)])
    assert found.order_only and "0 records have margins of two models trained without them" in found.reason


def cross_fit(folds, seed, *, apart=0.6):
    """An audited model, folds of its records, references, and the truth: noise of the folds is `apart`, of the others 0.6."""
    margins, test, source, level, truth = drawn(2, seed)
    rng = np.random.default_rng(seed + 100)
    inside = np.arange(folds)[:, None] != np.arange(N) % folds
    rows = level + inside * 0.6 * truth + apart * rng.normal(size=inside.shape)
    unseen = rng.normal(size=(folds, TEST))
    return margins, test, source, Source("folds", {}, rows, inside, unseen, role=FOLDS), truth


def test_one_reference_beside_folds_gives_the_order_only():
    """Together half of the records have two margins without them, but one of these is no other draw of the audited training."""
    margins, test, source, folds, truth = cross_fit(3, 14)
    one = replace(source, margins=source.margins[:1], membership=source.membership[:1], test_margins=source.test_margins[:1])
    assert not weighed(margins, test, [replace(folds, role=REFERENCES), one]).order_only
    found = weighed(margins, test, [folds, one])
    assert found.order_only and "sizes are read from reference models alone" in found.reason
    assert "0 records have margins of two models trained without them" in found.reason and "independent random halves" in found.reason
    # As observations of an order both count.
    assert spearman(truth, found.score) > max(spearman(truth, weighed(margins, test, [each]).score) for each in (folds, one)) - 0.02


def test_folds_beside_references_set_no_spread():
    """Folds that hardly differ from each other would make every record's spread a fraction of what it is."""
    margins, test, source, folds, _ = cross_fit(5, 15, apart=0.05)
    alone, both = (weighed(margins, test, sources) for sources in ([source], [folds, source]))
    assert parted([folds, source], test).aside == (folds,) and not both.order_only
    assert np.median(both.spread_out) == pytest.approx(np.median(alone.spread_out), rel=0.1)
    assert np.median(weighed(margins, test, [replace(folds, role=REFERENCES), source]).spread_in) < 0.7 * np.median(alone.spread_in)

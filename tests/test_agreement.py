"""AUC and TPR with their intervals, precision of the top, tables of agreement and the noise ceiling."""

import itertools
import json
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from noshadow.checks import InputError
from noshadow.metrics import (
    agreement_table,
    auc,
    auc_interval,
    clopper_pearson,
    loss_auc,
    noise_ceiling,
    share_intervals,
    spearman,
    top_precision,
    top_recall,
    tpr_at_fpr,
    tpr_interval,
)
from noshadow.metrics.ranking import Metric, agreement, ranking

COLUMNS = ["attack", "score", "metric", "top", "keep", "value", "low", "high", "targets", "records", "note"]
# Few distinct values: most pairs of drawn lists hold ties within and across.
tied_lists = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=25)


def tops_by_enumeration(values, places):
    """Every set of `places` largest records that some order of the ties gives, once per order."""
    orders = itertools.permutations(range(len(values)))
    return [set(order[:places]) for order in orders if all(values[a] >= values[b] for a, b in itertools.pairwise(order))]


@pytest.mark.parametrize("seed", range(5))
def test_top_precision_is_the_mean_over_every_order_of_the_ties(seed):
    rng = np.random.default_rng(seed)
    truth, score = rng.integers(0, 3, 6).astype(float), rng.integers(0, 3, 6).astype(float)
    shares = [len(t & s) / 2 for t in tops_by_enumeration(truth, 3) for s in tops_by_enumeration(score, 2)]
    # A mean of a few thousand shares against a closed form: rounding only.
    assert top_precision(truth, score, top=0.5, keep=1 / 3) == pytest.approx(np.mean(shares), abs=1e-12)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=30), st.integers(1, 30), st.integers(1, 30))
def test_top_precision_is_recall_with_the_parts_exchanged(pairs, top, keep):
    truth, score = np.array(pairs, dtype=float).T
    top, keep = min(top, len(pairs)) / len(pairs), min(keep, len(pairs)) / len(pairs)
    assert top_precision(truth, score, top=top, keep=keep) == pytest.approx(top_recall(score, truth, top=keep, keep=top), abs=1e-12)
    assert top_precision(truth, score, top=top, keep=top) == pytest.approx(top_recall(truth, score, top=top, keep=top), abs=1e-12)


def test_top_precision_without_ties_is_a_count():
    rng = np.random.default_rng(4)
    truth = rng.normal(size=1000)
    score = truth + rng.normal(size=1000)
    top, named = set(np.argsort(truth)[-50:]), set(np.argsort(score)[-10:])
    assert top_precision(truth, score, top=0.05, keep=0.01) == len(top & named) / 10
    assert top_precision(truth, np.zeros(1000), top=0.05) == pytest.approx(0.05, abs=1e-15)


@given(tied_lists, tied_lists)
def test_auc_counts_pairs(members, nonmembers):
    pairs = [(a > b) + 0.5 * (a == b) for a in members for b in nonmembers]
    assert auc(members, nonmembers) == sum(pairs) / len(pairs)
    assert auc(members, nonmembers) == loss_auc([-a for a in members], [-b for b in nonmembers])


def test_auc_equals_scikit_learn_and_takes_infinities():
    rng = np.random.default_rng(8)
    members, nonmembers = rng.normal(1, 1, 400).round(1), rng.normal(0, 1, 300).round(1)
    expected = roc_auc_score(np.r_[np.ones(400), np.zeros(300)], np.r_[members, nonmembers])
    # Trapezoids against integer counts: a few hundred roundings of 1e-16.
    assert auc(members, nonmembers) == pytest.approx(expected, abs=1e-13)
    assert auc([np.inf, np.inf], [np.inf, -np.inf]) == 0.75


def delong_by_definition(members, nonmembers, level):
    kernel = np.array([[(a > b) + 0.5 * (a == b) for b in nonmembers] for a in members])
    area = kernel.mean()
    variance = kernel.mean(1).var(ddof=1) / len(members) + kernel.mean(0).var(ddof=1) / len(nonmembers)
    middle, reach = math.log(area / (1 - area)), scipy.stats.norm.isf((1 - level) / 2) * math.sqrt(variance) / (area * (1 - area))
    return [1 / (1 + math.exp(-end)) for end in (middle - reach, middle + reach)]


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("decimals", [0, 8])
def test_auc_interval_is_delongs_on_the_logit_scale(decimals, level):
    rng = np.random.default_rng(3)
    members, nonmembers = rng.normal(1, 1, 40).round(decimals), rng.normal(0, 1, 25).round(decimals)
    # The same formula from the full matrix of pairs: rounding only.
    assert auc_interval(members, nonmembers, level=level) == pytest.approx(delong_by_definition(members, nonmembers, level), abs=1e-12)
    low, high = auc_interval(members, nonmembers, level=level)
    assert low < auc(members, nonmembers) < high
    assert auc_interval(nonmembers, members, level=level) == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_auc_interval_where_every_pair_compares_alike_is_binomial():
    for sizes in ((4, 7), (20, 5)):
        k, above, below = min(sizes), np.arange(sizes[0]) + 100.0, np.arange(sizes[1]) * 1.0
        exact = scipy.stats.binomtest(k, k).proportion_ci(0.95, method="exact").low
        # Closed form against a root finder.
        assert auc_interval(above, below) == pytest.approx((exact, 1.0), abs=1e-9)
        assert auc_interval(-above, below) == pytest.approx((0.0, 1 - exact), abs=1e-9)
        assert auc_interval(np.ones(sizes[0]), np.ones(sizes[1])) == pytest.approx((exact / 2, 1 - exact / 2), abs=1e-9)


@given(tied_lists, tied_lists)
def test_auc_interval_holds_the_auc_and_stays_within_its_range(members, nonmembers):
    low, high = auc_interval(members, nonmembers)
    assert 0 <= low <= auc(members, nonmembers) <= high <= 1
    assert low < high


@pytest.mark.slow
@pytest.mark.parametrize(("members", "nonmembers", "area"), [(20, 20, 0.5), (20, 20, 0.9), (20, 20, 0.99), (50, 50, 0.95), (10, 200, 0.7)])
def test_auc_interval_covers(members, nonmembers, area):
    rng, rounds = np.random.default_rng(5), 1500
    shift = math.sqrt(2) * scipy.stats.norm.ppf(area)
    covered = 0
    for _ in range(rounds):
        low, high = auc_interval(rng.normal(shift, 1, members), rng.normal(0, 1, nonmembers))
        covered += low <= area <= high
    # The docstring's 94 % less three standard errors of 1,500 rounds.
    assert covered / rounds >= 0.925


@pytest.mark.slow
def test_auc_interval_covers_when_the_samples_usually_separate():
    rng, rounds, area = np.random.default_rng(6), 1500, 0.995
    shift = math.sqrt(2) * scipy.stats.norm.ppf(area)
    drawn = [(rng.normal(shift, 1, 12), rng.normal(0, 1, 12)) for _ in range(rounds)]
    assert np.mean([auc(*sample) == 1 for sample in drawn]) > 0.5
    ends = [auc_interval(*sample) for sample in drawn]
    assert np.mean([low <= area <= high for low, high in ends]) >= 0.94


def test_tpr_interval_is_that_of_plain_resampling():
    rng = np.random.default_rng(11)
    members, nonmembers = rng.normal(1, 1, 150).round(2), rng.normal(0, 1, 100).round(2)
    draws = [tpr_at_fpr(rng.choice(members, 150), rng.choice(nonmembers, 100), 0.1) for _ in range(4000)]
    expected = np.quantile(draws, (0.025, 0.975))
    exact = clopper_pearson(round(tpr_at_fpr(members, nonmembers, 0.1) * 150), 150)
    # Without the widening here, or the comparison would be with something else.
    assert expected[0] < exact[0] and expected[1] > exact[1]
    # Percentiles of 4,000 draws move by about 0.01 between seeds: the density of TPR is some 3 per unit at the ends.
    assert tpr_interval(members, nonmembers, 0.1, resamples=4000) == pytest.approx(expected, abs=0.02)


def test_tpr_interval_knows_doubt_where_resampling_does_not():
    nonmembers = np.arange(200.0)
    assert tpr_interval(np.full(30, -1.0), nonmembers, 0.1) == pytest.approx(clopper_pearson(0, 30), abs=1e-12)
    assert tpr_interval(np.full(30, 500.0), nonmembers, 0.1) == pytest.approx(clopper_pearson(30, 30), abs=1e-12)
    assert tpr_interval([np.inf, 0.0], [np.inf] * 5, 0.2) == pytest.approx(clopper_pearson(0, 2), abs=1e-12)


def test_tpr_interval_of_a_level_that_allows_everything_is_one():
    assert tpr_interval([0.0, 1.0], [5.0, 6.0], 1.0) == (1.0, 1.0)


@given(tied_lists, tied_lists, st.integers(1, 25), st.integers(0, 5))
def test_tpr_interval_holds_the_tpr_and_follows_the_seed(members, nonmembers, allowed, seed):
    fpr = min(allowed, len(nonmembers)) / len(nonmembers)
    low, high = tpr_interval(members, nonmembers, fpr, resamples=100, seed=seed)
    assert 0 <= low <= tpr_at_fpr(members, nonmembers, fpr) <= high <= 1
    assert (low, high) == tpr_interval(members[::-1], nonmembers[::-1], fpr, resamples=100, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("records", "allowed", "shift"), [((500, 500), 10, 1.0), ((500, 500), 10, 0.0), ((200, 1000), 10, 3.0), ((100, 1000), 10, 0.0)]
)
def test_tpr_interval_covers_from_ten_false_positives_on(records, allowed, shift):
    rng, rounds, fpr = np.random.default_rng(7), 800, allowed / records[1]
    true = scipy.stats.norm.sf(scipy.stats.norm.isf(fpr) - shift)
    covered, exact = 0, 0
    for seed in range(rounds):
        members, nonmembers = rng.normal(shift, 1, records[0]), rng.normal(0, 1, records[1])
        low, high = tpr_interval(members, nonmembers, fpr, resamples=500, seed=seed)
        covered += low <= true <= high
        low, high = clopper_pearson(round(tpr_at_fpr(members, nonmembers, fpr) * records[0]), records[0])
        exact += low <= true <= high
    # Nominal 95 %; 800 rounds have a standard error below 1 %.
    assert covered / rounds >= 0.925
    assert exact <= covered


@given(st.integers(0, 40), st.integers(1, 40), st.sampled_from([0.5, 0.9, 0.95]))
def test_share_intervals_of_whole_counts_are_clopper_pearsons(successes, trials, level):
    assume(successes <= trials)
    found = share_intervals([successes / trials], [trials], level=level)[0]
    # successes / trials · trials is whole up to one rounding.
    assert tuple(found) == pytest.approx(clopper_pearson(successes, trials, level=level), abs=1e-12)


def test_share_intervals_between_whole_counts_lie_between_theirs():
    share, trials = np.linspace(0, 1, 21), np.full(21, 7.5)
    low, high = share_intervals(share, trials).T
    assert (np.diff(low) >= 0).all() and (np.diff(high) >= 0).all()
    assert ((low <= share) & (share <= high)).all()
    assert low[0] == 0 and high[-1] == 1
    wide, narrow = (np.diff(share_intervals(share, np.full(21, t))) for t in (7.0, 8.0))
    assert (wide >= np.diff(np.stack((low, high), 1))).all() and (np.diff(np.stack((low, high), 1)) >= narrow).all()


METRICS = [Metric("spearman"), Metric("recall", 0.1, 0.3), Metric("recall", 0.3, 0.3), Metric("precision", 0.3, 0.1)]


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 3)), min_size=2, max_size=30))
def test_counted_records_agree_like_repeated_ones(rows):
    truth, score, counts = np.array(rows, dtype=float).T
    assume(counts.sum() >= 1)
    found = agreement([ranking(truth)], [ranking(score)], METRICS, counts)[0, 0]
    held = np.repeat(np.arange(len(rows)), counts.astype(int))
    constant = len(set(truth[held])) == 1 or len(set(score[held])) == 1
    expected = [
        math.nan if constant else scipy.stats.spearmanr(truth[held], score[held]).statistic,
        top_recall(truth[held], score[held], top=0.1, keep=0.3),
        top_recall(truth[held], score[held], top=0.3, keep=0.3),
        top_precision(truth[held], score[held], top=0.3, keep=0.1),
    ]
    # The same numbers by another way round: rounding only.
    assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


def sample(seed, n=120, *, decimals=1):
    rng = np.random.default_rng(seed)
    risk = rng.normal(size=n)
    noisy = {name: (risk + scale * rng.normal(size=n)).round(decimals) for name, scale in (("a", 0.5), ("b", 1), ("c", 2), ("d", 4))}
    return {"lira": noisy["a"], "rmia": noisy["b"]}, {"loo": noisy["c"], "loss": noisy["d"]}


def public_value(row, truth, score):
    if row.metric == "spearman":
        return spearman(truth, score)
    return {"recall": top_recall, "precision": top_precision}[row.metric](truth, score, top=row.top, keep=row.keep)


def test_the_table_has_one_row_per_attack_score_and_metric_and_is_strict_json():
    truths, scores = sample(0)
    table = agreement_table([truths], [scores], resamples=100)
    assert list(table.columns) == COLUMNS
    metrics = [("spearman", None, None), ("recall", 0.01, 0.05), ("recall", 0.01, 0.01), ("recall", 0.05, 0.05), ("precision", 0.05, 0.01)]
    expected = [(a, s, *m) for a in truths for s in scores for m in metrics]
    assert list(table[["attack", "score", "metric", "top", "keep"]].itertuples(index=False, name=None)) == expected
    for row in table.itertuples():
        # Another order of the same sums.
        assert row.value == pytest.approx(public_value(row, truths[row.attack], scores[row.score]), abs=1e-12)
        assert row.low <= row.value <= row.high
        assert (row.targets, row.records, row.note) == (1, 120, "")
    rows = table.to_dict("records")
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


def test_the_interval_of_one_target_is_the_percentile_bootstrap_of_resampled_records():
    truths, scores = sample(1)
    truth, score = truths["lira"], scores["loo"]
    table = agreement_table([truths], [scores], recalls=[(0.1, 0.2)], resamples=200, level=0.9, seed=3)
    rng, draws = np.random.default_rng(3), []
    for _ in range(200):
        held = rng.integers(120, size=120)
        resampled = truth[held], score[held]
        recall, precision = top_recall(*resampled, top=0.1, keep=0.2), top_precision(*resampled, top=0.2, keep=0.1)
        draws.append((scipy.stats.spearmanr(*resampled).statistic, recall, precision))
    low, high = np.quantile(draws, (0.05, 0.95), axis=0)
    found = table[(table.attack == "lira") & (table.score == "loo")]
    # The same draws, ranked by scipy: rounding only.
    assert (found.low.iloc[0], found.high.iloc[0]) == pytest.approx((low[0], high[0]), abs=1e-12)
    for row, percentiles in zip(list(found.itertuples())[1:], zip(low[1:], high[1:], strict=True), strict=True):
        exact = share_intervals([row.value], [12], level=0.9)[0]
        assert (row.low, row.high) == pytest.approx((min(percentiles[0], exact[0]), max(percentiles[1], exact[1])), abs=1e-12)
    other = agreement_table([truths], [scores], recalls=[(0.1, 0.2)], resamples=200, level=0.9, seed=4)
    assert list(other.value) == list(table.value)
    assert list(other.low) != list(table.low)


def test_a_recall_of_one_from_few_records_is_in_doubt():
    ranks = np.arange(400.0)
    row = agreement_table([{"lira": ranks}], [{"loo": ranks}], recalls=[(0.01, 0.05)], resamples=100).iloc[1]
    assert (row.value, row.high) == (1.0, 1.0)
    assert row.low <= clopper_pearson(4, 4)[0] + 1e-12


def test_several_targets_give_the_mean_and_its_student_interval():
    samples = [sample(seed, n) for seed, n in ((0, 100), (1, 120), (2, 80))]
    truths, scores = ([pair[side] for pair in samples] for side in (0, 1))
    table = agreement_table(truths, scores, level=0.8)
    for row in table.itertuples():
        values = [public_value(row, truth[row.attack], score[row.score]) for truth, score in samples]
        assert row.value == pytest.approx(np.mean(values), abs=1e-12)
        assert (row.targets, row.records) == (3, 300)
        low, high = row.value, row.value
        if np.std(values) > 0:
            low, high = scipy.stats.t.interval(0.8, 2, loc=np.mean(values), scale=np.std(values, ddof=1) / math.sqrt(3))
        least = -1 if row.metric == "spearman" else 0
        assert (row.low, row.high) == pytest.approx((max(low, least), min(high, 1)), abs=1e-12)
    assert list(agreement_table(truths, scores, level=0.8, seed=9).low) == list(table.low)


def test_a_constant_score_or_truth_keeps_its_rows_and_says_why():
    truths, scores = sample(2)
    flat = agreement_table([truths], [scores | {"flat": np.full(120, np.inf)}], resamples=100)
    rows = flat[flat.score == "flat"]
    assert len(rows) == 10
    assert all(value is None for name in ("value", "low", "high") for value in rows[name])
    assert set(rows.note) == {"score 'flat' is constant over the 120 records, so it ranks nothing"}
    assert set(flat[flat.score != "flat"].note) == {""}
    json.dumps(flat.to_dict("records"), allow_nan=False)

    still = agreement_table([truths, truths | {"rmia": np.zeros(120)}], [scores, scores])
    rows = still[still.attack == "rmia"]
    assert all(value is None for value in rows.value)
    assert set(rows.note) == {"attack 'rmia' is constant over the 120 records of target 1, so it ranks nothing"}
    assert all(value is not None for value in still[still.attack == "lira"].value)


def test_resamples_without_a_ranking_are_counted_in_the_note():
    truth, score = np.arange(20.0), np.eye(20)[7]
    table = agreement_table([{"lira": truth}], [{"one": score}], recalls=[(0.1, 0.1)], resamples=300, seed=1)
    rng = np.random.default_rng(1)
    lost = sum(7 not in rng.integers(20, size=20) for _ in range(300))
    # Record 7 is missing from (1 − 1/20)²⁰ = 36 % of them.
    assert 60 < lost < 160
    assert table.note[0] == f"{lost} of 300 resamples hold a constant ranking and are left out of the interval"
    assert table.note[1] == ""
    assert table.low[0] <= table.value[0] <= table.high[0]


@pytest.mark.slow
def test_the_interval_of_one_target_covers():
    rng, rounds, correlation = np.random.default_rng(12), 120, 0.7
    true = 6 / math.pi * math.asin(correlation / 2)
    large = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], 1_000_000).T
    expected = [true, top_recall(*large, top=0.05, keep=0.1), top_recall(*large, top=0.1, keep=0.1)]
    covered = np.zeros(3)
    for seed in range(rounds):
        truth, score = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], 400).T
        table = agreement_table([{"t": truth}], [{"s": score}], recalls=[(0.05, 0.1), (0.1, 0.1)], resamples=100, seed=seed)
        low, high = table.low.to_numpy(float)[:3], table.high.to_numpy(float)[:3]
        covered += (low <= expected) & (expected <= high)
    # Nominal 95 %; 120 rounds have a standard error of 2 %.
    assert (covered / rounds >= 0.89).all(), covered / rounds


def test_the_noise_ceiling_is_the_mean_of_both_directions():
    first, second = sample(5, 300)[0].values()
    table = noise_ceiling(first, second, attack="lira", recalls=[(0.02, 0.1), (0.1, 0.1)], resamples=100)
    assert list(table.columns) == COLUMNS
    assert set(table.attack) == {"lira"} and set(table.score) == {"noise ceiling"}
    assert list(table.metric) == ["spearman", "spearman, both halves", "recall", "recall", "precision"]
    for row in table[table.metric != "spearman, both halves"].itertuples():
        expected = (public_value(row, first, second) + public_value(row, second, first)) / 2
        assert row.value == pytest.approx(expected, abs=1e-12)
        assert row.low <= row.value <= row.high
    assert table.value[4] == pytest.approx(table.value[2], abs=1e-12)
    rho, stepped = table.iloc[0], table.iloc[1]
    for end in ("value", "low", "high"):
        assert stepped[end] == pytest.approx(2 * rho[end] / (1 + rho[end]), abs=1e-15)
    turned = noise_ceiling(second, first, attack="lira", recalls=[(0.02, 0.1), (0.1, 0.1)], resamples=100)
    assert list(turned.value) == pytest.approx(list(table.value), abs=1e-12)
    json.dumps(table.to_dict("records"), allow_nan=False)


def test_the_step_up_estimates_the_agreement_of_measurements_with_twice_the_models():
    rng = np.random.default_rng(13)
    risk, noise = rng.normal(size=20_000), rng.normal(size=(4, 20_000))
    table = noise_ceiling(risk + noise[0], risk + noise[1], recalls=[], resamples=100)
    twice = spearman(risk + noise[:2].mean(0), risk + noise[2:].mean(0))
    # Exact for Pearson; ranks of Gaussians differ from it by about 0.01.
    assert table.value[1] == pytest.approx(twice, abs=0.02)
    assert table.value[0] < twice - 0.1


def test_halves_that_disagree_are_not_stepped_up():
    ranks = np.arange(50.0)
    table = noise_ceiling(ranks, -ranks, resamples=100)
    assert table.value[0] == -1.0
    assert (table.value[1], table.low[1], table.high[1]) == (None, None, None)
    assert table.note[1] == "the halves do not agree (Spearman ≤ 0), so there is nothing to step up"
    constant = noise_ceiling(ranks, np.ones(50), resamples=100)
    assert list(constant.value) == [None] * 6
    assert set(constant.note) == {"the second half is constant over the 50 records, so it ranks nothing"}


def test_inputs_are_left_alone():
    truths, scores = sample(3)
    before = {name: values.copy() for name, values in (truths | scores).items()}
    agreement_table([truths], [scores], resamples=100)
    noise_ceiling(truths["lira"], truths["rmia"], resamples=100)
    auc_interval(truths["lira"], scores["loo"])
    tpr_interval(truths["lira"], scores["loo"], 0.1)
    assert all(np.array_equal(values, before[name]) for name, values in (truths | scores).items())


GOOD = {"x": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: top_precision([1.0], [1.0, 2.0]), r"top_precision: truth and score must have one row per record"),
        (lambda: top_precision([1.0], [1.0], keep=0), r"top_precision: keep must be a number > 0 and ≤ 1; got 0\."),
        (lambda: auc([1.0, np.nan], [0.0]), r"auc: member_scores must not hold NaN; got 1, the first at index 1"),
        (lambda: auc([1.0], []), r"auc: nonmember_scores must be a 1-dimensional numeric array with at least one entry"),
        (lambda: auc_interval([1.0], [0.0, 1.0]), r"auc_interval: member_scores must hold at least 2 scores; got 1"),
        (lambda: auc_interval([1.0, 2.0], [0.0, 1.0], level=0), r"auc_interval: level must be a number > 0 and < 1; got 0"),
        (
            lambda: tpr_interval([1.0], np.zeros(50), 0.01),
            r"tpr_interval: fpr must be at least 0\.02, the smallest level that 50 non-members",
        ),
        (lambda: tpr_interval([1.0], [1.0], 1.0, resamples=99), r"tpr_interval: resamples must be a whole number ≥ 100; got 99"),
        (lambda: tpr_interval([1.0], [1.0], 1.0, seed=-1), r"tpr_interval: seed must be a whole number ≥ 0 and < 2⁶³; got -1"),
        (lambda: tpr_interval([1.0], [1.0], 1.0, level=1), r"tpr_interval: level must be a number > 0 and < 1; got 1"),
        (lambda: share_intervals([1.2], [3]), r"share_intervals: shares must be fractions in \[0, 1\]; got minimum 1\.2"),
        (lambda: share_intervals([0.5, 0.5], [3, 0.5]), r"share_intervals: trials must be ≥ 1; got 0\.5 at index 1"),
        (lambda: share_intervals([0.5], [3, 4]), r"share_intervals: shares and trials must have one row per record"),
        (
            lambda: agreement_table(GOOD, [GOOD]),
            r"agreement_table: truths must be a sequence with one mapping .* got dict\. For one target",
        ),
        (lambda: agreement_table([GOOD], []), r"agreement_table: scores must be a sequence with one mapping .*; got none"),
        (lambda: agreement_table([GOOD], [[1.0, 2.0]]), r"agreement_table: scores\[0\] must be a mapping name → array .*; got list"),
        (lambda: agreement_table([GOOD], [{}]), r"agreement_table: scores\[0\] must be a mapping name → array that is not empty"),
        (
            lambda: agreement_table([GOOD, GOOD], [GOOD]),
            r"agreement_table: truths and scores must hold the same number of targets; got 2 and 1",
        ),
        (
            lambda: agreement_table([GOOD, GOOD], [GOOD, {"y": [1.0, 2.0, 3.0]}]),
            r"agreement_table: scores\[1\] must hold the same names for every target \(x\); got y",
        ),
        (
            lambda: agreement_table([GOOD], [{"loo": [1.0, np.nan, 2.0]}]),
            r"agreement_table: scores\[0\]\['loo'\] must not hold NaN; got 1, the first at index 1",
        ),
        (lambda: agreement_table([{"lira": [np.nan, 1.0]}], [GOOD]), r"agreement_table: truths\[0\]\['lira'\] must not hold NaN"),
        (
            lambda: agreement_table([GOOD], [{"loo": [1.0, 2.0]}]),
            r"agreement_table: truths\[0\]\['x'\] and scores\[0\]\['loo'\] must have one row per record; got lengths .* 3, .* 2",
        ),
        (
            lambda: agreement_table([{"x": [1.0]}], [{"x": [1.0]}]),
            r"agreement_table: truths\[0\]\['x'\] must hold at least 2 scores; got 1",
        ),
        (lambda: agreement_table([GOOD], [GOOD], recalls=[0.01]), r"agreement_table: recalls must hold pairs \(top, keep\); got 0\.01"),
        (lambda: agreement_table([GOOD], [GOOD], recalls=[(0.0, 1.0)]), r"agreement_table: recalls must be a number > 0 and ≤ 1; got 0\."),
        (lambda: agreement_table([GOOD], [GOOD], resamples=10), r"agreement_table: resamples must be a whole number ≥ 100; got 10"),
        (lambda: agreement_table([GOOD], [GOOD], level=2), r"agreement_table: level must be a number > 0 and < 1; got 2"),
        (lambda: noise_ceiling([1.0, 2.0], [1.0, 2.0, 3.0]), r"noise_ceiling: first and second must have one row per record"),
        (lambda: noise_ceiling([1.0, 2.0], [1.0, np.nan]), r"noise_ceiling: second must not hold NaN"),
        (lambda: noise_ceiling([1.0], [1.0]), r"noise_ceiling: first must hold at least 2 scores; got 1"),
    ],
)
def test_wrong_input_gets_one_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()

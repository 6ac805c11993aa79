import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from noshadow.checks import InputError, NotApplicable
from noshadow.metrics import (
    clopper_pearson,
    error_budget,
    loss_auc,
    loss_threshold,
    spearman,
    tnr_at_fnr,
    top_recall,
    tpr_at_fpr,
)

# Few distinct values: most pairs of drawn lists hold ties within and across.
tied_lists = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=25)


def best_tpr_by_search(members, nonmembers, allowed):
    members, nonmembers = np.asarray(members), np.asarray(nonmembers)
    thresholds = [*np.unique(np.concatenate((members, nonmembers))), np.inf]
    rates = [np.mean(members >= t) for t in thresholds if np.sum(nonmembers >= t) <= allowed and t < np.inf]
    return max(rates, default=0.0)


@given(tied_lists, tied_lists, st.integers(1, 25))
def test_tpr_is_the_best_over_every_threshold(members, nonmembers, allowed):
    allowed = min(allowed, len(nonmembers))
    fpr = allowed / len(nonmembers)
    assert tpr_at_fpr(members, nonmembers, fpr) == best_tpr_by_search(members, nonmembers, allowed)


@pytest.mark.parametrize("decimals", [1, 8])
@pytest.mark.parametrize("fpr", [0.01, 0.05, 0.33, 1.0])
def test_tpr_equals_the_roc_curve_of_scikit_learn(decimals, fpr):
    rng = np.random.default_rng(5)
    members, nonmembers = rng.normal(1, 1, 300).round(decimals), rng.normal(0, 1, 200).round(decimals)
    labels = np.r_[np.ones(300), np.zeros(200)]
    fprs, tprs, _ = roc_curve(labels, np.r_[members, nonmembers], drop_intermediate=False)
    # Both sides are ratios of the same counts: equal to the last digit up to one rounding.
    assert tpr_at_fpr(members, nonmembers, fpr) == pytest.approx(tprs[fprs <= fpr + 1e-12].max(), abs=1e-15)


def test_tpr_does_not_interpolate_and_keeps_ties_together():
    assert tpr_at_fpr([1.0, 1.0], [1.0, 0.0], 0.5) == 1.0
    assert tpr_at_fpr([1.0, 1.0], [1.0, 1.0, 0.0, 0.0], 0.25) == 0.0
    assert tpr_at_fpr([3.0, 1.0], [2.0, 0.0], 0.99) == 1.0


def test_tpr_takes_infinite_scores():
    assert tpr_at_fpr([np.inf, np.inf, 0.0, -np.inf], [1.0, 0.5], 0.5) == 0.5
    assert tpr_at_fpr([np.inf, np.inf, 0.0], [np.inf, np.inf], 0.5) == 0.0


@given(tied_lists, tied_lists, st.integers(1, 25))
def test_threshold_and_tnr_follow_their_definition(members, nonmembers, allowed):
    n = len(members)
    allowed = min(allowed, n)
    candidates = [loss for loss in members if sum(other > loss for other in members) <= allowed]
    tau = min(candidates)
    assert loss_threshold(members, allowed / n) == tau
    assert tnr_at_fnr(members, nonmembers, allowed / n) == pytest.approx(
        sum(loss > tau for loss in nonmembers) / len(nonmembers), abs=1e-15
    )


@given(tied_lists, tied_lists, st.integers(1, 25))
def test_tnr_is_the_tpr_of_the_mirrored_attack(members, nonmembers, allowed):
    n = len(members)
    # "Riskier" mirrored: a non-member is found by a large loss, and the members take the part of the negatives.
    if allowed < n:
        assert tnr_at_fnr(members, nonmembers, allowed / n) == tpr_at_fpr(nonmembers, members, allowed / n)


def test_the_share_of_members_above_the_threshold_stays_within_the_level():
    losses = np.random.default_rng(2).exponential(size=1000)
    for fnr in (0.001, 0.0015, 0.01, 0.29, 0.5):
        above = int((losses > loss_threshold(losses, fnr)).sum())
        assert above == math.floor(Fraction(str(fnr)) * 1000)


@given(st.integers(1, 3000), st.data())
def test_error_budget_is_the_floor_of_the_decimal_written(n, data):
    k = data.draw(st.integers(0, n))
    assert error_budget(k / n, n) == k
    digits = data.draw(st.integers(1, 9999))
    rate = f"0.{digits:04d}"
    assert error_budget(float(rate), n) == math.floor(Fraction(rate) * n)


def test_error_budget_is_not_fooled_by_binary_fractions():
    assert int(0.29 * 100) == 28
    assert [error_budget(*pair) for pair in ((0.29, 100), (0.001, 1000), (0.57, 100), (1 - 0.9, 10), (1.0, 7))] == [29, 1, 57, 1, 7]


@given(tied_lists, tied_lists)
def test_loss_auc_counts_pairs(members, nonmembers):
    pairs = [(a < b) + 0.5 * (a == b) for a in members for b in nonmembers]
    assert loss_auc(members, nonmembers) == sum(pairs) / len(pairs)


def test_loss_auc_equals_scikit_learn_with_members_as_positives():
    rng = np.random.default_rng(8)
    members, nonmembers = rng.exponential(0.3, 400).round(2), rng.exponential(1.0, 300).round(2)
    expected = roc_auc_score(np.r_[np.ones(400), np.zeros(300)], -np.r_[members, nonmembers])
    # Trapezoids against integer counts: a few hundred roundings of 1e-16.
    assert loss_auc(members, nonmembers) == pytest.approx(expected, abs=1e-13)
    assert loss_auc(nonmembers, members) == pytest.approx(1 - expected, abs=1e-13)


@pytest.mark.parametrize("decimals", [0, 8])
def test_spearman_equals_scipy_with_and_without_ties(decimals):
    rng = np.random.default_rng(3)
    truth = rng.normal(size=500).round(decimals)
    score = (truth + rng.normal(size=500)).round(decimals)
    # Sums of 500 products: rounding of the order of 1e-15.
    assert spearman(truth, score) == pytest.approx(scipy.stats.spearmanr(truth, score).statistic, abs=1e-13)


def test_spearman_sees_ranks_only():
    truth, score = np.array([0.0, 1.0, 5.0, 2.0]), np.array([1.0, 3.0, 4.0, 2.0])
    assert spearman(truth, [1.0, 3.0, np.inf, -np.inf]) == spearman(truth, [2.0, 3.0, 4.0, 1.0])
    assert spearman(np.exp(truth), score**3) == spearman(truth, score)
    assert spearman(truth, truth) == 1.0
    assert spearman(truth, -truth) == -1.0


@pytest.mark.parametrize("constant", ["truth", "score"])
def test_spearman_of_a_constant_does_not_exist(constant):
    values = {"truth": [1.0, 2.0, 3.0], "score": [3.0, 1.0, 2.0]} | {constant: [7.0, 7.0, 7.0]}
    with pytest.raises(NotApplicable, match=f"spearman: {constant} is constant over 3 records"):
        spearman(**values)


def recall_by_random_tie_breaks(truth, score, wanted, kept, *, rounds, seed):
    rng, n, hits = np.random.default_rng(seed), len(truth), np.empty(rounds)
    for i in range(rounds):
        true_order, score_order = np.lexsort((rng.random(n), truth)), np.lexsort((rng.random(n), score))
        hits[i] = len(set(true_order[-wanted:]) & set(score_order[-kept:])) / wanted
    return hits.mean(), hits.std() / math.sqrt(rounds)


@pytest.mark.parametrize("seed", range(4))
def test_top_recall_is_the_mean_over_random_tie_breaks(seed):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 6, 40).astype(float)
    score = (truth + rng.integers(0, 4, 40)).astype(float)
    score[score == score.max()] = np.inf
    mean, error = recall_by_random_tie_breaks(truth, score, 5, 10, rounds=2000, seed=100 + seed)
    # Four standard errors of the 2,000 simulated tie-breaks.
    assert top_recall(truth, score, top=0.125, keep=0.25) == pytest.approx(mean, abs=4 * error + 1e-12)


def test_top_recall_without_ties_is_a_count():
    rng = np.random.default_rng(4)
    truth = rng.normal(size=1000)
    score = truth + rng.normal(size=1000)
    top, kept = set(np.argsort(truth)[-10:]), set(np.argsort(score)[-50:])
    assert top_recall(truth, score) == len(top & kept) / 10
    assert top_recall(truth, truth, top=0.01, keep=0.01) == 1.0
    assert top_recall(truth, -truth) == 0.0


def test_top_recall_of_a_score_that_says_nothing_is_the_kept_share():
    truth = np.random.default_rng(6).normal(size=200)
    assert top_recall(truth, np.zeros(200)) == pytest.approx(0.05, abs=1e-15)
    assert top_recall(truth, np.full(200, np.inf), keep=1.0) == pytest.approx(1.0, abs=1e-15)


def test_top_recall_rounds_the_number_of_places_up_but_not_by_rounding_error():
    ranks = np.arange(100.0)
    assert 0.07 * 100 > 7
    # With 8 places kept the eighth record would be found too.
    shifted = np.r_[ranks[92:93] + 100, ranks[1:]]
    assert top_recall(ranks, shifted, top=0.07, keep=0.07) == pytest.approx(6 / 7)
    assert top_recall(ranks, ranks, top=0.001, keep=0.001) == 1.0
    assert top_recall(ranks, ranks, top=0.011, keep=0.01) == 0.5


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (10, 10), (3, 17), (1, 1), (400, 1000)])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_clopper_pearson_equals_the_exact_interval_of_scipy(successes, trials, level):
    expected = scipy.stats.binomtest(successes, trials).proportion_ci(level, method="exact")
    # Two root finders of the same equation.
    assert clopper_pearson(successes, trials, level=level) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_clopper_pearson_never_undercovers():
    trials = 12
    intervals = [clopper_pearson(k, trials, level=0.9) for k in range(trials + 1)]
    for share in np.linspace(0.01, 0.99, 50):
        covered = sum(scipy.stats.binom.pmf(k, trials, share) for k, (low, high) in enumerate(intervals) if low <= share <= high)
        assert covered >= 0.9 - 1e-12


def test_torch_tensors_and_integers_are_taken_and_left_alone():
    members, nonmembers = torch.tensor([0.5, 0.1, 0.3]), np.array([3, 1, 2])
    before = members.clone(), nonmembers.copy()
    assert tnr_at_fnr(members, nonmembers, 0.5) == 1.0
    assert tpr_at_fpr(nonmembers, members, 0.5) == 1.0
    assert top_recall(nonmembers, members, top=0.3, keep=0.3) == 1.0
    assert torch.equal(members, before[0])
    assert np.array_equal(nonmembers, before[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: tpr_at_fpr([1.0], np.zeros(50), 0.01),
            r"tpr_at_fpr: fpr must be at least 0\.02, the smallest level that 50 non-members resolve; got 0\.01",
        ),
        (lambda: tpr_at_fpr([1.0], np.zeros(50), 0), r"tpr_at_fpr: fpr must be a number > 0 and ≤ 1; got 0\."),
        (lambda: tpr_at_fpr([1.0], np.zeros(50), 1.5), r"tpr_at_fpr: fpr must be a number > 0 and ≤ 1; got 1\.5"),
        (lambda: tpr_at_fpr([1.0, np.nan], [0.0], 1.0), r"tpr_at_fpr: member_scores must not hold NaN; got 1, the first at index 1"),
        (lambda: tpr_at_fpr([1.0], [], 1.0), r"tpr_at_fpr: nonmember_scores must be a 1-dimensional numeric array with at least one entry"),
        (lambda: tpr_at_fpr([[1.0]], [0.0], 1.0), r"tpr_at_fpr: member_scores must be a 1-dimensional .* got shape \(1, 1\)"),
        (
            lambda: tnr_at_fnr(np.zeros(3), [1.0], 0.333333),
            r"tnr_at_fnr: fnr must be at least 0\.3333333333333333, the smallest level that 3 members",
        ),
        (lambda: tnr_at_fnr([0.0, np.inf], [1.0], 0.5), r"tnr_at_fnr: member_losses must be finite; got 1 NaN or infinite"),
        (lambda: loss_threshold([], 0.5), r"loss_threshold: member_losses must hold at least one loss; got an empty array"),
        (lambda: loss_auc([0.0], [[1.0]]), r"loss_auc: nonmember_losses must be 1-dimensional; got shape \(1, 1\)"),
        (lambda: spearman([1.0, 2.0], [1.0]), r"spearman: truth and score must have one row per record; got lengths truth 2, score 1"),
        (lambda: spearman([1.0], [1.0]), r"spearman: truth and score must hold at least two records; got 1"),
        (lambda: spearman([1.0, np.nan], [1.0, 2.0]), r"spearman: truth must not hold NaN"),
        (lambda: top_recall([1.0], [1.0, 2.0]), r"top_recall: truth and score must have one row per record"),
        (lambda: top_recall([1.0], [1.0], top=0), r"top_recall: top must be a number > 0 and ≤ 1; got 0\."),
        (lambda: top_recall([1.0], [1.0], keep=1.1), r"top_recall: keep must be a number > 0 and ≤ 1; got 1\.1"),
        (lambda: clopper_pearson(3, 2), r"clopper_pearson: successes must be at most trials \(2\); got 3"),
        (lambda: clopper_pearson(-1, 2), r"clopper_pearson: successes must be a whole number ≥ 0; got -1"),
        (lambda: clopper_pearson(0, 0), r"clopper_pearson: trials must be a whole number ≥ 1; got 0"),
        (lambda: clopper_pearson(0.5, 2), r"clopper_pearson: successes must be a whole number ≥ 0; got 0\.5"),
        (lambda: clopper_pearson(1, 2, level=1.0), r"clopper_pearson: level must be a number > 0 and < 1; got 1"),
    ],
)
def test_wrong_input_gets_one_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()

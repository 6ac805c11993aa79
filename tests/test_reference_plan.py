"""Who is in: balance over records, models and halves; chance beyond that."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noshadow import InputError
from noshadow.reference import fold_plan, plan

shapes = st.tuples(st.integers(2, 80), st.integers(4, 24), st.floats(0.05, 0.95), st.integers(0, 2**31))


def possible(n, r, fraction):
    """Whether every record can be in and out at least once, and no model be empty, at a balanced total."""
    total = round(fraction * n * r)
    return n <= total <= n * (r - 1) and total >= r


@settings(max_examples=300, deadline=None)
@given(shapes)
def test_a_plan_is_balanced_over_records_models_and_halves(shape):
    n, r, fraction, seed = shape
    if not possible(n, r, fraction):
        with pytest.raises(InputError):
            plan(n, models=r, fraction=fraction, seed=seed)
        return
    drawn = plan(n, models=r, fraction=fraction, seed=seed)
    membership = drawn.membership
    assert membership.shape == (r, n) and membership.dtype == bool
    per_record, per_model = membership.sum(0), membership.sum(1)
    assert per_record.min() >= 1 and per_record.max() <= r - 1
    assert np.ptp(per_record) <= 1 and abs(per_record - round(fraction * r)).max() <= 1
    assert per_model.min() >= 1 and abs(per_model - round(fraction * n)).max() <= 1
    if r < 12:
        return
    first, second = drawn.halves
    assert sorted([*first, *second]) == list(range(r)) and len(first) == r // 2
    for half in (first, second):
        counts = membership[half].sum(0)
        # within one of fraction·half; the rounding of the total adds at most one part in n
        assert abs(counts - fraction * len(half)).max() <= 1 + 1 / n
        assert np.ptp(counts) <= 1


@settings(max_examples=50, deadline=None)
@given(shapes)
def test_seeds_are_distinct_and_the_same_arguments_give_the_same_plan(shape):
    _, r, _, seed = shape
    one, two = (plan(40, models=r, seed=seed) for _ in range(2))
    np.testing.assert_array_equal(one.membership, two.membership)
    np.testing.assert_array_equal(one.seeds, two.seeds)
    assert len(set(one.seeds.tolist())) == r and one.seeds.min() >= 0 and one.seeds.max() < 2**31
    other = plan(40, models=r, seed=seed + 1)
    assert (one.membership != other.membership).any() and (one.seeds != other.seeds).any()


def test_members_are_sorted_row_numbers():
    drawn = plan(30, models=4, fraction=0.3, seed=2)
    for t in range(4):
        members = drawn.members(t)
        assert members.dtype == np.int64
        np.testing.assert_array_equal(members, [i for i in range(30) if drawn.membership[t, i]])
    assert (drawn.models, drawn.records, drawn.fraction, drawn.seed) == (4, 30, 0.3, 2)


def test_chance_favours_no_record_no_model_and_no_pair():
    draws = 600
    total, pairs, models = np.zeros((8, 9)), np.zeros((9, 9)), np.zeros((8, 8))
    for seed in range(draws):
        m = plan(9, models=8, fraction=0.5, seed=seed).membership.astype(float)
        total += m
        pairs += m.T @ m
        models += m @ m.T
    # standard error of a share near 1/2 is 0.0204; five of them for 72 places, none of which may be favoured
    assert abs(total / draws - 0.5).max() < 5 * 0.5 / draws**0.5
    # two records share Σ_t s_t(s_t − 1)/(n(n − 1)) models in the mean, whatever chance does; no pair more than the others
    shared = pairs[~np.eye(9, dtype=bool)] / draws
    assert abs(shared.mean() - sum(s * (s - 1) for s in [4] * 4 + [5] * 4) / (9 * 8)) < 1e-9
    # a pair's count has a standard deviation below 1: 0.041 for the mean of 600 draws, and 0.35 is more than eight of them apart
    assert np.ptp(shared) < 0.35
    # any two models share 9·(4·3)/(8·7) records, since each record is in four of the eight
    assert abs(models[~np.eye(8, dtype=bool)] / draws - 9 * 12 / 56).max() < 0.2


def test_models_of_one_half_share_fewer_records_where_halves_are_balanced():
    models = np.mean([(m := plan(18, models=16, seed=seed).membership.astype(float)) @ m.T for seed in range(200)], axis=0)
    # of one half 18·(4·3)/(8·7), since each record is in four of its eight; of different halves 18/4
    same_half = np.kron(np.eye(2), np.ones((8, 8))).astype(bool)
    for pair, expected in ((same_half & ~np.eye(16, dtype=bool), 18 * 12 / 56), (~same_half, 4.5)):
        assert abs(models[pair] - expected).mean() < 0.15


@pytest.mark.parametrize(("models", "ratio"), [(4, 1.0), (6, 1.0), (8, 1.0), (10, 1.0), (12, 1.11), (16, 1.08), (64, 1.02)])
def test_means_with_and_without_a_record_differ_as_the_spread_within_each_side_says(models, ratio):
    """Models that are linear in who is in, as all nearly are: what other records do to a margin must not pass for the record's own."""
    rng, n = np.random.default_rng(models), 1500
    found = []
    for seed in range(12):
        inside = plan(n, models=models, seed=seed).membership
        others = rng.normal(size=(n, n))
        np.fill_diagonal(others, 0.0)  # no record does anything to itself
        margins = inside @ others
        sides = [np.where(inside == side, margins, np.nan) for side in (True, False)]
        between = (np.nanmean(sides[0], axis=0) - np.nanmean(sides[1], axis=0)) ** 2
        within = sum(np.nanvar(side, axis=0, ddof=1) / (~np.isnan(side)).sum(0) for side in sides)
        found.append(between.mean() / within.mean())
    # 18,000 records, which share models: the mean of twelve plans is known to about 0.03. Pairs of complements have 2.
    assert np.mean(found) == pytest.approx(ratio, abs=0.1)


def test_a_large_plan_is_exact():
    drawn = plan(50_000, models=33, fraction=0.25, seed=1)
    per_record, per_model = drawn.membership.sum(0), drawn.membership.sum(1)
    assert set(per_record) <= {8, 9} and set(per_model) <= {12_499, 12_500, 12_501}


@pytest.mark.parametrize(
    ("arguments", "digest"),
    [((200, 4, 0.5, 0), "3d5456f3555bed6d"), ((201, 5, 0.3, 7), "1c548bfa412bc28c"), ((1000, 64, 0.5, 3), "4aa574033fcc930f")],
)
def test_balanced_plans_are_byte_for_byte_those_of_stored_sets(arguments, digest):
    n, r, fraction, seed = arguments
    drawn = plan(n, models=r, fraction=fraction, seed=seed)
    assert hashlib.sha256(drawn.membership.tobytes() + drawn.seeds.tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize("models", [1, 2, 3])
def test_few_models_are_independent_halves(models):
    n = 20_000
    drawn = plan(n, models=models, seed=5)
    assert drawn.membership.shape == (models, n) and (drawn.membership.sum(1) == n // 2).all()
    assert len(set(drawn.seeds.tolist())) == models
    for one in range(models):
        for other in range(one):
            for inside in (True, False):
                both = ((drawn.membership[one] == inside) & (drawn.membership[other] == inside)).mean()
                # Hypergeometric: the share's standard deviation is 1/(4√n) = 0.0018; five of them. Complements would have 0.
                assert abs(both - 0.25) < 5 / (4 * n**0.5)
    np.testing.assert_array_equal(drawn.membership, plan(n, models=models, seed=5).membership)
    assert (drawn.membership != plan(n, models=models, seed=6).membership).any()


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 60), st.integers(0, 30), st.integers(2, 12), st.integers(0, 2**31))
def test_folds_are_disjoint_complete_and_balanced(train, test, folds, seed):
    if folds > train:
        with pytest.raises(InputError, match=f"fold_plan: folds must be at most the {train} training records"):
            fold_plan(train, test, folds=folds, seed=seed)
        return
    drawn = fold_plan(train, test, folds=folds, seed=seed)
    left_out = ~drawn.membership[:, :train]
    assert drawn.membership.shape == (folds, train + test) and not drawn.membership[:, train:].any()
    assert (left_out.sum(0) == 1).all() and np.ptp(left_out.sum(1)) <= 1 and left_out.sum(1).min() >= 1
    assert drawn.fraction == pytest.approx(drawn.membership.mean(), abs=1e-12)
    np.testing.assert_array_equal(drawn.membership, fold_plan(train, test, folds=folds, seed=seed).membership)


def test_a_fold_is_drawn_at_random():
    """Every pair of records shares a fold equally often: a fixed cut of the rows would keep neighbours together."""
    draws, n = 2000, 12
    together = np.zeros((n, n))
    for seed in range(draws):
        fold = (~fold_plan(n, 0, folds=3, seed=seed).membership).argmax(0)
        together += fold[:, None] == fold
    # A partner shares a fold of four with probability 3/11; standard error 0.01, five of them for 66 pairs.
    assert abs(together[~np.eye(n, dtype=bool)] / draws - 3 / 11).max() < 0.05


def test_one_fold_is_refused():
    with pytest.raises(InputError, match="fold_plan: folds must be a whole number ≥ 2; got 1"):
        fold_plan(10, 5, folds=1)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"records": 0}, "plan: records must be a whole number ≥ 1"),
        ({"models": 0}, "plan: models must be a whole number ≥ 1; got 0"),
        ({"records": 1, "models": 2}, "plan: records must leave each model records with and without it at fraction 0.5; got 1"),
        ({"fraction": 0.01, "models": 3}, "plan: records must leave each model records with and without it at fraction 0.01; got 20"),
        ({"models": 8.0}, "models must be a whole number"),
        ({"fraction": 0.0}, "fraction must be a number > 0 and < 1"),
        ({"fraction": 1}, "fraction must be a number > 0 and < 1"),
        (
            {"fraction": 0.05, "models": 8},
            r"put every record in at least one of 8 models and leave it out of one; got 0.05. Choose it between",
        ),
        ({"fraction": 0.95, "models": 8}, "leave it out of one; got 0.95"),
        ({"records": 1}, "plan: records must give each model at least one at fraction 0.5; got 1"),
        ({"seed": -1}, "plan: seed must be a whole number"),
    ],
)
def test_wrong_arguments_get_one_sentence(arguments, match):
    given_arguments = {"records": 20, "models": 8} | arguments
    with pytest.raises(InputError, match=match) as caught:
        plan(given_arguments.pop("records"), **given_arguments)
    assert "\n" not in str(caught.value)

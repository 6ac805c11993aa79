"""Groups and query sets by updates of one factorisation, against refits; bounds without the matrix, against the exact values."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lood_oracles import brute_force, linear, numpy_rbf, rbf
from noshadow._lood import lood, lood_bounds, lood_scores, posterior_of
from noshadow._lood import tiles as tiles_module
from noshadow._lood.tiles import kernel_tiles, partial_cholesky, tiles_product
from noshadow.checks import InputError, NumericalError


def problem(n=40, d=3, outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(n, outputs))


@pytest.mark.parametrize("group", [[5], [1, 17, 30], list(range(20))], ids=len)
@pytest.mark.parametrize("asked", ["group", 1, 4], ids=str)
@pytest.mark.parametrize("outputs", [1, 3])
def test_groups_and_queries_equal_two_refits(group, asked, outputs):
    x, y = problem(outputs=outputs)
    queries = None if asked == "group" else np.random.default_rng(1).normal(size=(asked, 3))
    result = lood(x, y, differing=group, queries=queries, kernel=rbf, noise=0.1)
    truth = brute_force(numpy_rbf, x, y, group, x[group] if queries is None else queries, 0.1)
    # 1e-9: the refits' own rounding, condition 1e3 on both and a determinant of up to 20 near-equal variances.
    assert result.kl == pytest.approx(truth["kl"], rel=1e-9)
    assert result.mean_distance == pytest.approx(truth["mean_distance"], rel=1e-9)
    np.testing.assert_allclose(result.loo_mean, truth["loo"][0], atol=1e-10)
    np.testing.assert_allclose(result.loo_covariance, truth["loo"][1], atol=1e-10)
    np.testing.assert_allclose(result.mean, truth["full"][0], atol=1e-10)
    np.testing.assert_allclose(result.covariance, truth["full"][1], atol=1e-10)
    assert result.support == len(truth["full"][1])


@pytest.mark.parametrize("noise", [1e-8, 0.1, 1e3, 1e8])
def test_one_record_agrees_with_the_scores_of_all(noise):
    x, y = problem()
    scores = lood_scores(numpy_rbf(x), y, noise=noise)
    for i in (0, 13):
        result = lood(x, y, differing=i, kernel=rbf, noise=noise)
        # The two share no code beyond the factorisation; 1e-11 is rounding at the worst noise's condition.
        assert result.kl == pytest.approx(scores.kl[i], rel=1e-11)
        assert result.auc == pytest.approx(scores.auc[i], rel=1e-9)
        assert result.mean_distance == pytest.approx(scores.mean_distance[i], rel=1e-11)


def test_a_factor_is_reused_and_only_for_its_own_problem():
    x, y = problem()
    calls = []

    def counted(a, b):
        calls.append((len(a), len(b)))
        return rbf(a, b)

    factor = posterior_of(x, y, kernel=counted, noise=0.1)
    again = [lood(x, y, differing=[i, 9], kernel=counted, noise=0.1, factor=factor).kl for i in (0, 1)]
    assert calls.count((40, 40)) == 1
    assert again == [lood(x, y, differing=[i, 9], kernel=rbf, noise=0.1).kl for i in (0, 1)]
    for change, name in (
        ({"noise": 0.2}, "noise"),
        ({"kernel": rbf}, "kernel"),
        ({"x": x + 1}, "x"),
        ({"y": 2 * y}, "y"),
    ):
        arguments = {"x": x, "y": y, "kernel": counted, "noise": 0.1} | change
        with pytest.raises(InputError, match=f"factor must come from the same x, y, kernel and noise; got another {name}"):
            lood(arguments.pop("x"), arguments.pop("y"), differing=0, factor=factor, **arguments)
    with pytest.raises(InputError, match=r"factor must be a factor that was made before, or None; got str\. Leave it out"):
        lood(x, y, differing=0, kernel=rbf, noise=0.1, factor="x")


def test_repeated_queries_add_nothing():
    x, y = problem()
    queries = np.random.default_rng(2).normal(size=(2, 3))
    once = lood(x, y, differing=[3, 4], queries=queries, kernel=rbf, noise=0.1)
    twice = lood(x, y, differing=[3, 4], queries=queries[[0, 1, 0, 0, 1]], kernel=rbf, noise=0.1)
    assert (once.support, twice.support) == (2, 2)
    assert twice.kl == pytest.approx(once.kl, rel=1e-9)
    assert twice.auc == pytest.approx(once.auc, abs=1e-9)
    # The mean distance is a sum over queries, repeated or not.
    parts = [lood(x, y, differing=[3, 4], queries=queries[[k]], kernel=rbf, noise=0.1).mean_distance for k in (0, 1)]
    assert twice.mean_distance == pytest.approx(3 * parts[0] + 2 * parts[1], rel=1e-10)


def test_a_group_of_duplicates_has_one_direction_and_linear_kernels_have_few():
    x, y = problem()
    x[7], y[7] = x[3], y[3]
    twins = lood(x, y, differing=[3, 7], kernel=rbf, noise=0.1)
    alone = lood(x, y, differing=[3, 7], queries=x[[3]], kernel=rbf, noise=0.1)
    assert twins.support == 1
    assert twins.kl == pytest.approx(alone.kl, rel=1e-9)
    # Seven queries of a kernel of rank 3 determine each other: three of them say everything.
    wide = lood(x, y, differing=[0], queries=x[10:17], kernel=linear, noise=0.1)
    narrow = lood(x, y, differing=[0], queries=x[10:13], kernel=linear, noise=0.1)
    assert wide.support == 3
    assert wide.kl == pytest.approx(narrow.kl, rel=1e-8)


def test_a_query_that_the_kernel_does_not_see_leaks_nothing():
    x, y = problem()
    result = lood(x, y, differing=[0], queries=np.zeros((1, 3)), kernel=linear, noise=0.1)
    assert (result.kl, result.auc, result.support) == (0.0, 0.5, 0)


def test_joint_auc_equals_sampling():
    x, y = problem(outputs=1)
    result = lood(x, y, differing=[0, 1], queries=x[[0, 1, 2]], kernel=rbf, noise=0.3)
    rng = np.random.default_rng(0)

    def log_density(f, mean, cov):
        white = np.linalg.solve(np.linalg.cholesky(cov), (f - mean).T)
        return -0.5 * (white**2).sum(0) - 0.5 * np.linalg.slogdet(cov)[1]

    sides = [(result.mean[:, 0], result.covariance), (result.loo_mean[:, 0], result.loo_covariance)]
    drawn = [mean + rng.normal(size=(400_000, 3)) @ np.linalg.cholesky(cov).T for mean, cov in sides]
    ratios = [log_density(f, *sides[0]) - log_density(f, *sides[1]) for f in drawn]
    share = (ratios[0] > ratios[1]).mean()
    assert 0.55 < share < 0.999
    assert share == pytest.approx(result.auc, abs=4 * 0.5 / np.sqrt(400_000))  # four standard errors


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), noise=st.floats(1e-2, 1e2))
def test_more_queries_and_larger_groups_never_leak_less(seed, noise):
    x, y = problem(n=12, d=2, seed=seed)
    queries = np.random.default_rng(seed + 1).normal(size=(3, 2))
    few, more = (lood(x, y, differing=[0, 1], queries=queries[:k], kernel=rbf, noise=noise) for k in (2, 3))
    assert few.kl <= more.kl * (1 + 1e-9)
    assert (np.linalg.eigvalsh(more.loo_covariance - more.covariance) >= -1e-12).all()
    order = np.random.default_rng(seed).permutation(3)
    assert lood(x, y, differing=[1, 0], queries=queries[order], kernel=rbf, noise=noise).kl == pytest.approx(more.kl, rel=1e-8)


def test_labels_become_one_hot_columns_and_inputs_stay():
    x, _ = problem()
    labels = np.arange(40) % 4
    before = x.copy()
    result = lood(x, labels, differing=[0], kernel=rbf, noise=0.1)
    assert result.mean.shape == (1, 4) and np.array_equal(x, before)
    assert result.kl == lood(torch.from_numpy(x), np.eye(4)[labels], differing=[0], kernel=rbf, noise=0.1).kl


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"differing": [0, 0]}, "differing must name each record once; got 0 2 times"),
        ({"differing": [40]}, "differing must lie between 0 and 39; got 40"),
        ({"differing": [-1]}, "differing must lie between 0 and 39; got -1"),
        ({"differing": []}, "differing must be one or more whole row numbers"),
        ({"differing": [0.5]}, "differing must be one or more whole row numbers"),
        ({"differing": list(range(40))}, "differing must leave at least one record; got all 40 records"),
        ({"noise": -1.0}, "noise must be a number > 0; got -1"),
        ({"queries": np.zeros((2, 4))}, r"queries must have rows of the shape of x's, \(3,\)"),
        ({"queries": np.full((1, 3), np.nan)}, "queries must be finite"),
        ({"x": np.zeros(40)}, "x must have one row a record and at least one feature"),
        ({"x": np.full((40, 3), np.inf)}, "x must be finite"),
        ({"x": np.array([["a"] * 3] * 40)}, "x must be numeric"),
        ({"y": np.zeros(39)}, "x and y must have one row per record"),
        ({"x": np.zeros((1, 3)), "y": [0.0]}, "x must hold at least 2 records"),
        ({"kernel": "rbf"}, "kernel must be a callable"),
        ({"kernel": lambda a, b: a}, r"kernel\(x, z\) must have shape \(40, 40\); got \(40, 3\)"),
        ({"kernel": lambda a, b: rbf(a, b) * torch.nan}, r"kernel\(x, z\) must be finite; got 1600 NaN"),
        ({"kernel": lambda a, b: a @ b}, r"kernel\(x, z\) must return a kernel matrix; got RuntimeError"),
        ({"kernel": lambda a, b: rbf(a, b) - 0.9}, r"kernel\(x, x\) must be positive semi-definite"),
        ({"kernel": lambda a, b: rbf(a, b) + 0.1 * a[:, :1]}, r"kernel\(x, x\) must be symmetric"),
        ({"max_memory": 1e4}, "40 records must fit in max_memory"),
    ],
)
def test_bad_input_is_one_sentence(change, message):
    x, y = problem()
    arguments = {"x": x, "y": y, "differing": [0], "kernel": rbf, "noise": 0.1} | change
    with pytest.raises(InputError, match=message):
        lood(arguments.pop("x"), arguments.pop("y"), **arguments)


def test_kernels_may_return_numpy():
    x, y = problem()
    ours = lood(x, y, differing=[0], kernel=lambda a, b: numpy_rbf(a.numpy(), b.numpy()), noise=0.1)
    assert ours.kl == pytest.approx(lood(x, y, differing=[0], kernel=rbf, noise=0.1).kl, rel=1e-12)


# Bounds without the matrix


GROUPS = [0, 7, [3, 50, 100]]


def exact(x, y, noise):
    results = [lood(x, y, differing=group, kernel=rbf, noise=noise) for group in GROUPS]
    return np.array([r.kl for r in results]), np.array([r.mean_distance for r in results])


@pytest.mark.parametrize("rank", [0, 30])
@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_bounds_hold_at_every_iteration_and_shrink(rank, noise):
    x, y = problem(n=150)
    kl, distance = exact(x, y, noise)
    widths = []
    for iterations in (1, 3, 6, 12, 25, 50):
        found = lood_bounds(x, y, groups=GROUPS, kernel=rbf, noise=noise, iterations=iterations, tolerance=0.0, rank=rank)
        # 1e-9: when bounds have closed to rounding, rounding decides the last digits.
        assert (found.kl_low <= kl * (1 + 1e-9)).all() and (found.kl_high >= kl * (1 - 1e-9)).all()
        assert (found.mean_distance_low <= distance * (1 + 1e-9)).all() and (found.mean_distance_high >= distance * (1 - 1e-9)).all()
        widths.append((found.kl_high - found.kl_low) / kl)
        assert found.iterations <= iterations and found.rank == rank
    widths = np.array(widths)
    assert (widths[3] < widths[1]).all() and (widths[-1] < 1e-2 * widths[1]).all()
    if rank:
        assert (widths[-1] < 1e-4).all()


def test_bounds_stop_at_the_tolerance_and_say_so():
    x, y = problem(n=150)
    kl, _ = exact(x, y, 0.1)
    found = lood_bounds(x, y, groups=GROUPS, kernel=rbf, noise=0.1, tolerance=1e-4, rank=40)
    assert found.converged and found.iterations < 100 and found.cached == 1.0
    assert (found.kl_high - found.kl_low <= 1e-4 * found.kl_high).all()
    np.testing.assert_allclose((found.kl_low + found.kl_high) / 2, kl, rtol=1e-4)
    stopped = lood_bounds(x, y, groups=GROUPS, kernel=rbf, noise=0.1, iterations=2, rank=0)
    assert not stopped.converged and stopped.iterations == 2


@pytest.mark.parametrize("budget", [0.0, 30_000.0, 1e9])
def test_tiles_multiply_like_the_matrix_whatever_is_kept(monkeypatch, budget):
    monkeypatch.setattr(tiles_module, "TILE_ROWS", 32)
    x, right = torch.from_numpy(problem(n=100)[0]), torch.from_numpy(problem(n=100, outputs=5)[1])
    tiles = kernel_tiles(x, rbf, max_bytes=budget)
    assert len(tiles.kept) == {0.0: 0, 30_000.0: 4, 1e9: 10}[budget]
    torch.testing.assert_close(tiles_product(tiles, right.T), right.T @ rbf(x, x), rtol=1e-12, atol=1e-12)


def test_the_preconditioner_stays_below_the_kernel():
    x = torch.from_numpy(problem(n=60)[0])
    factor = partial_cholesky(x, rbf, 20)
    assert factor.shape == (60, 20)
    left = torch.linalg.eigvalsh(rbf(x, x) - factor @ factor.T)
    assert left[0] > -1e-12 and left.sum() < 0.6 * 60  # greedy pivots explain more than their share of the trace, 60
    assert partial_cholesky(x, linear, 20).shape == (60, 3)  # rank 3: nothing left after three columns


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"groups": []}, InputError, "groups must be a non-empty sequence"),
        ({"groups": "all"}, InputError, "groups must be a non-empty sequence"),
        ({"groups": [[0, 0]]}, InputError, "groups must name each record once"),
        ({"groups": [99]}, InputError, "groups must lie between 0 and 39"),
        ({"iterations": 0}, InputError, "iterations must be a whole number ≥ 1"),
        ({"tolerance": -1.0}, InputError, "tolerance must be a number ≥ 0"),
        ({"rank": -1}, InputError, "rank must be a whole number ≥ 0"),
        ({"noise": 0.0}, InputError, "noise must be a number > 0"),
        ({"max_memory": 1e3}, InputError, "40 records must fit in max_memory"),
        ({"kernel": lambda a, b: -5 * rbf(a, b), "rank": 0}, NumericalError, "the kernel is not positive semi-definite"),
        ({"kernel": lambda a, b: 1e9 * rbf(a, b), "noise": 1e-9, "rank": 40}, NumericalError, "the noise is too small beside .* rank=0"),
    ],
)
def test_bounds_refuse_bad_input(change, error, message):
    x, y = problem()
    arguments = {"groups": [0], "kernel": rbf, "noise": 0.1} | change
    with pytest.raises(error, match=message):
        lood_bounds(x, y, **arguments)

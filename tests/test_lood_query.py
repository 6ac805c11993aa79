"""Optimised queries: gradients, recovered records, boxes, starts, groups, and the figures that come with them."""

from functools import partial

import numpy as np
import pytest
import torch

from lood_oracles import arc_cosine, brute_force, numpy_rbf, rbf
from noshadow._lood import lood, nngp_kernel, optimal_query, posterior_of, query_lood, rbf_kernel
from noshadow._lood.inputs import Noise
from noshadow._lood.objective import ascended, query_moments, query_problem, set_divergences
from noshadow.checks import InputError, NumericalError


def problem(n=25, d=2, outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    return 2 * rng.normal(size=(n, d)), rng.normal(size=(n, outputs))


quiet = partial(optimal_query, progress=False)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("group", [[4], [1, 2, 9, 11]], ids=len)
def test_the_objective_is_lood_and_its_gradient_is_right(size, group):
    x, y = problem()
    prepared = query_problem(x, y, group, rbf, Noise(0.1, relative=False), None, None, 8e9)
    queries = torch.from_numpy(np.random.default_rng(1).normal(size=(2, size, 2))).requires_grad_(True)
    parts = set_divergences(prepared, query_moments(prepared, queries))
    for k in range(2):
        truth = lood(x, y, differing=group, queries=queries[k].detach().numpy(), kernel=rbf, noise=0.1)
        # 1e-6: the objective adds 1e-10 of the prior to posterior variances of 1e-2 and less.
        assert parts[0][k].item() == pytest.approx(truth.kl, rel=1e-6)
        assert parts[1][k].item() == pytest.approx(truth.mean_distance, rel=1e-9)
    for part in parts:
        (gradient,) = torch.autograd.grad(part.sum(), queries, retain_graph=True)
        step = 1e-5
        for index in np.ndindex(2, size, 2):
            ends = []
            for sign in (1, -1):
                moved = queries.detach().clone()
                moved[index] += sign * step
                which = 0 if part is parts[0] else 1
                ends.append(set_divergences(prepared, query_moments(prepared, moved))[which].sum().item())
            # Central differences: h² ~ 1e-10 of third derivatives, 1e-16/h of rounding.
            assert gradient[index].item() == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-6)


def test_a_kernel_of_its_own_for_the_model_without_the_group():
    x, y = problem()
    wide = lambda a, b: rbf(a / 1.5, b / 1.5)  # noqa: E731
    queries = np.random.default_rng(1).normal(size=(3, 2))
    kl, distance = query_lood(x, y, differing=[4], queries=queries, kernel=rbf, noise=0.1, kernel_without=wide)
    kept = np.delete(np.arange(25), 4)
    for k, query in enumerate(queries[:, None]):
        full = brute_force(numpy_rbf, x, y, [4], query, 0.1)["full"]
        other = brute_force(lambda a, b: numpy_rbf(a / 1.5, b / 1.5), x[kept], y[kept], [0], query, 0.1)["full"]
        gap, v, w = ((other[0] - full[0]) ** 2).sum(), other[1][0, 0], full[1][0, 0]
        assert kl[k] == pytest.approx(0.5 * (2 * (np.log(w / v) - 1 + v / w) + gap / w), rel=1e-6)
        assert distance[k] == pytest.approx(0.5 * gap, rel=1e-9)
    same = query_lood(x, y, differing=[4], queries=queries, kernel=rbf, noise=0.1, kernel_without=rbf)
    plain = query_lood(x, y, differing=[4], queries=queries, kernel=rbf, noise=0.1)
    np.testing.assert_allclose(same, plain, rtol=1e-6)
    found = quiet(x, y, differing=[4], kernel=rbf, noise=0.1, kernel_without=wide, steps=60, start="record")
    assert found.value > found.record_values[0] > 0 and found.ceiling is None


def test_held_queries_stay_where_they_are():
    x, y = problem()
    prepared = query_problem(x, y, [1, 9], rbf, Noise(0.1, relative=False), None, None, 8e9)
    start = torch.from_numpy(np.random.default_rng(1).normal(size=(2, 3, 2)))
    moved, trace = ascended(prepared, start, None, "kl", 20, 0.1, False, held=2)
    assert torch.equal(moved[:, :2], start[:, :2]) and not torch.equal(moved[:, 2], start[:, 2])
    assert (trace.max(1) > trace[:, 0]).all()


def test_greedy_starts_find_records_that_random_sets_miss():
    """Wide data, where sets of random queries crowd around one record: the same ascents, one by one, reach the group's ceiling."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(30, 12)), rng.normal(size=(30, 1))
    kernel = partial(rbf_kernel, length_scale=2.5)
    shares = {"random": [], "greedy": []}
    for group in ([0, 1, 2], [3, 4, 5], [6, 7, 8]):
        for start, own in shares.items():
            found = quiet(x, y, differing=group, kernel=kernel, noise=0.1, queries=3, restarts=3, steps=80, start=start, seed=1)
            own.append(found.value / found.ceiling)
            # The group itself is the ceiling; 1e-6 for the objective's nugget.
            assert found.value <= found.ceiling * (1 + 1e-6) and found.all_queries.shape == (3, 3, 12)
    assert np.mean(shares["greedy"]) > np.mean(shares["random"]) + 0.05
    assert np.median(shares["greedy"]) > 0.99


def test_query_lood_equals_lood_one_query_at_a_time():
    x, y = problem()
    queries = np.random.default_rng(1).normal(size=(70, 2))  # more than one block
    kl, distance = query_lood(x, y, differing=[4, 6], queries=queries, kernel=rbf, noise=0.1)
    truth = [lood(x, y, differing=[4, 6], queries=q[None], kernel=rbf, noise=0.1) for q in queries]
    np.testing.assert_allclose(kl, [t.kl for t in truth], rtol=1e-6)
    np.testing.assert_allclose(distance, [t.mean_distance for t in truth], rtol=1e-9)


def test_the_best_single_query_is_the_record_itself():
    x, y = problem()
    # Starts around the data: some restart falls into the record's basin.
    found = quiet(x, y, differing=[4], kernel=rbf, noise=0.1, restarts=8, steps=200)
    assert found.value == pytest.approx(found.record_values[0], rel=1e-3)
    assert found.distance[0] < 0.02 and found.nearest.tolist() == [4] and found.converged
    assert found.cosine[0] > 0.999
    assert found.prediction_gap.shape == (1, 2) and found.prediction_gap.max() < 0.05 and found.prediction_kl[0] < 0.05
    # Nothing on a fine grid does better.
    grid = np.stack(np.meshgrid(*[np.linspace(-5, 5, 60)] * 2), -1).reshape(-1, 2)
    assert query_lood(x, y, differing=[4], queries=grid, kernel=rbf, noise=0.1)[0].max() <= found.value * (1 + 1e-9)


def test_what_is_reported_is_consistent():
    x, y = problem()
    found = quiet(x, y, differing=[4, 7], kernel=rbf, noise=0.1, queries=3, restarts=4, steps=40, seed=3)
    assert found.trace.shape == (4, 41) and found.values.shape == (4,) and found.all_queries.shape == (4, 3, 2)
    np.testing.assert_array_equal(found.values, found.trace.max(1))
    top = found.values.argmax()
    assert found.value == found.values[top]
    np.testing.assert_array_equal(found.queries, found.all_queries[top])
    truth = lood(x, y, differing=[4, 7], queries=found.queries, kernel=rbf, noise=0.1)
    assert found.kl == pytest.approx(truth.kl, rel=1e-5) and found.mean_distance == pytest.approx(truth.mean_distance, rel=1e-6)
    assert found.value == pytest.approx(found.kl, rel=1e-9)
    for i, value in zip((4, 7), found.record_values, strict=True):
        assert value == pytest.approx(lood(x, y, differing=[4, 7], queries=x[[i]], kernel=rbf, noise=0.1).kl, rel=1e-6)
    spread = np.sqrt(((x - x.mean(0)) ** 2).sum(1).mean())
    for q, near, distance in zip(found.queries, found.nearest, found.distance, strict=True):
        apart = np.linalg.norm(x[[4, 7]] - q, axis=1)
        assert near == [4, 7][apart.argmin()] and distance == pytest.approx(apart.min() / spread)
    mean_at = lood(x, y, differing=[4, 7], queries=found.queries[:1], kernel=rbf, noise=0.1)
    mean_of = lood(x, y, differing=[4, 7], queries=x[found.nearest[:1]], kernel=rbf, noise=0.1)
    gaps = [np.linalg.norm(mean_at.mean - mean_of.mean), np.linalg.norm(mean_at.loo_mean - mean_of.loo_mean)]
    np.testing.assert_allclose(found.prediction_gap[0], gaps, rtol=1e-8)
    v, w = mean_at.covariance[0, 0], mean_of.covariance[0, 0]
    assert found.prediction_kl[0] == pytest.approx(0.5 * (2 * (v / w - 1 - np.log(v / w)) + gaps[0] ** 2 / w), rel=1e-5)
    assert (found.objective, found.noise, found.steps, found.seed) == ("kl", 0.1, 40, 3)


def test_a_group_is_recovered_by_as_many_queries():
    x, y = problem()
    group = [4, 7]
    found = quiet(x, y, differing=group, kernel=rbf, noise=0.1, queries=2, restarts=12, steps=200)
    assert found.ceiling == pytest.approx(lood(x, y, differing=group, kernel=rbf, noise=0.1).kl, rel=1e-7)
    assert found.ceiling * (1 - 1e-3) <= found.value <= found.ceiling * (1 + 1e-9)
    assert sorted(found.nearest.tolist()) == group and found.distance.max() < 0.05


def test_more_queries_than_records_gain_little_and_queries_may_meet():
    x, y = problem()
    found = quiet(x, y, differing=[4], kernel=rbf, noise=0.1, queries=3, restarts=2, steps=60, start=np.tile(x[4], (3, 1)))
    # Three queries on top of each other: the trace starts at the single query's value, with the jitter to thank for it.
    np.testing.assert_allclose(found.trace[:, 0], found.record_values[0], rtol=1e-5)
    assert found.value >= found.record_values[0] * (1 - 1e-5)
    assert found.value <= found.ceiling * (1 + 1e-9) and found.ceiling == pytest.approx(found.record_values[0], rel=1e-9)


def test_the_mean_distance_has_its_own_optimum():
    x, y = problem()
    found = quiet(x, y, differing=[4], kernel=rbf, noise=0.1, objective="mean_distance", restarts=8, steps=200)
    grid = np.stack(np.meshgrid(*[np.linspace(-6, 6, 121)] * 2), -1).reshape(-1, 2)
    distances = query_lood(x, y, differing=[4], queries=grid, kernel=rbf, noise=0.1)[1]
    assert found.value >= distances.max() * (1 - 1e-6)
    assert found.value == pytest.approx(found.mean_distance) and found.value > found.record_values[0]


@pytest.mark.parametrize("low", [-0.5, np.array([-0.5, 0.2])], ids=["number", "array"])
def test_queries_stay_in_the_box(low):
    x, y = problem()
    found = quiet(x, y, differing=[4], kernel=rbf, noise=0.1, bounds=(low, 0.4), restarts=3, steps=50)
    assert (found.all_queries >= low).all() and (found.all_queries <= 0.4).all()
    assert found.value >= found.trace[:, 0].max()
    half_open = quiet(x, y, differing=[4], kernel=rbf, noise=0.1, bounds=(0.0, np.inf), restarts=3, steps=20)
    assert (half_open.all_queries >= 0).all()


def test_starts():
    x, y = problem()
    call = partial(quiet, x, y, differing=[4, 7], kernel=rbf, noise=0.1, steps=1, lr=1e-9)
    records = call(start="record", queries=3, restarts=2)
    np.testing.assert_allclose(records.all_queries[0], x[[4, 7, 4]], atol=1e-7)
    apart = np.abs(records.all_queries[1] - x[[4, 7, 4]])
    assert (apart > 1e-6).all() and (apart <= 0.05 * np.ptp(x, axis=0) + 1e-7).all()
    inside = call(start="random", restarts=50).all_queries
    assert (inside >= x.min(0) - 1e-7).all() and (inside <= x.max(0) + 1e-7).all() and np.ptp(inside) > 2
    given = np.arange(4.0).reshape(2, 1, 2)
    np.testing.assert_allclose(call(start=given, restarts=2).all_queries, given, atol=1e-7)
    np.testing.assert_allclose(call(start=given[0], restarts=2).all_queries, given[[0, 0]], atol=1e-7)


def test_the_same_seed_gives_the_same_queries_and_inputs_stay():
    x, y = problem()
    before = x.copy()
    first, again, other = (quiet(x, y, differing=[4], kernel=rbf, noise=0.1, steps=10, seed=s) for s in (1, 1, 2))
    assert np.array_equal(first.all_queries, again.all_queries) and not np.array_equal(first.all_queries, other.all_queries)
    assert np.array_equal(x, before)


def test_restarts_do_not_mix():
    x, y = problem()
    starts = np.random.default_rng(0).normal(size=(3, 2, 2))
    together = quiet(x, y, differing=[4], kernel=rbf, noise=0.1, queries=2, restarts=3, steps=15, start=starts)
    for k in range(3):
        alone = quiet(x, y, differing=[4], kernel=rbf, noise=0.1, queries=2, restarts=1, steps=15, start=starts[k])
        np.testing.assert_allclose(together.trace[k], alone.trace[0], rtol=1e-8)


def test_a_factor_with_its_inverse_is_reused():
    x, y = problem()
    factor = posterior_of(x, y, kernel=rbf, noise=0.1, with_inverse=True)
    np.testing.assert_allclose(factor.inverse, np.linalg.inv(numpy_rbf(x) + 0.1 * np.eye(25)), atol=1e-11)
    call = partial(quiet, x, y, differing=[4], kernel=rbf, noise=0.1, steps=3)
    assert np.array_equal(call(factor=factor).trace, call().trace)
    with pytest.raises(InputError, match="factor must hold the inverse"):
        call(factor=posterior_of(x, y, kernel=rbf, noise=0.1))


def test_networks_of_infinite_width_are_optimised_through_their_kernel():
    x, y = problem(d=6, n=30)
    kernel = partial(nngp_kernel, depth=3)
    found = quiet(x, y, differing=[4], kernel=kernel, noise=0.1, restarts=6, steps=120)
    # A relu network without biases sees directions only: the record is recovered up to its length.
    assert found.cosine[0] > 0.99 and found.value == pytest.approx(found.record_values[0], rel=0.02)


def test_images_keep_their_shape():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 1, 3, 3)), np.arange(8) % 2
    kernel = partial(nngp_kernel, depth=1, architecture="conv", image_shape=(1, 3, 3))
    found = quiet(x, y, differing=[0], kernel=kernel, noise=0.1, queries=2, restarts=2, steps=5)
    assert found.queries.shape == (2, 1, 3, 3)


def test_unresolvable_gradients_are_an_error():
    x, y = problem()
    with pytest.raises(NumericalError, match="the objective or its gradient is not finite at step 0"):
        quiet(x, y, differing=[4], kernel=lambda a, b: rbf(a, b) + 0 * (a[:, :1] - a[:, :1]).sqrt(), noise=0.1, steps=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"objective": "auc"}, "objective must be one of 'kl', 'mean_distance'"),
        ({"queries": 0}, "queries must be a whole number ≥ 1"),
        ({"restarts": 0}, "restarts must be a whole number ≥ 1"),
        ({"steps": 0}, "steps must be a whole number ≥ 1"),
        ({"lr": 0.0}, "lr must be a number > 0"),
        ({"seed": -1}, "seed must be a whole number ≥ 0"),
        ({"bounds": 3}, r"bounds must be a pair \(low, high\)"),
        ({"bounds": (1.0, 0.0)}, "bounds must have low < high everywhere"),
        ({"bounds": (np.zeros(3), 1.0)}, r"bounds must be numbers or arrays of a record's shape \(2,\)"),
        ({"bounds": (np.nan, 1.0)}, "bounds must be numbers"),
        ({"start": "middle"}, "start must be one of 'random', 'greedy', 'record'"),
        ({"start": np.zeros((4, 2))}, "start must be 'random', 'greedy', 'record' or finite with shape"),
        ({"differing": [25]}, "differing must lie between 0 and 24"),
        ({"noise": 0.0}, "noise must be a number > 0"),
        ({"max_memory": 10.0}, "25 records must fit in max_memory"),
    ],
)
def test_bad_input_is_one_sentence(change, message):
    x, y = problem()
    with pytest.raises(InputError, match=message):
        quiet(x, y, **({"differing": [4], "kernel": rbf, "noise": 0.1} | change))


def test_unbounded_mean_distance_of_a_growing_kernel_does_not_settle():
    x, y = problem()
    found = quiet(x, y, differing=[4], kernel=arc_cosine, noise=0.1, objective="mean_distance", steps=50, restarts=2, lr=0.5)
    assert not found.converged

import itertools
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from noshadow.attacks import inputs, lira_scores, moments
from noshadow.attacks.moments import block_moments, side_moments, without_model
from noshadow.checks import InputError, NumericalError

# Sums of a dozen terms in another order: a few units in the last place, amplified by dividing by the spread.
ROUNDING = {"rtol": 1e-11, "atol": 1e-11}


def simulated(r=12, n=7, queries=None, seed=0):
    """Statistics of n records under r models, each record IN for r//2 ± 1 of them and shifted there."""
    rng = np.random.default_rng(seed)
    member = np.stack([rng.permutation(np.arange(r) < r // 2 + rng.integers(-1, 2)) for _ in range(n)], axis=1)
    shape = (n,) if queries is None else (n, queries)
    lift = member if queries is None else member[:, :, None]
    reference = rng.normal(size=shape) * 5 + rng.gamma(2.0, size=shape) * rng.normal(size=(r, *shape)) + 1.5 * lift
    return reference[0] + rng.normal(size=shape), reference, member


def naive_lira(target, reference, member, *, variant, variance, center, tail="cdf", floor=0.0):
    """The published formulas, one record, side and query at a time."""
    if target.ndim == 1:
        target, reference = target[:, None], reference[:, :, None]
    n, queries = target.shape
    place = np.mean if center == "mean" else np.median

    def values(i, q, inside):
        return np.array([reference[t, i, q] for t in range(len(reference)) if member[t, i] == inside])

    def spread(i, q, inside):
        if variance == "record":
            own = values(i, q, inside)
            return max(np.sqrt(np.mean((own - own.mean()) ** 2)), floor)
        total, count = 0.0, 0
        for j in range(n):
            own = values(j, q, inside)
            total, count = total + np.sum((own - own.mean()) ** 2), count + len(own)
        return max(np.sqrt(total / count), floor)

    scores = []
    for i in range(n):
        score = 1.0 if (variant, tail) == ("offline", "cdf") else 0.0
        for q in range(queries):
            out = norm(place(values(i, q, False)), spread(i, q, False))
            if variant == "online":
                score += norm(place(values(i, q, True)), spread(i, q, True)).logpdf(target[i, q]) - out.logpdf(target[i, q])
            elif tail == "cdf":
                score *= out.cdf(target[i, q])
            else:
                score += out.logcdf(target[i, q]) if tail == "logcdf" else -out.logpdf(target[i, q])
        scores.append(score)
    return np.array(scores)


@pytest.mark.parametrize("queries", [None, 1, 3])
@pytest.mark.parametrize("center", ["mean", "median"])
@pytest.mark.parametrize("variance", ["record", "global"])
@pytest.mark.parametrize("variant, tail", [("online", "cdf"), ("offline", "cdf"), ("offline", "logcdf"), ("offline", "pdf")])
def test_scores_are_the_published_formulas(variant, tail, variance, center, queries):
    target, reference, member = simulated(queries=queries)
    options = {"variant": variant, "variance": variance, "center": center, "tail": tail}
    found = lira_scores(target, reference, member, **options)
    assert found.shape == (7,)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, naive_lira(target, reference, member, **options), **ROUNDING)


@pytest.mark.parametrize("variant", ["online", "offline"])
def test_floor_raises_small_standard_deviations_only(variant):
    target, reference, member = simulated()
    options = {"variant": variant, "variance": "record", "center": "mean", "tail": "pdf", "floor": 1.5}
    found = lira_scores(target, reference, member, **options)
    np.testing.assert_allclose(found, naive_lira(target, reference, member, **options), **ROUNDING)
    without = lira_scores(target, reference, member, **options | {"floor": 0.0})
    assert 0 < np.isclose(found, without).sum() < len(found)


@pytest.mark.parametrize("r, chosen", [(63, "global"), (64, "record")])
def test_auto_variance_switches_at_64_models(r, chosen):
    target, reference, member = simulated(r=r)
    found = lira_scores(target, reference, member)
    other = {"global": "record", "record": "global"}[chosen]
    np.testing.assert_array_equal(found, lira_scores(target, reference, member, variance=chosen))
    assert not np.allclose(found, lira_scores(target, reference, member, variance=other))


def test_global_variance_leaves_out_the_spread_between_records():
    target, reference, member = simulated()
    shift = np.arange(7) * 1000.0
    # Shifted values keep 12 digits.
    moved = lira_scores(target + shift, reference + shift, member, variance="global")
    np.testing.assert_allclose(moved, lira_scores(target, reference, member, variance="global"), rtol=1e-9, atol=1e-9)


def test_offline_never_looks_at_in_models():
    target, reference, member = simulated()
    member[:, 3] = False
    found = lira_scores(target, reference, member, variant="offline", variance="record")
    scrambled = np.where(member, 1e6, reference)
    np.testing.assert_array_equal(found, lira_scores(target, scrambled, member, variant="offline", variance="record"))


def test_log_tail_does_not_saturate_and_ranks_like_the_tail():
    _, reference, member = simulated()
    reference = np.repeat(reference[:, :1], 4, axis=1)
    member = np.repeat(member[:, :1], 4, axis=1)
    out = reference[~member[:, 0], 0]
    target = out.mean() + out.std() * np.array([1.0, 2.0, 12.0, 13.0])
    tail = lira_scores(target, reference, member, variant="offline", variance="record")
    log_tail = lira_scores(target, reference, member, variant="offline", variance="record", tail="logcdf")
    assert tail[0] < tail[1] < tail[2] == tail[3] == 1.0
    assert (np.diff(log_tail) > 0).all()


@given(st.integers(0, 2**32 - 1), st.sampled_from([(v, c) for v in ("record", "global") for c in ("mean", "median")]))
def test_order_of_records_and_models_does_not_matter(seed, options):
    variance, center = options
    target, reference, member = simulated(seed=seed)
    rng = np.random.default_rng(seed)
    records, models = rng.permutation(7), rng.permutation(12)
    found = lira_scores(target, reference, member, variance=variance, center=center)
    shuffled = lira_scores(target[records], reference[models][:, records], member[models][:, records], variance=variance, center=center)
    np.testing.assert_allclose(shuffled, found[records], **ROUNDING)


@given(st.integers(0, 2**32 - 1))
def test_online_score_is_free_of_scale_and_turns_with_the_sides(seed):
    target, reference, member = simulated(seed=seed)
    found = lira_scores(target, reference, member, variance="record")
    np.testing.assert_allclose(lira_scores(-3 * target, -3 * reference, member, variance="record"), found, **ROUNDING)
    np.testing.assert_allclose(lira_scores(target, reference, ~member, variance="record"), -found, **ROUNDING)


def test_float32_memory_map_is_read_in_blocks_and_left_alone(tmp_path, monkeypatch):
    r, n = 128, 6000
    rng = np.random.default_rng(0)
    member = rng.random((r, n)) < 0.5
    reference = np.memmap(tmp_path / "signals", dtype=np.float32, mode="w+", shape=(r, n))
    reference[:] = rng.normal(size=(r, n))
    reference.flush()
    stored = np.memmap(tmp_path / "signals", dtype=np.float32, mode="r", shape=(r, n))
    target = rng.normal(size=n)
    whole = {c: lira_scores(target, np.asarray(stored, dtype=np.float64), member, center=c) for c in ("mean", "median")}
    for module in (inputs, moments):
        monkeypatch.setattr(module, "NUMBERS_AT_ONCE", 1 << 13)
    for center, expected in whole.items():
        tracemalloc.start()
        found = lira_scores(target, stored, member, center=center)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # Blocks cut between records: each record's arithmetic is the same to the last digit.
        np.testing.assert_array_equal(found, expected)
        assert peak < r * n * 4 * 0.6  # what is held is of length n: no copy of the input, not even in float32


def test_lists_tensors_and_integers_are_taken():
    target, reference, member = simulated()
    whole = np.round(reference * 10).astype(np.int64)
    expected = lira_scores(np.round(target), whole.astype(float), member)
    np.testing.assert_array_equal(lira_scores(np.round(target).tolist(), whole.tolist(), member.tolist()), expected)
    np.testing.assert_array_equal(lira_scores(torch.tensor(target).round(), torch.tensor(whole), torch.tensor(member)), expected)


@pytest.mark.parametrize("median", [False, True])
@pytest.mark.parametrize("side", [True, False])
def test_moments_without_a_model_equal_moments_of_the_others(side, median):
    _, reference, member = simulated(r=9, n=40, queries=2)
    reference[:, 0] *= 1e-3
    reference[4, 0] = 1e9  # what is left of the sum of squares is 1e-24 of it
    reference[:, 1] = 0.1
    reference[2, 1] = 0.3  # all others equal
    reference[:, 2] = np.round(reference[:, 2])  # ties at the median
    member[:, 3] = np.arange(9) < 2  # one value left on a side of two
    signals = np.moveaxis(reference, 2, 0)
    (whole,) = side_moments(signals, member, sides=(side,), median=median)
    for model in range(9):
        found = without_model(whole, signals, member, model, inside=side)
        others = np.arange(9) != model
        held = member[others] if side else ~member[others]
        expected = block_moments(signals[:, others], held, median=median)
        np.testing.assert_array_equal(found.count, held.sum(0))
        # A deletion that keeps 1e-6 of the squares keeps 10 digits; the rest is summed again.
        for name in ("mean", "squares", "center"):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-300, err_msg=name)
        for q, i in itertools.product(range(2), range(40)):
            values = signals[q, others, i][held[:, i]]
            assert expected.center[q, i] == pytest.approx(np.median(values) if median else values.mean(), rel=1e-12)
            assert expected.squares[q, i] == pytest.approx(len(values) * values.var(), rel=1e-9, abs=1e-12)


def test_equal_values_have_no_spread_at_all():
    rng = np.random.default_rng(0)
    held = rng.random((7, 200)) < 0.6
    held[:3] = [[False], [True], [True]]
    constants = rng.normal(size=200)
    found = block_moments(np.where(held, constants, rng.normal(size=(1, 7, 200))), held, median=False)
    np.testing.assert_array_equal(found.squares, 0)
    np.testing.assert_array_equal(found.mean[0], constants)


def changed(**change):
    """Arguments of lira_scores with some replaced: by a value, or by a function of the simulated one."""
    names = ("target", "reference", "membership")
    arguments = dict(zip(names, simulated(), strict=True))
    for name, value in change.items():
        arguments[name] = value(arguments[name].copy()) if callable(value) else value
    return arguments


def poked(*entries):
    def poke(array):
        for index, value in entries:
            array[index] = value
        return array

    return poke


@pytest.mark.parametrize(
    "change, message",
    [
        ({"membership": lambda m: m.astype(int)}, r"membership must be boolean; got dtype int64. Pass membership.astype\(bool\)"),
        (
            {"membership": lambda m: m[:-1]},
            r"membership must have one entry per model and record of reference, shape \(12, 7\); got shape \(11, 7\)",
        ),
        ({"membership": lambda m: m.T}, r"got shape \(7, 12\)"),
        ({"reference": lambda x: x[0]}, r"reference must be a 2-dimensional or 3-dimensional array with entries; got shape \(7,\)"),
        ({"reference": np.empty((3, 0))}, r"reference must be .* with entries; got shape \(3, 0\)"),
        ({"reference": lambda x: x + 1j}, "reference must be numeric; got dtype complex128"),
        ({"reference": lambda x: x[:, :-1], "membership": lambda m: m[:, :-1]}, r"target must have .* shape \(6,\); got shape \(7,\)"),
        (
            {"reference": lambda x: np.stack((x, x), 2)},
            r"target must have the records and queries of reference, shape \(7, 2\); got shape \(7,\)",
        ),
        (
            {"reference": poked(((2, 5), np.nan), ((7, 1), np.inf))},
            r"reference must be finite; got 2 NaN or infinite values, the first at index \(2, 5\)",
        ),
        ({"target": poked((3, np.nan))}, "target must be finite; got 1 NaN or infinite values, the first at index 3"),
        ({"reference": poked(((4, 2), 1e101))}, r"reference must stay within ±1e\+100; got 1e\+101 at index \(4, 2\)"),
        (
            {"membership": poked(((slice(None), [2, 5]), False))},
            r"membership must hold every record IN for at least 2 models; got 2 records with fewer "
            r"\(2 never IN\), the first at index 2 with 0\. Pass variant='offline'",
        ),
        (
            {"membership": poked(((slice(None), 4), True)), "variant": "offline"},
            r"every record OUT for at least 2 models; got 1 records with fewer \(1 never OUT\), the first at index 4 with 0",
        ),
        (
            {"membership": poked(((slice(1, None), 6), False), ((0, 6), True)), "variance": "record"},
            r"every record IN for at least 2 models; got 1 records with fewer \(0 never IN\), the first at index 6 with 1",
        ),
        (
            {"reference": poked(((slice(None), [1, 4]), 0.1)), "variance": "record"},
            "reference must vary between models; got 2 records with standard deviation 0 over their IN models, the first at index 1. "
            "Pass variance='global' or floor=…",
        ),
        (
            {"reference": poked(((slice(None), [1, 4]), 0.1)), "variance": "record", "variant": "offline"},
            "2 records with standard deviation 0 over their OUT models, the first at index 1",
        ),
        ({"reference": np.ones((12, 7))}, "got a pooled standard deviation of 0 over their IN models. Pass floor=…"),
        ({"variant": "both"}, "variant must be one of 'online', 'offline'; got 'both'"),
        ({"variance": "pooled"}, "variance must be one of 'auto', 'record', 'global'; got 'pooled'"),
        ({"center": "mode"}, "center must be one of 'mean', 'median'; got 'mode'"),
        ({"tail": "sf"}, "tail must be one of 'cdf', 'logcdf', 'pdf'; got 'sf'"),
        ({"floor": -1.0}, "floor must be a number ≥ 0; got -1"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    with pytest.raises(InputError, match=rf"^lira_scores: .*{message}"):
        lira_scores(**changed(**change))


def test_indices_in_messages_count_from_the_first_block(monkeypatch):
    monkeypatch.setattr(inputs, "NUMBERS_AT_ONCE", 14)
    with pytest.raises(InputError, match=r"got 1e\+101 at index \(4, 2\)"):
        lira_scores(**changed(reference=poked(((4, 2), 1e101))))
    with pytest.raises(InputError, match=r"got 2 NaN or infinite values, the first at index \(5, 3\)"):
        lira_scores(**changed(reference=poked(((5, 3), np.nan), ((11, 0), np.nan))))


def test_flat_records_are_rescued_by_the_named_arguments():
    arguments = changed(reference=poked(((slice(None), 1), 0.1)), variance="record")
    assert np.isfinite(lira_scores(**arguments, floor=0.5)).all()
    assert np.isfinite(lira_scores(**arguments | {"variance": "global"})).all()


def test_scores_beyond_float64_are_a_numerical_error():
    arguments = changed(target=poked((2, 1e99)), reference=lambda x: x * 1e-90, variance="record")
    with pytest.raises(NumericalError, match="lira_scores: 1 scores are beyond float64, the first at index 2"):
        lira_scores(**arguments)

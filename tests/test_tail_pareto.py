import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.linear_model import SGDClassifier

import noshadow as ns
from noshadow import extrapolated_tnr, extrapolated_tpr
from noshadow.checks import InputError, NumericalError
from noshadow.metrics import tnr_at_fnr
from noshadow.tail.pareto import _fitted, _with_resampled_ends, extrapolated_tnrs, shows_tail


def fitted_tail(sample):
    ends = _with_resampled_ends(np.sort(sample), 100, np.random.default_rng(0))
    return ends, _fitted(ends, len(sample), "sample")


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.4, 1.0, 2.0])
def test_the_fit_is_near_maximum_likelihood_of_scipy(shape):
    sample = scipy.stats.genpareto(shape, scale=2).rvs(20_000, random_state=1)
    ends, tails = fitted_tail(sample)
    expected, _, scale = scipy.stats.genpareto.fit(ends[0, :-1] - ends[0, -1], floc=0)
    # A posterior mean on a grid against a mode: they differ by a fraction of the standard error (1 + shape)/√425 ≥ 0.034.
    assert tails.shape[0] == pytest.approx(expected, abs=0.02)
    assert tails.scale[0] == pytest.approx(scale, rel=0.02)


def test_quantiles_and_shares_of_a_tail_invert_each_other_and_equal_scipy():
    _, tails = fitted_tail(scipy.stats.genpareto(0.3).rvs(3000, random_state=2))
    reached = tails.quantile(1e-5)
    np.testing.assert_allclose(tails.above(reached), 1e-5, rtol=1e-9)
    law = scipy.stats.genpareto(tails.shape[0], loc=tails.start[0], scale=tails.scale[0])
    assert reached[0] == pytest.approx(law.isf(1e-5 / tails.share), rel=1e-9)


@pytest.mark.parametrize(
    ("members", "nonmembers"),
    [
        (scipy.stats.expon(), scipy.stats.expon(scale=3)),
        (scipy.stats.weibull_min(0.5, scale=0.1), scipy.stats.weibull_min(0.7)),
        (scipy.stats.lognorm(2, scale=0.05), scipy.stats.lognorm(1.5)),
    ],
)
def test_intervals_cover_rates_below_the_resolution(members, nonmembers):
    """Thirty samples of 1,000 asked for a level of 2e-4; the truth is known."""
    truth, inside = nonmembers.sf(members.isf(2e-4)), 0
    for seed in range(30):
        samples = members.rvs(1000, random_state=seed), nonmembers.rvs(1000, random_state=1000 + seed)
        found = extrapolated_tnr(*samples, 2e-4, scale="loss", resamples=100, seed=seed)
        assert found.extrapolated
        inside += found.interval[0] <= truth <= found.interval[1]
    # Nominal 95 %; 88–97 % in longer runs. Fewer than 23 of 30 would have a chance below 1 % at 88 %.
    assert inside >= 23


def test_a_level_that_the_members_resolve_is_counted():
    rng = np.random.default_rng(3)
    members, nonmembers = rng.exponential(size=2000), rng.exponential(2, size=1500)
    for level in (0.3, 0.01, 1 / 2000):
        found = extrapolated_tnr(members, nonmembers, level, resamples=100)
        assert not found.extrapolated
        counted = tnr_at_fnr(members, nonmembers, level)
        # Where the threshold lies among the largest non-member losses their fitted tail decides: within the noise of 1,500.
        assert found.value == pytest.approx(counted, abs=0.03)
    assert extrapolated_tnr(members, nonmembers, 0.3, resamples=100).value == tnr_at_fnr(members, nonmembers, 0.3)


def test_tpr_is_the_mirror_image_of_tnr():
    rng = np.random.default_rng(4)
    members, nonmembers = rng.normal(1, 1, 800), rng.normal(0, 1, 900)
    one, other = (
        extrapolated_tpr(members, nonmembers, 1e-4, resamples=100),
        extrapolated_tnr(nonmembers, members, 1e-4, scale="loss", resamples=100),
    )
    assert (one.value, one.interval, one.threshold) == (other.value, other.interval, other.threshold)


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
@settings(max_examples=15, deadline=None)
def test_the_unit_of_the_losses_does_not_matter_and_smaller_levels_give_smaller_rates(seed, unit):
    rng = np.random.default_rng(seed)
    members, nonmembers = rng.exponential(size=300), rng.exponential(4, size=300)
    values = [extrapolated_tnr(members, nonmembers, level, scale="loss", resamples=100).value for level in (1e-2, 1e-3, 1e-4, 1e-6)]
    assert values == sorted(values, reverse=True)
    rescaled = extrapolated_tnr(unit * members, unit * nonmembers, 1e-4, scale="loss", resamples=100)
    assert rescaled.value == pytest.approx(values[2], rel=1e-6)


def test_overfit_classifiers_need_the_scale_of_margins():
    """Margins of members N(8, 3²), of strangers N(2, 3²): the truth is Φ of a Gaussian; tails of the losses overshoot."""
    truth = scipy.stats.norm.cdf((8 - 2) / 3 + scipy.stats.norm.ppf(2e-4))
    inside, values, of_losses = 0, [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        losses = [np.logaddexp(0, -rng.normal(mean, 3, 1500)) for mean in (8, 2)]
        found = extrapolated_tnr(*losses, 2e-4, resamples=100, seed=seed)
        inside += found.interval[0] <= truth <= found.interval[1]
        values.append(found.value)
        of_losses.append(extrapolated_tnr(*losses, 2e-4, scale="loss", resamples=100, seed=seed).value)
        assert (losses[1] > found.threshold).mean() == pytest.approx(found.value, abs=0.03)  # the threshold is a loss
    assert inside >= 14  # nominal 19
    # A Gaussian's tail is lighter than any generalised Pareto law fitted to its largest 8 %: the estimate leans to the risky side,
    # that of the losses' own tails is far too low.
    assert truth < np.median(values) < 1.6 * truth
    assert np.median(of_losses) < 0.3 * truth
    with pytest.raises(InputError, match=r"member_losses must be ≥ 0 on the scale of margins"):
        extrapolated_tnr(losses[0] - 5, losses[1], 1e-4)


def test_tails_without_spread_or_records_are_refused():
    rng = np.random.default_rng(5)
    flat = np.r_[rng.random(200), np.full(300, 2.0)]
    with pytest.raises(NumericalError, match=r"largest member_losses are all equal"):
        extrapolated_tnr(flat, rng.random(500), 1e-4)
    with pytest.raises(InputError, match=r"member_losses must hold at least 125 values, 25 of them in the tail; got 50"):
        extrapolated_tnr(rng.random(50), rng.random(500), 1e-4)
    with pytest.raises(InputError, match=r"extrapolated_tpr: fpr must"):
        extrapolated_tpr(rng.random(500), rng.random(500), 0.0)
    with pytest.raises(InputError, match=r"member_losses .*NaN"):
        extrapolated_tnr(np.r_[np.nan, rng.random(500)], rng.random(500), 1e-4)
    assert not shows_tail(np.sort(flat))
    assert shows_tail(np.sort(rng.random(500)))


@pytest.mark.parametrize("scale", ["margin", "loss"])
def test_several_levels_at_once_are_each_as_if_alone(scale):
    rng = np.random.default_rng(8)
    losses, levels = (rng.exponential(0.2, 300), rng.exponential(0.5, 260)), (0.3, 1e-2, 1e-3, 1e-5)
    how = {"scale": scale, "resamples": 100, "level": 0.9, "seed": 4}
    assert extrapolated_tnrs(*losses, levels, **how) == [extrapolated_tnr(*losses, level, **how) for level in levels]


def test_resamples_without_spread_have_nothing_above_them():
    # Losses clipped at one value: the sample shows a tail, and many of its resamples hold that value alone.
    x, y = make_classification(300, 8, n_informative=6, n_classes=3, flip_y=0.1, random_state=0)
    model = SGDClassifier(loss="log_loss", random_state=0).fit(x[:150], y[:150])
    curve = ns.audit(model, (x[:150], y[:150]), (x[150:], y[150:]), progress=False).model_risk.extrapolated
    assert curve is not None and all(
        0 <= low <= rate <= high <= 1 for low, rate, high in zip(curve.low, curve.tnr, curve.high, strict=True)
    )

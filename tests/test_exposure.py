"""Exposure: the mixed model against statsmodels, a grid, LiRA's moments and simulation; what it refuses and where it gives order only."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import binom, norm, spearmanr
from statsmodels.regression.mixed_linear_model import MixedLM

import noshadow as ns
from noshadow import InputError, NotApplicable
from noshadow._exposure.basis import basis_of, normal_scores
from noshadow._exposure.design import noise_between
from noshadow._exposure.entry import answered
from noshadow._exposure.inputs import Given, given, within_reach
from noshadow._exposure.mixed_model import START, Form, _Problem, fitted_model
from noshadow._exposure.posterior import posterior_of
from noshadow._exposure.result import shares
from noshadow._exposure.rules import CHOSEN, Rules
from noshadow._exposure.scales import fitted_scales
from noshadow._exposure.spread import spreads_of
from noshadow._exposure.sufficient import Sides, _gathered, sides_of, sums_of
from noshadow.errors import speaking_for
from noshadow.reference import plan

SLOPES = np.array([[1.0, -0.4], [-0.4, 0.5]])
SPREADS = (0.7, 0.5)  # OUT, IN


def drawn(n, models, seed, *, slopes=SLOPES, spreads=SPREADS, leak=True, membership=None):
    """Margins drawn from the model itself: the audited model's, covariates, references, membership, the true d′."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, n))
    f, g = 1 + 0.5 * first - 0.3 * second, 0.8 + 0.4 * first
    a, b = rng.multivariate_normal([0, 0], slopes, n).T
    inside = rng.random((models, n)) < 0.5 if membership is None else membership
    slope, wide = (g + b, spreads) if leak else (np.zeros(n), (spreads[0], spreads[0]))
    margins = f + a + slope + wide[1] * rng.normal(size=n)
    references = f + a + inside * slope + np.where(inside, wide[1], wide[0]) * rng.normal(size=inside.shape)
    truth = slope / np.sqrt((wide[0] ** 2 + wide[1] ** 2) / 2)
    return margins, {"first": first, "second": second}, references, inside, truth


def summed(covariates, references, inside):
    return sums_of(sides_of(references, inside), basis_of(covariates, references.shape[1]))


def test_the_slope_of_the_likelihood_is_its_derivative():
    _, covariates, references, inside, _ = drawn(400, 3, 0)
    for form in (Form(), Form(flat=True), Form(common_spread=True, flat=True)):
        problem = _Problem(summed(covariates, references, inside), 1.3, form)
        at = START[: 5 if form.flat else 7] + 0.1
        numeric = approx_fprime(at, lambda numbers, it=problem: it.objective(numbers)[0], 1e-6)
        # One-sided differences of a function of size 1e3 with steps of 1e-6: 1e-3 of the slopes' size.
        np.testing.assert_allclose(problem.objective(at)[1], numeric, atol=1e-2)


def test_variances_are_those_of_statsmodels():
    _, covariates, references, inside, _ = drawn(300, 6, 1, spreads=(0.6, 0.6))
    scores = {name: normal_scores(values)[0].astype(float) for name, values in covariates.items()}
    models, n = references.shape
    long = pd.DataFrame({"y": references.T.ravel(), "m": inside.T.ravel().astype(float), "record": np.repeat(np.arange(n), models)})
    x = np.column_stack([np.ones(n), *scores.values()])[long["record"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = MixedLM(
            long["y"],
            np.hstack([x, x * long[["m"]].to_numpy()]),
            groups=long["record"],
            exog_re=np.column_stack([np.ones(len(long)), long["m"]]),
        ).fit(reml=False, method=["bfgs", "cg"], gtol=1e-9, maxiter=2000)
    basis = basis_of(covariates, n)
    straight = type(basis)(basis.scores, basis.missing, basis.names, basis.missing_of, True, ())
    ours = fitted_model(sums_of(sides_of(references, inside), straight), 1.0, Form(common_spread=True, flat=True))
    # Both maximise the same likelihood; statsmodels stops at 1e-9 of the gradient.
    np.testing.assert_allclose(ours.variances[0], fit.scale, rtol=1e-4)
    np.testing.assert_allclose(ours.slopes, fit.cov_re, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours.coefficients.ravel(), fit.fe_params, atol=1e-4)


def test_the_posterior_of_one_record_is_that_of_a_grid():
    variances, expected = np.array([[0.49], [0.25]]), np.array([[0.4], [0.9]])
    margins, members = np.array([0.1, -0.3, 1.9]), np.array([0, 0, 1])
    sides = sides_of(margins[:, None], members[:, None].astype(bool))
    found = posterior_of(sides, expected, SLOPES, variances)
    a, b = np.meshgrid(np.linspace(-6, 6, 801), np.linspace(-5, 5, 801), indexing="ij")
    inverse = np.linalg.inv(SLOPES)
    log = -0.5 * (inverse[0, 0] * a**2 + 2 * inverse[0, 1] * a * b + inverse[1, 1] * b**2)
    for margin, member in zip(margins, members, strict=True):
        log -= 0.5 * (margin - expected[0] - a - member * (expected[1] + b)) ** 2 / variances[member]
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    mean = (mass * b).sum()
    # A grid of 0.0125 on a smooth density: far below 1e-6.
    assert found.separation[0] == pytest.approx(expected[1, 0] + mean, abs=1e-6)
    assert found.variance[0] == pytest.approx((mass * (b - mean) ** 2).sum(), abs=1e-6)


@pytest.mark.parametrize("models", [2, 4, 16])
def test_intervals_cover_what_they_say_and_are_unbiased(models):
    cover, bias = [], []
    for seed in range(8):
        margins, covariates, references, inside, truth = drawn(4000, models, seed)
        found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
        assert not found.order_only
        cover.append(((truth > found.interval[:, 0]) & (truth < found.interval[:, 1])).mean())
        bias.append((found.d_prime - truth).mean())
    assert 0.88 <= np.mean(cover) <= 0.92
    # Eight data sets of 4,000 records: the mean separation has a standard error of about 0.01 with two models.
    assert abs(np.mean(bias)) < 0.03


def test_rates_are_those_that_new_models_show():
    margins, covariates, references, inside, truth = drawn(4000, 8, 5)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    assert ((found.tpr(0.01) < found.tpr(0.05)) & (found.tpr(0.05) <= 1)).all()
    low, high = found.tpr_interval(0.05).T
    assert ((low <= found.tpr(0.05) + 0.05) & (found.tpr(0.05) - 0.05 <= high)).all()
    # The true rate of the threshold test on each record, in tenths of the predicted rate: calibrated to 0.04.
    mean_width = np.sqrt((SPREADS[0] ** 2 + SPREADS[1] ** 2) / 2)
    real = norm.sf((norm.isf(0.05) * SPREADS[0] - truth * mean_width) / SPREADS[1])
    predicted = found.tpr(0.05)
    for part in np.array_split(np.argsort(predicted), 10):
        assert predicted[part].mean() == pytest.approx(real[part].mean(), abs=0.04)


@pytest.mark.parametrize("models", [2, 4, 16])
def test_without_a_leak_few_intervals_lie_above_zero(models):
    margins, covariates, references, inside, _ = drawn(3000, models, 3, leak=False)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    assert (found.interval[:, 0] > 0).sum() <= binom.ppf(0.999, 3000, 0.05)


def uneven_spreads(n, models, seed, *, apart):
    """Records whose margins spread differently, and by side as log-normal ratios with deviation `apart` say; nobody leaks."""
    rng = np.random.default_rng(seed)
    member, level = rng.random((models, n)) < 0.5, rng.normal(2, 1.5, n)
    out = np.exp(0.5 * rng.normal(size=n))
    inside = out * np.exp(apart * rng.normal(size=n) / 2)
    return level + inside * rng.normal(size=n), level + np.where(member, inside, out) * rng.normal(size=(models, n)), member, inside, out


@pytest.mark.parametrize("models", [4, 8, 32, 128])
def test_chance_in_the_spreads_makes_nobody_exposed(models):
    """Rates at 0.001 rest on the ratio of two spreads. Where ratios do not differ between records, nobody's rate is above a guess."""
    margins, references, member, _, _ = uneven_spreads(2000, models, 1, apart=0.0)
    found = ns.exposure(margins, references=references, membership=member)
    low, high = found.tpr_interval(0.001).T
    # Each ratio by itself, as side by side shrinkage left it, put twenty of these records at 16 to 104 in a thousand.
    assert found.tpr(0.001).max() < 0.02 and np.sort(found.tpr(0.001))[-20:].mean() < 0.015
    assert (low > 0.001).mean() <= 0.05 and ((low <= 0.001) & (high >= 0.001)).mean() > 0.9


@pytest.mark.parametrize("models", [4, 8, 32, 128])
def test_rates_cover_where_the_sides_spread_differently(models):
    margins, references, member, inside, out = uneven_spreads(3000, models, 2, apart=1.0)
    found = ns.exposure(margins, references=references, membership=member)
    true = norm.cdf(norm.ppf(0.001) * out / inside)
    low, high = found.tpr_interval(0.001).T
    assert 0.85 < ((low <= true) & (true <= high)).mean() < 0.98  # 90 asked for; of first order in the ratio
    if models == 128:  # Each record's own ratio is known by then.
        assert spearmanr(found.spread_in / found.spread_out, inside / out).statistic > 0.9
        assert found.tpr(0.001).mean() == pytest.approx(true.mean(), rel=0.15)


def test_margins_clipped_at_an_end_give_an_order_and_no_sizes():
    """A forest's share of votes of exactly 1 is a log-odds of 34.5 once it is clipped, far from all others."""
    margins, covariates, references, inside, _ = drawn(1000, 8, 7)
    clipped = np.where(references > np.quantile(references, 0.97), 34.5, references)
    found = ns.exposure(margins, covariates=covariates, references=clipped, membership=inside)
    assert found.order_only and "0.03 of the margins is tied" in found.reason
    with pytest.raises(NotApplicable, match="outputs are logits"):
        found.tpr(0.01)
    # What is drawn in for the variances alone is no tie.
    far = np.where(np.random.default_rng(0).random(references.shape) < 0.05, references * 40, references)
    assert not ns.exposure(margins, covariates=covariates, references=far, membership=inside).order_only
    few = np.where(references > np.quantile(references, 0.995), 34.5, references)
    assert not ns.exposure(margins, covariates=covariates, references=few, membership=inside).order_only


def test_many_models_give_the_moments_of_lira():
    margins, covariates, references, inside, _ = drawn(400, 256, 2)
    own = np.random.default_rng(0).gamma(4, 0.25, 400) ** 0.5  # every record has a spread of its own
    references = references.mean(0) + (references - references.mean(0)) * own
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    success = ns.attacks.attack_success(references, inside, variance="record")
    # 128 models a side leave 1/√128 of noise in each; a spread of its own is shrunk by a prior of some ten models.
    np.testing.assert_allclose(found.d_prime, success.d_prime, atol=0.15, rtol=0.1)
    assert np.corrcoef(found.d_prime, success.d_prime)[0, 1] > 0.995


def test_an_exposure_shows_itself_in_a_few_lines():
    margins, covariates, references, inside, _ = drawn(1500, 4, 6)
    covariates["dull"] = np.ones(1500)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    first, (low, high) = found.d_prime.argmax(), found.interval[found.d_prime.argmax()]
    assert repr(found) == (
        "Exposure of 1,500 records, ranked by separation / √spread\n"
        f"  largest d′: {found.d_prime[first]:.3g} (90 % interval {low:.3g} to {high:.3g}), of record {first}\n"
        "  1 note in .notes"
    )
    order = ns.exposure(margins, level=0.5)
    assert repr(order) == "Exposure of 1,500 records, ranked by −margin\n  order only: .reason says what would identify sizes"


def test_affine_maps_and_the_order_of_models_change_nothing():
    margins, covariates, references, inside, _ = drawn(800, 4, 6)
    one = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    moved = ns.exposure(3 * margins - 7, covariates=covariates, references=3 * references - 7, membership=inside)
    # The optimiser stops at 1e-8 of the slope: five digits of the answer.
    np.testing.assert_allclose(moved.d_prime, one.d_prime, atol=1e-4)
    np.testing.assert_allclose(moved.separation, 3 * one.separation, atol=3e-4)
    np.testing.assert_array_equal(np.argsort(moved.score, kind="stable")[-40:], np.argsort(one.score, kind="stable")[-40:])
    turned = ns.exposure(margins, covariates=covariates, references=references[::-1], membership=inside[::-1])
    np.testing.assert_allclose(turned.d_prime, one.d_prime, atol=1e-4)
    stretched = ns.exposure(margins, covariates={k: np.exp(v) for k, v in covariates.items()}, references=references, membership=inside)
    np.testing.assert_allclose(stretched.d_prime, one.d_prime, atol=1e-4)


def test_covariates_say_what_few_models_cannot():
    margins, covariates, references, inside, truth = drawn(3000, 2, 7)
    bare = ns.exposure(np.random.default_rng(0).normal(size=3000), references=references, membership=inside)
    told = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    assert np.corrcoef(told.d_prime, truth)[0, 1] > np.corrcoef(bare.d_prime, truth)[0, 1] + 0.03
    assert sum(told.weights.values()) == pytest.approx(1.0)
    assert told.weights["first"] > 0.1 and 0 <= told.weights["second"] < 0.1 and told.weights["references"] > 0.2


def test_weights_of_unrelated_parts_are_their_variances_and_of_twins_alike():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 200_000))
    found = shares({"one": 2 * one, "other": other, "nothing": np.zeros(200_000)})
    assert found == pytest.approx({"one": 0.8, "other": 0.2, "nothing": 0.0}, abs=0.01)
    assert shares({"one": one, "twin": one, "other": other}) == pytest.approx({"one": 0.4, "twin": 0.4, "other": 0.2}, abs=0.01)
    assert shares({"nothing": np.ones(5)}) == {"nothing": 0.0}


def test_signed_residuals_have_sizes():
    rng = np.random.default_rng(0)
    n, models = 3000, 8
    error, leverage = rng.normal(size=n), rng.beta(1, 3, n)
    inside = rng.random((models, n)) < 0.5
    noise = 0.2
    references = error * np.where(inside, 1 - leverage, 1.0) + noise * rng.normal(size=(models, n))
    margins = error * (1 - leverage) + noise * rng.normal(size=n)
    truth = np.abs(error * leverage) / noise
    found = ns.exposure(margins, covariates={"leverage": leverage}, references=references, membership=inside, direction="either")
    assert (found.d_prime >= 0).all() and (found.interval[:, 0] >= 0).all()
    assert np.corrcoef(found.d_prime, truth)[0, 1] > 0.85
    cover = ((truth >= found.interval[:, 0]) & (truth <= found.interval[:, 1])).mean()
    assert 0.85 <= cover <= 0.97
    assert (found.tpr(0.05) >= 0.0499).all()
    mirrored = ns.exposure(-margins, covariates={"leverage": leverage}, references=-references, membership=inside, direction="either")
    np.testing.assert_allclose(mirrored.d_prime, found.d_prime, atol=1e-9)


def test_the_spread_follows_the_levels():
    rng = np.random.default_rng(1)
    n, models = 4000, 8
    levels = rng.normal(size=(2, n))
    sides = Sides(
        np.full((2, n), float(models)), levels, np.exp(0.6 * levels[1]) * rng.chisquare(models - 1, (2, n)) * np.array([[1.0], [0.25]])
    )
    found = spreads_of(sides, levels, np.array([1.0, 0.25]))
    width = levels[1].std()
    np.testing.assert_allclose(found.slopes, [[0, 0.6 * width, 0, 0]] * 2, atol=0.06)
    middle = np.abs(levels).max(0) < 1
    np.testing.assert_allclose(np.log(found.level[1, middle] / found.level[0, middle]), np.log(0.25), atol=0.05)
    # Nothing is left for a record's own spread but what clipping took away.
    assert found.prior > 10


def test_the_spread_may_rise_and_fall_again():
    """Records that every model gets wrong, surely, vary less than those near the boundary, and so do those that all get right."""
    rng = np.random.default_rng(3)
    n, models = 4000, 4
    levels = rng.normal(size=(2, n))
    real = np.exp(0.3 - 0.5 * (np.clip(levels[0], -2, 2) ** 2 - 1))
    sides = Sides(np.full((2, n), float(models)), levels, real * rng.chisquare(models - 1, (2, n)))
    found, straight = (spreads_of(sides, levels, np.ones(2), rules) for rules in (CHOSEN, Rules(bent=False)))
    # 4,000 records with 3 degrees of freedom: a slope in z² − 1, whose variance is about 1.4, has a standard error of about 0.01.
    np.testing.assert_allclose(found.slopes, [[0, 0, -0.5, 0]] * 2, atol=0.05)
    np.testing.assert_allclose(np.log(found.level), np.log(np.stack([real, real])), atol=0.25)
    # A spread that only rises or falls takes the surely wrong for as noisy as the others: six times their variance.
    far = levels[0] < -1.9
    assert np.median(straight.level[0, far] / real[far]) > 4 > 1.3 > np.median(found.level[0, far] / real[far])


@pytest.mark.parametrize("apart", [True, False])
def test_each_side_has_a_spread_of_its_own_in_the_levels(apart):
    """On networks that know their records by heart the spread of OUT models grows where that of IN models falls."""
    rng = np.random.default_rng(2)
    n, models = 4000, 4
    levels, slopes = rng.normal(size=(2, n)), np.array([[0.0, 0.5], [0.0, -0.5]])
    sides = Sides(np.full((2, n), float(models)), levels, np.exp(slopes @ levels) * rng.chisquare(models - 1, (2, n)))
    found = spreads_of(sides, levels, np.ones(2), Rules(side_slopes=apart, bent=False))
    # 4,000 records with 3 degrees of freedom: a slope has a standard error of about √(2/12,000) = 0.013.
    np.testing.assert_allclose(found.slopes, slopes if apart else 0 * slopes, atol=0.06)


def test_a_side_that_says_nothing_of_its_spread_takes_the_other_sides_slopes():
    rng = np.random.default_rng(3)
    n, levels = 3000, rng.normal(size=(2, 3000))
    squares = np.exp(0.5 * levels[0]) * rng.chisquare(3, (2, n))
    found = spreads_of(Sides(np.array([np.full(n, 4.0), np.ones(n)]), levels, squares), levels, np.ones(2))
    np.testing.assert_array_equal(found.slopes[1], found.slopes[0])
    assert found.slopes[0, 0] == pytest.approx(0.5, abs=0.06)


def uneven(n, models, seed):
    """Records whose covariate predicts a large slope differ more from that prediction: log sd of b = 0.5 z."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    wide = np.exp(0.5 * np.clip(z, -2, 2))
    slope, level = 1 + 0.8 * z + 0.6 * wide * rng.normal(size=n), rng.normal(size=n)
    inside = rng.random((models, n)) < 0.5
    margins, references = level + slope + 0.5 * rng.normal(size=n), level + inside * slope + 0.5 * rng.normal(size=inside.shape)
    return given(margins, {"z": z}, references, inside, "larger", 0.9), slope / 0.5


def test_records_with_a_large_predicted_slope_may_vary_more():
    cover = {True: [], False: []}
    for seed in range(6):
        arguments, truth = uneven(4000, 4, seed)
        for scaled, held in cover.items():
            found = answered(arguments, Rules(own_scales=scaled))
            top = np.argsort(-arguments.covariates["z"])[:400]
            held.append(((truth > found.interval[:, 0]) & (truth < found.interval[:, 1]))[top].mean())
    # 6 · 400 records of the top tenth by covariate: a share of 0.9 has a standard error of 0.006; one covariance for all is too short.
    assert 0.87 <= np.mean(cover[True]) <= 0.93
    assert np.mean(cover[False]) < 0.86


def test_scales_are_found_again_from_exact_posteriors():
    rng = np.random.default_rng(0)
    at = np.clip(rng.normal(size=(2, 20_000)), -2, 2)
    real = np.exp(0.5 * np.array([[0.0, 0.4], [0.6, 0.0]]) @ at)
    told = rng.uniform(0.3, 0.9, at.shape)
    found = fitted_scales(real * np.sqrt(told) * rng.normal(size=at.shape), told, at)
    # Slopes of a log variance from 20,000 squares, weighted by 0.6: a standard error of about √(2/12,000) = 0.013; half of it on sd.
    np.testing.assert_allclose(np.log(found), np.log(real), atol=0.08)
    np.testing.assert_array_equal(fitted_scales(np.zeros((2, 20)), np.full((2, 20), 0.1), at[:, :20]), 1.0)


def test_margins_far_from_all_others_do_not_decide_the_variances():
    margins, covariates, references, inside, truth = drawn(3000, 4, 14)
    rng = np.random.default_rng(0)
    wild = rng.random(3000) < 0.01
    thrown = np.where(wild, 100 * rng.standard_t(1, references.shape), references)
    plain = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    found = ns.exposure(margins, covariates=covariates, references=thrown, membership=inside)
    assert any("of the margins lies far from all others" in note for note in found.notes) and not plain.notes
    free = answered(given(margins, covariates, thrown, inside, "larger", 0.9), Rules(reach=np.inf))
    agreement = [np.corrcoef(one.d_prime[~wild], truth[~wild])[0, 1] for one in (plain, found, free)]
    # A hundredth of the records, drawn in to four robust deviations, still widens spreads; left where it is, it drowns all others.
    assert agreement[1] > agreement[0] - 0.1 and agreement[2] < agreement[1] - 0.2
    # Squares of far margins bend the spread: it is off by more than a factor of two for most records.
    assert np.median(np.abs(np.log(free.spread_out / found.spread_out))) > np.log(2)
    again = ns.exposure(-2 * margins + 1, covariates=covariates, references=-2 * thrown + 1, membership=inside, direction="either")
    assert again.notes == found.notes


def test_a_record_far_from_all_others_keeps_its_own_separation():
    """Drawing margins in is for what all records share; clipped themselves, IN and OUT of a far record would be the same number."""
    margins, covariates, references, inside, _ = drawn(2000, 16, 15, slopes=np.diag([1.0, 0.5]))
    references = references.copy()
    references[:, 0] = 8 + 6 * inside[:, 0] + 0.5 * np.random.default_rng(0).normal(size=16)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    assert np.isfinite(found.d_prime).all()
    # The margins say 6, a Gaussian prior far from them pulls it down; margins drawn in would say 0 and the prior less.
    assert 2 < found.separation[0] < 6.5
    near, _ = within_reach(given(margins, covariates, references, inside, "larger", 0.9), Rules().reach)
    assert ns.exposure(near.margins, covariates=covariates, references=near.references, membership=inside).separation[0] < 1


@pytest.mark.parametrize("pattern", ["one half", "complements", "two folds", "out only"])
def test_where_sizes_are_not_identified_the_order_is_given_and_says_so(pattern):
    rng = np.random.default_rng(4)
    half = rng.random(3000) < 0.5
    inside = {
        "one half": half[None],
        "complements": np.array([half, ~half]),
        "two folds": np.array([half, ~half]),
        "out only": np.zeros((2, 3000), bool),
    }[pattern]
    margins, covariates, references, inside, truth = drawn(3000, len(inside), 4, membership=inside)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    assert found.order_only and np.isnan(found.interval).all()
    assert np.corrcoef(found.score, truth)[0, 1] > 0.4
    with pytest.raises(NotApplicable, match=r"gives the order only: .* Two or more reference models on independent random halves"):
        found.tpr(0.05)


@pytest.mark.parametrize(("twice", "order_only"), [(299, True), (300, False)])
def test_sizes_need_three_hundred_records_with_two_margins_on_each_side(twice, order_only):
    order = np.random.default_rng(4).permuted(np.tile(np.arange(4)[:, None], (1, 1000)), axis=0)
    inside = order < 2
    inside[:, twice:] = order[:, twice:] < 1
    margins, covariates, references, inside, _ = drawn(1000, 4, 4, membership=inside)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    assert found.order_only is order_only and np.isnan(found.interval).all() == order_only
    if order_only:
        assert f"{twice} records have margins of two models trained with them, and 300 are needed" in found.reason


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (150, "fewer than 200 records are not identified, whatever the number of reference models"),
        (250, "Sixteen reference models or more, with every record in half of them,"),
        (1000, "Four reference models or more, with every record in half of them,"),
        (1600, "Two or more reference models on independent random halves"),
    ],
)
def test_what_would_identify_sizes_does(records, said):
    inside = np.ones((1, records), bool)
    inside[0, ::2] = False
    margins, covariates, references, inside, _ = drawn(records, 1, 4, membership=inside)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    assert found.order_only and said in found.reason
    wanted = {"Sixteen": 16, "Four": 4, "Two": 2}.get(said.partition(" ")[0])
    if wanted is not None:
        rng = np.random.default_rng(0)
        halves = rng.random((wanted, records)) < 0.5 if wanted == 2 else np.argsort(rng.random((wanted, records)), axis=0) < wanted // 2
        margins, covariates, references, inside, _ = drawn(records, wanted, 4, membership=halves)
        assert not ns.exposure(margins, covariates=covariates, references=references, membership=inside).order_only


@pytest.mark.parametrize(("records", "order_only"), [(199, True), (200, False)])
def test_fewer_records_have_sizes_where_each_has_many_margins(records, order_only):
    inside = np.tile(np.arange(16)[:, None] < 8, (1, records))
    margins, covariates, references, inside, truth = drawn(records, 16, 4, membership=inside)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    assert found.order_only is order_only
    if not order_only:
        inside_interval = (found.interval[:, 0] <= truth) & (truth <= found.interval[:, 1])
        # Nominal 0.9; four binomial standard errors of 200 records.
        assert abs(inside_interval.mean() - 0.9) < 4 * np.sqrt(0.09 / records)


def test_without_references_the_order_is_that_of_shift():
    margins, shift = np.random.default_rng(0).normal(size=(2, 50))
    shift[3], shift[7] = np.inf, np.nan
    found = ns.exposure(margins, covariates={"shift": shift})
    assert found.order_only and found.rule == "shift" and found.score.argmax() == 3 and found.score.argmin() == 7
    np.testing.assert_array_equal(ns.exposure(margins).score, -margins)
    np.testing.assert_array_equal(ns.exposure(margins, direction="either").score, np.abs(margins))
    with pytest.raises(NotApplicable, match="Sizes of fewer than 200 records are not identified"):
        found.tpr_interval(0.1)
    many = ns.exposure(np.random.default_rng(0).normal(size=1400))
    with pytest.raises(NotApplicable, match="Two or more reference models on independent random halves"):
        many.tpr_interval(0.1)


def test_missing_margins_infinite_covariates_and_records_that_no_model_had():
    margins, covariates, references, inside, truth = drawn(2000, 6, 8)
    rng = np.random.default_rng(0)
    gone = rng.random(references.shape) < 0.3
    gone[:, :5] = True
    covariates["shift"] = np.where(rng.random(2000) < 0.1, np.inf, truth)
    covariates["trace"] = np.where(rng.random(2000) < 0.5, np.nan, truth)
    covariates["dull"] = np.ones(2000)
    found = ns.exposure(margins, covariates=covariates, references=np.where(gone, np.nan, references), membership=inside)
    assert np.isfinite(found.d_prime).all() and np.isfinite(found.interval).all()
    assert found.notes == ("Covariate 'dull' does not vary and says nothing.",)
    assert np.corrcoef(found.d_prime, truth)[0, 1] > 0.8
    # What no model has seen is known by its covariates alone, and less well than with its margins.
    gone[:, :5] = False
    seen = ns.exposure(margins, covariates=covariates, references=np.where(gone, np.nan, references), membership=inside)
    assert (found.variance[:5] > seen.variance[:5]).all()


def test_counts_are_gathered_only_where_there_are_too_many_patterns():
    np.testing.assert_array_equal(_gathered(np.array([0, 1, 2, 3, 4])), [0, 1, 2, 3, 4])
    assert len(np.unique(_gathered(np.arange(300.0)))) < 30
    _, covariates, references, inside, _ = drawn(2000, 200, 10)
    sums = summed(covariates, references, inside)
    assert len(sums.counts) <= 150 and sums.records.sum() == 2000


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"margins": np.zeros(5)}, "margins must hold at least 20 records; got 5"),
        ({"membership": None}, "references and membership must be given together"),
        ({"references": np.zeros((2, 5))}, r"references must be \(models, 60\) margins"),
        ({"membership": np.zeros((2, 60))}, "membership must be .* booleans"),
        ({"covariates": {"x": np.zeros(3)}}, r"covariates\['x'\] must be 60 numbers"),
        ({"covariates": [1, 2]}, "covariates must be a dict"),
        ({"direction": "smaller"}, "direction must be one of 'larger', 'either'"),
        ({"level": 1.0}, "level must be a number"),
        ({"membership": np.ones((2, 60), bool)}, "membership must leave at least 25% of the records out of some model; got one for 0%"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_input_is_refused(change, match):
    margins, covariates, references, inside, _ = drawn(60, 2, 11)
    arguments = {"margins": margins, "covariates": covariates, "references": references, "membership": inside} | change
    with pytest.raises(InputError, match=f"^exposure: {match}"):
        ns.exposure(arguments.pop("margins"), **arguments)


def test_references_that_are_no_other_models_margins_are_refused():
    margins, _, references, inside, _ = drawn(300, 3, 12)
    with pytest.raises(InputError, match="references must be other models; got the audited model itself as number 2"):
        ns.exposure(margins, references=np.vstack([references[:2], margins]), membership=inside)
    with pytest.raises(InputError, match="Are these losses"):
        ns.exposure(margins, references=np.logaddexp(0, -references), membership=inside)
    assert "on one scale" in ns.exposure(margins, references=100 * references, membership=inside).notes[0]
    with pytest.raises(InputError, match="none of model 1"):
        ns.exposure(margins, references=np.vstack([references[0], np.full(300, np.nan)]), membership=inside[:2])


def test_few_records_give_an_order():
    margins, covariates, references, inside, _ = drawn(20, 4, 13)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=inside)
    assert found.order_only and np.isfinite(found.score).all()


def test_the_audited_model_in_single_precision_is_still_the_audited_model():
    margins, _, references, inside, _ = drawn(200, 2, 30)
    own = np.vstack([margins.astype(np.float32), references[0]])
    with pytest.raises(ns.InputError, match="the audited model itself as number 0"):
        ns.exposure(margins, references=own, membership=inside)


def test_a_reference_that_says_the_same_of_every_record_is_refused():
    margins, _, references, inside, _ = drawn(200, 2, 31)
    with pytest.raises(ns.InputError, match=r"references must differ between records; got 1 for every record of model 1\. Leave it out"):
        ns.exposure(margins, references=np.vstack([references[0], np.ones(200)]), membership=inside)
    # An audited model that does so says nothing itself, and the references still do.
    found = ns.exposure(np.ones(200), references=references, membership=inside)
    assert np.isfinite(found.score).all() and any("'margins' does not vary" in note for note in found.notes)


def test_losses_in_place_of_all_margins_are_told():
    rng = np.random.default_rng(0)
    inside = rng.random((4, 1000)) < 0.5
    margins, references = rng.normal(2, 1, 1000), rng.normal(0, 1, (4, 1000)) + 2 * inside
    losses = np.logaddexp(0.0, -margins), np.logaddexp(0.0, -references)
    match = "references must be margins, larger where a model was trained on a record; got models .* Are these losses, or is membership"
    with pytest.raises(InputError, match=match):
        ns.exposure(losses[0], references=losses[1], membership=inside)
    with pytest.raises(InputError, match=match):
        ns.exposure(margins, references=references, membership=~inside)
    assert not ns.exposure(margins, references=references, membership=inside).notes


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_models_of_unequal_levels_are_no_losses(share):
    """A model of many records that does worse than one of few lowers its records' numbers; its own offset does so, not membership."""
    rng = np.random.default_rng(1)
    inside = rng.random((3, 1000)) < np.array([[1 - share], [share], [0.5]])
    level, offset = rng.normal(2, 1, 1000), np.array([[-1.0], [1.0], [0.0]])
    references = level + offset + 0.5 * rng.normal(size=(3, 1000)) + 0.1 * inside
    assert not ns.exposure(level + 0.1, references=references, membership=inside).notes


def test_chance_among_twenty_records_is_no_contradiction():
    """Honest margins of so few may correlate at −0.5; losses of many more do so beyond chance."""
    refused = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        try:
            ns.exposure(rng.normal(size=20), references=rng.normal(size=(4, 20)), membership=rng.random((4, 20)) < 0.5)
        except InputError:
            refused += 1
    assert refused == 0
    margins, _, references, inside, _ = drawn(60, 3, 12)
    with pytest.raises(InputError, match="Are these losses"):
        ns.exposure(margins, references=-references, membership=inside)


@pytest.mark.parametrize("slope", [1.0, 1.5, 3.0])
def test_the_audited_model_on_another_scale_is_still_the_audited_model(slope):
    margins, _, references, inside, _ = drawn(200, 2, 30)
    for kind in (np.float64, np.float32):
        own = np.vstack([(slope * margins + 0.3).astype(kind), references[0]])
        with pytest.raises(ns.InputError, match="the audited model itself as number 0"):
            ns.exposure(margins, references=own, membership=inside)
    near = slope * margins + 0.3 + 1e-3 * slope * references[1]
    assert np.isfinite(ns.exposure(margins, references=np.vstack([near, references[0]]), membership=inside).score).all()


def test_probabilities_beside_margins_are_refused():
    margins, _, references, inside, _ = drawn(800, 3, 33)
    shares = 1 / (1 + np.exp(-references))
    with pytest.raises(InputError, match=r"references must be margins as .*; got probabilities, all in \[0, 1\], of model 0"):
        ns.exposure(margins, references=shares, membership=inside)
    with pytest.raises(InputError, match="of model 2 beside margins"):
        ns.exposure(margins, references=np.vstack([references[:2], shares[2:]]), membership=inside)
    # Shares of both are on one scale, votes of few parts are margins, and so are narrow margins that happen to lie in [0, 1].
    votes = np.log((np.round(10 * shares) + 0.5) / (10.5 - np.round(10 * shares)))
    own = np.log((np.round(10 / (1 + np.exp(-margins))) + 0.5) / (10.5 - np.round(10 / (1 + np.exp(-margins)))))
    inner = 0.6 + 0.3 * (references - references.mean()) / np.abs(references - references.mean()).max()
    for honest, beside in ((1 / (1 + np.exp(-margins)), shares), (own, votes), (2 * inner.mean(0) - 0.5, inner)):
        assert np.isfinite(ns.exposure(honest, references=beside, membership=inside).score).all()


def test_few_records_left_out_are_told_and_fewer_are_refused():
    margins, _, references, _, _ = drawn(1000, 2, 34)
    for share, told in ((0.7, 0), (0.3, 1)):
        inside = np.repeat([np.arange(1000) >= 1000 * share], 2, axis=0)
        notes = ns.exposure(margins, references=references, membership=inside).notes
        assert sum(f"{share:.0%} of the records were left out of some model" in note for note in notes) == told
    with pytest.raises(InputError, match="leave at least 25% of the records out of some model; got one for 20%"):
        ns.exposure(margins, references=references, membership=np.repeat([np.arange(1000) >= 200], 2, axis=0))


@pytest.mark.parametrize("shift", [np.ones(50), np.full(50, np.nan), np.full(50, np.inf)])
def test_a_shift_that_says_nothing_ranks_nothing(shift):
    margins = np.random.default_rng(0).normal(size=50)
    found = ns.exposure(margins, covariates={"shift": shift})
    assert found.rule == "−margin" and found.notes == ("Covariate 'shift' does not vary and says nothing: the margins rank.",)
    np.testing.assert_array_equal(found.score, -margins)


def test_margins_with_little_spread_have_an_order():
    """A search without bounds leaves the numbers that exist there."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=400)
    found = ns.exposure(own, references=own + 1 + 1e-4 * rng.normal(size=(2, 400)), membership=rng.random((2, 400)) < 0.5)
    assert np.isfinite(found.score).all()


@pytest.mark.parametrize("noise", [0.0, 1e-9])
@pytest.mark.parametrize("models", [2, 4])
def test_copies_of_one_model_are_told(models, noise):
    rng = np.random.default_rng(0)
    own = rng.normal(size=400)
    references, inside = own + 1 + noise * rng.normal(size=(models, 400)), rng.random((models, 400)) < 0.5
    with pytest.raises(InputError, match="exposure: references must be other models; got the audited model itself as number 0"):
        ns.exposure(own, references=references, membership=inside)
    # What an audit hands over is not held against the audited model again.
    copies = Given(own, {}, references, inside, "larger", 0.9, ())
    match = "exposure: margins of the models differ by a constant and next to nothing else"
    with pytest.raises(ns.NumericalError, match=match), speaking_for("exposure"):
        answered(copies)


def other_records(design, n, rng, models=4):
    """Margins of n records that do nothing to themselves, by models that are linear in who else is in."""
    inside = {
        "pairs": lambda: np.vstack([m for half in rng.random((models // 2, n)) < 0.5 for m in (half, ~half)]),
        "balanced": lambda: plan(n, models=models, seed=int(rng.integers(1 << 20))).membership,
    }[design]()
    weights = rng.normal(size=(n, n)) / np.sqrt(n)
    np.fill_diagonal(weights, 0.0)
    return 2 + (rng.random((1, n)) < 0.5)[0] @ weights, 2 + inside @ weights, inside


def test_pairs_of_complements_give_no_sizes_and_random_halves_do():
    """What is exchanged between two complements is opposite in them: with their sizes, records that do not leak would."""
    rng = np.random.default_rng(4)
    own, references, inside = other_records("pairs", 800, rng)
    found = ns.exposure(own, references=references, membership=inside)
    assert found.order_only and "pairs of complements" in found.reason and "chosen at random, would identify sizes" in found.reason
    with pytest.raises(NotApplicable, match="pairs of complements"):
        found.tpr(0.01)
    own, references, inside = other_records("balanced", 800, rng)
    found = ns.exposure(own, references=references, membership=inside)
    assert not found.order_only and found.tpr(0.01).mean() < 0.03


def test_the_noise_of_a_design_is_that_of_models_which_are_linear_in_who_is_in():
    rng = np.random.default_rng(5)
    for models in (4, 6, 12):
        inside = plan(1200, models=models, seed=3).membership
        inside[:, :3] = False  # records that no model had do not count
        between = within = 0.0
        for _ in range(6):
            others = rng.normal(size=(1200, 1200))
            np.fill_diagonal(others, 0.0)
            margins = inside @ others
            sides = [np.where(inside == side, margins, np.nan)[:, 3:] for side in (True, False)]
            between += ((np.nanmean(sides[0], axis=0) - np.nanmean(sides[1], axis=0)) ** 2).sum()
            within += sum((np.nanvar(side, axis=0, ddof=1) / (~np.isnan(side)).sum(0)).sum() for side in sides)
        # Two means over thousands of records that share models: each known to about 0.05.
        assert noise_between(inside, np.ones_like(inside)) == pytest.approx(between / within, abs=0.12)

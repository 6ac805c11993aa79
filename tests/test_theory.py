"""The Gaussian linear theory against simulation, high-precision closed forms and brute force."""

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from noshadow import theory
from noshadow.checks import InputError, NotApplicable
from noshadow.theory import laws

MODEL = {"noise_variance": 1.0, "n": 105, "p": 5}  # k = 100
FIT = {"noise_variance": 1.0, "n": 100, "dof": 5.5}


def gap_by_tricomi(h, e, v, k):
    """Eq. (5) through Tricomi's U: E[(V/(V+h))²] and E[V/(V+h)²] of a χ²_k are Mellin integrals."""
    with mpmath.workdps(60):
        h, k = mpmath.mpf(h), mpmath.mpf(k)
        scale = 2 ** (-k / 2) / mpmath.gamma(k / 2)
        kept = 1 - scale * h ** (k / 2) * mpmath.gamma(k / 2 + 2) * mpmath.hyperu(k / 2 + 2, k / 2 + 1, h / 2)
        noisy = h / (k - 2) - scale * h ** (k / 2) * mpmath.gamma(k / 2 + 1) * mpmath.hyperu(k / 2 + 1, k / 2, h / 2)
        return float(mpmath.mpf(e) ** 2 * kept + v * noisy)


def gap_by_quadrature(h, e, v, k):
    with mpmath.workdps(40):
        h, e, v, k = (mpmath.mpf(a) for a in (h, e, v, k))
        size = 2 * e**2 * h / k + 2 * v * (h / k) ** 2  # brings the integral to order one, which mpmath's stopping rule needs

        def density(x):
            return mpmath.exp(k / 2 * (x - mpmath.expm1(x)))

        def weighted(x):
            big_v = k * mpmath.exp(x)
            return density(x) * (e**2 + v * h / big_v) * h * (2 * big_v + h) / (big_v + h) ** 2 / size

        edges = [j * mpmath.sqrt(2 / k) for j in (-14, -6, -2, 0, 2, 6, 14)]
        return float(size * mpmath.quad(weighted, edges) / mpmath.quad(density, edges))


def folded_law(u, delta, q):
    """(CDF, survival) of √χ′²_q(δ²) in closed form for q = 1 and 3."""
    extra = (mpmath.npdf(u + delta) - mpmath.npdf(u - delta)) / delta if q == 3 else 0
    cdf = mpmath.ncdf(u - delta) - mpmath.ncdf(-u - delta) + extra
    return cdf, 1 - cdf


def tradeoff_of(alpha, growth, delta, q=1):
    """`tradeoff` in the standard letters r = h̄/k and δ = ε/(σ√r)."""
    return theory.tradeoff(alpha, growth * 100, delta * np.sqrt(growth), outputs=q, **MODEL)


@pytest.mark.parametrize("k", [2.05, 2.5, 3, 4, 7.99, 8.01, 12, 40.5])
@pytest.mark.parametrize("h", [1e-18, 0.3, 20.0, 1e4])
def test_expected_gap_is_the_closed_form_for_small_k(k, h):
    n = k + 4
    for e, v in ((0.0, 1.0), (1.0, 0.0), (1.5, 2.0)):
        # the promise is 1e-10 relative; n − 4 is k up to the rounding of n, hence k = n − 4 in the oracle too
        assert theory.expected_gap(h, e, noise_variance=v, n=n, p=4) == pytest.approx(gap_by_tricomi(h, e, v, n - 4), rel=1e-10, abs=0)


@pytest.mark.parametrize("k", [300, 1e6, 1e7])
@pytest.mark.parametrize("h", [1e-6, 5.0, 1e5])
def test_expected_gap_is_the_integral_for_large_k(k, h):
    for e, v in ((0.0, 1.0), (1.5, 2.0)):
        assert theory.expected_gap(h, e, noise_variance=v, n=k + 4, p=4) == pytest.approx(gap_by_quadrature(h, e, v, k), rel=1e-10, abs=0)


def test_expected_gap_is_the_mean_over_the_joint_law_of_v_and_z():
    draws = np.random.default_rng(1)
    v, z = draws.chisquare(12, 10**6), draws.standard_normal(10**6)
    for h, e, variance in ((2.0, 1.0, 0.5), (15.0, 0.0, 1.0)):
        loss = (e + np.sqrt(variance * h / v) * z) ** 2
        gap = loss * (1 - (v / (v + h)) ** 2)
        assert abs(theory.expected_gap(h, e, noise_variance=variance, n=15, p=3) - gap.mean()) < 5 * gap.std() / 1e3


@pytest.mark.parametrize("outputs", [1, 2])
def test_expected_gap_is_the_mean_over_least_squares_refits(outputs):
    draws, n, p, runs, sigma = np.random.default_rng(2), 14, 3, 20_000, 0.7
    x, error = np.array([1.0, -2.0, 0.5]), np.full(outputs, 0.8)
    mix = np.array([[1.0, 0.4, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.6]])
    h_bar = x @ np.linalg.solve(mix.T @ mix, x)
    theta = draws.standard_normal((p, outputs))
    design = draws.standard_normal((runs, n - 1, p)) @ mix
    targets = design @ theta + sigma * draws.standard_normal((runs, n - 1, outputs))
    y = x @ theta + error
    gram, moment = design.transpose(0, 2, 1) @ design, design.transpose(0, 2, 1) @ targets
    without = ((y - x @ np.linalg.solve(gram, moment)) ** 2).sum(1)
    within = ((y - x @ np.linalg.solve(gram + np.outer(x, x), moment + np.outer(x, y))) ** 2).sum(1)
    gap = without - within
    expected = theory.expected_gap(h_bar, np.linalg.norm(error), noise_variance=sigma**2, n=n, p=p, outputs=outputs)
    assert abs(expected - gap.mean()) < 5 * gap.std() / np.sqrt(runs)


def test_asymptotic_gap_errs_by_the_third_order_in_k():
    k = np.array([1e3, 2e3, 4e3])
    errors = [
        abs(theory.expected_gap(3.0, 1.2, noise_variance=0.8, n=a, p=0) - theory.asymptotic_gap(3.0, 1.2, noise_variance=0.8, n=a, p=0))
        for a in k
    ]
    # doubling k divides an O(k⁻³) error by 8, up to the next order, 10/k relative
    assert errors[0] / errors[1] == pytest.approx(8, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(8, rel=0.05)


def test_gaps_of_q_outputs_depend_on_the_total_noise():
    for gap in (theory.expected_gap, theory.asymptotic_gap):
        several = gap([1.0, 4.0], 2.0, noise_variance=0.5, n=30, p=4, outputs=3)
        np.testing.assert_allclose(several, gap([1.0, 4.0], 2.0, noise_variance=1.5, n=30, p=4), rtol=1e-15)


def test_expected_gap_limits_and_blocks():
    h = np.concatenate([[0.0], np.geomspace(1e-12, 1e12, 50_000)])
    gap = theory.expected_gap(h, -1.0, noise_variance=2.0, n=30, p=10)
    assert gap[0] == 0
    assert (np.diff(gap) > 0).all()
    assert gap[-1] == pytest.approx(1 + 2.0 * 1e12 / 18, rel=1e-9)  # the training loss vanishes: ε² + σ²h̄·E[1/V]
    assert gap[777] == pytest.approx(float(theory.expected_gap(h[777], 1.0, noise_variance=2.0, n=30, p=10)), rel=1e-13)


@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("delta", [1e-3, 0.9, 4.0, 10.0, 12.0, 20.9, 21.8, 60.0, 1e3, 1e6])  # noncentralities 1e-6 … 1e12
def test_tradeoff_is_the_closed_form(q, delta):
    with mpmath.workdps(50):
        lowest = mpmath.mpf(delta if delta > 8 else 1e-12 if q == 1 else 1e-4)  # tiny u: the CDF is a difference of equal numbers
        quantiles = [lowest] + [u for z in (-7, -4, -1, 0.5, 3) if (u := mpmath.mpf(delta) + z) > 0]
        for growth in (1e-9, 0.05, 2.0):
            moved = [folded_law(u * (1 + mpmath.mpf(growth)), delta, q) for u in quantiles]
            alpha = [float(folded_law(u, delta, q)[0]) for u in quantiles]
            beta = tradeoff_of(alpha, growth, delta, q)
            # the float alpha pins u only to eps/pdf(u): near alpha = 1 that moves beta by 1e-16·(1 + r)-ish absolute amounts
            np.testing.assert_allclose(beta, [float(sf) for _, sf in moved], rtol=1e-10, atol=1e-13)
            h, e = growth / (1 + growth), delta * np.sqrt(growth) / (1 + growth)
            tpr = theory.predicted_tpr(alpha, h, e, outputs=q, **FIT)
            np.testing.assert_allclose(tpr, [float(cdf) for cdf, _ in moved], rtol=1e-9)  # relative, also at 1e-12


@pytest.mark.parametrize("q", [2, 10, 200])
def test_tradeoff_of_many_outputs_is_the_noncentral_chi_square(q):
    for delta in np.array([0.0, 2.0, 15.0, 19.9 + np.sqrt(q), 20.1 + np.sqrt(q), 60 + 2 * np.sqrt(q)]):  # both sides of the switch
        alpha = np.array([1e-9, 1e-3, 0.3, 0.9])
        quantile = stats.ncx2.ppf(alpha, q, delta**2) if delta else stats.chi2.ppf(alpha, q)
        moved = quantile * 1.3**2
        expected = stats.ncx2.sf(moved, q, delta**2) if delta else stats.chi2.sf(moved, q)
        # ncx2's own quantile search stops at about 1e-8 relative
        np.testing.assert_allclose(tradeoff_of(alpha, 0.3, delta, q), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("q", [2, 17, 400])
def test_far_law_agrees_with_scipy_where_both_apply(q):
    for delta in 20 + np.sqrt(q) + np.array([0.0, 5.0, 60.0]):
        w = np.linspace(-8, 8, 33) + q / (np.sqrt(delta**2 + q) + delta)
        cdf, sf, density = laws._far_law(w, np.full(33, delta), q)
        square = (delta + w) ** 2
        # promised 1e-11 for the quadrature; scipy itself drifts to 1e-12 here
        np.testing.assert_allclose(cdf, stats.ncx2.cdf(square, q, delta**2), rtol=1e-11)
        np.testing.assert_allclose(sf, stats.ncx2.sf(square, q, delta**2), rtol=1e-11)
        np.testing.assert_allclose(density, 2 * (delta + w) * stats.ncx2.pdf(square, q, delta**2), rtol=1e-9)


@pytest.mark.parametrize(("h_bar", "e"), [(5.0, 0.0), (5.0, 2.0), (200.0, 1.0)])
def test_tradeoff_is_the_simulated_attack(h_bar, e):
    draws, k, alpha = np.random.default_rng(3), 2000, 0.05
    v, z = draws.chisquare(k, (2, 10**6)), draws.standard_normal((2, 10**6))
    for spread, slack in ((np.full_like(v, k), 0.0), (v, 5 / k)):  # V = k is Eq. (4) itself; random V differs by O(1/k)
        loss = (e + np.sqrt(h_bar / spread) * z) ** 2
        threshold = np.quantile(loss[0], alpha)
        beta = np.mean(loss[1] * (spread[1] / (spread[1] + h_bar)) ** 2 >= threshold)
        expected = theory.tradeoff(alpha, h_bar, e, noise_variance=1.0, n=k + 3, p=3)
        # 5 standard errors: 1/(2·10³) for beta, and α's own error times the slope dβ/dα ≤ (1 − β)/α
        error = 5 * (0.5e-3 + np.sqrt(alpha) * 1e-3 * (1 - expected) / alpha)
        assert abs(beta - expected) < error + slack


def test_tradeoff_limits():
    alpha = np.array([1e-12, 0.01, 0.5, 1 - 1e-12])
    for q in (1, 4):
        for e in (0.0, 3.0):
            np.testing.assert_allclose(theory.tradeoff(alpha, 0.0, e, outputs=q, **MODEL), 1 - alpha, rtol=1e-12, atol=1e-16)
            np.testing.assert_allclose(theory.tradeoff(alpha, 1e-20, e, outputs=q, **MODEL), 1 - alpha, rtol=1e-7, atol=1e-16)
        silent = MODEL | {"noise_variance": 0.0}
        np.testing.assert_array_equal(theory.tradeoff(alpha, 2.0, 1.0, outputs=q, **silent), 0)
        np.testing.assert_allclose(theory.tradeoff(alpha, 2.0, 0.0, outputs=q, **silent), 1 - alpha, rtol=1e-12, atol=1e-16)
        np.testing.assert_allclose(theory.tradeoff(alpha, 0.0, 1.0, outputs=q, **silent), 1 - alpha, rtol=1e-12, atol=1e-16)
        # ε = 0 is a pure change of scale of a central χ²_q
        ratio = 1.02**2
        central = stats.chi2.sf(stats.chi2.ppf(alpha, q) * ratio, q)
        np.testing.assert_allclose(theory.tradeoff(alpha, 2.0, 0.0, outputs=q, **MODEL), central, rtol=1e-10, atol=1e-15)


@settings(max_examples=150, deadline=None)
@given(
    alpha=st.floats(1e-12, 1 - 1e-12),
    log_h=st.floats(-300, 300),
    log_error=st.floats(-300, 150),
    log_variance=st.floats(-300, 300),
    q=st.sampled_from([1, 2, 7]),
)
def test_tradeoff_is_a_probability_below_guessing_everywhere(alpha, log_h, log_error, log_variance, q):
    beta = theory.tradeoff(alpha, [0.0, 10.0**log_h], [[0.0], [10.0**log_error]], noise_variance=10.0**log_variance, n=50, p=3, outputs=q)
    assert beta.shape == (2, 2)
    assert ((beta >= 0) & (beta <= 1 - alpha + 1e-12)).all()  # also fails on NaN


@settings(max_examples=100, deadline=None)
@given(growth=st.floats(1e-6, 1e3), delta=st.floats(0, 60), alpha=st.floats(1e-10, 0.99), q=st.sampled_from([1, 3]))
def test_tradeoff_falls_with_alpha_and_with_the_error(growth, delta, alpha, q):
    base = tradeoff_of(alpha, growth, delta, q)
    assert tradeoff_of(min(2 * alpha, 0.995), growth, delta, q) <= base + 1e-13
    assert tradeoff_of(alpha, growth, delta * 1.1 + 1e-3, q) <= base + 1e-12


def test_more_leverage_can_mean_less_detection_at_small_alpha():
    # ε = 4σ: Φ(−3.09·1.25 + 2) ≈ 0.031 at h̄/k = ¼, Φ(−3.09·2 + 4) ≈ 0.0146 at h̄/k = 1
    beta = theory.tradeoff(1e-3, [25.0, 100.0], 4.0, **MODEL)
    np.testing.assert_allclose(1 - beta, special.ndtr(special.ndtri(1e-3) * np.array([1.25, 2.0]) + [2.0, 4.0]), rtol=1e-3)
    assert beta[0] < beta[1]


def test_threshold_attack_is_optimal_up_to_noncentrality_q_only():
    growth, alpha = 1.0, 1e-3
    u = np.linspace(0, 6, 4001)

    def densities(delta):
        out = stats.norm.pdf(u - delta) + stats.norm.pdf(u + delta)
        inside = 2 * (stats.norm.pdf(2 * u - delta) + stats.norm.pdf(2 * u + delta))
        return inside, out

    inside, out = densities(0.99)
    assert (np.diff(inside / out) < 0).all()
    inside, out = densities(4.0)
    order = np.argsort(-inside / out)  # the Neyman–Pearson region, cell by cell
    cell = u[1] - u[0]
    region = order[np.cumsum(out[order]) * cell <= alpha]
    assert inside[region].sum() * cell > 1.5 * (1 - tradeoff_of(alpha, growth, 4.0))


@pytest.mark.parametrize(("h", "m"), [(0.05, 1), (0.4, 1), (0.8, 3)])
def test_fixed_design_tradeoff_is_the_simulated_likelihood_ratio_test(h, m):
    draws, variance, alpha, size = np.random.default_rng(4), 1.7, 0.1, 400_000
    member = np.sqrt(variance * (1 - h)) * draws.standard_normal((size, m))
    other = np.sqrt(variance * (1 + h)) * draws.standard_normal((size, m))
    leverage = np.full(size, h)
    inside, outside = (theory.fixed_design_statistic(r, leverage, noise_variance=variance) for r in (member, other))
    beta = np.mean(inside <= np.quantile(outside, 1 - alpha))
    # 5 standard errors of beta and of the simulated alpha, whose slope dβ/dα is at most (1 − β)/α
    expected = theory.fixed_design_tradeoff(alpha, h, outputs=m)
    assert abs(beta - expected) < 5 * (0.5 + np.sqrt(alpha) * (1 - expected) / alpha) / np.sqrt(size)


@pytest.mark.parametrize("m", [1, 3])
def test_fixed_design_statistic_is_the_difference_of_log_densities(m):
    draws = np.random.default_rng(5)
    residual, leverage, variance = draws.standard_normal((40, m)), draws.uniform(0, 0.99, 40), 0.6
    expected = [
        stats.multivariate_normal.logpdf(r, np.zeros(m), variance * (1 - h) * np.eye(m))
        - stats.multivariate_normal.logpdf(r, np.zeros(m), variance * (1 + h) * np.eye(m))
        for r, h in zip(residual, leverage, strict=True)
    ]
    given_residual = residual[:, 0] if m == 1 else residual
    statistic = theory.fixed_design_statistic(given_residual, leverage, noise_variance=variance)
    np.testing.assert_allclose(statistic, expected, rtol=1e-12, atol=1e-12)


def test_fixed_design_limits():
    np.testing.assert_array_equal(theory.fixed_design_statistic([0.0, 1e-9], [1.0, 1.0], noise_variance=1.0), [np.inf, -np.inf])
    alpha = np.array([[1e-12], [0.2], [0.9]])
    beta = theory.fixed_design_tradeoff(alpha, [0.0, 0.3, 0.9, 1.0], outputs=2)
    np.testing.assert_allclose(beta[:, 0], 1 - alpha[:, 0], rtol=1e-13)
    np.testing.assert_array_equal(beta[:, 3], 0)
    assert (np.diff(beta, axis=1) < 0).all()
    assert (np.diff(beta[:, :3], axis=0) < 0).all()
    # two outputs: χ²₂ is exponential and β = (1 − α)^((1 + h)/(1 − h))
    np.testing.assert_allclose(beta[:, 1], (1 - alpha[:, 0]) ** (1.3 / 0.7), rtol=1e-12)


@pytest.mark.parametrize("q", [1, 2])
def test_predicted_tpr_plugs_the_fit_into_the_tradeoff(q):
    draws = np.random.default_rng(6)
    h, e, k = draws.uniform(0.01, 0.95, 50), draws.exponential(1.0, 50), 94.5
    tpr = theory.predicted_tpr([[0.01], [0.3]], h, e, outputs=q, **FIT)
    beta = theory.tradeoff([[0.01], [0.3]], k * h / (1 - h), e / (1 - h), noise_variance=1.0, n=100, p=5.5, outputs=q)
    np.testing.assert_allclose(tpr, 1 - beta, rtol=1e-10)
    assert (tpr >= [[0.01], [0.3]]).all()
    np.testing.assert_allclose(theory.predicted_tpr(0.3, h, e, noise_variance=1.0, n=1000, dof=7, outputs=q), tpr[1], rtol=1e-12)


def test_predicted_tpr_limits():
    tpr = theory.predicted_tpr(0.01, [0.0, 1.0, 1.0, np.nextafter(1, 0)], [3.0, 0.0, 2.0, 0.0], **FIT)
    np.testing.assert_allclose(tpr, [0.01, 1, 1, 1], rtol=1e-9)
    silent = FIT | {"noise_variance": 0.0}
    np.testing.assert_allclose(
        theory.predicted_tpr(0.01, [0.0, 0.2, 0.2, 1.0], [1.0, 1.0, 0.0, 0.0], **silent), [0.01, 1, 0.01, 1], rtol=1e-12
    )


def test_predicted_tpr_of_a_hundred_thousand_records_of_every_kind():
    draws = np.random.default_rng(7)
    h, e = 10 ** draws.uniform(-9, 0, 10**5), 10 ** draws.uniform(-6, 3, 10**5)
    for q in (1, 5):
        tpr = theory.predicted_tpr(1e-3, h, e, outputs=q, **FIT)
        assert ((tpr >= 1e-3 * (1 - 1e-9)) & (tpr <= 1)).all()


def brute_force_deltas(epsilon, h, e, q, sigma):
    """Eq. (4)'s two laws on 60,000 loss thresholds, straight from scipy."""
    growth, error = h / (1 - h), e / (1 - h)
    scale = sigma**2 * growth
    noncentrality = error**2 / scale
    top = scale * (np.sqrt(noncentrality + q) + 10) ** 2
    t = np.concatenate([np.linspace(0, 1, 30_001) ** 2 * top, np.linspace(0, 1, 30_001) ** 2 * top * (1 - h) ** 2])
    out = stats.ncx2(q, noncentrality, scale=scale)
    inside = stats.ncx2(q, noncentrality, scale=scale * (1 - h) ** 2)
    small, large = (inside.cdf(t), out.cdf(t)), (out.sf(t), inside.sf(t))
    return [max(np.max(a - np.exp(s) * b) for a, b in (small, large)) for s in epsilon]


@pytest.mark.parametrize("q", [1, 3])
def test_privacy_curve_is_the_best_threshold_attack(q):
    epsilon, sigma = np.array([0.0, 0.3, 1.0, 3.0]), 0.8
    records = [(0.02, 0.5), (0.3, 0.1), (0.5, 2.0), (0.97, 0.4), (0.2, 9.0), (0.9999, 0.001), (0.1, 6.0)]
    h, e = np.array(records).T
    curve = theory.privacy_curve(epsilon, h, e, noise_variance=sigma**2, n=60, dof=4, outputs=q)
    best = np.array([brute_force_deltas(epsilon, *record, q, sigma) for record in records])
    assert curve.shape == (7, 4)
    assert (curve <= np.maximum(best, 0) + 1e-6).all()  # the dense grid misses its own optimum by the square of its step
    np.testing.assert_allclose(curve, np.maximum(best, 0), atol=1e-3)  # 256 thresholds, spaced 0.07 of a deviation
    fine = theory.privacy_curve(epsilon, h, e, noise_variance=sigma**2, n=60, dof=4, outputs=q, thresholds=4096)
    np.testing.assert_allclose(fine, np.maximum(best, 0), atol=1e-5)
    assert (np.diff(curve, axis=1) <= 0).all()


def test_privacy_curve_starts_at_the_largest_advantage():
    fpr = np.concatenate([np.geomspace(1e-9, 0.1, 2000), np.linspace(0.1, 0.999, 4000)])[:, None]
    h, e = np.array([0.05, 0.4, 0.4]), np.array([1.0, 0.2, 4.0])
    advantage = (theory.predicted_tpr(fpr, h, e, **FIT) - fpr).max(0)
    np.testing.assert_allclose(theory.privacy_curve([0.0], h, e, **FIT)[:, 0], advantage, atol=2e-4)  # default grid


def test_privacy_curve_limits():
    silent = FIT | {"noise_variance": 0.0}
    np.testing.assert_array_equal(theory.privacy_curve([0.0, 5.0], [0.0, 1.0, 1.0], [2.0, 0.0, 1.0], **FIT), [[0, 0], [1, 1], [1, 1]])
    np.testing.assert_array_equal(theory.privacy_curve([0.0, 5.0], [0.2, 0.2], [2.0, 0.0], **silent), [[1, 1], [0, 0]])
    assert theory.privacy_curve([0.0], 0.3, 1.0, **FIT).shape == (1, 1)
    for q in (1, 2):
        # δ = 40, r = 1: members lie 40 OUT-deviations below, so even e^50 times the false positives is nothing beside 1
        assert theory.privacy_curve([50.0], 0.5, 20.0, outputs=q, **FIT) == pytest.approx(1, abs=1e-12)
        extreme = theory.privacy_curve(
            [0.0, 50.0, 700.0], 10.0 ** -np.arange(0.01, 300, 10), 10.0 ** np.arange(-150, 150, 10), outputs=q, **FIT
        )
        assert ((extreme >= 0) & (extreme <= 1)).all()
        assert (np.diff(extreme, axis=1) <= 0).all()


@settings(max_examples=50, deadline=None)
@given(h=st.floats(0, 1), e=st.floats(0, 1e6), variance=st.floats(0, 1e6))
def test_privacy_curve_is_non_increasing_for_any_record(h, e, variance):
    curve = theory.privacy_curve(np.linspace(0, 30, 16), h, e, noise_variance=variance, n=20, dof=3)
    assert ((curve >= 0) & (curve <= 1)).all()
    assert (np.diff(curve) <= 0).all()


def test_privacy_curve_calls_itself_a_lower_bound():
    assert "LOWER BOUND" in theory.privacy_curve.__doc__
    assert "never a guarantee" in theory.privacy_curve.__doc__


def test_tensors_lists_and_empty_inputs_are_taken_and_left_alone():
    h = torch.tensor([0.1, 0.5])
    before = h.clone()
    tpr = theory.predicted_tpr(0.1, h, [1, 2], **FIT)
    assert tpr.dtype == np.float64
    assert torch.equal(h, before)
    e = np.array([1.0, -2.0])
    e.flags.writeable = False
    np.testing.assert_allclose(theory.tradeoff(0.1, [1, 2], e, **MODEL), theory.tradeoff(0.1, [1, 2], -e, **MODEL), rtol=0)
    assert theory.predicted_tpr(0.1, [], [], **FIT).shape == (0,)
    assert theory.expected_gap([], [], **MODEL).shape == (0,)
    assert theory.privacy_curve([0.0], [], [], **FIT).shape == (0, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.expected_gap(-1, 1, **MODEL), r"expected_gap: h_bar must be ≥ 0; got -1\."),
        (lambda: theory.expected_gap([1, np.nan], 1, **MODEL), r"expected_gap: h_bar must be finite; got 1 NaN"),
        (lambda: theory.expected_gap("a", 1, **MODEL), r"expected_gap: h_bar must be numeric; got dtype"),
        (
            lambda: theory.expected_gap([1, 2], [1, 2, 3], **MODEL),
            r"h_bar, error, noise_variance must have shapes that broadcast; got h_bar \(2,\)",
        ),
        (lambda: theory.expected_gap(1, 1, noise_variance=-0.5, n=9, p=1), r"noise_variance must be ≥ 0; got -0\.5\."),
        (lambda: theory.expected_gap(1, 1, noise_variance=1, n=9, p=7), r"expected_gap: n − p must be > 2; got 9 − 7\. Use more records"),
        (lambda: theory.expected_gap(1, 1, noise_variance=1, n="9", p=7), r"expected_gap: n must be a number > 0; got '9'"),
        (lambda: theory.expected_gap(1, 1, noise_variance=1, n=9, p=-1), r"expected_gap: p must be a number ≥ 0; got -1"),
        (lambda: theory.expected_gap(1, -1, outputs=2, **MODEL), r"expected_gap: error must be ≥ 0; got -1\."),
        (lambda: theory.asymptotic_gap(1, 1, outputs=0, **MODEL), r"asymptotic_gap: outputs must be a whole number ≥ 1; got 0"),
        (lambda: theory.asymptotic_gap(1, 1, noise_variance=1, n=5, p=3), r"asymptotic_gap: n − p must be > 2"),
        (lambda: theory.tradeoff([0.5, 1.0], 1, 1, **MODEL), r"tradeoff: alpha must lie strictly between 0 and 1; got 1 at index 1"),
        (lambda: theory.tradeoff(0.0, 1, 1, **MODEL), r"tradeoff: alpha must lie strictly between 0 and 1; got 0\."),
        (
            lambda: theory.tradeoff(1e-31, 1, 1, outputs=2, **MODEL),
            r"tradeoff: alpha must be at least 1e-30 with several outputs; got 1e-31",
        ),
        (lambda: theory.tradeoff([0.1, 0.2, 0.3], [1, 2], 1, **MODEL), r"tradeoff: alpha, h_bar, error, noise_variance must have shapes"),
        (lambda: theory.tradeoff(0.1, 1, 1, outputs=1.5, **MODEL), r"tradeoff: outputs must be a whole number ≥ 1; got 1\.5"),
        (lambda: theory.fixed_design_tradeoff(0.1, 1.0000001), r"fixed_design_tradeoff: leverage must lie between 0 and 1; got 1\."),
        (lambda: theory.fixed_design_tradeoff(2, 0.5), r"fixed_design_tradeoff: alpha must lie strictly"),
        (lambda: theory.fixed_design_tradeoff(0.5, 0.5, outputs=True), r"outputs must be a whole number"),
        (lambda: theory.fixed_design_statistic([[[1.0]]], [0.1], noise_variance=1.0), r"residual must be 1-dimensional or 2-dimensional"),
        (
            lambda: theory.fixed_design_statistic([1.0, 2.0], [0.1], noise_variance=1.0),
            r"leverage must have one value per residual row \(2\); got shape",
        ),
        (lambda: theory.fixed_design_statistic([1.0], [0.1], noise_variance=0.0), r"noise_variance must be a number > 0; got 0"),
        (lambda: theory.predicted_tpr(0.1, -0.1, 1.0, **FIT), r"predicted_tpr: leverage must lie between 0 and 1; got -0\.1"),
        (lambda: theory.predicted_tpr(0.1, 0.1, [1.0, -1.0], **FIT), r"predicted_tpr: residual_norm must be ≥ 0; got -1 at index 1"),
        (lambda: theory.predicted_tpr(0, 0.1, 1.0, **FIT), r"predicted_tpr: fpr must lie strictly between 0 and 1"),
        (
            lambda: theory.predicted_tpr([0.1, 0.2], [0.1] * 3, 1.0, **FIT),
            r"predicted_tpr: fpr, leverage, residual_norm, noise_variance must have shapes",
        ),
        (lambda: theory.privacy_curve([-1.0], 0.1, 1.0, **FIT), r"privacy_curve: epsilon must lie between 0 and 700; got -1 at index 0"),
        (lambda: theory.privacy_curve(1.0, 0.1, 1.0, **FIT), r"privacy_curve: epsilon must be 1-dimensional; got shape \(\)"),
        (lambda: theory.privacy_curve([1.0], [[0.1]], 1.0, **FIT), r"noise_variance must be at most 1-dimensional; got shape \(1, 1\)"),
        (
            lambda: theory.privacy_curve([1.0], 0.1, 1.0, thresholds=1, **FIT),
            r"privacy_curve: thresholds must be a whole number ≥ 2; got 1",
        ),
    ],
)
def test_bad_input_gets_one_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("call", [theory.predicted_tpr, theory.privacy_curve])
def test_too_few_degrees_of_freedom_are_not_applicable(call):
    with pytest.raises(
        NotApplicable, match=rf"{call.__name__}: the Gaussian theory needs n − dof > 2; got 10 − 8\.5\. Fit on more records, or with fewer"
    ):
        call([0.1], [0.5], [1.0], noise_variance=1.0, n=10, dof=8.5)


def test_quantiles_hold_where_the_density_underflows():
    # χ′²₃(100) near α = 1e-30: the density is 0 in float64, the bracket alone must find the root
    with mpmath.workdps(120):
        u = [mpmath.mpf(i) / 10_000 for i in range(28, 40)]
        alpha, expected = ([float(folded_law(a * c, 10, 3)[0]) for a in u] for c in (1, mpmath.mpf("1.2")))
    h, e = 0.2 / 1.2, 10 * np.sqrt(0.2) / 1.2
    np.testing.assert_allclose(theory.predicted_tpr(alpha, h, e, outputs=3, **FIT), expected, rtol=1e-9)


def test_fixed_design_at_leverage_one_misses_nobody_however_small_the_level():
    assert theory.fixed_design_tradeoff([1e-200, 0.3], 1.0).tolist() == [0.0, 0.0]


def test_margin_tpr_is_the_share_of_members_above_the_threshold():
    rng = np.random.default_rng(0)
    gap, inside, outside, fpr = 1.7, 0.8, 1.3, 0.05
    threshold = np.quantile(outside * rng.standard_normal(1_000_000), 1 - fpr)
    share = np.mean(gap + inside * rng.standard_normal(1_000_000) > threshold)
    # A quantile and a share of a million draws each: standard errors below 1e-3.
    assert theory.margin_tpr(fpr, gap, inside, outside) == pytest.approx(share, abs=5e-3)
    assert theory.margin_tpr(fpr, 0.0, 1.0, 1.0) == pytest.approx(fpr)
    assert theory.margin_tpr([0.01, 0.1], [[0.0], [1.0]], 1.0, 1.0).shape == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1.0, 1.0, 1.0), "margin_tpr: fpr must"),
        ((0.1, np.nan, 1.0, 1.0), "margin_tpr: gap must be finite"),
        ((0.1, 1.0, 0.0, 1.0), "margin_tpr: deviation_in must"),
        ((0.1, 1.0, 1.0, -1.0), "margin_tpr: deviation_out must"),
        ((0.1, [1.0, 2.0], [1.0, 2.0, 3.0], 1.0), "broadcast"),
    ],
)
def test_margin_tpr_refuses_wrong_numbers(arguments, message):
    with pytest.raises(InputError, match=message):
        theory.margin_tpr(*arguments)

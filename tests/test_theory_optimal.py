"""The likelihood-ratio test of a record's residual, and the joint law behind it, against refits and plain densities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from noshadow import theory
from noshadow.checks import InputError

MODEL = {"noise_variance": 1.0, "n": 105, "p": 5}  # k = 100


def most_powerful(alpha, outside, inside, cell):
    """TPR of the Neyman–Pearson region of two densities on a grid, cell by cell and a share of the last."""
    order = np.argsort(-inside / np.maximum(outside, 1e-300))
    false, true = (np.concatenate([[0.0], np.cumsum(side[order]) * cell]) for side in (outside, inside))
    return np.interp(alpha, false, true)


@pytest.mark.parametrize("alpha", [1e-3, 0.05, 0.5])
@pytest.mark.parametrize(("h_bar", "error"), [(1.0, 0.5), (20.0, 0.0), (20.0, -2.0), (100.0, 4.0)])
def test_the_closed_form_is_the_neyman_pearson_region_of_two_gaussians(alpha, h_bar, error):
    c, deviation = 100 / (100 + h_bar), np.sqrt(h_bar / 100)
    x = np.linspace(error - 12 * deviation - 6, error + 12 * deviation + 6, 2_000_001)
    densities = stats.norm.pdf(x, error, deviation), stats.norm.pdf(x, c * error, c * deviation)
    found = 1 - theory.tradeoff(alpha, h_bar, error, statistic="residual", **MODEL)
    assert found == pytest.approx(most_powerful(alpha, *densities, x[1] - x[0]), rel=1e-4)  # cells of up to 1e-5 of the mass


@pytest.mark.parametrize("outputs", [2, 5])
def test_the_closed_form_of_several_outputs_is_the_simulated_test(outputs):
    rng, h_bar, alpha, size = np.random.default_rng(4), 30.0, 0.05, 400_000
    error = np.zeros(outputs)
    error[0] = 1.5
    deviation, c = np.sqrt(0.3), 1 / 1.3
    residuals = error + deviation * rng.standard_normal((2, size, outputs))
    residuals[1] *= c

    def ratio(x):
        inside = stats.norm.logpdf(x, c * error, c * deviation).sum(-1)
        return inside - stats.norm.logpdf(x, error, deviation).sum(-1)

    out, inside = ratio(residuals)
    rate = np.mean(inside > np.quantile(out, 1 - alpha))
    expected = 1 - theory.tradeoff(alpha, h_bar, 1.5, outputs=outputs, statistic="residual", **MODEL)
    assert abs(rate - expected) < 5 * np.sqrt(expected / size) + 5 * np.sqrt(alpha / size) * expected / alpha  # of the rate and of α


@given(
    alpha=st.floats(1e-6, 0.99),
    growth=st.floats(1e-6, 1e6),
    delta=st.floats(0, 1e6),
    outputs=st.sampled_from([1, 2, 7]),
)
@settings(max_examples=150, deadline=None)
def test_no_test_of_the_loss_beats_the_residual(alpha, growth, delta, outputs):
    losses, residuals = (
        theory.tradeoff(alpha, 100 * growth, delta * np.sqrt(growth), outputs=outputs, statistic=statistic, **MODEL)
        for statistic in ("loss", "residual")
    )
    assert residuals <= losses + 1e-9 and 0 <= residuals <= 1 - alpha + 1e-9


@pytest.mark.parametrize("alpha", [1e-4, 0.01, 0.3])
@pytest.mark.parametrize(("growth", "error"), [(0.01, 0.0), (0.2, 1.0), (0.2, -2.0), (1.0, 4.0), (10.0, 1.0)])
def test_with_many_records_the_quadrature_is_the_closed_form(alpha, growth, error):
    many = {"noise_variance": 1.0, "n": 1e7, "p": 0}
    found = 1 - theory.optimal_tradeoff(alpha, 1e7 * growth, error, **many)
    assert found == pytest.approx(1 - theory.tradeoff(alpha, 1e7 * growth, error, statistic="residual", **many), rel=1e-5)


@pytest.mark.parametrize("statistic", ["residual", "loss"])
@pytest.mark.parametrize(("h_bar", "error", "k"), [(3.0, 1.5, 5), (20.0, 1.0, 100)])
def test_with_few_records_it_is_the_region_of_densities_integrated_over_v(h_bar, error, k, statistic):
    """Without the record the residual is Student's t; with it, the density is a mean over quantiles of V."""
    x = np.linspace(-40, 40, 16_001)
    outside = stats.t.pdf(x, k, error, np.sqrt(h_bar / k))
    v = stats.chi2.ppf((np.arange(400) + 0.5) / 400, k)
    kept = v / (v + h_bar)
    inside = np.concatenate(
        [stats.norm.pdf(part[:, None], kept * error, kept * np.sqrt(h_bar / v)).mean(1) for part in np.array_split(x, 40)]
    )
    if statistic == "loss":
        centre = len(x) // 2
        x, outside, inside = x[centre:], *(side[centre:] + side[centre::-1] for side in (outside, inside))
    for alpha in (0.01, 0.1):
        found = 1 - theory.optimal_tradeoff(alpha, h_bar, error, noise_variance=1.0, n=k + 3, p=3, statistic=statistic)
        expected = most_powerful(alpha, outside, inside, x[1] - x[0])
        assert found == pytest.approx(expected, rel=3e-3)  # 400 quantiles of V leave out its tails


def test_it_is_what_an_attacker_reaches_on_least_squares_refits():
    """Real fits of real draws: the attacker knows both laws, and calls members by their ratio."""
    rng, (n, p, alpha), size = np.random.default_rng(8), (20, 4, 0.1), 20_000
    record, theta = np.array([2.0, -1.0, 0.5, 1.0]), np.array([1.0, 0.0, -1.0, 2.0])
    error, h_bar = 1.2, float(record @ record)
    x = rng.standard_normal((size, n - 1, p))
    y = x @ theta + rng.standard_normal((size, n - 1))
    gram = np.einsum("sni,snj->sij", x, x)
    moment = np.einsum("sni,sn->si", x, y)
    target = record @ theta + error
    without = target - np.linalg.solve(gram, moment[..., None])[..., 0] @ record
    within = target - np.linalg.solve(gram + np.outer(record, record), (moment + target * record)[..., None])[..., 0] @ record
    # The ratio of both laws from the package's own draws, counted in cells: only the refits below judge it.
    law = theory.joint_law(h_bar, error, noise_variance=1.0, n=n, p=p)
    leverage, left_out = law.sample(1_000_000, seed=1)
    edges = np.quantile(left_out, np.linspace(0.002, 0.998, 120))
    cells = [np.bincount(np.searchsorted(edges, part), minlength=121) for part in (left_out, (1 - leverage) * left_out)]
    ratio = cells[1] / np.maximum(cells[0], 1)
    scores = [ratio[np.searchsorted(edges, part)] for part in (without, within)]
    threshold = np.quantile(scores[0], 1 - alpha)
    rate, false = np.mean(scores[1] > threshold), np.mean(scores[0] > threshold)
    # Cells tie: rates are compared at the false-positive rate that was reached.
    expected = 1 - theory.optimal_tradeoff(false, h_bar, error, noise_variance=1.0, n=n, p=p)
    assert false > 0.05 and expected > 1.5 * false
    assert abs(rate - expected) < 5 * np.sqrt(expected / size) + 0.01 * expected + 5 * np.sqrt(false / size) * expected / false


def test_the_joint_law_is_that_of_least_squares_refits():
    rng, n, p, size = np.random.default_rng(5), 12, 3, 20_000
    record = np.array([1.0, 2.0, -0.5])
    law = theory.joint_law(float(record @ record), 0.7, noise_variance=0.25, n=n, p=p)
    x = rng.standard_normal((size, n - 1, p))
    noise = 0.5 * rng.standard_normal((size, n - 1))
    gram = np.einsum("sni,snj->sij", x, x)
    tilted = np.linalg.solve(gram, np.broadcast_to(record, (size, p))[..., None])[..., 0]
    ratio = tilted @ record
    leverage, left_out = ratio / (1 + ratio), 0.7 - np.einsum("si,sni,sn->s", tilted, x, noise)
    assert stats.kstest(leverage, law.leverage_cdf).pvalue > 1e-3
    drawn = law.sample(size, seed=3)
    assert stats.ks_2samp(left_out, drawn[1]).pvalue > 1e-3 and stats.kstest(drawn[0], law.leverage_cdf).pvalue > 1e-3
    # Given the leverage, errors are standard normal once centred and scaled, in the refits as in the law.
    scaled = (left_out - 0.7) / np.sqrt(0.25 * leverage / (1 - leverage))
    assert stats.kstest(scaled, "norm").pvalue > 1e-3 and abs(np.corrcoef(scaled**2, leverage)[0, 1]) < 5 / np.sqrt(size)


def test_density_and_quantiles_belong_to_the_distribution_function():
    law = theory.joint_law(3.0, 1.5, noise_variance=2.0, n=20, p=5)
    rates = np.array([0.01, 0.3, 0.99])
    np.testing.assert_allclose(law.leverage_cdf(law.leverage_quantile(rates)), rates, rtol=1e-9)
    low, high = law.leverage_quantile([0.2, 0.7])
    mass, _ = integrate.dblquad(lambda e, h: np.exp(law.log_density(h, e)), low, high, -30, 30)
    assert mass == pytest.approx(0.5, abs=1e-6)
    assert law.leverage_cdf([0.0, 1.0]).tolist() == [0.0, 1.0]


def test_limits():
    for statistic in ("loss", "residual"):
        how = {"statistic": statistic, "n": 105, "p": 5}
        assert theory.optimal_tradeoff(0.1, 0.0, 2.0, noise_variance=1.0, **how) == pytest.approx(0.9)
        assert theory.optimal_tradeoff(0.1, 3.0, 0.0, noise_variance=0.0, **how) == pytest.approx(0.9)
        assert theory.optimal_tradeoff(0.1, 3.0, 1.0, noise_variance=0.0, **how) == 0
        # The sign of the error is the attacker's to know.
        both = theory.optimal_tradeoff([0.01, 0.2], 20.0, [[1.5], [-1.5]], noise_variance=1.0, **how)
        np.testing.assert_allclose(both[0], both[1], rtol=1e-12)
        assert both.shape == (2, 2) and (np.diff(both[0]) < 0).all()


def test_residuals_of_fits_are_told_apart_at_least_as_well_as_their_losses():
    h, e = np.linspace(0.01, 1, 40), np.linspace(0, 4, 40)
    fit = {"noise_variance": 1.0, "n": 100, "dof": 5.5}
    losses, residuals = (theory.predicted_tpr(0.01, h, e, statistic=name, **fit) for name in ("loss", "residual"))
    assert (residuals >= losses - 1e-12).all() and (residuals > 1.2 * losses).any() and residuals[-1] == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.tradeoff(0.1, 1.0, 1.0, statistic="sign", **MODEL), "statistic must be one of 'loss', 'residual'; got 'sign'"),
        (lambda: theory.optimal_tradeoff(0.1, 1.0, 1.0, statistic="sign", **MODEL), "optimal_tradeoff: statistic must be one of"),
        (lambda: theory.optimal_tradeoff(0.0, 1.0, 1.0, **MODEL), "alpha must lie strictly between 0 and 1"),
        (lambda: theory.joint_law(0.0, 1.0, **MODEL), "joint_law: h_bar must be a number > 0"),
        (lambda: theory.joint_law(1.0, [1.0, 2.0], **MODEL), r"error must be one number; got shape \(2,\)"),
        (lambda: theory.joint_law(1.0, float("nan"), **MODEL), "error must be finite"),
        (lambda: theory.joint_law(1.0, 1.0, **MODEL).log_density(1.0, 0.0), "leverage must lie strictly between 0 and 1"),
        (lambda: theory.joint_law(1.0, 1.0, **MODEL).sample(0), "size must be a whole number"),
    ],
)
def test_bad_input_gets_one_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()

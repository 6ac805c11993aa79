"""Every record's distinguishability from one factorisation, against refits, mpmath, direct integration and sampling."""

import itertools

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from lood_oracles import brute_force, numpy_rbf
from noshadow._lood import lood_scores
from noshadow._lood.divergence import variance_excess, variance_excess_tensor
from noshadow._lood.gaussian_attack import likelihood_ratio_auc, likelihood_ratio_tpr
from noshadow.checks import InputError


def problem(n=30, d=3, outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, numpy_rbf(x), rng.normal(size=(n, outputs))


@pytest.mark.parametrize("outputs", [1, 2, 10])
@pytest.mark.parametrize("noise", [1e-3, 0.1, 5.0])
def test_every_record_equals_a_refit_without_it(outputs, noise):
    x, matrix, y = problem(outputs=outputs)
    scores = lood_scores(matrix, y, noise=noise)
    for i in range(len(x)):
        truth = brute_force(numpy_rbf, x, y, [i], x[[i]], noise)
        # 1e-10: refits lose about the condition number (≤ 3e4 here) times 1e-16, twice.
        assert scores.kl[i] == pytest.approx(truth["kl"], rel=1e-10)
        assert scores.mean_distance[i] == pytest.approx(truth["mean_distance"], rel=1e-9, abs=1e-14)
        np.testing.assert_allclose(scores.loo_mean[i], truth["loo"][0][0], atol=1e-10)
        np.testing.assert_allclose(scores.loo_variance[i], truth["loo"][1][0, 0], rtol=1e-10)
        np.testing.assert_allclose(scores.mean[i], truth["full"][0][0], atol=1e-10)
        np.testing.assert_allclose(scores.variance[i], truth["full"][1][0, 0], rtol=1e-10)


def exact_kl(matrix, y, noise, i):
    """Drop, refit and compare in 60 digits."""
    with mpmath.workdps(60):
        n = len(matrix)

        def posterior(rows):
            inverse = mpmath.inverse(mpmath.matrix([[mpmath.mpf(matrix[a, b]) + (noise if a == b else 0) for b in rows] for a in rows]))
            beside = mpmath.matrix([[mpmath.mpf(matrix[i, a]) for a in rows]])
            targets = mpmath.matrix([[mpmath.mpf(v) for v in y[a]] for a in rows])
            return beside * inverse * targets, mpmath.mpf(matrix[i, i]) - (beside * inverse * beside.T)[0]

        (mean, variance), (mean_with, variance_with) = posterior([a for a in range(n) if a != i]), posterior(range(n))
        ratio = variance / variance_with
        gap = sum((a - b) ** 2 for a, b in zip(mean, mean_with, strict=True))
        return float((y.shape[1] * (ratio - 1 - mpmath.log(ratio)) + gap / variance_with) / 2)


@pytest.mark.parametrize(
    ("scale", "noise"),
    [(1e-12, 1.0), (1e-6, 1.0), (1.0, 1e8), (1e-3, 0.5), (1.0, 1e-9)],
    ids=["kernel far below noise", "below", "huge noise", "small leverage", "isolated records"],
)
def test_small_and_large_leaks_keep_their_digits(scale, noise):
    rng = np.random.default_rng(1)
    matrix = scale * numpy_rbf(3 * rng.normal(size=(6, 2)))
    y = scale**0.5 * rng.normal(size=(6, 3))
    scores = lood_scores(matrix, y, noise=noise)
    # 1e-12: a few hundred roundings, no cancellation (these matrices have condition < 1e3).
    np.testing.assert_allclose(scores.kl, [exact_kl(matrix, y, noise, i) for i in range(6)], rtol=1e-12)


def test_records_of_very_different_size_each_keep_their_digits():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(6, 4)) * np.array([1, 1, 1e-6, 1, 1e-3, 1])[:, None]
    matrix, y = x @ x.T, np.zeros((6, 1))  # without targets only the variance part is left, the one that cancels
    scores = lood_scores(matrix, y, noise=1e-2)
    np.testing.assert_allclose(scores.kl, [exact_kl(matrix, y, 1e-2, i) for i in range(6)], rtol=1e-11)
    assert scores.kl[2] < 1e-20 < scores.kl[4]


def test_variance_excess_to_the_last_digits():
    x = np.concatenate([np.logspace(-300, 6, 200), [0.399999, 0.4, 0.400001], -np.logspace(-10, -0.01, 40)])
    with mpmath.workdps(400):
        truth = [float(mpmath.mpf(v) - mpmath.log1p(mpmath.mpf(v))) for v in x]
    np.testing.assert_allclose(variance_excess(x), truth, rtol=4e-15)
    np.testing.assert_allclose(variance_excess_tensor(torch.from_numpy(x)).numpy(), truth, rtol=4e-15)
    assert variance_excess(np.array([0.0, np.inf])).tolist() == [0.0, np.inf]


# The likelihood-ratio attack


def direct_auc(d, t, outputs):
    """P(v′X′ < vX) with scipy's noncentral χ², by adaptive quadrature over panels."""
    u = 1 + t
    inside, outside = d / t**2, d * u / t**2
    centre, width = outputs + outside, np.sqrt(2 * outputs + 4 * outside)
    edges = np.linspace(max(0.0, centre - 12 * width), centre + 30 * width, 25)

    def integrand(w):
        return stats.ncx2.cdf(w * u, outputs, inside) * stats.ncx2.pdf(w, outputs, outside)

    return sum(integrate.quad(integrand, a, b, epsabs=1e-12)[0] for a, b in itertools.pairwise(edges))


@pytest.mark.parametrize(
    ("d", "t", "outputs"), [(0.5, 0.3, 1), (3.0, 1.0, 1), (0.01, 10.0, 2), (2.0, 0.5, 10), (1e-3, 100.0, 3), (0.5, 0.1, 1000)]
)
def test_auc_and_tpr_equal_integration_of_noncentral_chi_squares(d, t, outputs):
    assert likelihood_ratio_auc([d], [t], outputs=outputs)[0] == pytest.approx(direct_auc(d, t, outputs), abs=1e-9)
    for fpr in (1e-3, 0.1, 0.9):
        threshold = stats.ncx2.ppf(fpr, outputs, d * (1 + t) / t**2)
        truth = stats.ncx2.cdf((1 + t) * threshold, outputs, d / t**2)
        assert likelihood_ratio_tpr([d], [t], fpr=fpr, outputs=outputs)[0] == pytest.approx(truth, rel=2e-8)


@pytest.mark.parametrize("outputs", [1, 2, 5, 1000])
def test_without_a_shift_the_attack_is_an_f_test(outputs):
    t = np.logspace(-8, 8, 33)
    # scipy's own F distribution at one degree of freedom is good to 1e-11 there.
    np.testing.assert_allclose(likelihood_ratio_auc(0 * t, t, outputs=outputs), stats.f.cdf(1 + t, outputs, outputs), atol=1e-10)
    truth = stats.chi2.cdf((1 + t) * stats.chi2.ppf(0.01, outputs), outputs)
    np.testing.assert_allclose(likelihood_ratio_tpr(0 * t, t, fpr=0.01, outputs=outputs), truth, rtol=1e-9)


@pytest.mark.parametrize("outputs", [1, 7])
def test_equal_variances_and_their_limit(outputs):
    d = np.logspace(-8, 2.3, 30)
    for t in (0.0, 1e-300, 1e-13):
        excess = np.full(30, t)
        np.testing.assert_allclose(likelihood_ratio_auc(d, excess, outputs=outputs), stats.norm.cdf(np.sqrt(d / 2)), atol=1e-11)
        truth = stats.norm.cdf(np.sqrt(d) + stats.norm.ppf(1e-3))
        np.testing.assert_allclose(likelihood_ratio_tpr(d, excess, fpr=1e-3, outputs=outputs), truth, rtol=1e-9)


def test_certain_and_hopeless_attacks():
    d, t = np.array([0.0, 1e6, 1e300, 0.0]), np.array([0.0, 1.0, 0.0, 1e200])
    assert likelihood_ratio_auc(d, t, outputs=3).tolist() == [0.5, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(likelihood_ratio_tpr(d, t, fpr=0.01, outputs=3), [0.01, 1.0, 1.0, 1.0])


def sampled_ratios(d, t, outputs, size, rng):
    """Log likelihood ratios of members and non-members; directions d, t (q,)."""
    q, u = len(d), 1 + np.asarray(t)
    shift = np.zeros((q, outputs))
    shift[:, 0] = np.sqrt(d)

    def ratio(f):
        return (-0.5 * (f**2).sum(2) + 0.5 * ((f - shift) ** 2).sum(2) / u + 0.5 * outputs * np.log(u)).sum(1)

    members = rng.normal(size=(size, q, outputs))
    return ratio(members), ratio(shift + rng.normal(size=(size, q, outputs)) * np.sqrt(u)[:, None])


@pytest.mark.parametrize(("d", "t", "outputs"), [((0.7,), (0.8,), 2), ((1.0, 0.3), (0.1, 2.0), 1), ((0.2, 0.0, 0.1), (1.0, 9.0, 0.01), 1)])
def test_a_million_sampled_predictions_agree(d, t, outputs):
    size = 1_000_000
    members, others = sampled_ratios(d, t, outputs, size, np.random.default_rng(3))
    auc = likelihood_ratio_auc([d], [t], outputs=outputs)[0]
    # A million pairs: standard error √(p(1 − p)/10⁶) ≤ 5e-4, four of them.
    assert (members > others).mean() == pytest.approx(auc, abs=4 * np.sqrt(auc * (1 - auc) / size))
    if len(d) == 1:
        threshold = np.quantile(others, 0.99)
        tpr = likelihood_ratio_tpr(d, t, fpr=0.01, outputs=outputs)[0]
        assert (members > threshold).mean() == pytest.approx(tpr, rel=0.02)  # both the quantile and the share are sampled


def test_scores_carry_the_attack_on_their_own_posteriors():
    _, matrix, y = problem(n=12)
    scores = lood_scores(matrix, y, noise=0.1, fpr=0.05)
    separation = ((scores.loo_mean - scores.mean) ** 2).sum(1) / scores.variance
    excess = scores.loo_variance / scores.variance - 1
    np.testing.assert_allclose(scores.auc, likelihood_ratio_auc(separation, excess, outputs=2), rtol=1e-10)
    np.testing.assert_allclose(scores.tpr, likelihood_ratio_tpr(separation, excess, fpr=0.05, outputs=2), rtol=1e-9)
    # Pinsker: AUC ≤ ½ + TV ≤ ½ + √(KL/2).
    assert (scores.auc <= 0.5 + np.sqrt(scores.kl / 2)).all()


# Properties


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), noise=st.floats(1e-3, 1e3), outputs=st.integers(1, 4))
def test_ranges_permutation_and_units(seed, noise, outputs):
    _, matrix, y = problem(n=9, d=2, outputs=outputs, seed=seed)
    scores = lood_scores(matrix, y, noise=noise)
    assert ((scores.leverage >= 0) & (scores.leverage <= 1)).all()
    assert (scores.variance <= scores.loo_variance).all()
    assert (scores.kl >= 0).all() and (scores.auc >= 0.5).all() and (scores.tpr >= 1e-3).all()
    order = np.random.default_rng(seed).permutation(9)
    np.testing.assert_allclose(lood_scores(matrix[np.ix_(order, order)], y[order], noise=noise).kl, scores.kl[order], rtol=1e-9)
    # The units of the targets are no one's business: kernel, noise and squared targets scale together.
    np.testing.assert_allclose(lood_scores(4 * matrix, 2 * y, noise=4 * noise).kl, scores.kl, rtol=1e-12)


def test_a_duplicate_hides_its_twin_and_an_outlier_stands_out():
    x, _, _ = problem(n=20)
    x = np.concatenate([x, [[9.0, 9.0, 9.0]]])
    y = np.sin(x[:, :1])
    alone = lood_scores(numpy_rbf(x), y, noise=0.1)
    twice = lood_scores(numpy_rbf(np.concatenate([x, x[[4]]])), np.concatenate([y, y[[4]]]), noise=0.1)
    assert twice.kl[4] < alone.kl[4] and twice.auc[4] < alone.auc[4]
    assert twice.kl[4] == pytest.approx(twice.kl[-1], rel=1e-12)
    assert alone.leverage.argmax() == 20


def test_a_record_that_the_kernel_does_not_see_leaks_nothing():
    matrix = np.diag([1.0, 0.0, 2.0])
    scores = lood_scores(matrix, [1.0, 5.0, 1.0], noise=0.5)
    assert scores.kl[1] == scores.mean_distance[1] == 0 and scores.auc[1] == 0.5 and scores.tpr[1] == 1e-3


def test_anything_array_like_comes_in_and_stays_as_it_was():
    _, matrix, y = problem(n=15)
    labels = np.arange(15) % 3
    before = matrix.copy()
    scores = lood_scores(matrix, labels, noise=0.1)
    assert np.array_equal(matrix, before) and scores.loo_mean.shape == (15, 3)
    assert np.array_equal(lood_scores(torch.from_numpy(matrix), torch.from_numpy(labels), noise=0.1).kl, scores.kl)
    assert np.array_equal(lood_scores(matrix, np.eye(3)[labels], noise=0.1).kl, scores.kl)
    single = lood_scores(matrix.astype(np.float32), labels, noise=0.1)
    np.testing.assert_allclose(single.kl, scores.kl, rtol=1e-4)  # the matrix itself was rounded to 6e-8, times its condition
    flat = lood_scores(matrix, y[:, 0], noise=0.1)
    assert np.array_equal(flat.kl, lood_scores(matrix, y[:, :1], noise=0.1).kl) and flat.loo_mean.shape == (15, 1)


def test_diagnostics_describe_the_matrix():
    _, matrix, y = problem()
    scores = lood_scores(matrix, y, noise=0.1)
    assert scores.smallest_eigenvalue == pytest.approx(np.linalg.eigvalsh(matrix)[0], abs=1e-6)
    truth = np.linalg.cond(matrix + 0.1 * np.eye(30), 1)
    assert truth / 3 <= scores.condition <= truth * (1 + 1e-9)
    assert (scores.noise, scores.fpr) == (0.1, 1e-3)


# Refusals


def test_asymmetric_matrices_are_refused_with_the_largest_difference():
    _, matrix, y = problem()
    matrix[3, 7] += 1e-3
    with pytest.raises(InputError, match=r"be symmetric; got entries \(3, 7\) and \(7, 3\) that differ by 0.001"):
        lood_scores(matrix, y, noise=0.1)


@pytest.mark.parametrize(
    ("shift", "noise", "what"),
    [(-0.05, 0.1, r"a negative eigenvalue, the smallest eigenvalue being at most -0.0[45]"), (-0.5, 0.1, r"a pivot ≤ 0 at row \d+ of K")],
)
def test_indefinite_matrices_are_refused_with_how_far(shift, noise, what):
    _, matrix, y = problem()
    values, vectors = np.linalg.eigh(matrix)
    values[0] = shift
    with pytest.raises(InputError, match=what):
        lood_scores((vectors * values) @ vectors.T, y, noise=noise)


@pytest.mark.parametrize(("lowest", "noise"), [(-0.05, 0.1), (-0.5, 0.1), (0.02, 0.1), (0.0, 1e-4)])
def test_the_smallest_eigenvalue_of_a_larger_matrix_is_found_from_above(lowest, noise):
    rng = np.random.default_rng(7)
    basis, _ = np.linalg.qr(rng.normal(size=(150, 150)))
    values = np.concatenate([[lowest], np.geomspace(0.1, 50, 149)])
    matrix = (basis * values) @ basis.T
    matrix = (matrix + matrix.T) / 2
    if lowest >= 0:
        # 1e-8: the error is the square of a residual of 1e-3, relative to the eigenvalue plus noise; from above up to rounding.
        assert -1e-12 <= lood_scores(matrix, rng.normal(size=150), noise=noise).smallest_eigenvalue - lowest <= 1e-8
        return
    with pytest.raises(InputError, match="smallest eigenvalue being at most") as refused:
        lood_scores(matrix, rng.normal(size=150), noise=noise)
    # The message has three digits; beyond the noise there is no factor, and 40 products of K itself come within a tenth.
    stated = float(str(refused.value).split("at most ")[1].split(". ")[0])
    assert lowest * (1 + 5e-3) <= stated <= lowest * (0.9 if -lowest > noise else 0.99)


def test_rounding_of_a_singular_kernel_is_not_called_indefinite():
    x = np.random.default_rng(0).normal(size=(40, 2))
    scores = lood_scores(x @ x.T, x[:, 0], noise=0.1)
    assert abs(scores.smallest_eigenvalue) < 1e-9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise": 0}, "noise must be a number > 0; got 0"),
        ({"noise": np.nan}, "noise must be a number > 0; got nan"),
        ({"fpr": 1.0}, "fpr must be a number > 0 and < 1"),
        ({"kernel_matrix": np.ones((3, 4))}, "kernel_matrix must be square"),
        ({"kernel_matrix": np.ones((1, 1)), "targets": [1.0]}, "kernel_matrix must be square with at least 2 rows"),
        ({"kernel_matrix": np.full((4, 4), np.nan)}, "kernel_matrix must be finite; got 16 NaN"),
        ({"kernel_matrix": -np.eye(4)}, "kernel_matrix must be positive semi-definite; got -1 on the diagonal at row 0"),
        ({"targets": [1.0, 2.0]}, "must have one row per record; got lengths kernel_matrix 4, targets 2"),
        ({"targets": [1.0, np.inf, 0.0, 0.0]}, "targets must be finite"),
        ({"targets": np.zeros((4, 1, 1))}, "targets must be 1-dimensional or 2-dimensional"),
        ({"targets": [0, 2, 2, 0]}, "targets must cover every label 0 … C − 1 when integer; got no record with label 1"),
        ({"targets": [0, -1, 0, 1]}, "targets must cover every label 0 … C − 1 when integer; got label -1"),
        ({"max_memory": 100.0}, "4 records must fit in max_memory .* got a need of 1.44e-07 GB"),
    ],
)
def test_bad_input_is_one_sentence(change, message):
    arguments = {"kernel_matrix": np.eye(4), "targets": [0.0, 1.0, 2.0, 3.0], "noise": 0.1} | change
    with pytest.raises(InputError, match=message):
        lood_scores(arguments.pop("kernel_matrix"), arguments.pop("targets"), **arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: likelihood_ratio_auc([-1.0], [0.0]), "separation must be ≥ 0; got -1"),
        (lambda: likelihood_ratio_auc([1.0], [0.0, 1.0]), "must have one shape"),
        (lambda: likelihood_ratio_auc([1.0], [0.0], outputs=0), "outputs must be a whole number ≥ 1"),
        (lambda: likelihood_ratio_tpr([1.0], [np.nan], fpr=0.1), "excess must be finite"),
        (lambda: likelihood_ratio_tpr([1.0], [1.0], fpr=0.0), "fpr must be a number > 0"),
        (lambda: likelihood_ratio_tpr([[1.0, 1.0]], [[1.0, 1.0]], fpr=0.1), "be 1-dimensional"),
    ],
)
def test_the_attack_refuses_bad_numbers(call, message):
    with pytest.raises(InputError, match=message):
        call()

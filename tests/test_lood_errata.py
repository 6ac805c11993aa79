"""What [LOOD] prints and what is right: each erratum of docs/references.md by numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lood_oracles import posterior, rbf
from noshadow._lood import flatness_bound, lood_scores, nngp_kernel
from noshadow.checks import InputError

RNG = np.random.default_rng(3)
X, Y, NOISE = torch.from_numpy(RNG.normal(size=(9, 2))), torch.from_numpy(RNG.normal(size=(9, 1))), 0.2


def moments(query, rows):
    """Posterior mean and variance (scalars) at one query, differentiable, from the textbook formulas."""
    x, y = X[rows], Y[rows]
    solved = torch.linalg.solve(rbf(x, x) + NOISE * torch.eye(len(x), dtype=x.dtype), rbf(x, query[None]))
    return (solved.T @ y)[0, 0], 1 - (rbf(query[None], x) @ solved)[0, 0]


def gradient(function, at):
    at = at.clone().requires_grad_(True)
    return torch.autograd.grad(function(at), at)[0]


def test_theorem_4_1_has_its_gradient_right_in_the_main_text():
    """∇KL = ½[(1 − Σ′/Σ)∇(Σ/Σ′) + ∇‖μ − μ′‖²/Σ′ + ‖μ − μ′‖²∇Σ′⁻¹]; the proof's Σ/Σ′ in the bracket is another vector."""
    query, without, everyone = torch.tensor([0.3, -0.4], dtype=torch.float64), range(8), range(9)

    def variances(at):
        return moments(at, without)[1], moments(at, everyone)[1]

    def squared_gap(at):
        return (moments(at, without)[0] - moments(at, everyone)[0]) ** 2

    def kl(at):
        small, large = variances(at)
        return 0.5 * (torch.log(large / small) - 1 + small / large + squared_gap(at) / large)

    def ratio(at):
        small, large = variances(at)
        return small / large

    small, large = (float(v) for v in variances(query))
    rest = gradient(squared_gap, query) / large + squared_gap(query) * gradient(lambda at: 1 / variances(at)[1], query)
    main_text = 0.5 * ((1 - large / small) * gradient(ratio, query) + rest)
    proof = 0.5 * ((1 - small / large) * gradient(ratio, query) + rest)
    truth = gradient(kl, query)
    # Two ways through autograd in float64.
    torch.testing.assert_close(main_text, truth, rtol=1e-9, atol=1e-12)
    assert (proof - truth).norm() > 0.01 * truth.norm()


def smallest(matrix):
    return float(np.linalg.eigvalsh(matrix)[0])


def test_lemma_g_2_fails_as_printed():
    """A = I/10, B = I/5: the inverses are 5 apart, the printed bound is 10·0.1 = 1, the proof's 100·0.1 = 10."""
    a, b = 0.1 * np.eye(2), 0.2 * np.eye(2)
    apart = np.linalg.norm(np.linalg.inv(a) - np.linalg.inv(b), 2)
    largest = max(1 / smallest(a), 1 / smallest(b))
    assert largest * np.linalg.norm(a - b, 2) < apart <= largest**2 * np.linalg.norm(a - b, 2)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_lemma_g_2_holds_with_the_square_and_with_the_product(seed):
    rng = np.random.default_rng(seed)
    a, b = (m @ m.T + 10.0 ** rng.uniform(-3, 1) * np.eye(4) for m in rng.normal(size=(2, 4, 4)))
    apart, gap = np.linalg.norm(np.linalg.inv(a) - np.linalg.inv(b), 2), np.linalg.norm(a - b, 2)
    assert apart <= gap / (smallest(a) * smallest(b)) * (1 + 1e-8) <= gap * max(1 / smallest(a), 1 / smallest(b)) ** 2 * (1 + 1e-7)


@pytest.mark.parametrize("constant", [0.3, 1.0, 7.0])
def test_the_constant_matrix_with_noise_has_the_noise_as_its_smallest_eigenvalue(constant):
    assert smallest(constant * np.ones((5, 5)) + 0.2 * np.eye(5)) == pytest.approx(0.2, rel=1e-12)


def constant_kernel_distance(constant, noise, y):
    """|μ_D − μ_D′| under K = constant everywhere, the last record left out, by solving."""
    n, at = len(y), np.array([[constant]])
    matrix, row = np.full((n, n), constant), np.full((1, n), constant)
    without, _ = posterior(row[:, :-1], matrix[:-1, :-1], at, y[:-1, None], noise)
    full, _ = posterior(row, matrix, at, y[:, None], noise)
    return abs(float(without[0, 0] - full[0, 0]))


def test_proposition_6_1_without_the_square_fails_for_large_targets():
    """h = 0, α = σ² = 1, n = 1, y = (0, ζ): M = ζ²/18, the printed bound is (1 + 1/α)ζ/n = 2ζ."""
    zeta = 1000.0
    distance = 0.5 * constant_kernel_distance(1.0, 1.0, np.array([0.0, zeta])) ** 2
    assert distance == pytest.approx(zeta**2 / 18) and distance > 2 * zeta


def test_the_last_term_of_proposition_6_1_needs_the_square_of_alpha():
    """α(1/a − 1/b) is α²/(ab): as α grows the distance tends to 2ζ/(n + 1), above the printed (1 + 1/α)ζ/n."""
    n, constant = 10, 1e6
    distance = constant_kernel_distance(constant, 1.0, np.append(-np.ones(n), 1.0))
    assert distance == pytest.approx(2 / (n + 1), rel=1e-5)
    assert (1 + 1 / constant) / n < distance <= 2 / (n + 1) + 1e-12


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), flat=st.floats(0, 1), noise=st.floats(1e-2, 10))
def test_the_corrected_bound_holds_for_every_record_at_every_record(seed, flat, noise):
    """`flatness_bound` against refits: any record left out, any record queried, kernels from steep to nearly constant."""
    rng = np.random.default_rng(seed)
    x, y = torch.from_numpy(rng.normal(size=(7, 2))), rng.normal(size=(7, 2)) * 10.0 ** rng.uniform(-1, 1)
    matrix = 10.0 ** rng.uniform(-2, 2) * (10.0 ** (-6 * flat) * rbf(x, x).numpy() + 1.0)
    bound = flatness_bound(matrix, y, noise=noise)
    for record in range(7):
        kept = np.delete(np.arange(7), record)
        without, _ = posterior(matrix[:, kept], matrix[np.ix_(kept, kept)], matrix, y[kept], noise)
        full, _ = posterior(matrix, matrix, matrix, y, noise)
        # Rounding of the refits: targets of 10 and a condition up to 1e5 leave ten digits.
        assert (0.5 * ((without - full) ** 2).sum(1) <= bound * (1 + 1e-6) + 1e-12).all()
    assert lood_scores(matrix, y, noise=noise).mean_distance.max() <= bound * (1 + 1e-6) + 1e-12


def test_the_bound_says_something_only_of_nearly_constant_kernels():
    y = np.where(np.arange(20) % 2, 1.0, -1.0)
    steep, flat = (np.ones((20, 20)) + size * np.eye(20) for size in (1.0, 1e-9))
    assert flatness_bound(steep, y, noise=0.1) > 1e4
    assert flatness_bound(flat, y, noise=0.1) == pytest.approx(0.5 * (2 / 20) ** 2, rel=1e-3)
    assert flatness_bound([[1.0, -3.0], [-3.0, 10.0]], [0.0, 1.0], noise=1.0) > 0
    assert flatness_bound([[1.0, -3.0], [-3.0, 1.0]], [0.0, 1.0], noise=1.0) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [({"kernel_matrix": np.ones((2, 3))}, "kernel_matrix must be square"), ({"noise": 0.0}, "noise must"), ({"targets": [1.0]}, "length")],
)
def test_a_bound_of_bad_input_is_refused(change, words):
    arguments = {"kernel_matrix": np.eye(3) + 1, "targets": [0.0, 1.0, 2.0], "noise": 1.0} | change
    with pytest.raises(InputError, match=words):
        flatness_bound(arguments.pop("kernel_matrix"), arguments.pop("targets"), **arguments)


def test_elu_switches_at_zero():
    """Footnote 12 switches at 1, where e − 1 = 1.72 would fall to 1: our kernel is that of the continuous one."""
    z = np.linspace(-12, 12, 400_001)
    law = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)

    def moment(switch):
        return float(np.trapezoid(np.where(z >= switch, z, np.expm1(np.minimum(z, switch))) ** 2 * law, z))

    found = float(nngp_kernel([[1.0]], depth=1, activation="elu", weight_variance=1.0))
    # The trapezoid rule at 6e-5 steps, and 1e-9 of the kernel's own integral.
    assert found == pytest.approx(moment(0.0), abs=1e-8)
    assert abs(found - moment(1.0)) > 0.1

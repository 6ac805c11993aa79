"""EK-FAC columns against dense curvatures, refined records against the exact columns."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import spearmanr
from torch.utils._python_dispatch import TorchDispatchMode

import noshadow as ns
import oracles
from noshadow.scores.last_layer import refinement
from noshadow.scores.last_layer.curvature import SoftmaxProblem
from noshadow.scores.last_layer.design import whitened_design
from noshadow.scores.last_layer.ekfac import (
    ekfac_columns,
    ekfac_curvature,
    ekfac_margin_leverages,
    left_out_variances,
    margin_class_sums,
    margin_shares,
    softmax_class_sums,
    softmax_shares,
)
from noshadow.scores.last_layer.own_curvature import _diagonal_sums
from noshadow.scores.last_layer.refinement_products import class_blocks, class_blocks_solution

COLUMNS = ("leverage", "influence", "newton", "loo", "shift")
REFINED = ("influence", "newton", "loo", "shift")


def head(n, d, m, *, seed, scale=2.0):
    """Features with clustered classes, logits of a random head that knows the clusters, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(m, d))
    labels = rng.integers(0, m, n)
    labels[:m] = np.arange(m)
    features = centres[labels] + rng.normal(size=(n, d))
    logits = scale * (features @ centres.T / np.sqrt(d) + 0.3 * rng.normal(size=m))
    labels[m:] = np.where(rng.random(n - m) < 0.1, rng.integers(0, m, n - m), labels[m:])
    return features, logits, labels


def problem_of(features, logits, targets, damping, *, weight=None, fit_intercept=True, penalize_intercept=True):
    design = whitened_design(features, fit_intercept=fit_intercept, penalize_intercept=penalize_intercept)
    return SoftmaxProblem(design, logits, targets, weight, damping)


def factors(problem, dtype=torch.float64):
    return ekfac_curvature(problem, softmax_class_sums, softmax_shares, dtype=dtype, progress=False)


def dense_pieces(curvature, problem):
    """z rows (n, r), class basis (m, m−1), Λ (r, m−1) and λD, as arrays."""
    z = curvature.rows(problem.design, 0, len(problem.design)).numpy()
    return z, curvature.classes.numpy(), curvature.eigenvalues.numpy(), curvature.penalty.numpy()


def in_product_basis(basis, values):
    """Σ_ab values_ab u_bu_bᵀ ⊗ e_ae_aᵀ, class-major."""
    return sum(np.kron(np.outer(basis[:, b], basis[:, b]), np.diag(values[:, b])) for b in range(basis.shape[1]))


def test_coordinates_carry_curvature_and_penalty_exactly():
    for penalize_intercept in (True, False):
        features, logits, labels = head(40, 4, 3, seed=1)
        problem = problem_of(features, logits, labels, 0.7, penalize_intercept=penalize_intercept)
        curvature = factors(problem)
        z, basis, _, penalty = dense_pieces(curvature, problem)
        np.testing.assert_allclose(z.T @ z, 40 * np.eye(5), atol=1e-9)
        np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)
        np.testing.assert_allclose(basis.sum(0), 0, atol=1e-12)
        # the curvature in these coordinates gives the columns of the one in the head's own
        own = sum(np.kron(np.diag(p) - np.outer(p, p), np.outer(a, a)) for p, a in zip(softmax(logits, axis=1), z, strict=True))
        expected = oracles.softmax_columns(z, logits, labels, own + np.kron(np.eye(3), np.diag(penalty)))
        exact = ns.record_scores(features, logits, labels, damping=0.7, penalize_intercept=penalize_intercept)
        np.testing.assert_allclose(exact.newton, expected["newton"], rtol=1e-7)


@pytest.mark.parametrize("m", [2, 4])
def test_the_factors_are_the_curvature_when_all_records_predict_alike(m):
    """Σ W ⊗ g̃g̃ᵀ is then a Kronecker product: EK-FAC is the curvature, and conjugate gradients need one step."""
    rng = np.random.default_rng(2)
    features, labels = rng.normal(size=(30, 5)), np.arange(30) % m
    logits = np.tile(rng.normal(size=m), (30, 1))
    problem = problem_of(features, logits, labels, 0.4)
    curvature = factors(problem)
    z, basis, eigenvalues, penalty = dense_pieces(curvature, problem)
    p = softmax(logits[0])
    dense = np.kron(np.diag(p) - np.outer(p, p), z.T @ z) + np.kron(basis @ basis.T, np.diag(penalty))
    np.testing.assert_allclose(in_product_basis(basis, eigenvalues), dense, atol=1e-10)
    found = refinement.refined(problem, curvature, np.array([3, 4]), ["influence"], dtype=torch.float64, max_memory=100.0, progress=False)
    assert found.iterations.tolist() == [1, 1]  # nothing but EK-FAC before it: blocks of the classes have no room
    exact = ns.record_scores(features, logits, labels, damping=0.4)
    np.testing.assert_allclose(found.columns["influence"], exact.influence[[3, 4]], rtol=1e-10)


@pytest.mark.parametrize("options", [{}, {"weighted": True}, {"soft": True}, {"penalize_intercept": False}, {"m": 2}, {"d": 40}])
def test_columns_are_those_of_everybody_else_by_ekfac_and_oneself_exactly(options):
    m, d = options.get("m", 5), options.get("d", 4)  # 40 features, 30 records: more parameters than records
    features, logits, labels = head(30, d, m, seed=3)
    weight = np.random.default_rng(4).uniform(0.2, 3, 30) if options.get("weighted") else None
    targets = 0.9 * np.eye(m)[labels] + 0.1 / m if options.get("soft") else labels
    problem = problem_of(features, logits, targets, 0.5, weight=weight, penalize_intercept=options.get("penalize_intercept", True))
    curvature = factors(problem)
    z, basis, eigenvalues, _ = dense_pieces(curvature, problem)
    columns = ekfac_columns(problem, curvature, dtype=torch.float64, block_size=7, progress=False)
    shares = softmax_shares(problem, 0, 30, curvature.classes).numpy()
    for i in range(30):
        p, s = softmax(logits[i]), 1.0 if weight is None else weight[i]
        others = in_product_basis(basis, eigenvalues - np.outer(z[i] ** 2, shares[i]))
        own = s * np.kron(np.diag(p) - np.outer(p, p), np.outer(z[i], z[i]))
        keep = np.eye(30)[i] > 0
        expected = oracles.softmax_columns(z[keep], logits[keep], targets[keep], others + own, None if weight is None else weight[keep])
        for name in COLUMNS:
            # the dense side goes through a pseudo-inverse of condition up to 1e5; the series stops at 1e-9
            np.testing.assert_allclose(columns[name][i], expected[name][0], rtol=1e-6, atol=1e-14, err_msg=f"{name} of {i}")


def test_margin_leverages_are_those_of_everybody_else_by_ekfac_and_oneself_exactly():
    features, logits, labels = head(25, 3, 4, seed=5)
    problem = problem_of(features, logits, labels, 0.3)
    curvature = ekfac_curvature(problem, margin_class_sums, margin_shares, dtype=torch.float64, progress=False)
    z, basis, eigenvalues, _ = dense_pieces(curvature, problem)
    shares = margin_shares(problem, 0, 25, curvature.classes).numpy()
    leverage = ekfac_margin_leverages(problem, dtype=torch.float64, block_size=4, progress=False)
    for i in range(25):
        others = logits[i].copy()
        others[labels[i]] = -np.inf
        slope = -softmax(others)
        slope[labels[i]] = 1.0
        phi = oracles.margin(logits[i], labels[i])
        x, w = np.kron(slope, z[i]), 1 / (np.exp(phi / 2) + np.exp(-phi / 2)) ** 2
        dense = in_product_basis(basis, eigenvalues - np.outer(z[i] ** 2, shares[i])) + w * np.outer(x, x)
        assert leverage[i] == pytest.approx(w * x @ np.linalg.pinv(dense, hermitian=True) @ x, rel=1e-7)


def test_ekfac_is_exact_where_everybody_elses_curvature_is_diagonal():
    """Two classes and features of which every record has one: nothing is left off the diagonal."""
    rng = np.random.default_rng(6)
    features = np.eye(4)[rng.integers(0, 4, 40)] * rng.uniform(0.5, 2, 40)[:, None]
    logits = rng.normal(size=(40, 2))
    labels = np.arange(40) % 2
    options = {"damping": 0.3, "fit_intercept": False}
    exact = ns.record_scores(features, logits, labels, method="exact", **options)
    ekfac = ns.record_scores(features, logits, labels, method="ekfac", refine=0, **options)
    for name in (*COLUMNS, "margin_leverage"):
        np.testing.assert_allclose(getattr(ekfac, name), getattr(exact, name), rtol=1e-8, err_msg=name)
    assert not ekfac.exact.any()
    assert ekfac.effective_dof == pytest.approx(exact.effective_dof, rel=1e-8)


def test_with_many_classes_leverage_and_influence_stay_within_three_hundredths_of_the_dense_solve():
    features, logits, labels = head(60, 5, 16, seed=7, scale=1.0)  # flat predictions: the eight leading classes hold about half
    problem = problem_of(features, logits, labels, 0.5)
    curvature = factors(problem)
    z, basis, eigenvalues, _ = dense_pieces(curvature, problem)
    shares = softmax_shares(problem, 0, 60, curvature.classes).numpy()
    columns = ekfac_columns(problem, curvature, dtype=torch.float64, block_size=None, progress=False)
    for i in range(60):
        p = softmax(logits[i])
        dense = in_product_basis(basis, eigenvalues - np.outer(z[i] ** 2, shares[i]))
        dense += np.kron(np.diag(p) - np.outer(p, p), np.outer(z[i], z[i]))
        expected = oracles.softmax_columns(z[i : i + 1], logits[i : i + 1], labels[i : i + 1], dense)
        for name, tolerance in (("leverage", 0.03), ("influence", 0.03), ("newton", 1e-6), ("shift", 1e-6)):
            np.testing.assert_allclose(columns[name][i], expected[name][0], rtol=tolerance, err_msg=name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sums_over_classes_in_closed_form_equal_the_dense_ones(dtype):
    rng = np.random.default_rng(26)
    for spare in (1e-7, 0.3, 0.9):  # what the top class leaves to the others
        p = np.concatenate([[1 - spare], spare * rng.dirichlet(np.ones(6))])
        h, move, s = np.diag(rng.uniform(0.1, 50, 7)), rng.normal(size=7), 1.7
        w = s * (np.diag(p) - np.outer(p, p))
        inverse = np.linalg.inv(np.eye(7) + w @ h)
        leverage, reduction = _diagonal_sums(
            *(torch.tensor(value, dtype=dtype)[None] for value in (p[1:], h.diagonal()[1:], h[:1, 0], move[1:] - move[0], [s]))
        )
        tolerance = 1e-8 if dtype == torch.float64 else 1e-5  # the dense side loses eps/spare to its own cancellation
        assert float(leverage[0]) == pytest.approx(np.trace(w @ h @ inverse), rel=tolerance)
        assert float(reduction[0]) == pytest.approx(move @ inverse @ w @ move, rel=tolerance)


@pytest.mark.parametrize("own", [1e-6, 0.3, 0.9999])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_left_out_variances_by_series_and_by_division(own, dtype):
    rng = np.random.default_rng(8)
    features, logits, labels = head(20, 3, 3, seed=8)
    curvature = factors(problem_of(features, logits, labels, 0.1))
    squares = torch.from_numpy(rng.uniform(0.1, 2, (5, 4))).to(dtype)
    limit = (curvature.eigenvalues / squares[:, :, None].double()).amin(1)  # (5, m−1): the largest share there can be
    shares = (own * limit).to(dtype)
    rest = (curvature.eigenvalues - squares[:, :, None].double() * shares[:, None].double()).clamp(min=curvature.penalty[:, None])
    expected = (squares[:, :, None].double() / rest).sum(1)
    # float32: the series stops at 1e-4; where a share is 0.9999 the difference has four digits less
    tolerance = 1e-8 if dtype == torch.float64 else 2e-4 if own < 0.9 else 1e-2
    torch.testing.assert_close(left_out_variances(curvature, squares, shares).double(), expected, rtol=tolerance, atol=0)


def test_shares_of_confident_records_keep_their_digits_in_float32():
    _, logits, labels = head(50, 4, 6, seed=9)
    problem = problem_of(np.random.default_rng(9).normal(size=(50, 2)), 12 * logits, labels, 1.0)
    basis = factors(problem).classes
    precise, rounded = softmax_shares(problem, 0, 50, basis), softmax_shares(problem, 0, 50, basis.float())
    spare = np.sort(softmax(12 * logits, axis=1), axis=1)[:, :-1].sum(1)
    assert spare.min() < 1e-9  # where p(1 − p) would have no digit left in float32
    size = torch.from_numpy(np.maximum(spare, 1e-35))[:, None]  # float32 ends there
    assert float(((rounded.double() - precise).abs() / size).max()) < 1e-5


@pytest.mark.parametrize(
    "options", [{}, {"weighted": True}, {"soft": True}, {"penalize_intercept": False}, {"m": 2}, {"d": 40}, {"damping": 1e-4}]
)
@pytest.mark.parametrize("inner", [False, True])
def test_refined_records_equal_the_exact_columns(options, inner, monkeypatch):
    if inner:
        monkeypatch.setattr(refinement, "INNER_FROM_FLOPS", 0)
        monkeypatch.setattr(refinement, "LEAST_PROBABILITY", 0.05)
        monkeypatch.setattr(refinement, "LARGEST_SHARE", 1.0)
    m, n = options.get("m", 5), 40
    features, logits, labels = head(n, options.get("d", 6), m, seed=10)
    targets = 0.9 * np.eye(m)[labels] + 0.1 / m if options.get("soft") else labels
    arguments = {
        "task": "classification",
        "damping": options.get("damping", 0.5),
        "sample_weight": np.random.default_rng(11).uniform(0.2, 3, n) if options.get("weighted") else None,
        "penalize_intercept": options.get("penalize_intercept", True),
    }
    exact = ns.record_scores(features, logits, targets, method="exact", **arguments)
    plain = ns.record_scores(features, logits, targets, method="ekfac", refine=0, **arguments)
    scores = ns.record_scores(features, logits, targets, method="ekfac", refine=7, **arguments)
    assert scores.method == "ekfac" and exact.method == "exact" and exact.exact is None
    assert scores.exact.sum() == 7
    assert set(np.argsort(-plain.shift)[:7]) == set(np.flatnonzero(scores.exact))
    for name in REFINED:
        value, truth, approximated = getattr(scores, name), getattr(exact, name), getattr(plain, name)
        np.testing.assert_allclose(value[scores.exact], truth[scores.exact], rtol=1e-6, err_msg=name)
        np.testing.assert_array_equal(value[~scores.exact], approximated[~scores.exact])
        measured = np.median(np.abs(approximated[scores.exact] / truth[scores.exact] - 1))
        assert scores.errors[name] == pytest.approx(measured, rel=1e-4, abs=1e-6)
    np.testing.assert_array_equal(scores.leverage, plain.leverage)
    assert any("of the 7 records with the largest EK-FAC shift are exact" in note for note in scores.notes)


def test_ranking_agrees_with_the_exact_one_where_a_class_has_fewer_records_than_features():
    features, logits, labels = head(240, 20, 16, seed=12, scale=3.0)  # 15 records a class, 21 dimensions
    exact = ns.record_scores(features, logits, labels, damping=1.0)
    ekfac = ns.record_scores(features, logits, labels, damping=1.0, method="ekfac", refine=0)
    for name in (*COLUMNS, "margin_leverage"):
        # measured 0.98 to 0.999; leaving W_i exactly out of an approximation of everybody has 0.9 and infinities
        assert spearmanr(getattr(exact, name), getattr(ekfac, name))[0] > 0.97, name


def test_ranges():
    for seed, damping in ((13, 1e-6), (14, 10.0)):
        features, logits, labels = head(50, 12, 5, seed=seed, scale=4.0)
        scores = ns.record_scores(features, logits, labels, damping=damping, method="ekfac", refine=0)
        assert (scores.leverage >= 0).all() and (scores.leverage <= 4).all()
        assert (scores.margin_leverage >= 0).all() and (scores.margin_leverage <= 1).all()
        assert (scores.influence >= 0).all() and (scores.influence <= scores.newton * (1 + 1e-9)).all()
        assert all(np.isfinite(column).all() for column in scores.columns().values())


def test_mixed_precision_equals_float64_and_says_so():
    features, logits, labels = head(300, 12, 14, seed=15)
    precise = ns.record_scores(features, logits, labels, damping=1.0, method="ekfac", refine=5)
    mixed = ns.record_scores(features, logits, labels, damping=1.0, method="ekfac", refine=5, precision="mixed")
    assert precise.precision == "float64" and precise.precision_error is None
    assert mixed.precision == "mixed" and mixed.precision_error < 1e-4
    np.testing.assert_array_equal(mixed.exact, precise.exact)
    for name in (*COLUMNS, "margin_leverage"):
        np.testing.assert_allclose(getattr(mixed, name), getattr(precise, name), rtol=5e-4, err_msg=name)


def test_automatic_precision_is_redone_in_float64_when_float32_cannot_hold(monkeypatch):
    monkeypatch.setattr("noshadow.scores.last_layer.softmax_solver.MIXED_FROM_FLOPS", 0)
    monkeypatch.setattr("noshadow.scores.last_layer.softmax_solver.ROUNDING_TOLERANCE", 0.0)
    features, logits, labels = head(60, 4, 4, seed=16)
    scores = ns.record_scores(features, logits, labels, damping=1.0, method="ekfac", refine=0)
    assert scores.precision == "float64"
    assert any("redone in float64" in note for note in scores.notes)


def test_a_record_that_alone_holds_a_free_intercept_is_infinite():
    features, logits, labels = head(12, 2, 2, seed=17)
    logits = np.where(labels[:, None] == np.arange(2), 800.0, -800.0)  # no curvature but the first record's
    logits[0] = (0.3, -0.2)
    options = {"damping": 0.5, "penalize_intercept": False, "columns": COLUMNS}
    exact = ns.record_scores(features, logits, labels, method="exact", **options)
    ekfac = ns.record_scores(features, logits, labels, method="ekfac", refine=0, **options)
    for name in ("newton", "loo", "shift"):
        assert np.isinf(getattr(exact, name)).nonzero()[0].tolist() == [0]
        assert np.isinf(getattr(ekfac, name)).nonzero()[0].tolist() == [0]
    assert any("1 interpolated records" in note for note in ekfac.notes)
    assert ekfac.leverage[0] == pytest.approx(1.0, abs=1e-5)
    assert not any(np.isnan(column).any() for column in ekfac.columns().values())


def test_automatic_method_takes_ekfac_with_a_note_only_when_the_exact_curvature_does_not_fit():
    features, logits, labels = head(40, 8, 6, seed=18)
    assert ns.record_scores(features, logits, labels, damping=1.0).method == "exact"
    small = ns.record_scores(features, logits, labels, damping=1.0, max_memory=3e4, refine=3)
    named = ns.record_scores(features, logits, labels, damping=1.0, method="ekfac", refine=3)
    assert small.method == "ekfac"
    assert any("the exact curvature needs 0.0 GB, more than max_memory" in note for note in small.notes)
    assert any(note == "columns are approximated by EK-FAC" for note in named.notes)
    np.testing.assert_allclose(small.shift, named.shift, rtol=1e-7)  # one right-hand side at a time instead of six


def test_unconverged_records_stay_approximated_and_are_counted(monkeypatch):
    monkeypatch.setattr(refinement, "MAX_ITERATIONS", 2)
    features, logits, labels = head(40, 6, 5, seed=19)
    plain = ns.record_scores(features, logits, labels, damping=0.1, method="ekfac", refine=0)
    scores = ns.record_scores(features, logits, labels, damping=0.1, method="ekfac", refine=4)
    assert not scores.exact.any() and scores.errors == {}
    np.testing.assert_array_equal(scores.shift, plain.shift)
    assert any("4 of 4 refined records did not converge (largest relative residual" in note for note in scores.notes)


def test_an_inner_iteration_that_cannot_start_does_no_harm(monkeypatch):
    features, logits, labels = head(40, 6, 5, seed=27)
    exact = ns.record_scores(features, logits, labels, damping=0.5)
    monkeypatch.setattr(refinement, "INNER_FROM_FLOPS", 0)
    monkeypatch.setattr(refinement, "LARGEST_SHARE", 1.0)
    monkeypatch.setattr(refinement, "likely_product", lambda *_: lambda heads: -heads)  # negative curvature at once
    scores = ns.record_scores(features, logits, labels, damping=0.5, method="ekfac", refine=3)
    assert scores.exact.sum() == 3
    np.testing.assert_allclose(scores.shift[scores.exact], exact.shift[scores.exact], rtol=1e-6)


def test_only_the_systems_behind_wanted_columns_are_solved():
    features, logits, labels = head(40, 6, 5, seed=20)
    none = ns.record_scores(features, logits, labels, damping=1.0, method="ekfac", columns=["leverage", "margin_leverage"])
    assert not none.exact.any() and none.errors == {} and none.influence is None
    one = ns.record_scores(features, logits, labels, damping=1.0, method="ekfac", columns=["influence"], refine=2)
    assert one.exact.sum() == 2 and set(one.errors) == {"influence"}
    everyone = ns.record_scores(features, logits, labels, damping=1.0, method="ekfac", columns=["shift"], refine=1000)
    assert everyone.exact.all() and set(everyone.errors) == {"shift"}


class LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation made."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.size = max(self.size, tensor.numel())
        return result


def test_memory_does_not_grow_with_the_records(monkeypatch):
    sizes = []
    monkeypatch.setattr("noshadow.scores.last_layer.refinement_products._BATCH_NUMBERS", 1 << 12)
    monkeypatch.setattr("noshadow.scores.last_layer.ekfac.block_length", lambda *_: 64)
    for n in (130, 300):
        problem = problem_of(*head(n, 7, 12, seed=21), 1.0)
        with LargestTensor() as watched:
            curvature = factors(problem)
            ekfac_columns(problem, curvature, dtype=torch.float64, block_size=64, progress=False)
            ekfac_margin_leverages(problem, dtype=torch.float64, block_size=64, progress=False)
            refinement.refined(problem, curvature, np.arange(3), ["shift"], dtype=torch.float64, max_memory=1e6, progress=False)
        sizes.append(watched.size)
    assert sizes[0] == sizes[1]  # a block of (records, leading classes, classes), not n × m × d
    assert sizes[0] <= 64 * 9 * 12


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("penalize_intercept", [True, False])
def test_blocks_of_the_classes_are_the_curvature_of_each_class_alone(weighted, penalize_intercept):
    features, logits, labels = head(60, 5, 4, seed=28)
    weight = np.random.default_rng(28).uniform(0.2, 3, 60) if weighted else None
    problem = problem_of(features, logits, labels, 0.5, weight=weight, penalize_intercept=penalize_intercept)
    curvature = factors(problem)
    z, basis, eigenvalues, penalty = dense_pieces(curvature, problem)
    p = softmax(logits, axis=1)
    shares = p * (1 - p) * (1.0 if weight is None else weight[:, None])
    wanted = np.array([(z * shares[:, [c]]).T @ z + np.diag(penalty) for c in range(4)])
    found = class_blocks(problem, curvature, 0.0).double()
    # float32 sums and a part in 10⁶ added to the diagonal, seen through condition numbers of about ten
    np.testing.assert_allclose(np.linalg.inv((found.mT @ found).numpy()), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    right = torch.from_numpy(np.random.default_rng(29).normal(size=(3, 3, 6)))
    right[1] = 0.0
    solution = class_blocks_solution(curvature, found.float())(right)
    scale = eigenvalues.T**-0.5
    alone = np.einsum("cij,kcj->kci", np.linalg.inv(wanted), basis @ (right.numpy() / scale))
    np.testing.assert_allclose(solution.numpy(), (basis.T @ alone) / scale, atol=1e-4 * float(solution.abs().max()))
    assert not solution[1].any()


def test_records_that_a_class_hardly_sees_count_in_their_sum():
    features, logits, labels = head(400, 3, 3, seed=30)
    problem = problem_of(features, 0 * logits, labels, 0.5)  # all alike: spread over all directions alike, exactly
    curvature = factors(problem)
    torch.testing.assert_close(class_blocks(problem, curvature, 0.0), class_blocks(problem, curvature, 1.0), rtol=1e-4, atol=1e-6)


def test_blocks_of_the_classes_save_products_and_change_no_number():
    features, logits, labels = head(400, 12, 16, seed=31, scale=4.0)
    problem = problem_of(features, logits, labels, 0.1)
    curvature = factors(problem)
    options = {"dtype": torch.float64, "progress": False}
    plain, helped = (refinement.refined(problem, curvature, np.arange(2), REFINED, max_memory=room, **options) for room in (1e3, 1e9))
    assert helped.iterations.sum() < 0.6 * plain.iterations.sum()
    for name in REFINED:
        np.testing.assert_allclose(helped.columns[name], plain.columns[name], rtol=1e-6, err_msg=name)


def test_blocks_that_rounding_made_indefinite_change_no_number(monkeypatch):
    features, logits, labels = head(40, 6, 5, seed=32)
    exact = ns.record_scores(features, logits, labels, damping=0.5)
    monkeypatch.setattr("noshadow.scores.last_layer.refinement_products._JITTER", -1.0)
    scores = ns.record_scores(features, logits, labels, damping=0.5, method="ekfac", refine=3)
    assert scores.exact.sum() == 3
    np.testing.assert_allclose(scores.shift[scores.exact], exact.shift[scores.exact], rtol=1e-6)


def test_as_many_systems_at_once_as_fit():
    problem = problem_of(*head(30, 7, 5, seed=22), 1.0)
    assert refinement.systems_at_once(problem, 8e9) > 1000
    assert refinement.systems_at_once(problem, 2 * 3 * 14 * 8 * 5 * 8) == 3
    assert refinement.systems_at_once(problem, 1.0) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "kfac"}, r"record_scores: method must be one of 'auto', 'exact', 'ekfac'; got 'kfac'"),
        ({"refine": -1}, r"record_scores: refine must be a whole number ≥ 0; got -1"),
        ({"refine": 1.5}, r"record_scores: refine must be a whole number ≥ 0; got 1\.5"),
        ({"method": "ekfac", "damping": 0.0}, r"record_scores: damping must be > 0 for EK-FAC; got 0\. Pass the training's own"),
        (
            {"method": "exact", "max_memory": 1000},
            r"\(classes − 1\) × features must be small enough for an exact.*Raise max_memory, or pass method='ekfac'",
        ),
        ({"method": "ekfac", "max_memory": 1000}, r"\(classes − 1\) × features must be small enough for EK-FAC within.*Raise max_memory"),
        ({"method": "auto", "max_memory": 1000}, r"\(classes − 1\) × features must be small enough for EK-FAC within.*Raise max_memory"),
    ],
)
def test_errors(options, message):
    features, logits, labels = head(30, 3, 3, seed=23)
    with pytest.raises(ns.InputError, match=message):
        ns.record_scores(features, logits, labels, **({"damping": 1.0} | options))


@pytest.mark.parametrize("task", ["regression", "binary"])
def test_one_number_tasks_have_no_ekfac(task):
    rng = np.random.default_rng(24)
    targets = rng.normal(size=20) if task == "regression" else np.arange(20) % 2
    with pytest.raises(
        ns.InputError, match=rf"method must be 'exact' or 'auto' in a {task} task; got 'ekfac'\. The exact curvature has only d²"
    ):
        ns.record_scores(rng.normal(size=(20, 2)), rng.normal(size=20), targets, task=task, method="ekfac")


def test_a_direction_that_nothing_holds_is_an_error():
    features, logits, labels = head(20, 2, 3, seed=25)
    logits[:, 2] = -1e4  # nobody predicts the class, and its intercept is free
    labels[labels == 2] = 0
    with pytest.raises(ns.NumericalError, match=r"record_scores: the EK-FAC curvature is zero in \d+ directions.*penalize_intercept=True"):
        ns.record_scores(features, logits, labels, damping=1.0, method="ekfac", penalize_intercept=False)

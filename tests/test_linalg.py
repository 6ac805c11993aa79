import numpy as np
import pytest
import torch

from noshadow.checks import NumericalError
from noshadow.linalg import (
    batched_cg,
    batched_spd_solve,
    cholesky_condition,
    cholesky_in_place,
    cholesky_inverse,
    one_norm,
    pair_form_values,
    pair_forms,
    pair_gram,
    pair_products,
    spd_inverse,
    vech_offsets,
)


def random_spd(size, condition, rng):
    basis, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return (basis * np.geomspace(1, condition, size)) @ basis.T


@pytest.mark.parametrize("size", [1, 2, 7, 600])  # 600 crosses the mirroring block
def test_spd_inverse_is_the_inverse(size):
    matrix = random_spd(size, 1e4, np.random.default_rng(size))
    before = matrix.copy()
    result = spd_inverse(matrix)
    # backward error of Cholesky: eps × condition
    np.testing.assert_allclose(result.matrix @ matrix, np.eye(size), atol=1e-10)
    np.testing.assert_array_equal(result.matrix, result.matrix.T)
    np.testing.assert_array_equal(matrix, before)
    assert result.jitter == 0.0
    np.testing.assert_array_equal(spd_inverse(matrix.copy(), overwrite=True).matrix, result.matrix)


def test_condition_is_that_of_the_scaled_matrix():
    matrix = np.diag([1.0, 1e12])
    assert spd_inverse(matrix).condition == pytest.approx(1.0)
    correlated = np.array([[1.0, 0.999], [0.999, 1.0]])
    assert spd_inverse(correlated).condition == pytest.approx(np.linalg.cond(correlated, 1), rel=1e-9)


def test_jitter_is_reported():
    vector = np.array([1.0, 2.0, 3.0])
    result = spd_inverse(np.outer(vector, vector))
    assert result.jitter > 0
    assert np.isfinite(result.matrix).all()


def test_indefinite_matrices_fail_with_a_sentence():
    with pytest.raises(NumericalError, match=r"^the curvature is not positive definite even with jitter 1e-08\. Raise the dam"):
        spd_inverse(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(NumericalError, match=r"^the curvature has 1 non-positive or infinite diagonal entries"):
        spd_inverse(np.diag([1.0, 0.0]))


@pytest.mark.parametrize("size", [1, 7, 600])  # 600 crosses the strips of the norm and the mirroring block
def test_a_factor_in_place_gives_inverse_and_condition(size):
    matrix = random_spd(size, 1e4, np.random.default_rng(size))
    norm, truth = one_norm(matrix), np.linalg.cond(matrix, 1)
    assert norm == pytest.approx(np.linalg.norm(matrix, 1), rel=1e-13)
    work = (matrix + matrix.T) / 2
    factor, pivot = cholesky_in_place(work)
    assert pivot == 0 and np.shares_memory(factor, work)
    np.testing.assert_allclose(np.tril(factor) @ np.tril(factor).T, matrix, rtol=0, atol=1e-11 * norm)
    assert truth / 3 <= cholesky_condition(factor, norm) <= truth * (1 + 1e-9)  # LAPACK estimates from below
    inverse = cholesky_inverse(factor)
    # backward error of Cholesky: eps × condition
    np.testing.assert_allclose(inverse @ matrix, np.eye(size), atol=1e-10)
    np.testing.assert_array_equal(inverse, inverse.T)


def test_a_factor_names_the_row_at_which_it_fails():
    assert cholesky_in_place(np.diag([1.0, 2.0, -1.0, 3.0]))[1] == 3


def test_pair_products_follow_vech_order():
    rows = torch.tensor([[1.0], [2.0], [3.0]])
    assert pair_products(rows)[:, 0].tolist() == [1, 2, 3, 4, 6, 9]
    assert pair_products(rows, strict=True)[:, 0].tolist() == [2, 3, 6]
    assert vech_offsets(3) == [0, 3, 5, 6]


# k ≥ d multiplies the features out, k < d the weights; 600 rows, and 40 with 25 weights each, need two panels
@pytest.mark.parametrize(("k", "d"), [(6, 4), (4, 4), (3, 8), (1, 1), (1, 600), (25, 40)])
def test_pair_gram_and_forms_equal_their_definitions(k, d):
    generator = torch.Generator().manual_seed(k * 100 + d)
    weights = torch.rand((k, 13), generator=generator, dtype=torch.float64)
    rows = torch.randn((d, 13), generator=generator, dtype=torch.float64)
    i, j = torch.triu_indices(d, d)
    total = pair_gram(((weights[:, part], rows[:, part]) for part in (slice(0, 9), slice(9, 13))), k, d)
    torch.testing.assert_close(total, torch.einsum("kb,ib,jb->kij", weights, rows, rows)[:, i, j], rtol=1e-12, atol=1e-12)

    coefficients = torch.randn((k, len(i)), generator=generator, dtype=torch.float64)
    values = pair_form_values(pair_forms(coefficients, d), rows)
    torch.testing.assert_close(values, coefficients @ (rows[i] * rows[j]), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("batch", [3, 800])  # 800 × 30³ multiplications are shared out over threads
def test_batched_solves_equal_single_ones_and_flag_the_indefinite(batch):
    generator = torch.Generator().manual_seed(batch)
    root = torch.randn((batch, 30, 30), generator=generator, dtype=torch.float64)
    matrices = root @ root.mT + torch.eye(30, dtype=torch.float64)
    matrices[1] -= 10 * torch.eye(30, dtype=torch.float64)
    right = torch.randn((batch, 30), generator=generator, dtype=torch.float64)
    solutions, pivots = batched_spd_solve(matrices, right)
    for i in {0, 2, batch - 1}:
        torch.testing.assert_close(solutions[i], torch.linalg.solve(matrices[i], right[i]), rtol=1e-9, atol=1e-10)
        assert pivots[i] == pytest.approx(float(torch.linalg.cholesky(matrices[i]).diagonal().min()) ** 2)
    assert pivots[1] == 0


def spd_columns(count, size, seed, condition=1e3):
    """One symmetric positive definite matrix a column, and right-hand sides."""
    rng = np.random.default_rng(seed)
    matrices = torch.from_numpy(np.stack([random_spd(size, condition, rng) for _ in range(count)]))
    return matrices, torch.from_numpy(rng.normal(size=(count, size)))


def apply(matrices, columns):
    return (matrices @ columns[:, :, None])[:, :, 0]


@pytest.mark.parametrize("preconditioned", [False, True])
def test_conjugate_gradients_solve_every_column_with_its_own_matrix(preconditioned):
    matrices, right = spd_columns(5, 20, seed=1)
    before = right.clone()
    diagonal = matrices.diagonal(dim1=1, dim2=2)
    found = batched_cg(
        lambda x: apply(matrices, x),
        right,
        tolerance=1e-10,
        max_iterations=200,
        preconditioner=(lambda x: x / diagonal) if preconditioned else None,
    )
    # residual 1e-10 and condition 1e3
    torch.testing.assert_close(found.solution, torch.linalg.solve(matrices, right), rtol=0, atol=1e-6)
    true_residual = (right - apply(matrices, found.solution)).norm(dim=1) / right.norm(dim=1)
    torch.testing.assert_close(found.residual, true_residual, rtol=1e-6, atol=1e-16)
    assert found.converged.all() and not found.negative_curvature.any()
    # Rayleigh quotients lie between the extreme eigenvalues, 1 and 1e3
    assert (found.least_curvature >= 1 - 1e-9).all() and (found.least_curvature < 1e3).all()
    torch.testing.assert_close(right, before)


def test_conjugate_gradients_take_unknowns_of_any_shape_and_end_in_as_many_steps_as_there_are_eigenvalues():
    matrix = torch.diag(torch.tensor([1.0, 1.0, 4.0, 4.0, 9.0, 9.0], dtype=torch.float64))
    right = torch.arange(1.0, 13.0, dtype=torch.float64).view(2, 2, 3)
    found = batched_cg(lambda x: (x.flatten(1) @ matrix).view_as(x), right, tolerance=1e-12, max_iterations=50)
    assert found.iterations.tolist() == [3, 3]
    torch.testing.assert_close(found.solution.flatten(1), right.flatten(1) @ matrix.inverse())


def test_columns_freeze_alone_and_then_arrive_as_zeros():
    matrices, right = spd_columns(3, 12, seed=2)
    matrices[0], right[2] = torch.eye(12, dtype=torch.float64), 0.0
    seen = []

    def product(x):
        seen.append(x.abs().sum(1) > 0)
        return apply(matrices, x)

    found = batched_cg(product, right, tolerance=1e-9, max_iterations=100, verified=False)
    assert found.iterations[0] == 1 and found.iterations[2] == 0 and found.iterations[1] > 5
    assert [bool(active[0]) for active in seen] == [True] + [False] * (len(seen) - 1)
    assert not any(bool(active[2]) for active in seen)
    assert found.converged.all() and found.residual[2] == 0 and found.least_curvature[2] == torch.inf
    alone = batched_cg(lambda x: apply(matrices[1:2], x), right[1:2], tolerance=1e-9, max_iterations=100)
    torch.testing.assert_close(found.solution[1:2], alone.solution)


def test_negative_curvature_stops_its_column_and_is_reported():
    matrices, right = spd_columns(2, 8, seed=3)
    matrices[1] -= 500 * torch.eye(8, dtype=torch.float64)
    found = batched_cg(lambda x: apply(matrices, x), right, tolerance=1e-8, max_iterations=100)
    assert found.negative_curvature.tolist() == [False, True]
    assert found.converged.tolist() == [True, False]
    assert found.least_curvature[1] <= 0 < found.least_curvature[0]
    torch.testing.assert_close(found.solution[0], torch.linalg.solve(matrices[0], right[0]), rtol=1e-4, atol=1e-6)


def test_too_few_iterations_are_reported_with_the_residual_they_left():
    matrices, right = spd_columns(2, 20, seed=4)
    found = batched_cg(lambda x: apply(matrices, x), right, tolerance=1e-10, max_iterations=3)
    assert found.iterations.tolist() == [3, 3]
    assert not found.converged.any()
    assert (found.residual > 1e-10).all()


def test_conjugate_gradients_end_where_they_are_told_to():
    matrices, right = spd_columns(2, 40, seed=5)
    seen = []

    def third(step, solution, residual):
        seen.append(step)
        # The recurrence's residual is the true one up to rounding this early.
        torch.testing.assert_close(residual, right - apply(matrices, solution), rtol=1e-9, atol=1e-12)
        return step == 3

    stopped = batched_cg(lambda v: apply(matrices, v), right, tolerance=1e-12, max_iterations=50, stop=third)
    plain = batched_cg(lambda v: apply(matrices, v), right, tolerance=1e-12, max_iterations=3)
    assert seen == [1, 2, 3] and stopped.iterations.tolist() == [3, 3]
    torch.testing.assert_close(stopped.solution, plain.solution, rtol=0, atol=0)


def test_a_preconditioner_may_be_an_iteration_itself():
    matrices, right = spd_columns(4, 30, seed=5, condition=1e4)
    near = matrices + torch.eye(30, dtype=torch.float64)  # doubles the smallest eigenvalue

    def inner(x):
        return batched_cg(lambda y: apply(near, y), x, tolerance=0.01, max_iterations=100, verified=False).solution

    plain = batched_cg(lambda x: apply(matrices, x), right, tolerance=1e-8, max_iterations=500)
    nested = batched_cg(lambda x: apply(matrices, x), right, tolerance=1e-8, max_iterations=500, preconditioner=inner)
    assert nested.converged.all() and (nested.iterations < plain.iterations / 4).all()
    torch.testing.assert_close(nested.solution, torch.linalg.solve(matrices, right), rtol=1e-3, atol=1e-5)


def test_conjugate_gradients_refuse_what_is_not_finite_and_bad_preconditioners():
    _, right = spd_columns(1, 4, seed=6)
    with pytest.raises(NumericalError, match=r"^a product in conjugate gradients is not finite\. Check for NaN"):
        batched_cg(lambda x: x * float("nan"), right, tolerance=1e-3, max_iterations=5)
    with pytest.raises(NumericalError, match=r"^the preconditioner is not positive definite or not finite"):
        batched_cg(lambda x: x, right, tolerance=1e-3, max_iterations=5, preconditioner=lambda x: -x)

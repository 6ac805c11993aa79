import numpy as np
import pytest
import torch

from noshadow.checks import NumericalError
from noshadow.linalg import add_pair_gram, batched_spd_solve, pair_form_values, pair_forms, pair_products, spd_inverse, vech_offsets


def random_spd(size, condition, rng):
    basis, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return (basis * np.geomspace(1, condition, size)) @ basis.T


@pytest.mark.parametrize("size", [1, 2, 7, 600])  # 600 crosses the mirroring block
def test_spd_inverse_is_the_inverse(size):
    matrix = random_spd(size, 1e4, np.random.default_rng(size))
    before = matrix.copy()
    result = spd_inverse(matrix, "test")
    # backward error of Cholesky: eps × condition
    np.testing.assert_allclose(result.matrix @ matrix, np.eye(size), atol=1e-10)
    np.testing.assert_array_equal(result.matrix, result.matrix.T)
    np.testing.assert_array_equal(matrix, before)
    assert result.jitter == 0.0
    np.testing.assert_array_equal(spd_inverse(matrix.copy(), "test", overwrite=True).matrix, result.matrix)


def test_condition_is_that_of_the_scaled_matrix():
    matrix = np.diag([1.0, 1e12])
    assert spd_inverse(matrix, "test").condition == pytest.approx(1.0)
    correlated = np.array([[1.0, 0.999], [0.999, 1.0]])
    assert spd_inverse(correlated, "test").condition == pytest.approx(np.linalg.cond(correlated, 1), rel=1e-9)


def test_jitter_is_reported():
    vector = np.array([1.0, 2.0, 3.0])
    result = spd_inverse(np.outer(vector, vector), "test")
    assert result.jitter > 0
    assert np.isfinite(result.matrix).all()


def test_indefinite_matrices_fail_with_a_sentence():
    with pytest.raises(NumericalError, match=r"caller: the curvature is not positive definite even with jitter 1e-08\. Raise the dam"):
        spd_inverse(np.array([[1.0, 2.0], [2.0, 1.0]]), "caller")
    with pytest.raises(NumericalError, match="caller: the curvature has 1 non-positive or infinite diagonal entries"):
        spd_inverse(np.diag([1.0, 0.0]), "caller")


def test_pair_products_follow_vech_order():
    rows = torch.tensor([[1.0], [2.0], [3.0]])
    assert pair_products(rows)[:, 0].tolist() == [1, 2, 3, 4, 6, 9]
    assert pair_products(rows, strict=True)[:, 0].tolist() == [2, 3, 6]
    assert vech_offsets(3) == [0, 3, 5, 6]


# k ≥ d multiplies the features out, k < d the weights; 1,100 rows need two panels
@pytest.mark.parametrize(("k", "d"), [(6, 4), (4, 4), (3, 8), (1, 1), (1, 1100)])
def test_pair_gram_and_forms_equal_their_definitions(k, d):
    generator = torch.Generator().manual_seed(k * 100 + d)
    weights = torch.rand((k, 13), generator=generator, dtype=torch.float64)
    rows = torch.randn((d, 13), generator=generator, dtype=torch.float64)
    i, j = torch.triu_indices(d, d)
    total = torch.ones((k, d * (d + 1) // 2), dtype=torch.float64)
    add_pair_gram(total, weights, rows)
    torch.testing.assert_close(total - 1, torch.einsum("kb,ib,jb->kij", weights, rows, rows)[:, i, j], rtol=1e-12, atol=1e-12)

    coefficients = torch.randn((k, len(i)), generator=generator, dtype=torch.float64)
    values = pair_form_values(pair_forms(coefficients, d), rows)
    torch.testing.assert_close(values, coefficients @ (rows[i] * rows[j]), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("batch", [3, 300])  # 300 × 30 × 30 numbers are shared out over threads
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

"""Exact last-layer scores of a softmax head, through variances of logit differences.

The curvature 𝓗 = Σ_j W_j ⊗ g̃_jg̃_jᵀ + λI is a Laplacian over classes: its blocks sum to zero along class
shifts. So the sums Σ_j p_u p_v g̃g̃ᵀ over pairs u < v are all that is accumulated (one matrix product over
records), 𝓗 is factored in an orthonormal contrast basis, and what comes back per record is

    D_uv = (e_u − e_v)ᵀ H_ii (e_u − e_v),   aᵀH_ii b = −½ Σ_uv a_u b_v D_uv  for a, b that sum to zero.

D is non-negative and each entry is accurate on its own: a class that hardly ever occurs has a huge
variance, and in this form it cannot drown the others, which is what allows float32.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import helmert

from noshadow.checks import Array, InputError
from noshadow.linalg import PairForms, SpdInverse, add_pair_gram, batched_cholesky, pair_form_values, pair_forms, pair_products, spd_inverse
from noshadow.progress import tracked
from noshadow.scores.baselines import as_blocks_of, block_residuals
from noshadow.scores.design import Design, block_length, blocks

# Pivots of I − W^½HW^½ below this mean spectral radius 1: an interpolated record.
_INTERPOLATED = {torch.float64: 1e-11, torch.float32: 1e-5}


@dataclass(frozen=True, eq=False)
class SoftmaxProblem:
    """A softmax head: design, (n, m) logits, targets (labels or soft rows), weights s or None, λ."""

    design: Design
    outputs: Array
    targets: Array
    sample_weight: Array | None
    damping: float

    @property
    def classes(self) -> int:
        """Number of classes m."""
        return int(self.outputs.shape[1])

    def weights(self, start: int, stop: int) -> torch.Tensor:
        """Sample weights of a block, ones where none were given."""
        if self.sample_weight is None:
            return torch.ones(stop - start, dtype=torch.float64)
        return as_blocks_of(self.sample_weight, start, stop)


def curvature_bytes(classes: int, rank: int) -> int:
    """Peak memory of building and inverting the contrast curvature: about four copies of it in float64."""
    return 4 * 8 * ((classes - 1) * rank) ** 2


def require_memory(problem: SoftmaxProblem, limit: float, owner: str) -> None:
    """Refuse before allocating when the exact curvature would not fit."""
    need = curvature_bytes(problem.classes, problem.design.rank)
    if need > limit:
        raise InputError(
            f"{owner}: (classes − 1) × features must be small enough for an exact curvature within max_memory ({limit / 1e9:.1f} GB); "
            f"got {problem.classes} classes × {problem.design.rank} dimensions, which needs {need / 1e9:.1f} GB. "
            "Raise max_memory, or score a narrower representation."
        )


def cross_entropy_pairs(problem: SoftmaxProblem, start: int, stop: int, dtype: torch.dtype) -> torch.Tensor:
    """Pair weights s·p_u p_v of a block, (m(m−1)/2, b)."""
    probabilities = torch.softmax(as_blocks_of(problem.outputs, start, stop), 1).T.to(dtype)
    pairs = pair_products(probabilities, strict=True)
    return pairs if problem.sample_weight is None else pairs * problem.weights(start, stop).to(dtype)


def contrast_curvature(
    problem: SoftmaxProblem,
    pair_weights: Callable[[SoftmaxProblem, int, int, torch.dtype], torch.Tensor],
    *,
    dtype: torch.dtype,
    block_size: int | None,
    progress: bool,
) -> Array:
    """𝓗 in the contrast basis, ((m−1)r, (m−1)r) float64, from pair weights of each block."""
    design, m = problem.design, problem.classes
    pairs, r = m * (m - 1) // 2, design.rank
    width = pairs + (r * (r + 1) // 2 if pairs >= r else 2048)
    size = block_size or block_length(width, high=8192)
    total = torch.zeros((pairs, r * (r + 1) // 2), dtype=torch.float64)
    for start, stop in tracked(blocks(len(design), size), "curvature", show=progress):
        add_pair_gram(total, pair_weights(problem, start, stop, dtype), design.rows(start, stop, dtype))
    return _laplacian_in_contrasts(total, m, r, problem.damping * design.penalty)


def _laplacian_in_contrasts(total: torch.Tensor, m: int, r: int, penalty: torch.Tensor) -> Array:
    """Bᵀ·Laplacian·B for every pair of coordinates, laid out as ((m−1)r)², plus the penalty per contrast."""
    u, v = torch.triu_indices(m, m, 1)
    laplacian = total.new_zeros((m, m, total.shape[1]))
    laplacian[u, v] = -total
    laplacian[v, u] = -total
    diagonal = total.new_zeros((m, total.shape[1])).index_add_(0, u, total).index_add_(0, v, total)
    laplacian[torch.arange(m), torch.arange(m)] = diagonal
    basis = contrasts(m)
    reduced = basis @ (basis @ laplacian.flatten(1)).view(m - 1, m, -1)
    del laplacian
    curvature = reduced[:, :, _vech_index(r)].permute(0, 2, 1, 3).contiguous()  # (m−1, r, m−1, r)
    each = torch.arange(m - 1)
    curvature[each, :, each, :] += penalty
    return curvature.view((m - 1) * r, -1).numpy()


def contrasts(m: int) -> torch.Tensor:
    """Orthonormal rows (m−1, m) that span the vectors summing to zero."""
    return torch.from_numpy(np.ascontiguousarray(helmert(m)))


def _vech_index(r: int) -> torch.Tensor:
    """(r, r) → position in vech order."""
    index = torch.empty((r, r), dtype=torch.int64)
    i, j = torch.triu_indices(r, r)
    index[i, j] = torch.arange(len(i))
    index[j, i] = torch.arange(len(i))
    return index


def difference_forms(inverse: SpdInverse, m: int, r: int, dtype: torch.dtype) -> PairForms:
    """Quadratic forms g ↦ D_uv(g) for all pairs u < v, from the inverse curvature."""
    blocks4 = torch.from_numpy(inverse.matrix).view(m - 1, r, m - 1, r).permute(0, 2, 1, 3)
    i, j = torch.triu_indices(r, r)
    symmetric = blocks4[:, :, i, j] + blocks4[:, :, j, i]
    symmetric[:, :, i == j] /= 2
    basis = contrasts(m)
    full = basis.T @ (basis.T @ symmetric.flatten(1)).view(m, m - 1, -1)  # (m, m, r(r+1)/2)
    u, v = torch.triu_indices(m, m, 1)
    own = full.diagonal(dim1=0, dim2=1).T
    coefficients = own[u] + own[v] - full[u, v] - full[v, u]
    return pair_forms(coefficients.to(dtype), r)


def difference_blocks(
    problem: SoftmaxProblem, forms: PairForms, *, dtype: torch.dtype, block_size: int | None, progress: bool
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """Yield (start, stop, D) with D (m(m−1)/2, b) for consecutive blocks of records."""
    m, r = problem.classes, problem.design.rank
    width = 4 * m * m + (r * (r + 1) // 2 if forms.dense is not None else 4096)
    size = block_size or block_length(width, high=4096)
    for start, stop in tracked(blocks(len(problem.design), size), "records", show=progress):
        yield start, stop, pair_form_values(forms, problem.design.rows(start, stop, dtype))


def square_differences(differences: torch.Tensor, m: int) -> torch.Tensor:
    """D as symmetric matrices, (m(m−1)/2, b) → (b, m, m)."""
    u, v = torch.triu_indices(m, m, 1)
    square = differences.new_zeros((differences.shape[1], m, m))
    square[:, u, v] = differences.T
    square[:, v, u] = differences.T
    return square


@dataclass(frozen=True, eq=False)
class NewtonStep:
    """One Newton step of leaving each record of a block out.

    direction: (b, m) (I − W_iH_ii)⁻¹g_i. logits: (b, m) H_ii times that, the move of the record's own logits
    (up to a shift shared by all classes). interpolated: (b,) spectral radius of W_iH_ii is 1.
    """

    direction: torch.Tensor
    logits: torch.Tensor
    interpolated: torch.Tensor


def newton_step(square: torch.Tensor, probabilities: torch.Tensor, residuals: torch.Tensor, weights: torch.Tensor) -> NewtonStep:
    """Solve (I − W H)x = g for every record of a block, symmetrically.

    Logits are measured against the record's most probable class c. There W = RRᵀ in closed form with
    R = diag(√s·u)(I − uuᵀ/(1 + √p_c)), u = √p off c, so that (I − WH)⁻¹g = g + R(I − RᵀHR)⁻¹RᵀHg and the
    matrix I − RᵀHR = I − E + uvᵀ + vuᵀ is symmetric positive definite below spectral radius 1.

    Args:
        square: (b, m, m) D. probabilities: (b, m). residuals: (b, m) s·(p − y). weights: (b,) s.
    Cost: m³/3 flops a record.
    """
    top = probabilities.argmax(1, keepdim=True)
    root = weights.sqrt()[:, None]
    c = 1.0 / (1.0 + probabilities.gather(1, top).sqrt())
    u = probabilities.sqrt().scatter(1, top, 0.0)
    a = root * u
    to_top = square.gather(2, top[:, :, None].expand(-1, square.shape[1], 1))[:, :, 0]
    scaled = square * (-0.5 * a)[:, :, None]
    scaled *= a[:, None, :]  # E
    lift = 0.5 * a * to_top
    z = (scaled @ u[:, :, None])[:, :, 0] + lift * (a * u).sum(1, keepdim=True) + a * (lift * u).sum(1, keepdim=True)
    v = c * z - root * lift - 0.5 * c**2 * (u * z).sum(1, keepdim=True) * u
    matrix = torch.baddbmm(scaled, torch.stack([u, v], 2), torch.stack([v, u], 1), beta=-1.0)
    matrix.diagonal(dim1=1, dim2=2).add_(1.0)
    factor, info = batched_cholesky(matrix)
    interpolated = (info > 0) | (factor.diagonal(dim1=1, dim2=2).amin(1) ** 2 < _INTERPOLATED[square.dtype])

    def applied(zero_sum: torch.Tensor) -> torch.Tensor:
        moved = (square @ zero_sum[:, :, None])[:, :, 0] * -0.5
        return moved - moved.gather(1, top)

    def projected(vector: torch.Tensor) -> torch.Tensor:
        return vector - c * u * (u * vector).sum(1, keepdim=True)

    right = projected(a * applied(residuals))
    solved = torch.cholesky_solve(right[:, :, None], factor)[:, :, 0]
    back = a * projected(solved)
    direction = residuals + back.scatter(1, top, -back.sum(1, keepdim=True))
    return NewtonStep(direction, applied(direction), interpolated)


def log_mean_exp(log_weights: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """log Σ_c q_c e^{step_c} for log-probabilities log q; exact to rounding for small and large steps."""
    small = torch.log1p((log_weights.exp() * torch.expm1(step.clamp(-1, 1))).sum(1).clamp(min=-0.99))
    large = torch.logsumexp(log_weights + step, 1)
    return torch.where(step.abs().amax(1) < 0.5, small, large)


def block_columns(
    problem: SoftmaxProblem, start: int, stop: int, differences: torch.Tensor, *, gaps: bool
) -> tuple[dict[str, torch.Tensor], torch.Tensor | None]:
    """Score columns of one block, and the Newton directions (b, m) when the gaps were asked for.

    Reference: leverage [GLS] Prop. C.2 in probability space (erratum 3); influence and newton [RET] Props. B.3–B.4.
    """
    dtype = differences.dtype
    logits = as_blocks_of(problem.outputs, start, stop)
    targets = as_blocks_of(problem.targets, start, stop)
    weights = problem.weights(start, stop)
    residuals = block_residuals(logits, targets, "classification") * weights[:, None]
    pair_weights = cross_entropy_pairs(problem, start, stop, dtype)
    square = square_differences(differences, problem.classes)
    narrow = residuals.to(dtype)
    columns = {
        "leverage": (pair_weights * differences).sum(0).double(),
        "influence": -0.5 * ((square @ narrow[:, :, None])[:, :, 0] * narrow).sum(1).double(),
    }
    if not gaps:
        return columns, None
    log_p = torch.log_softmax(logits, 1)
    step = newton_step(square, log_p.exp().to(dtype), narrow, weights.to(dtype))
    move = step.logits.double()
    labels = targets if targets.ndim == 1 else targets.argmax(1)
    own = move.gather(1, labels[:, None])[:, 0]
    expected = own if targets.ndim == 1 else (targets * move).sum(1)
    log_others = logits.scatter(1, labels[:, None], -torch.inf)
    log_others = log_others - torch.logsumexp(log_others, 1, keepdim=True)
    gains = {
        "newton": (residuals * move).sum(1),
        "loo": weights * (log_mean_exp(log_p, move) - expected),
        "shift": log_mean_exp(log_others, move) - own,
    }
    infinite = torch.full_like(own, torch.inf)
    columns |= {name: torch.where(step.interpolated, infinite, value) for name, value in gains.items()}
    return columns, step.direction.double()


def softmax_inverse(problem: SoftmaxProblem, *, dtype: torch.dtype, block_size: int | None, progress: bool, owner: str) -> SpdInverse:
    """Inverse cross-entropy curvature in the contrast basis."""
    curvature = contrast_curvature(problem, cross_entropy_pairs, dtype=dtype, block_size=block_size, progress=progress)
    return spd_inverse(curvature, owner, overwrite=True)

"""The curvature of a softmax head and its inverse.

The curvature is built from sums over records for each pair of classes, as a grounded Laplacian over
classes.

𝓗 = Σ_j W_j ⊗ g̃_jg̃_jᵀ + λI is a Laplacian over classes: its blocks sum to zero along class shifts.
So the sums Σ_j p_u p_v g̃g̃ᵀ over pairs u < v are all that is accumulated, in one matrix product
over records, and 𝓗 is factored in contrasts to one class, where it is not singular. Any curvature
Σ_j w_j a_ja_jᵀ ⊗ g̃_jg̃_jᵀ with Σ_c a_jc = 0 goes the same way.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from noshadow.blocks import block_length, block_tensor, blocks
from noshadow.checks import Array, DoesNotFit, its_place, said
from noshadow.linalg import PairForms, SpdInverse, pair_form_values, pair_forms, pair_gram, pair_products, spd_inverse
from noshadow.progress import tracked
from noshadow.scores.last_layer.design import Design

# Records at a time when panels of rows are multiplied out: a panel of 512 products each then stays
# in the third-level cache.
PANEL_RECORDS = 2048


@dataclass(frozen=True, eq=False)
class SoftmaxProblem:
    """A softmax head with everything that its curvature depends on.

    It holds the design, the (n, m) logits, the targets (labels or soft rows), the weights s or
    None, and λ.
    """

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
        return block_tensor(self.sample_weight, start, stop)


def curvature_bytes(classes: int, rank: int) -> int:
    """Peak memory, in bytes, of building and inverting the curvature and its forms.

    This is about three copies of the curvature in float64.
    """
    return 3 * 8 * ((classes - 1) * rank) ** 2


def require_memory(problem: SoftmaxProblem, limit: float, *, instead: str = "score a narrower representation") -> None:
    """Refuse before allocating when the exact curvature would not fit into memory.

    `instead` says what else one can do.
    """
    need = curvature_bytes(problem.classes, problem.design.rank)
    if need > limit:
        raise does_not_fit(problem, "an exact curvature", need, limit, instead)


def does_not_fit(problem: SoftmaxProblem, what: str, need: float, limit: float, instead: str) -> DoesNotFit:
    """Return the error for a curvature that needs more bytes than `limit`.

    It states the sizes and what to do.
    """
    sizes, room = f"{problem.classes} classes × {problem.design.rank} dimensions", f"max_memory ({limit / 1e9:.1f} GB)"
    what_to_do = f"raise max_memory{its_place('max_memory')}, or {instead}"
    return DoesNotFit(
        said(
            f"(classes − 1) × features must be small enough for {what} within {room}; "
            f"got {sizes}, which needs {need / 1e9:.1f} GB. {what_to_do[0].upper()}{what_to_do[1:]}."
        ),
        f"{what} of {sizes} needs {need / 1e9:.1f} GB, more than {room}: {what_to_do}",
    )


def cross_entropy_pairs(problem: SoftmaxProblem, start: int, stop: int, dtype: torch.dtype) -> torch.Tensor:
    """Pair weights s·p_u p_v of a block, (m(m−1)/2, b)."""
    probabilities = torch.softmax(block_tensor(problem.outputs, start, stop), 1).T.to(dtype)
    pairs = pair_products(probabilities, strict=True)
    return pairs if problem.sample_weight is None else pairs * problem.weights(start, stop).to(dtype)


@dataclass(frozen=True, eq=False)
class ContrastInverse:
    """The inverse curvature in contrasts to a reference class, (m−1)r rows and columns.

    `others` are the other classes in the order of the matrix.
    """

    inverse: SpdInverse
    others: torch.Tensor


PairWeights = Callable[[SoftmaxProblem, int, int, torch.dtype], torch.Tensor]


def contrast_inverse(
    problem: SoftmaxProblem, pair_weights: PairWeights, *, dtype: torch.dtype, block_size: int | None, progress: bool
) -> ContrastInverse:
    """Invert the curvature that has the given pair weights, in float64.

    Products over records are taken in `dtype`.

    Cost: n·m²r²/2 flops for the curvature, ((m−1)r)³ for its inverse.
    """
    total = pair_sums(problem, pair_weights, dtype=dtype, block_size=block_size, progress=progress)
    curvature, others = grounded_laplacian(total, problem.classes, problem.damping * problem.design.penalty)
    del total
    return ContrastInverse(spd_inverse(curvature, overwrite=True), others)


def pair_sums(
    problem: SoftmaxProblem, pair_weights: PairWeights, *, dtype: torch.dtype, block_size: int | None, progress: bool
) -> torch.Tensor:
    """Σ_j w_uv(j)·vech(g′_jg′_jᵀ) over records for all pairs of classes, in float64.

    The result has the shape (m(m−1)/2, r(r+1)/2).
    """
    design, m = problem.design, problem.classes
    pairs, r = m * (m - 1) // 2, design.rank
    dense = pairs >= r
    width = pairs + (r * (r + 1) // 2 if dense else 2048)
    size = block_size or block_length(width, high=8192 if dense else PANEL_RECORDS, numbers=1 << 25)
    walked = tracked(blocks(len(design), size), "curvature", show=progress)
    return pair_gram(((pair_weights(problem, start, stop, dtype), design.rows(start, stop, dtype)) for start, stop in walked), pairs, r)


def grounded_laplacian(total: torch.Tensor, m: int, penalty: torch.Tensor) -> tuple[Array, torch.Tensor]:
    """The Laplacian with pair weights `total`, without the class of most curvature.

    Leaving out one class fixes the shift shared by all logits. For weights that sum to zero over
    classes, ‖Θ‖² of their differences δ to that class is δᵀ(I − 11ᵀ/m)δ, which is how the penalty
    is carried along.
    """
    r, pair = len(penalty), _pair_index(m)
    u, v = torch.triu_indices(m, m, 1)
    diagonal = total.new_zeros((m, total.shape[1])).index_add_(0, u, total).index_add_(0, v, total)
    i, j = torch.triu_indices(r, r)
    reference = int(diagonal[:, i == j].sum(1).argmax())
    others = torch.tensor([c for c in range(m) if c != reference])
    unpacked = _vech_index(r)
    curvature = total.new_empty((m - 1, r, m - 1, r))
    for row, c in enumerate(others):
        entries = total[pair[c, others]].neg_()
        entries[row] = diagonal[c]
        curvature[row] = entries[:, unpacked].transpose(0, 1)
        curvature[row] -= penalty[:, None, :] / m
        curvature[row, :, row, :] += penalty
    return curvature.view((m - 1) * r, -1).numpy(), others


def _pair_index(m: int) -> torch.Tensor:
    """Return an (m, m) table that gives the position of each pair of classes u < v.

    Both (u, v) and (v, u) hold that position; the diagonal is meaningless.
    """
    index = torch.zeros((m, m), dtype=torch.int64)
    u, v = torch.triu_indices(m, m, 1)
    index[u, v] = index[v, u] = torch.arange(len(u))
    return index


def _vech_index(r: int) -> torch.Tensor:
    """(r, r) → position in vech order."""
    index = torch.empty((r, r), dtype=torch.int64)
    i, j = torch.triu_indices(r, r)
    index[i, j] = index[j, i] = torch.arange(len(i))
    return index


def difference_forms(contrast: ContrastInverse, m: int, r: int, dtype: torch.dtype) -> PairForms:
    """Quadratic forms g ↦ D_uv(g) for all pairs u < v, from the inverse curvature.

    With R the covariance of differences to the reference class c: D_uv = R_uu + R_vv − 2R_uv and
    D_uc = R_uu.
    """
    covariance = torch.from_numpy(contrast.inverse.matrix).view(m - 1, r, m - 1, r)
    pair, others = _pair_index(m), contrast.others
    i, j = torch.triu_indices(r, r)
    coefficients = covariance.new_zeros((m * (m - 1) // 2, len(i)))
    own = covariance.new_zeros((m, len(i)))
    for row, c in enumerate(others):
        # (m−1−row, r, r): with itself, then with later classes
        crossed = covariance[row, :, row:].transpose(0, 1)
        forms = crossed[:, i, j] + crossed[:, j, i]
        forms[:, i == j] /= 2
        own[c] = forms[0]
        coefficients[pair[c, others[row + 1 :]]] = -2 * forms[1:]
    u, v = torch.triu_indices(m, m, 1)
    coefficients += own[u]
    coefficients += own[v]
    return pair_forms(coefficients.to(dtype), r)


def difference_blocks(
    problem: SoftmaxProblem, forms: PairForms, *, dtype: torch.dtype, block_size: int | None, progress: bool
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """Yield (start, stop, D) with D (m(m−1)/2, b) for consecutive blocks of records."""
    m, r = problem.classes, problem.design.rank
    pairs = m * (m - 1) // 2
    dense = forms.dense is not None
    size = block_size or block_length(4 * pairs + (r * (r + 1) // 2 if dense else 4096), high=4096 if dense else PANEL_RECORDS)
    # The products want long blocks, the m × m work on each record short ones that stay in cache.
    part = min(size, max(16, (1 << 20) // (m * m)))
    for start, stop in tracked(blocks(len(problem.design), size), "records", show=progress):
        differences = pair_form_values(forms, problem.design.rows(start, stop, dtype))
        for low, high in blocks(stop - start, part):
            yield start + low, start + high, differences[:, low:high]


def softmax_inverse(problem: SoftmaxProblem, *, dtype: torch.dtype, block_size: int | None, progress: bool) -> ContrastInverse:
    """Inverse cross-entropy curvature."""
    return contrast_inverse(problem, cross_entropy_pairs, dtype=dtype, block_size=block_size, progress=progress)

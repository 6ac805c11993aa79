"""Products with the curvature of a softmax head too big to factor, and preconditioners.

Heads are in the coordinates of EK-FAC, scaled so that its approximation of the curvature is the
identity, S𝓗S with S = Λ^{−½}.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from noshadow.blocks import block_length, block_tensor, blocks
from noshadow.scores.last_layer.curvature import SoftmaxProblem
from noshadow.scores.last_layer.ekfac import EkfacCurvature

_BATCH_NUMBERS = 1 << 25
# Blocks of a class are summed in float32: what rounding may take from an eigenvalue, a dimension,
# is given back before they are factored.
_JITTER, _SMALLEST = 2 * torch.finfo(torch.float32).eps, 1e-12
Product = Callable[[torch.Tensor], torch.Tensor]


def full_product(problem: SoftmaxProblem, curvature: EkfacCurvature, left_out: torch.Tensor, dtype: torch.dtype) -> Product:
    """Y ↦ S𝓗SY on heads (k, m−1, r) in scaled EK-FAC coordinates, S = Λ^{−½}.

    Column k leaves out the record `left_out[k]`; −1 leaves out none.

    Products over records in `dtype`, sums in float64. Columns of zeros are skipped.
    Cost: 4·n·m·d flops per column.
    """
    scale = curvature.eigenvalues.T.rsqrt()  # (m−1, r)
    design, m = problem.design, problem.classes

    def product(heads: torch.Tensor) -> torch.Tensor:
        columns = heads.flatten(1).any(1).nonzero()[:, 0]
        scaled = heads[columns] * scale
        image = scaled * curvature.penalty
        # (k·m, d)
        weights = ((curvature.classes @ scaled) @ curvature.rotation).to(dtype).flatten(0, 1)
        total = torch.zeros(weights.shape, dtype=torch.float64)
        for start, stop in blocks(len(design), block_length(len(weights), low=16, numbers=_BATCH_NUMBERS)):
            rows = design.shifted(start, stop).to(dtype)
            p = torch.softmax(block_tensor(problem.outputs, start, stop), 1).T.to(dtype)
            moves = (weights @ rows.T).view(len(columns), m, -1)
            moves -= (p * moves).sum(1, keepdim=True)
            moves *= p * problem.weights(start, stop).to(dtype)
            own = left_out[columns] - start
            here = ((own >= 0) & (own < stop - start)).nonzero()[:, 0]
            moves[here, :, own[here]] = 0.0
            total += moves.flatten(0, 1) @ rows
        image += curvature.classes.T @ (total.view(len(columns), m, -1) @ curvature.rotation.T)
        out = torch.zeros_like(heads)
        out[columns] = image * scale
        return out

    return product


@dataclass(frozen=True, eq=False)
class LikelyClasses:
    """The probabilities that matter, class by class.

    Entries offsets[c] … offsets[c+1] belong to class c.

    records: (z,) row numbers. probabilities: (z,) float32, all ≥ the least but for a record's top
    class. rest: (m,) float32, the sum of those left out, times their weights.
    """

    offsets: list[int]
    records: torch.Tensor
    probabilities: torch.Tensor
    rest: torch.Tensor


def likely_classes(problem: SoftmaxProblem, least: float) -> LikelyClasses:
    """Leave out probabilities below `least`."""
    entries, rest = [], torch.zeros(problem.classes, dtype=torch.float64)
    for start, stop in blocks(len(problem.design), block_length(4 * problem.classes)):
        p = torch.softmax(block_tensor(problem.outputs, start, stop), 1)
        kept = (p >= least).scatter_(1, p.argmax(1, keepdim=True), True)
        rest += problem.weights(start, stop) @ p.masked_fill(kept, 0.0)
        row, column = kept.nonzero(as_tuple=True)
        entries.append((column, row + start, p[row, column].float()))
    column, records, probabilities = (torch.cat(parts) for parts in zip(*entries, strict=True))
    order = torch.argsort(column, stable=True)
    offsets = [0, *torch.bincount(column, minlength=problem.classes).cumsum(0).tolist()]
    return LikelyClasses(offsets, records[order], probabilities[order], rest.float())


def likely_product(problem: SoftmaxProblem, curvature: EkfacCurvature, left_out: torch.Tensor, likely: LikelyClasses) -> Product:
    """As `full_product`, but from the likely classes only, in float32.

    The sum of the other classes is spread over all directions alike.

    Cost: 4·z·d flops per column for z probabilities kept, and two readings of their z rows for all
        columns together.
    """
    design, width = problem.design, problem.design.features.shape[1]
    scale, classes = curvature.eigenvalues.T.rsqrt().float(), curvature.classes.float()
    penalty, rotation, shift = curvature.penalty.float() * scale, curvature.rotation.float(), design.shift.float()
    sizes = likely.probabilities[:, None]
    weights = sizes if problem.sample_weight is None else sizes * torch.from_numpy(problem.sample_weight).float()[likely.records, None]
    own = [(likely.records == record).nonzero()[:, 0] for record in left_out]
    spans = list(zip(likely.offsets[:-1], likely.offsets[1:], strict=True))

    def rows_of(low: int, high: int) -> torch.Tensor:
        return torch.from_numpy(design.features[likely.records[low:high].numpy()]).float()

    def product(heads: torch.Tensor) -> torch.Tensor:
        columns = heads.flatten(1).any(1).nonzero()[:, 0]
        scaled = heads[columns]
        whitened = classes @ (scaled * scale)  # (k, m, r)
        steps = whitened @ rotation  # (k, m, d)
        # what bias and shift add to every record, (k, m)
        level = steps[:, :, width:].sum(2) - steps @ shift
        moves = steps.new_empty((len(likely.records), len(columns)))
        for c, (low, high) in enumerate(spans):
            torch.addmm(level[:, c], rows_of(low, high), steps[:, c, :width].T, out=moves[low:high])
        average = moves.new_zeros((len(design), len(columns))).index_add_(0, likely.records, sizes * moves)
        moves -= average[likely.records]
        moves *= weights
        for k, column in enumerate(columns.tolist()):
            moves[own[column], k] = 0.0
        for c, (low, high) in enumerate(spans):
            total = moves[low:high].sum(0)[:, None]
            steps[:, c] = -total * shift
            steps[:, c, :width] += moves[low:high].T @ rows_of(low, high)
            steps[:, c, width:] += total
        out = torch.zeros_like(heads)
        image = (steps @ rotation.T).addcmul_(whitened, likely.rest[:, None])
        out[columns] = (classes.T @ image + scaled * penalty) * scale
        return out

    return product


def class_blocks_bytes(problem: SoftmaxProblem) -> int:
    """Memory of `class_blocks`."""
    return 4 * problem.classes * problem.design.rank**2


def class_blocks(problem: SoftmaxProblem, curvature: EkfacCurvature, least: float) -> torch.Tensor:
    """Factors T_c of the inverse curvature of each class alone, (m, r, r) float32.

    (T_cᵀT_c)⁻¹ = Σ_j s·p_jc(1 − p_jc) z_jz_jᵀ + λD.

    Approximates: records with p(1 − p) below `least` count in their sum alone, as if spread over
        all directions alike; a block that rounding made indefinite keeps its diagonal alone. It
        conditions an iteration: what that converges to is not touched.
    Cost: 2·r² flops for each of the other records and classes, r³ per class.
    """
    design, m, r = problem.design, problem.classes, problem.design.rank
    factors, spare = torch.zeros((m, r, r)), torch.zeros(m, dtype=torch.float64)
    for start, stop in blocks(len(design), block_length(4 * m + 2 * r, numbers=_BATCH_NUMBERS)):
        z = curvature.rows(design, start, stop).float()
        p = torch.softmax(block_tensor(problem.outputs, start, stop), 1)
        shares = p * (1 - p)
        kept = shares >= least
        shares *= problem.weights(start, stop)[:, None]
        spare += shares.masked_fill(kept, 0.0).sum(0)
        ends = kept.sum(0).cumsum(0)[:-1].tolist()
        for c, own in enumerate(torch.tensor_split(kept.T.nonzero()[:, 1], ends)):
            part = z[own] * shares[own, c, None].sqrt().float()
            factors[c].addmm_(part.T, part)
    smallest = _SMALLEST * float(curvature.eigenvalues.max())
    for factor, rest in zip(factors, spare, strict=True):
        block = factor.double()
        block.diagonal().add_(curvature.penalty + rest)
        sizes = block.diagonal().clamp(min=smallest).sqrt()
        block /= sizes[:, None] * sizes
        block.diagonal().add_(r * _JITTER)
        lower, failed = torch.linalg.cholesky_ex(block)
        alone = torch.diag(sizes.reciprocal())
        factor.copy_(alone if failed else torch.linalg.solve_triangular(lower, alone, upper=False))
    return factors


def class_blocks_solution(curvature: EkfacCurvature, factors: torch.Tensor) -> Product:
    """Return the map from Y to the heads whose curvature, class by class alone, is Y.

    Heads are in scaled EK-FAC coordinates, between contrasts.

    Positive definite whatever is rounded, as a square. Columns of zeros are skipped. Cost:
    4·m·r(m + r) flops per column.
    """
    size, classes = curvature.eigenvalues.T.sqrt().float(), curvature.classes.float()

    def solution(right: torch.Tensor) -> torch.Tensor:
        columns = right.flatten(1).any(1).nonzero()[:, 0]
        steps = (classes @ (right[columns].float() * size)).permute(1, 2, 0)  # (m, r, k)
        steps = factors.mT @ (factors @ steps)
        out = torch.zeros_like(right)
        out[columns] = ((classes.T @ steps.permute(2, 0, 1)) * size).to(right.dtype)
        return out

    return solution

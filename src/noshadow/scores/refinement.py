"""Exact influence, newton, loo and shift of a few records of a head too big to factor, by conjugate gradients.

The unknowns are heads in the coordinates of EK-FAC, scaled so that its approximation of the curvature is the identity: the norm
of a residual there is, up to the quality of that approximation, the error in the norm that newton gaps are measured in. Where one
product over all records is expensive, an inner iteration on the same curvature with small probabilities left out (and EK-FAC in
their place) conditions the outer one, so that a handful of full products is enough.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from noshadow.blocks import as_blocks_of, block_length, blocks
from noshadow.checks import Array
from noshadow.linalg import IterativeSolution, batched_cg
from noshadow.progress import tracked
from noshadow.scores.baselines import block_residuals
from noshadow.scores.curvature import SoftmaxProblem
from noshadow.scores.ekfac import EkfacCurvature, diagonal, softmax_shares
from noshadow.scores.softmax import move_columns

REFINED_COLUMNS = ("influence", "newton", "loo", "shift")
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}
MAX_ITERATIONS = 500
# From this many flops a product, leave small probabilities out in an inner iteration.
INNER_FROM_FLOPS = 2e10
INNER_TOLERANCE = 0.25
INNER_ITERATIONS = 60
LEAST_PROBABILITY = 1e-3
# Not worth it where more than this share of all probabilities is that large.
LARGEST_SHARE = 0.125
_BATCH_NUMBERS = 1 << 25
Product = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class Refinement:
    """Exact columns of some records.

    Attributes:
        records: (k,) row numbers. columns: the exact values, (k,) each. converged: (k,) whether every system of the record was
            solved to the tolerance. residual: (k,) the largest relative residual. iterations: (k,) products spent on the record.
    """

    records: Array
    columns: dict[str, Array]
    converged: Array
    residual: Array
    iterations: Array


def full_product(problem: SoftmaxProblem, curvature: EkfacCurvature, left_out: torch.Tensor, dtype: torch.dtype) -> Product:
    """Y ↦ S𝓗SY on heads (k, m−1, r) in scaled EK-FAC coordinates, S = Λ^{−½}; column k without the record `left_out[k]` (−1: with all).

    Products over records in `dtype`, sums in float64. Columns of zeros are skipped.
    Cost: 4·n·m·d flops a column.
    """
    scale = curvature.eigenvalues.T.rsqrt()  # (m−1, r)
    design, m = problem.design, problem.classes

    def product(heads: torch.Tensor) -> torch.Tensor:
        columns = heads.flatten(1).any(1).nonzero()[:, 0]
        scaled = heads[columns] * scale
        image = scaled * curvature.penalty
        weights = ((curvature.classes @ scaled) @ curvature.rotation).to(dtype).flatten(0, 1)  # (k·m, d)
        total = torch.zeros(weights.shape, dtype=torch.float64)
        for start, stop in blocks(len(design), block_length(len(weights), low=16, numbers=_BATCH_NUMBERS)):
            rows = design.shifted(start, stop).to(dtype)
            p = torch.softmax(as_blocks_of(problem.outputs, start, stop), 1).T.to(dtype)
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
    """Probabilities that matter, class by class: entries offsets[c] … offsets[c+1] belong to class c.

    records: (z,) row numbers. probabilities: (z,) float32, all ≥ the least but for a record's top class. rest: (m−1, r) diagonal
    of what was left out and of the penalty, in EK-FAC coordinates.
    """

    offsets: list[int]
    records: torch.Tensor
    probabilities: torch.Tensor
    rest: torch.Tensor


def likely_classes(problem: SoftmaxProblem, curvature: EkfacCurvature, least: float) -> LikelyClasses:
    """Leave out probabilities below `least`, keeping the diagonal of the curvature as it was."""
    entries = []
    for start, stop in blocks(len(problem.design), block_length(4 * problem.classes)):
        p = torch.softmax(as_blocks_of(problem.outputs, start, stop), 1)
        kept = (p >= least).scatter_(1, p.argmax(1, keepdim=True), True)
        row, column = kept.nonzero(as_tuple=True)
        entries.append((column, row + start, p[row, column].float()))
    column, records, probabilities = (torch.cat(parts) for parts in zip(*entries, strict=True))
    order = torch.argsort(column, stable=True)
    offsets = [0, *torch.bincount(column, minlength=problem.classes).cumsum(0).tolist()]

    def shares(problem: SoftmaxProblem, start: int, stop: int, basis: torch.Tensor) -> torch.Tensor:
        return softmax_shares(problem, start, stop, basis, least=least)

    kept_part = diagonal(problem, curvature, shares, dtype=torch.float32, progress=False) - curvature.penalty[:, None]
    rest = (curvature.eigenvalues - kept_part).T.clamp(min=0.0)
    return LikelyClasses(offsets, records[order], probabilities[order], torch.maximum(rest, curvature.penalty))


def likely_product(problem: SoftmaxProblem, curvature: EkfacCurvature, left_out: torch.Tensor, likely: LikelyClasses) -> Product:
    """As `full_product`, from the likely classes and a diagonal in place of the others; float32.

    Cost: 4·z·d flops a column for z probabilities kept, and two readings of their z rows for all columns together.
    """
    design, width = problem.design, problem.design.features.shape[1]
    scale, classes = curvature.eigenvalues.T.rsqrt().float(), curvature.classes.float()
    rest, rotation, shift = (likely.rest / curvature.eigenvalues.T).float(), curvature.rotation.float(), design.shift.float()
    sizes = likely.probabilities[:, None]
    weights = sizes if problem.sample_weight is None else sizes * torch.from_numpy(problem.sample_weight).float()[likely.records, None]
    own = [(likely.records == record).nonzero()[:, 0] for record in left_out]
    spans = list(zip(likely.offsets[:-1], likely.offsets[1:], strict=True))

    def rows_of(low: int, high: int) -> torch.Tensor:
        return torch.from_numpy(design.features[likely.records[low:high].numpy()]).float()

    def product(heads: torch.Tensor) -> torch.Tensor:
        columns = heads.flatten(1).any(1).nonzero()[:, 0]
        scaled = heads[columns]
        steps = (classes @ (scaled * scale)) @ rotation  # (k, m, d)
        level = steps[:, :, width:].sum(2) - steps @ shift  # what bias and shift add to every record, (k, m)
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
        out[columns] = (classes.T @ (steps @ rotation.T)) * scale + rest * scaled
        return out

    return product


def systems_at_once(problem: SoftmaxProblem, max_memory: float) -> int:
    """How many right-hand sides to hold at a time: about fourteen float64 copies of a head each, in half of the memory."""
    return max(1, int(0.5 * max_memory / (14 * 8 * problem.classes * problem.design.rank)))


def refined(
    problem: SoftmaxProblem,
    curvature: EkfacCurvature,
    records: Array,
    wanted: Sequence[str],
    *,
    dtype: torch.dtype,
    max_memory: float,
    progress: bool,
    owner: str,
) -> Refinement:
    """Exact influence (𝓗v = x) and newton, loo, shift (𝓗₋ᵢv = x) of the given records, x = r_i ⊗ g̃_i.

    Args:
        records: (k,) row numbers. wanted: column names; the systems behind other columns are not solved.

    Exact when: converged: to about 1e-8, or 1e-4 with float32 products, the relative residual measured in float64. A record that
        does not get there in `MAX_ITERATIONS` steps is reported as not converged.
    Cost: 4·n·m·d flops a product, one system a record for newton, loo and shift and one for influence; 50 to 150 products a system,
        or about ten and as many inner solutions of about the same cost once a product takes more than 2·10¹⁰ flops.
    """
    deletion = bool({"newton", "loo", "shift"} & set(wanted))
    kinds = [True] * deletion + [False] * ("influence" in wanted)
    systems = [(int(i), without) for i in records for without in kinds]
    likely = None
    if 4.0 * len(problem.design) * problem.classes * problem.design.width > INNER_FROM_FLOPS:
        likely = likely_classes(problem, curvature, LEAST_PROBABILITY)
        likely = likely if len(likely.records) <= LARGEST_SHARE * problem.outputs.size else None
    parts = []
    for low, high in tracked(blocks(len(systems), systems_at_once(problem, max_memory)), "refinement", show=progress):
        parts.append(_solved(problem, curvature, systems[low:high], likely, dtype, owner))
    gains, moves, residual, iterations = (torch.cat(part) for part in zip(*parts, strict=True))
    columns: dict[str, Array] = {}
    shape = (len(records), len(kinds))
    if "influence" in wanted:
        columns["influence"] = gains.view(shape)[:, -1].numpy()
    if deletion:
        residuals, _ = _own(problem, records)
        weight = None if problem.sample_weight is None else problem.sample_weight[records]
        move = moves.view(*shape, -1)[:, 0]
        gaps = move_columns(problem.outputs[records], problem.targets[records], weight, 0, len(records), residuals, move)
        gaps["newton"] = gains.view(shape)[:, 0]
        columns |= {name: value.numpy() for name, value in gaps.items() if name in wanted}
    worst = residual.view(shape).amax(1)
    return Refinement(records, columns, (worst <= 1.1 * TOLERANCE[dtype]).numpy(), worst.numpy(), iterations.view(shape).sum(1).numpy())


def _own(problem: SoftmaxProblem, records: Array) -> tuple[torch.Tensor, torch.Tensor]:
    """Residuals s·(p − y) (k, m) and shifted rows (k, d) of chosen records."""
    logits = as_blocks_of(problem.outputs[records], 0, len(records))
    residuals = block_residuals(logits, as_blocks_of(problem.targets[records], 0, len(records)), "classification")
    if problem.sample_weight is not None:
        residuals = residuals * torch.from_numpy(problem.sample_weight[records])[:, None]
    return residuals, torch.cat([problem.design.shifted(int(i), int(i) + 1) for i in records])


def _solved(
    problem: SoftmaxProblem,
    curvature: EkfacCurvature,
    systems: Sequence[tuple[int, bool]],
    likely: LikelyClasses | None,
    dtype: torch.dtype,
    owner: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """xᵀv (k,), the record's own logits under v (k, m), relative residuals and iterations of each system."""
    records = np.array([record for record, _ in systems])
    left_out = torch.tensor([record if without else -1 for record, without in systems])
    residuals, rows = _own(problem, records)
    z = rows @ curvature.rotation.T
    scale = curvature.eigenvalues.T.rsqrt()
    right = (residuals @ curvature.classes)[:, :, None] * z[:, None, :] * scale
    product = full_product(problem, curvature, left_out, dtype)
    inner = None if likely is None else _inner_solution(likely_product(problem, curvature, left_out, likely), owner)
    found = batched_cg(
        product, right, tolerance=TOLERANCE[dtype], max_iterations=MAX_ITERATIONS, preconditioner=inner, verified=False, owner=owner
    )
    # Whatever the products above were rounded to, what is left is measured in float64.
    missing = right - full_product(problem, curvature, left_out, torch.float64)(found.solution)
    relative = missing.flatten(1).norm(dim=1) / right.flatten(1).norm(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
    moves = ((found.solution * scale) @ z[:, :, None])[:, :, 0] @ curvature.classes.T
    return (right * found.solution).sum((1, 2)), moves, relative, found.iterations


def _inner_solution(product: Product, owner: str) -> Product:
    def solution(right: torch.Tensor) -> torch.Tensor:
        found: IterativeSolution = batched_cg(
            product, right.float(), tolerance=INNER_TOLERANCE, max_iterations=INNER_ITERATIONS, verified=False, owner=owner
        )
        # A column that rounding stopped at its first step is left as it is: the outer iteration needs a positive definite guess.
        found_it = (right * found.solution).sum((1, 2)) > 0
        return torch.where(found_it[:, None, None], found.solution.double(), right)

    return solution

"""Exact influence, newton, loo and shift of a few records by conjugate gradients.

This serves heads that are too big to factor.

The unknowns are heads in the coordinates of EK-FAC, scaled so that its approximation of the
curvature is the identity: the norm of a residual there is, up to the quality of that approximation,
the error in the norm that newton gaps are measured in. What conditions the iteration is the
curvature of each class alone, which knows where the records of a class lie; all right-hand sides go
through one product together, each with its own record left out. Where one product over all records
is expensive, an inner iteration on the same curvature with small probabilities left out stands
before it, so that a handful of full products is enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from noshadow.blocks import block_tensor, blocks
from noshadow.checks import Array
from noshadow.linalg import IterativeSolution, batched_cg
from noshadow.progress import tracked
from noshadow.scores.baselines import block_residuals
from noshadow.scores.last_layer.curvature import SoftmaxProblem
from noshadow.scores.last_layer.ekfac import EkfacCurvature
from noshadow.scores.last_layer.refinement_products import (
    LikelyClasses,
    Product,
    class_blocks,
    class_blocks_bytes,
    class_blocks_solution,
    full_product,
    likely_classes,
    likely_product,
)
from noshadow.scores.last_layer.softmax import move_columns

REFINED_COLUMNS = ("influence", "newton", "loo", "shift")
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}
MAX_ITERATIONS = 500
# From this many flops per product, leave small probabilities out in an inner iteration.
INNER_FROM_FLOPS = 2e10
INNER_TOLERANCE = 0.1
INNER_ITERATIONS = 60
LEAST_PROBABILITY = 1e-3
# Not worth it where more than this share of all probabilities is that large.
LARGEST_SHARE = 0.05
# The blocks of the classes condition the iteration where they take at most this share of the
# memory.
BLOCKS_SHARE = 0.6


@dataclass(frozen=True, eq=False)
class Refinement:
    """Exact columns of some records.

    Attributes:
        records: (k,) row numbers. columns: the exact values, (k,) each. converged: (k,) whether
            every system of the record was solved to the tolerance. residual: (k,) the largest
                relative residual. iterations: (k,) products spent on the record.
    """

    records: Array
    columns: dict[str, Array]
    converged: Array
    residual: Array
    iterations: Array


@dataclass(frozen=True, eq=False)
class Conditioning:
    """The preconditioners that stand before a product over all records.

    They are the (m, r, r) blocks of the classes and the likely classes. Either is None where it is
    not worth it or too big.
    """

    factors: torch.Tensor | None
    likely: LikelyClasses | None


def conditioning(problem: SoftmaxProblem, curvature: EkfacCurvature, max_memory: float) -> Conditioning:
    """Prepare the preconditioners that pay for this head.

    The blocks of the classes are used where they fit, the likely classes where they are few and a
    product is expensive.
    """
    fits = class_blocks_bytes(problem) <= BLOCKS_SHARE * max_memory
    factors = class_blocks(problem, curvature, LEAST_PROBABILITY) if fits else None
    likely = None
    if 4.0 * len(problem.design) * problem.classes * problem.design.width > INNER_FROM_FLOPS:
        likely = likely_classes(problem, LEAST_PROBABILITY)
        likely = likely if len(likely.records) <= LARGEST_SHARE * problem.outputs.size else None
    return Conditioning(factors, likely)


def systems_at_once(problem: SoftmaxProblem, max_memory: float) -> int:
    """How many right-hand sides to hold at a time.

    Each takes about fourteen float64 copies of a head, and half of the memory is used.
    """
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
    before: Conditioning | None = None,
) -> Refinement:
    """Solve exactly for influence, newton, loo and shift of the given records.

    With x = r_i ⊗ g̃_i, influence comes from 𝓗v = x, and newton, loo and shift from 𝓗₋ᵢv = x.

    Args:
        records: (k,) row numbers. wanted: column names; the systems behind other columns are not
            solved. before: what `conditioning` returned, for several calls; None: made here.

    Exact when: converged: to about 1e-8, or 1e-4 with float32 products, the relative residual
        measured in float64. A record that does not get there in `MAX_ITERATIONS` steps is reported
        as not converged.
    Cost: 4·n·m·d flops per product, one system per record for newton, loo and shift and one for
        influence; about twenty products per system in float64 and ten in float32 with blocks of the
        classes, several times as many where these do not fit into the memory, and about eight once
        a product takes more than 2·10¹⁰ flops and an inner iteration pays.
    """
    deletion = bool({"newton", "loo", "shift"} & set(wanted))
    kinds = [True] * deletion + [False] * ("influence" in wanted)
    systems = [(int(i), without) for i in records for without in kinds]
    before = before or conditioning(problem, curvature, max_memory)
    left = max_memory - (0 if before.factors is None else class_blocks_bytes(problem))
    parts = []
    for low, high in tracked(blocks(len(systems), systems_at_once(problem, left)), "refinement", show=progress):
        parts.append(_solved(problem, curvature, systems[low:high], before, dtype))
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
    logits = block_tensor(problem.outputs[records], 0, len(records))
    residuals = block_residuals(logits, block_tensor(problem.targets[records], 0, len(records)), "classification")
    if problem.sample_weight is not None:
        residuals = residuals * torch.from_numpy(problem.sample_weight[records])[:, None]
    return residuals, torch.cat([problem.design.shifted(int(i), int(i) + 1) for i in records])


def _solved(
    problem: SoftmaxProblem, curvature: EkfacCurvature, systems: Sequence[tuple[int, bool]], before: Conditioning, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """xᵀv (k,), the record's own logits under v (k, m), relative residuals and iterations.

    There is one of each per system.
    """
    records = np.array([record for record, _ in systems])
    left_out = torch.tensor([record if without else -1 for record, without in systems])
    residuals, rows = _own(problem, records)
    z = rows @ curvature.rotation.T
    scale = curvature.eigenvalues.T.rsqrt()
    right = (residuals @ curvature.classes)[:, :, None] * z[:, None, :] * scale
    product = full_product(problem, curvature, left_out, dtype)
    inner = None if before.factors is None else class_blocks_solution(curvature, before.factors)
    if before.likely is not None:
        inner = _inner_solution(likely_product(problem, curvature, left_out, before.likely), inner)
    found = batched_cg(product, right, tolerance=TOLERANCE[dtype], max_iterations=MAX_ITERATIONS, preconditioner=inner, verified=False)
    # Whatever the products above were rounded to, what is left is measured in float64.
    missing = right - full_product(problem, curvature, left_out, torch.float64)(found.solution)
    relative = missing.flatten(1).norm(dim=1) / right.flatten(1).norm(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
    moves = ((found.solution * scale) @ z[:, :, None])[:, :, 0] @ curvature.classes.T
    return (right * found.solution).sum((1, 2)), moves, relative, found.iterations


def _inner_solution(product: Product, before: Product | None) -> Product:
    def solution(right: torch.Tensor) -> torch.Tensor:
        found: IterativeSolution = batched_cg(
            product, right.float(), tolerance=INNER_TOLERANCE, max_iterations=INNER_ITERATIONS, preconditioner=before, verified=False
        )
        # A column that rounding stopped at its first step is left as it is: the outer iteration
        # needs a positive definite guess.
        found_it = (right * found.solution).sum((1, 2)) > 0
        return torch.where(found_it[:, None, None], found.solution.double(), right)

    return solution

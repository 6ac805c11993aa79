"""How outputs of chosen records respond when a network's damped curvature is inverted.

The responses J(C + λI)⁻¹Jᵀu are found by batched conjugate gradients.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noshadow.blocks import blocks
from noshadow.checks import Array, NumericalError, numeric_array, refuse, require_squarable, said, users_code
from noshadow.linalg import batched_cg
from noshadow.scores.network.curvature_products import Product, curvature_product, pulled_back, pushed_forward
from noshadow.scores.network.gradients import COMPARED, first_records, require_independent
from noshadow.scores.network.nystrom import nystrom_preconditioner, sketch_rank
from noshadow.scores.network.problem import NetworkProblem
from noshadow.scores.network.solver_arguments import Solver
from noshadow.views.loading import Batch, Records, records_of
from noshadow.views.network import Network, require_agreement
from noshadow.views.undisturbed import seed_everything
from noshadow.views.walk import Said, walked

# Vectors of p numbers held for each right-hand side while it is being solved.
VECTORS = 10
# Relative difference of uᵀHv and vᵀHu above which the Hessian is not one.
ASYMMETRY = 1e-8
# Of the tolerance: what rounding may add between the residual of the recurrence and the one that is
# checked.
SLACK = 1.1


@dataclass(frozen=True, eq=False)
class Points:
    """Records to be scored, one per batch, with their outputs (k, m) and targets as given."""

    batches: tuple[Batch, ...]
    outputs: Array
    targets: Array
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class InverseResponses:
    """Responses of k records to c directions each, and how their solves ended.

    Attributes:
        responses: (k, c, m) J_i(C + λI)⁻¹J_iᵀu; NaN where curvature ≤ 0 was met before the first
            step.
        converged, residual, iterations, negative_curvature: (k, c).
        least_curvature: smallest vᵀ(C + λI)v/vᵀv met. passes: over the training data.
    """

    responses: Array
    converged: Array
    residual: Array
    iterations: Array
    negative_curvature: Array
    least_curvature: float
    passes: int


def points_of(network: Network, points: object, problem: NetworkProblem, *, seed: int) -> Points:
    """The records to be scored and their outputs.

    Raises:
        InputError: there are none, the model does not take them, or its outputs for them are not
            finite.
    """
    records = records_of(points, "points", seed=seed)
    if records.count == 0:
        refuse("points", "hold at least one record", "none")

    def run(batch: Batch, _: int) -> Said:
        with users_code("points must hold inputs that the model takes, like those of train"):
            return Said(network.outputs(network.parameters, *network.inputs(batch)).cpu())

    batches, outputs, targets = [], [], []
    seed_everything(seed)
    for step in walked(records, 1, argument="points", run=run):
        assert step.said is not None
        batches.append(step.inputs)
        outputs.append(step.said.outputs.numpy())
        targets.append(step.targets)
    found = numeric_array(np.concatenate(outputs), "outputs of points", ndim=2)
    require_squarable(found, "outputs of points")
    m = problem.outputs.shape[1]
    if found.shape != (len(batches), m):
        refuse("points", f"give one row of {m} outputs each, as train's do", f"shape {found.shape} for {len(batches)} records")
    seed_everything(seed)
    require_agreement(network, records)
    return Points(tuple(batches), found, np.concatenate(targets), records.notes)


def inverse_responses(
    network: Network, records: Records, problem: NetworkProblem, points: Points, directions: Tensor, *, damping: float, solver: Solver
) -> InverseResponses:
    """J_i(C + λI)⁻¹J_iᵀu for each record i and each of its directions u in output space.

    Args:
        records, problem: what C is summed over. points: the records i. directions: (k, c, m).

    Raises:
        InputError: a record's output depends on the others in its batch, or torch.func cannot run
            the model.
        NumericalError: derivatives are not finite.

    Cost: (iterations + 1) products for each group of right-hand sides that fits a quarter of
        `solver.max_memory`, and one for the preconditioner.
    """
    require_independent(network, first_records(next(iter(records.batches(COMPARED))), COMPARED, network))
    k, c, m = directions.shape
    rows = torch.arange(k).repeat_interleave(c)
    along = directions.reshape(k * c, m).to(network.device)
    operators, passes = _operators(network, records, problem, damping, solver, columns=k * c)
    if solver.curvature == "hessian":
        _require_symmetric(operators.exact, network, solver.seed)
    size = max(int(solver.max_memory / 4 / (VECTORS * 8 * network.size)), 1)
    parts = [_solved(network, points, rows[low:high], along[low:high], operators, solver) for low, high in blocks(k * c, size)]
    return InverseResponses(
        responses=torch.cat([part.responses for part in parts]).view(k, c, m).cpu().numpy(),
        converged=torch.cat([part.converged for part in parts]).view(k, c).cpu().numpy(),
        residual=torch.cat([part.residual for part in parts]).view(k, c).cpu().numpy(),
        iterations=torch.cat([part.iterations for part in parts]).view(k, c).cpu().numpy(),
        negative_curvature=torch.cat([part.negative_curvature for part in parts]).view(k, c).cpu().numpy(),
        least_curvature=min(float(part.least_curvature.min()) for part in parts),
        passes=passes[0],
    )


@dataclass(frozen=True, eq=False)
class _Operators:
    """V(C + λI) for the iteration and in float64 for judging it, and the preconditioner."""

    rough: Product
    exact: Product
    preconditioner: Product | None


def _operators(
    network: Network, records: Records, problem: NetworkProblem, damping: float, solver: Solver, *, columns: int
) -> tuple[_Operators, list[int]]:
    """The operators of a problem, and a counter of the passes they make over the data."""
    passes = [0]

    def counted(curvature: str, precision: str) -> Product:
        product = curvature_product(
            network,
            records,
            problem,
            curvature=curvature,
            precision=precision,
            memory=solver.max_memory / 2,
            seed=solver.seed,
            progress=solver.progress,
        )

        def apply(vectors: Tensor) -> Tensor:
            passes[0] += 1
            return product(vectors)

        return apply

    def damped(product: Product) -> Product:
        return lambda vectors: product(vectors).add_(vectors, alpha=damping)

    rough = damped(counted(solver.curvature, solver.precision))
    exact = rough if solver.precision == "float64" else damped(counted(solver.curvature, "float64"))
    rank = sketch_rank(solver.preconditioner_rank, columns=columns, size=network.size, memory=solver.max_memory / 4)
    preconditioner = None
    if rank:
        preconditioner = nystrom_preconditioner(
            counted("gauss_newton", solver.precision),
            size=network.size,
            rank=rank,
            damping=damping,
            precision=solver.precision,
            seed=solver.seed,
            device=network.device,
        )
    return _Operators(rough, exact, preconditioner), passes


def _require_symmetric(product: Product, network: Network, seed: int) -> None:
    """Refuse second derivatives that torch gets wrong, which show as uᵀHv ≠ vᵀHu.

    Conjugate gradients would hide the asymmetry.
    """
    draw = torch.Generator().manual_seed(seed)
    pair = torch.randn((2, network.size), generator=draw, dtype=torch.float64).to(network.device)
    image = product(pair)
    forth, back = float(pair[0] @ image[1]), float(pair[1] @ image[0])
    scale = float(pair[0].norm() * image[1].norm() + pair[1].norm() * image[0].norm())
    if abs(forth - back) > ASYMMETRY * scale:
        refuse(
            "model",
            "have a symmetric Hessian",
            f"uᵀHv = {forth:.6g} and vᵀHu = {back:.6g}",
            "torch gets second derivatives of some modules wrong (weight_norm is one): pass curvature='gauss_newton'.",
        )


@dataclass(frozen=True, eq=False)
class _Part:
    """One group of right-hand sides, (c,) each but `responses` (c, m)."""

    responses: Tensor
    converged: Tensor
    residual: Tensor
    iterations: Tensor
    negative_curvature: Tensor
    least_curvature: Tensor


def _solved(network: Network, points: Points, rows: Tensor, along: Tensor, operators: _Operators, solver: Solver) -> _Part:
    """Solve right-hand sides J_iᵀu together.

    The directions u are `along` (c, m) and the points are `rows` (c,).
    """
    own = [(points.batches[i], rows == i) for i in dict.fromkeys(rows.tolist())]
    right = torch.cat([pulled_back(network, point, along[mine]) for point, mine in own])
    if not bool(right.isfinite().all()):
        raise NumericalError(said("derivatives of the outputs of points are not finite. Check the model at those records."))
    found = batched_cg(
        operators.rough,
        right,
        tolerance=solver.tolerance,
        max_iterations=solver.max_iterations,
        preconditioner=operators.preconditioner,
        verified=False,
    )
    lengths = right.norm(dim=1)
    left = (right - operators.exact(found.solution)).norm(dim=1)
    residual = torch.where(lengths > 0, left / lengths, 0.0)
    responses = torch.cat([pushed_forward(network, point, found.solution[mine]) for point, mine in own])
    untouched = found.negative_curvature & (found.iterations == 0).to(right.device)
    return _Part(
        responses=torch.where(untouched[:, None], torch.nan, responses),
        converged=(residual <= SLACK * solver.tolerance) & ~found.negative_curvature,
        residual=residual,
        iterations=found.iterations,
        negative_curvature=found.negative_curvature,
        least_curvature=found.least_curvature,
    )


def solve_notes(found: InverseResponses, damping: float, solver: Solver) -> tuple[str, ...]:
    """What a reader must know about solves that did not end well."""
    notes = []
    k = len(found.converged)
    negative = found.negative_curvature.any(1)
    short = ~found.converged.all(1) & ~negative
    if short.any():
        rounded = ", or pass precision='float64'" if solver.precision == "float32" else ""
        notes.append(
            f"{int(short.sum())} of {k} records did not reach tolerance {solver.tolerance:g} in {solver.max_iterations} iterations "
            f"(largest relative residual {found.residual.max(1)[short].max():.2g}): their scores are those of the last iterate; "
            f"raise max_iterations or damping{rounded}"
        )
    if negative.any():
        empty = int(np.isnan(found.responses).any((1, 2)).sum())
        lost = f", {empty} of them before the first step (NaN)" if empty else ""
        other = "raise it, or pass curvature='gauss_newton'" if solver.curvature == "hessian" else "raise it"
        notes.append(
            f"{int(negative.sum())} of {k} records met a direction of curvature ≤ 0{lost}: their solves stopped there and their scores are "
            f"those of the iterate reached; damping {damping:g} must be above {damping - found.least_curvature:.3g} for the directions met "
            f"alone: {other}"
        )
    return tuple(notes)

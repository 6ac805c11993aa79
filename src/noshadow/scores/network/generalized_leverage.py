"""`generalized_leverage` and `network_influence`: chosen records over any layers.

Both solve with the curvature of a trained module by conjugate gradients.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noshadow.arguments import BATCH_SIZE, MAX_MEMORY, PROGRESS
from noshadow.blocks import block_tensor
from noshadow.checks import Array, named_in_errors, refuse, require_choice, require_whole
from noshadow.losses import task_targets
from noshadow.scores.baselines import block_residuals
from noshadow.scores.last_layer.leverage import GeneralizedLeverage
from noshadow.scores.network.curvature_products import output_curvature
from noshadow.scores.network.inverse_responses import InverseResponses, Points, inverse_responses, points_of, solve_notes
from noshadow.scores.network.problem import network_problem
from noshadow.scores.network.solver_arguments import Solver, checked_damping, checked_solver, sum_damping
from noshadow.views.network import Network, network_view

SPACES = ("probability", "logit")


@dataclass(frozen=True, eq=False)
class NetworkInfluence:
    """Influence of records on their own loss over many layers of a network, by iterative solves.

    Attributes:
        influence: (k,) float64 ≥ 0 where the curvature is positive definite; NaN where no solve
            could begin.
        converged: (k,) bool. residual: (k,) relative, of the solve as it ended. iterations: (k,)
            steps taken.
        negative_curvature: (k,) bool, whether a direction of curvature ≤ 0 stopped the solve.
        records: (k,) row numbers in the points given. layers: names of the layers differentiated.
        curvature: "gauss_newton" or "hessian". passes: over the training data.
        damping_used, damping_source: λ on the sum over records and where it comes from.
        notes: what a reader must know about the numbers.
    """

    influence: Array
    converged: Array
    residual: Array
    iterations: Array
    negative_curvature: Array
    records: Array
    layers: tuple[str, ...]
    curvature: str
    passes: int
    damping_used: float
    damping_source: str
    notes: tuple[str, ...]


@named_in_errors
def generalized_leverage(
    model: object,
    train: object,
    points: object,
    *,
    damping: float | str,
    task: str = "auto",
    layers: str | int = "last",
    tolerance: float = 1e-3,
    max_iterations: int = 100,
    space: str = "probability",
    curvature: str = "gauss_newton",
    damping_scale: str = "sum",
    weight_decay: float | None = None,
    layer: str = "auto",
    output: str | int = "auto",
    precision: str = "float64",
    preconditioner_rank: int | str = "auto",
    unvectorised: str = "refuse",
    batch_size: int = BATCH_SIZE,
    max_memory: float = MAX_MEMORY,
    device: object = None,
    progress: bool = PROGRESS,
    seed: int = 0,
) -> GeneralizedLeverage:
    """GLS matrix of each chosen record: how its prediction responds to its own label.

    The response is taken over the chosen layers.

    With J_i the Jacobian (m × p) of the outputs and 𝓗 = C + λI: H_ii = J_i𝓗⁻¹J_iᵀ in logit space,
    W_iH_ii in probability space; a regression has H_ii in both. C is Σ_j J_jᵀW_jJ_j
    ("gauss_newton") or the second derivative of the summed cross-entropy, or of half the summed
    squared loss ("hessian"). 𝓗Z = J_iᵀ is solved by conjugate gradients. The published damping
    stands beside the Hessian of the mean loss: (1/n)J_i(∇²𝓛 + λ′I)⁻¹J_iᵀ is the above with λ = nλ′,
    and for the squared loss (2/n)J_i(∇²𝓛 + λ′I)⁻¹J_iᵀ with λ = nλ′/2. Pass such a λ′ with
    damping_scale="mean". Softmax in logit space is reported between class contrasts (rows and
    columns sum to zero), as in `last_layer_leverage`.

    Args:
        model: any nn.Module with one row of outputs per record, run in eval mode; frozen parameters
            are left out.
        train: its training records, (X, y), a map-style Dataset or a DataLoader.
        points: k records to score, usually training records, in the same forms; their targets are
            not used.
        damping: λ ≥ 0 (> 0 for softmax), or "auto": that of `weight_decay`, which must then be
            given.
        task: "auto", "regression", "classification" or "binary".
        layers: "last", "all", or the number k of last layers with trainable parameters, in the
            order in which they run.
        tolerance: of ‖𝓗z − b‖/‖b‖, > 0. max_iterations: steps of each solve at most.
        space: "probability" or "logit".
        curvature: "gauss_newton", never negative, or "hessian", which away from a minimum may be.
        damping_scale: "sum" over records, or "mean" as published.
        weight_decay: of the training objective mean(loss) + (wd/2)‖θ‖².
        layer: name of the nn.Linear whose output counts, "auto" for the model's own.
        output: of a model that returns several tensors, the name or position of its output, or
            "auto"; as in `audit`.
        precision: "float64", or "float32" for the products of the iteration (convolutions run
            several times faster); whether a solve converged is judged in float64 all the same.
        preconditioner_rank: random vectors with which the Gauss–Newton curvature is sketched to
            speed the solves up, "auto" for up to 128 by their number, 0 for plain conjugate
            gradients as published; it changes when a solve ends, not where.
        unvectorised: "refuse" models that torch.func cannot run over many vectors at once, or
            "loop" over vectors.
        batch_size: records in one pass. max_memory: bytes, half for activations, half for vectors
            and the preconditioner.
        device: where to run. progress: draw bars on a terminal. seed: of random transforms of the
            data.

    Returns:
        GeneralizedLeverage with `converged`, `residual`, `iterations`, `negative_curvature` (k,),
        worst over a record's columns. A solve that meets a direction of curvature ≤ 0 stops there:
        the record is flagged, not converged, and its matrix is that of the iterate reached, NaN if
        there is none. Notes say how many, and which damping was too small.

    Raises:
        InputError: an argument breaks a rule, or torch.func cannot run the model (which module).
        NumericalError: derivatives are not finite.

    Exact when: solved to the end, for the answer of the trained minimum to its labels; on the last
        layer it is `last_layer_leverage`. Approximates: that answer to `tolerance`, and by
            Gauss–Newton without second derivatives of f.
    Cost: (iterations + 1) passes over the training data for each group of vectors that fits
        `max_memory` (p numbers a vector, k·m vectors) and one for the preconditioner; a pass is
        about two backward passes per vector, whichever the curvature.
    Reference: [GLS] Algorithms 1–2, Definition 4.1, Prop. 4.2, §5.2 (probability space: erratum 3).

    Example:
        >>> import torch
        >>> from noshadow.scores.network.generalized_leverage import generalized_leverage
        >>> x = torch.linspace(-1, 1, 12)[:, None]
        >>> net = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        >>> train, points = (x, x[:, 0] ** 2), (x[:3], x[:3, 0] ** 2)
        >>> gls = generalized_leverage(net, train, points, layers="all", damping=0.1)
        >>> gls.matrix.shape, bool(gls.converged.all()), bool((gls.trace < 1).all())
        ((3, 1, 1), True, True)
    """
    require_choice(space, SPACES, "space")
    solver = checked_solver(tolerance, max_iterations, curvature, precision, preconditioner_rank, max_memory, seed, progress)
    asked = checked_damping(damping, damping_scale, weight_decay)
    require_whole(batch_size, "batch_size", low=1)
    how: dict[str, Any] = {"unvectorised": unvectorised, "batch_size": batch_size, "device": device, "seed": seed}
    view = network_view(model, train, layers=layers, layer=layer, output=output, **how)
    with view as (network, records):
        problem = network_problem(network, records, task=task, outputs="all", sample_weight=None, batch_size=batch_size, progress=progress)
        value, source = sum_damping(asked, problem)
        if value == 0 and problem.task == "classification":
            refuse("damping", "be > 0 for softmax outputs", "0", "Their curvature is singular along class shifts.")
        chosen = points_of(network, points, problem, seed=seed)
        basis = _label_basis(problem.outputs.shape[1], problem.task, space)
        directions = basis.T.expand(len(chosen.batches), *basis.T.shape)
        found = inverse_responses(network, records, problem, chosen, directions, damping=value, solver=solver)
    matrix = _matrices(found.responses, basis, chosen.outputs, problem.task, space)
    return GeneralizedLeverage(
        matrix=matrix,
        trace=np.trace(matrix, axis1=1, axis2=2),
        frobenius=np.linalg.norm(matrix, axis=(1, 2)),
        spectral=_largest_singular_values(matrix),
        space=space,
        damping_used=value,
        damping_source=source,
        **_diagnostics(found, network, chosen, solver, value),
    )


@named_in_errors
def network_influence(
    model: object,
    train: object,
    points: object,
    *,
    damping: float | str,
    task: str = "auto",
    layers: str | int = "all",
    tolerance: float = 1e-3,
    max_iterations: int = 100,
    curvature: str = "gauss_newton",
    damping_scale: str = "sum",
    weight_decay: float | None = None,
    layer: str = "auto",
    output: str | int = "auto",
    precision: str = "float64",
    preconditioner_rank: int | str = "auto",
    unvectorised: str = "refuse",
    batch_size: int = BATCH_SIZE,
    max_memory: float = MAX_MEMORY,
    device: object = None,
    progress: bool = PROGRESS,
    seed: int = 0,
) -> NetworkInfluence:
    """Influence of each chosen record on its own loss over the chosen layers.

    The influence is ∇ℓ_iᵀ(∇²Σℓ + penalty)⁻¹∇ℓ_i.

    Cross-entropy: ∇ℓ_iᵀ𝓗⁻¹∇ℓ_i; squared loss: ½∇ℓ_iᵀ𝓗⁻¹∇ℓ_i, as 𝓗 = C + λI is half the curvature
    there. On the last layer that is the column `influence` of `record_scores`. Influence by the
    Hessian of the mean loss is n times this.

    Args:
        points: k records to score, usually training records; (X, y), a map-style Dataset or a
            DataLoader.
        damping: λ ≥ 0, or "auto": that of `weight_decay`, which must then be given.
        model, train, task, layers, tolerance, max_iterations, curvature, damping_scale,
            weight_decay, layer, output, precision, preconditioner_rank, unvectorised, batch_size,
            max_memory, device, progress, seed: as in `generalized_leverage`.

    Returns:
        NetworkInfluence: `influence` (k,), and of each record whether and how its solve ended.

    Raises:
        InputError: an argument breaks a rule, or torch.func cannot run the model (which module).
        NumericalError: derivatives are not finite.

    Exact when: solved to the end, for the first-order change of the loss. Approximates: the loss
        gap of leaving i out.
    Cost: as `generalized_leverage` with one vector per record.
    Reference: [RET] Eq. (7), App. D.1, over all layers.

    Example:
        >>> import torch
        >>> from noshadow.scores.network.generalized_leverage import network_influence
        >>> x = torch.linspace(-1, 1, 12)[:, None]
        >>> net = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        >>> found = network_influence(net, (x, x[:, 0] ** 2), (x[:3], x[:3, 0] ** 2), damping=0.1)
        >>> found.influence.shape, bool(found.converged.all())
        ((3,), True)
    """
    solver = checked_solver(tolerance, max_iterations, curvature, precision, preconditioner_rank, max_memory, seed, progress)
    asked = checked_damping(damping, damping_scale, weight_decay)
    require_whole(batch_size, "batch_size", low=1)
    how: dict[str, Any] = {"unvectorised": unvectorised, "batch_size": batch_size, "device": device, "seed": seed}
    view = network_view(model, train, layers=layers, layer=layer, output=output, **how)
    with view as (network, records):
        problem = network_problem(network, records, task=task, outputs="all", sample_weight=None, batch_size=batch_size, progress=progress)
        value, source = sum_damping(asked, problem)
        chosen = points_of(network, points, problem, seed=seed)
        targets = task_targets(chosen.outputs, chosen.targets, problem.task)
        k = len(chosen.batches)
        slopes = block_residuals(block_tensor(chosen.outputs, 0, k), block_tensor(targets, 0, k), problem.task)
        found = inverse_responses(network, records, problem, chosen, slopes[:, None, :], damping=value, solver=solver)
    scale = 0.5 if problem.task == "regression" else 1.0
    return NetworkInfluence(
        influence=scale * (found.responses[:, 0] * slopes.numpy()).sum(1),
        damping_used=value,
        damping_source=source,
        **_diagnostics(found, network, chosen, solver, value),
    )


def _label_basis(m: int, task: str, space: str) -> Tensor:
    """Orthonormal columns in which the labels move.

    For a softmax, class contrasts come before the shift of all classes, which logit space leaves
    out.

    The curvature is almost zero along that shift, so columns that mix it with contrasts
    converge more slowly.
    """
    if task != "classification":
        return torch.eye(m, dtype=torch.float64)
    start = torch.cat([torch.ones((m, 1), dtype=torch.float64), torch.eye(m, dtype=torch.float64)[:, : m - 1]], 1)
    turned = torch.linalg.qr(start)[0]
    contrasts = turned[:, 1:]
    return contrasts if space == "logit" else torch.cat([contrasts, turned[:, :1]], 1)


def _matrices(responses: Array, basis: Tensor, outputs: Array, task: str, space: str) -> Array:
    """GLS matrices (k, m, m) from the responses (k, c, m) of the outputs.

    The labels are moved along c directions.
    """
    answers = torch.from_numpy(responses)
    if space == "probability" and task != "regression":
        answers = output_curvature(torch.from_numpy(outputs)[:, None, :], answers, task)
    elif task == "classification":
        answers = answers - answers.mean(2, keepdim=True)
    matrices: Array = torch.einsum("kca,bc->kab", answers, basis).numpy()
    return matrices


def _largest_singular_values(matrices: Array) -> Array:
    found = np.full(len(matrices), np.nan)
    finite = np.isfinite(matrices).all((1, 2))
    found[finite] = np.linalg.norm(matrices[finite], ord=2, axis=(1, 2))
    return found


def _diagnostics(found: InverseResponses, network: Network, points: Points, solver: Solver, damping: float) -> dict[str, Any]:
    return {
        "records": np.arange(len(points.batches)),
        "converged": found.converged.all(1),
        "residual": found.residual.max(1),
        "iterations": found.iterations.max(1),
        "negative_curvature": found.negative_curvature.any(1),
        "layers": tuple(item.name for item in network.layers),
        "curvature": solver.curvature,
        "passes": found.passes,
        "notes": (*network.notes, *points.notes, *solve_notes(found, damping, solver)),
    }

"""What `network_scores` and `damping_sweep` share.

One network gives one kernel or one set of projections, which serves any λ.
"""

from dataclasses import dataclass

import numpy as np
import torch

from noshadow.blocks import blocks
from noshadow.checks import Array, require_choice, require_number, require_whole, whole_seed
from noshadow.outcomes import Damping
from noshadow.scores.network.columns import roots
from noshadow.scores.network.dual import DualColumns, dual_bytes, dual_columns, require_dual_memory, scaled_kernel
from noshadow.scores.network.gradients import record_differentiation
from noshadow.scores.network.problem import NetworkProblem, residuals
from noshadow.scores.network.projected import ProjectedColumns, ProjectedFeatures, all_sketches, projected_columns, projected_features
from noshadow.scores.network.tangent_kernel import tangent_kernel
from noshadow.views.loading import Records
from noshadow.views.network import Network
from noshadow.weight_decay import training_damping

METHODS = ("auto", "dual", "projected")
RELATIVE_DAMPING = 1e-6


@dataclass(frozen=True)
class NetworkSettings:
    """How the problem is solved, checked when made."""

    method: str
    dimension: int
    max_memory: float
    seed: int

    def __post_init__(self) -> None:
        require_choice(self.method, METHODS, "method")
        require_whole(self.dimension, "dimension", low=2)
        require_number(self.max_memory, "max_memory", low=0.0)
        whole_seed(self.seed)


@dataclass(frozen=True, eq=False)
class PreparedNetwork:
    """Everything but λ: the kernel K_R or the projected features, and what they were made of.

    inner: (n, c, c) exact J_iJ_iᵀ of each record. mean_curvature: trace of the undamped curvature
    over its rank at most.
    """

    network: Network
    problem: NetworkProblem
    method: str
    kernel: torch.Tensor | None
    features: ProjectedFeatures | None
    inner: torch.Tensor
    mean_curvature: float
    notes: tuple[str, ...]


def prepared_network(
    network: Network, records: Records, problem: NetworkProblem, settings: NetworkSettings, *, progress: bool
) -> PreparedNetwork:
    """Differentiate the network on all records, then build the kernel or project the gradients.

    The settings say which of the two.

    Raises:
        InputError: the kernel would not fit, or torch.func cannot run the model.
    """
    rows = len(problem) * problem.columns
    method, notes = settings.method, list(network.notes)
    if method == "dual":
        require_dual_memory(rows, settings.max_memory)
    if method == "auto":
        method = "dual" if dual_bytes(rows) <= settings.max_memory else "projected"
        if method == "projected":
            need, limit = dual_bytes(rows) / 1e9, settings.max_memory / 1e9
            words = f"a kernel over {rows:,} rows needs {need:.1f} GB, more than max_memory ({limit:.1f} GB)"
            notes.append(f"{words}, so gradients were projected (approximate)")
    kernel, features = None, None
    probe = next(iter(records.batches(problem.batch_size)))
    with record_differentiation(network, probe) as (differentiate, plain):
        if method == "dual":
            kernel = tangent_kernel(network, records, problem, differentiate, plain, progress=progress)
            inner = _diagonal_blocks(kernel, problem.columns)
            kernel = scaled_kernel(kernel, problem)
        else:
            drawn = all_sketches(network, plain, dimension=settings.dimension, seed=settings.seed)
            features = projected_features(network, records, problem, differentiate, drawn, progress=progress)
            inner = features.norms
    mean = _weighted_trace(inner, problem) / min(rows, network.size)
    return PreparedNetwork(network, problem, method, kernel, features, inner, mean, tuple(notes))


def _diagonal_blocks(kernel: torch.Tensor, columns: int) -> torch.Tensor:
    n = len(kernel) // columns
    return torch.stack([kernel[i * columns : (i + 1) * columns, i * columns : (i + 1) * columns] for i in range(n)])


def _weighted_trace(inner: torch.Tensor, problem: NetworkProblem) -> float:
    """Σ_i Tr(W_iJ_iJ_iᵀ)."""
    total = 0.0
    for start, stop in blocks(len(problem), 4096):
        root = roots(problem, start, stop).matrix()
        total += float(((root @ root.mT) * inner[start:stop]).sum())
    return total


def network_damping(damping: float | str, weight_decay: float | None, prepared: PreparedNetwork) -> Damping:
    """λ > 0 and where it comes from; a training without weight decay gets the small automatic one.

    Raises:
        InputError: damping is not a number > 0 or "auto", weight_decay is negative.
    """
    if not (isinstance(damping, str) and damping == "auto"):
        return Damping(require_number(damping, "damping", low=0.0, low_open=True), "given", "given")
    n, q = prepared.problem.outputs.shape
    decay = None if weight_decay is None else require_number(weight_decay, "weight_decay", low=0.0)
    known = training_damping(decay, prepared.problem.task, n, q)
    if isinstance(known, Damping) and known.value:
        return known
    # All zero: a network that no record can move; any λ gives scores of zero.
    value = RELATIVE_DAMPING * prepared.mean_curvature or 1.0
    kind, reason = ("substitute", "weight_decay=0, and many layers need λ > 0") if decay == 0 else ("automatic", "training's own λ unknown")
    return Damping(value, kind, f"automatic: {RELATIVE_DAMPING:g} × the mean curvature ({reason})")


def solved_network(prepared: PreparedNetwork, damping: float) -> DualColumns | ProjectedColumns:
    """Columns of all records under λ."""
    if prepared.kernel is not None:
        return dual_columns(prepared.kernel, prepared.problem, damping=damping)
    assert prepared.features is not None
    return projected_columns(prepared.features, prepared.problem, damping=damping)


def network_gradient_norms(prepared: PreparedNetwork) -> Array:
    """‖∇ℓ_i‖ over the chosen layers, (n,): √(aᵀJ_iJ_iᵀa) with a = ∂ℓ/∂output."""
    problem = prepared.problem
    norms = np.empty(len(problem))
    for start, stop in blocks(len(problem), 4096):
        if problem.kind == "margin":
            logit, target = (torch.from_numpy(part[start:stop].astype(np.float64)) for part in problem.one_logit())
            error = (1 - target) * torch.sigmoid(logit) - target * torch.sigmoid(-logit)
            along = (error * torch.from_numpy(problem.weights()[start:stop]))[:, None]
        else:
            along = residuals(problem, start, stop)
        squares = ((along[:, None, :] @ prepared.inner[start:stop])[:, 0] * along).sum(1)
        norms[start:stop] = squares.clamp(min=0.0).sqrt().numpy()
    return norms

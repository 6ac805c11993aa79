"""The damping λ and how far the head is from the minimum that the scores assume.

λ is added to the sum over records.
"""

from dataclasses import dataclass

import numpy as np
import torch

from noshadow.blocks import block_length, block_tensor, blocks
from noshadow.checks import Array, require_number
from noshadow.outcomes import Damping
from noshadow.scores.baselines import block_residuals
from noshadow.scores.last_layer.design import Design, damped_design, whitened_design
from noshadow.scores.last_layer.inputs import HeadInputs

RELATIVE_DAMPING = 1e-6


def resolved_damping(damping: float | str | Damping, mean_curvature: float, source: str | None) -> Damping:
    """λ and where it comes from; a Damping is taken as it is, `source` replaces its sentence.

    "auto" means that the training's own λ is not known here: 10⁻⁶ of the mean eigenvalue of the
    undamped curvature, enough for a safe factorisation and too little to move well-determined
    directions.
    """
    if isinstance(damping, str):
        if damping != "auto":
            require_number(damping, "damping", low=0.0)
        words = f"automatic: {RELATIVE_DAMPING:g} × the mean eigenvalue of the curvature (training's own λ unknown)"
        return Damping(RELATIVE_DAMPING * mean_curvature, "automatic", source or words)
    known = damping if isinstance(damping, Damping) else Damping(damping, "given", "given")
    value = require_number(known.value, "damping", low=0.0)
    return Damping(value, known.kind, source or known.sentence)


def damped_head(
    head: HeadInputs, *, damping: float | str | Damping, source: str | None, fit_intercept: bool, penalize_intercept: bool
) -> tuple[Design, Damping]:
    """The head's design without directions that are too faint beside λ, and λ.

    Args:
        head: arrays, checked. damping, source: as `resolved_damping`. fit_intercept,
            penalize_intercept: as `whitened_design`.

    Cost: as `whitened_design`, and a pass of O(n(d + m)) where λ is not given.
    """
    design = whitened_design(head.features, fit_intercept=fit_intercept, penalize_intercept=penalize_intercept)
    scale = mean_curvature(design, head.outputs, head.sample_weight, head.task) if isinstance(damping, str) else 0.0
    settled = resolved_damping(damping, scale, source)
    return damped_design(design, settled.value, len(head.features), largest_weight(head.sample_weight)), settled


def largest_weight(sample_weight: Array | None) -> float:
    """The largest weight of a record, 1 without any."""
    return 1.0 if sample_weight is None else float(np.max(sample_weight))


def mean_curvature(design: Design, outputs: Array, sample_weight: Array | None, task: str) -> float:
    """Mean eigenvalue of Σ_j W_j ⊗ g̃_jg̃_jᵀ, which is its trace over its size.

    The size is (m−1)d dimensions for a softmax, and d otherwise.
    """
    return curvature_trace(design, outputs, sample_weight, task) / curvature_size(design.width, outputs.shape[1], task)


def curvature_size(width: int, outputs: int, task: str) -> int:
    """Dimensions of the undamped curvature: (m − 1)d for a softmax, else d."""
    return width * (outputs - 1 if task == "classification" else 1)


def curvature_trace(design: Design, outputs: Array, sample_weight: Array | None, task: str) -> float:
    """Tr Σ_j W_j ⊗ g̃_jg̃_jᵀ over the design's records."""
    trace = 0.0
    for start, stop in blocks(len(design), block_length(4 * (design.whitening.shape[1] + outputs.shape[1]))):
        lengths = (design.raw(start, stop) ** 2).sum(1)
        if sample_weight is not None:
            lengths = lengths * block_tensor(sample_weight, start, stop)
        trace += float((lengths * _record_traces(block_tensor(outputs, start, stop), task)).sum())
    return trace


def _record_traces(outputs: torch.Tensor, task: str) -> torch.Tensor:
    if task == "regression":
        return torch.ones(len(outputs), dtype=torch.float64)
    if task == "binary":
        return torch.sigmoid(outputs[:, 0]) * torch.sigmoid(-outputs[:, 0])
    probabilities = torch.softmax(outputs, 1)
    return (probabilities * (1 - probabilities)).sum(1)


@dataclass(frozen=True)
class HeadFit:
    """How well the assumptions behind the scores hold for this head.

    Attributes:
        stationarity: ‖Σ_j ∇ℓ_j + λΘ‖ over the root mean square of the records' gradient norms.
            Newton and influence assume 0; below 1 the left-over gradient is less than one typical
            record's.
        residual: root mean square of outputs − GΘ̂ relative to the outputs' spread; 0 when the
            outputs are a linear function of the features, as a last layer's are.
    """

    stationarity: float
    residual: float


def head_fit(design: Design, outputs: Array, targets: Array, sample_weight: Array | None, *, task: str, damping: float) -> HeadFit:
    """Stationarity and linearity of the trained head, from features and outputs alone.

    Θ̂ is the least-squares head that maps features to outputs (for softmax up to class shifts,
    which no score sees).

    Cost: two passes of O(ndm), float64.
    """
    centre = torch.from_numpy(outputs.mean(0, dtype=np.float64))
    sums = head_sums(design, outputs, targets, sample_weight, centre, task=task)
    theta = least_squares_head(design, sums["cross"], len(design))
    return fit_of_sums(design, sums, theta, unexplained(design, outputs, theta, task), n=len(design), task=task, damping=damping)


def linear_residual(features: Array, outputs: Array, *, fit_intercept: bool, task: str) -> tuple[float, int]:
    """Measure how far the outputs are from a linear function of the features.

    Returns that distance (`HeadFit.residual`) and the rank of the features; no score is computed.

    Cost: two passes of O(ndm), float64.
    """
    design = whitened_design(features, fit_intercept=fit_intercept, penalize_intercept=True)
    d, m = design.whitening.shape[1], outputs.shape[1]
    centre, cross = torch.from_numpy(outputs.mean(0, dtype=np.float64)), torch.zeros((d, m), dtype=torch.float64)
    spread = size = 0.0
    for start, stop in blocks(len(outputs), block_length(4 * (d + 3 * m))):
        raw = block_tensor(outputs, start, stop)
        out = _centred(raw, task)
        cross += design.shifted(start, stop).T @ out
        spread, size = spread + float(((raw - centre) ** 2).sum()), size + float((out**2).sum())
    off = unexplained(design, outputs, least_squares_head(design, cross, len(outputs)), task)
    return _relative(off, spread, size), design.rank


def head_sums(
    design: Design, outputs: Array, targets: Array, sample_weight: Array | None, centre: torch.Tensor, *, task: str
) -> dict[str, torch.Tensor]:
    """What `fit_of_sums` needs, summed over records.

    cross: (d, m) shifted rows × outputs. slope: (d, m) shifted rows × ∂ℓ/∂f. squares: Σ‖∇ℓ_j‖².
    size: Σ‖outputs‖². spread: Σ‖outputs − centre‖².
    """
    n, m = outputs.shape
    d = design.whitening.shape[1]
    cross = torch.zeros((d, m), dtype=torch.float64)
    slope, squares, size, spread = torch.zeros_like(cross), *torch.zeros(3, dtype=torch.float64)
    for start, stop in blocks(n, block_length(4 * (d + 3 * m))):
        raw, rows = block_tensor(outputs, start, stop), design.raw(start, stop)
        out, lengths = _centred(raw, task), (rows**2).sum(1)
        residuals = block_residuals(raw, block_tensor(targets, start, stop), task)
        if sample_weight is not None:
            residuals = residuals * block_tensor(sample_weight, start, stop)[:, None]
        rows.sub_(design.shift)
        cross += rows.T @ out
        slope += rows.T @ residuals
        squares += ((residuals**2).sum(1) * lengths).sum()
        size += (out**2).sum()
        spread += ((raw - centre) ** 2).sum()
    return {"cross": cross, "slope": slope, "squares": squares, "size": size, "spread": spread}


def least_squares_head(design: Design, cross: torch.Tensor, n: int) -> torch.Tensor:
    """Θ̂ in whitened coordinates, (r, m): whitened rows have Σ g′g′ᵀ = nI."""
    return design.whitening @ cross / n


def unexplained(design: Design, outputs: Array, theta: torch.Tensor, task: str) -> float:
    """Σ‖outputs − GΘ̂‖² over the design's records."""
    off, weights = 0.0, design.whitening.T @ theta
    for start, stop in blocks(len(outputs), block_length(4 * (design.whitening.shape[1] + 3 * outputs.shape[1]))):
        off += float(((_centred(block_tensor(outputs, start, stop), task) - design.shifted(start, stop) @ weights) ** 2).sum())
    return off


def fit_of_sums(
    design: Design, sums: dict[str, torch.Tensor], theta: torch.Tensor, off: float, *, n: int, task: str, damping: float
) -> HeadFit:
    """Stationarity and residual of n records.

    They follow from the records' `head_sums` and from what Θ̂ leaves `unexplained`.
    """
    # λ stands beside GᵀG, half the squared loss' curvature
    penalty = damping * (2.0 if task == "regression" else 1.0)
    left_over = float((design.unwhitening @ (design.whitening @ sums["slope"] + penalty * design.penalty @ theta)).norm())
    typical = (float(sums["squares"]) / n) ** 0.5
    stationarity = left_over / typical if typical > 0 else (np.inf if left_over > 0 else 0.0)
    return HeadFit(stationarity, _relative(off, float(sums["spread"]), float(sums["size"])))


def _relative(off: float, spread: float, size: float) -> float:
    """What is unexplained, relative to the spread.

    Outputs that do not vary leave nothing to explain: their size counts instead.
    """
    against = max(spread, 1e-20 * size)
    return (off / against) ** 0.5 if against > 0 else 0.0


def _centred(outputs: torch.Tensor, task: str) -> torch.Tensor:
    """Logits without the shift shared by all classes; other outputs as they are."""
    return outputs - outputs.mean(1, keepdim=True) if task == "classification" else outputs

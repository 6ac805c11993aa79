"""The damping λ, added to the sum over records, and how far the head is from the minimum it assumes."""

from dataclasses import dataclass

import numpy as np
import torch

from noshadow.blocks import as_blocks_of, block_length, blocks
from noshadow.checks import Array, require_number
from noshadow.scores.baselines import block_residuals
from noshadow.scores.design import Design

RELATIVE_DAMPING = 1e-6


def resolved_damping(damping: float | str, mean_curvature: float, source: str | None) -> tuple[float, str]:
    """λ and one sentence on where it comes from.

    "auto" means that the training's own λ is not known here: 10⁻⁶ of the mean eigenvalue of the undamped curvature,
    enough for a safe factorisation and too little to move well-determined directions.
    """
    if isinstance(damping, str):
        if damping != "auto":
            require_number(damping, "record_scores", "damping", low=0.0)
        value = RELATIVE_DAMPING * mean_curvature
        return value, source or f"automatic: {RELATIVE_DAMPING:g} × the mean eigenvalue of the curvature (training's own λ unknown)"
    value = require_number(damping, "record_scores", "damping", low=0.0)
    return value, source or "given"


def mean_curvature(design: Design, outputs: Array, sample_weight: Array | None, task: str) -> float:
    """Mean eigenvalue of Σ_j W_j ⊗ g̃_jg̃_jᵀ over its (m−1)d, or d, dimensions: its trace over its size."""
    trace = 0.0
    for start, stop in blocks(len(design), block_length(4 * (design.whitening.shape[1] + outputs.shape[1]))):
        lengths = (design.raw(start, stop) ** 2).sum(1)
        if sample_weight is not None:
            lengths = lengths * as_blocks_of(sample_weight, start, stop)
        trace += float((lengths * _curvature_trace(as_blocks_of(outputs, start, stop), task)).sum())
    size = design.width * (outputs.shape[1] - 1 if task == "classification" else 1)
    return trace / size


def _curvature_trace(outputs: torch.Tensor, task: str) -> torch.Tensor:
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
        stationarity: ‖Σ_j ∇ℓ_j + λΘ‖ over the root mean square of the records' gradient norms. Newton and
            influence assume 0; below 1 the left-over gradient is less than one typical record's.
        residual: root mean square of outputs − GΘ̂ relative to the outputs' spread; 0 when the outputs are a
            linear function of the features, as a last layer's are.
    """

    stationarity: float
    residual: float


def head_fit(design: Design, outputs: Array, targets: Array, sample_weight: Array | None, *, task: str, damping: float) -> HeadFit:
    """Stationarity and linearity of the trained head, from features and outputs alone.

    Θ̂ is the least-squares head that maps features to outputs (for softmax up to class shifts, which no score sees).

    Cost: two passes of O(ndm), float64.
    """
    n, m = outputs.shape
    d = design.whitening.shape[1]
    walk = blocks(n, block_length(4 * (d + 3 * m)))
    cross = torch.zeros((d, m), dtype=torch.float64)
    slope, squares, size = torch.zeros_like(cross), 0.0, 0.0
    for start, stop in walk:
        rows, out = design.shifted(start, stop), _centred(as_blocks_of(outputs, start, stop), task)
        residuals = block_residuals(as_blocks_of(outputs, start, stop), as_blocks_of(targets, start, stop), task)
        if sample_weight is not None:
            residuals = residuals * as_blocks_of(sample_weight, start, stop)[:, None]
        cross += rows.T @ out
        slope += rows.T @ residuals
        squares += float(((residuals**2).sum(1) * (design.raw(start, stop) ** 2).sum(1)).sum())
        size += float((out**2).sum())
    theta = design.whitening @ cross / n  # whitened rows have Σ g′g′ᵀ = nI
    penalty = damping * (2.0 if task == "regression" else 1.0)  # λ stands beside GᵀG, half the squared loss' curvature
    left_over = float((design.unwhitening @ (design.whitening @ slope + penalty * design.penalty @ theta)).norm())
    typical = (squares / n) ** 0.5
    off = 0.0
    for start, stop in walk:
        off += float(((_centred(as_blocks_of(outputs, start, stop), task) - design.rows(start, stop, torch.float64).T @ theta) ** 2).sum())
    # Outputs that do not vary leave nothing to explain: rounding is measured against their size instead.
    spread = max(float(np.var(outputs, axis=0, dtype=np.float64).sum()) * n, 1e-20 * size)
    stationarity = left_over / typical if typical > 0 else (np.inf if left_over > 0 else 0.0)
    return HeadFit(stationarity, (off / spread) ** 0.5 if spread > 0 else 0.0)


def _centred(outputs: torch.Tensor, task: str) -> torch.Tensor:
    """Logits without the shift shared by all classes; other outputs as they are."""
    return outputs - outputs.mean(1, keepdim=True) if task == "classification" else outputs

"""Exact scores of regressions and single logits, where the leverage says everything.

There is one leverage per record.
"""

from dataclasses import dataclass

import numpy as np
import torch

from noshadow.blocks import block_length, block_tensor, blocks
from noshadow.checks import Array
from noshadow.limits import ROUNDING_TOLERANCE
from noshadow.linalg import SpdInverse, spd_inverse
from noshadow.scores.last_layer.design import Design
from noshadow.scores.last_layer.loss_changes import logit_loss_changes
from noshadow.scores.last_layer.precision import at_most_all, doubtful_gap, rounding_note
from noshadow.scores.result import Solved

# Below this 1 − h the record is interpolated: the leave-one-out formulas are 0/0 in float64.
INTERPOLATED = 1e-11


@dataclass(frozen=True, eq=False)
class WeightedLeverage:
    """q_i = g̃_iᵀ(Σ_j w_j g̃_j g̃_jᵀ + λP)⁻¹g̃_i for all records, and the inverse behind it."""

    self_influence: Array
    inverse: SpdInverse


def weighted_leverage(design: Design, weights: Array | None, damping: float, *, block_size: int | None) -> WeightedLeverage:
    """Self-influence q_i of every record under curvature weights w; h_i = w_i q_i ∈ [0, 1].

    Args:
        design: n rows. weights: (n,) ≥ 0, None for ones. damping: λ ≥ 0 on the sum.

    Cost: two passes of 2nd² flops each, float64; memory O(d² + block·d). Exact.
    """
    curvature = damping * design.penalty + weighted_gram(design, weights, block_size=block_size)
    inverse = spd_inverse(curvature.numpy())
    return WeightedLeverage(self_influences(design, torch.from_numpy(inverse.matrix), block_size=block_size), inverse)


def logit_curvature(logits: Array, sample_weight: Array | None) -> Array:
    """s·p(1 − p) of one-logit records, (n,) float64: the weights of their curvature."""
    z = torch.from_numpy(logits.astype(np.float64))
    curvature: Array = (torch.sigmoid(z) * torch.sigmoid(-z)).numpy() * (1.0 if sample_weight is None else sample_weight)
    return curvature


def weighted_gram(design: Design, weights: Array | None, *, block_size: int | None) -> torch.Tensor:
    """Σ_j w_j g′_jg′_jᵀ over the design's records, (r, r) float64."""
    gram = torch.zeros((design.rank, design.rank), dtype=torch.float64)
    for start, stop in blocks(len(design), block_size or block_length(4 * design.rank)):
        rows = design.rows(start, stop, torch.float64)
        gram += (rows if weights is None else rows * block_tensor(weights, start, stop)) @ rows.T
    return gram


def self_influences(design: Design, inverse: torch.Tensor, *, block_size: int | None) -> Array:
    """q_i = g′_iᵀ·inverse·g′_i of the design's records, (n,)."""
    found = np.empty(len(design))
    for start, stop in blocks(len(design), block_size or block_length(4 * design.rank)):
        rows = design.rows(start, stop, torch.float64)
        found[start:stop] = ((inverse @ rows) * rows).sum(0).numpy()
    return found


def single_solved(columns: dict[str, Array], inverse: SpdInverse) -> Solved:
    """The columns with a bound on their error where records are nearly interpolated.

    The bound is eps·condition/(1 − h).
    """
    left = 1.0 - columns["leverage"]
    near = left[(left > INTERPOLATED) & (left < doubtful_gap(inverse.condition))]
    dof = float(columns["leverage"].sum())
    if not len(near):
        return Solved(columns, inverse, dof)
    error = at_most_all(float(np.finfo(float).eps * inverse.condition / near.min()))
    notes = () if error <= ROUNDING_TOLERANCE else (rounding_note(error, inverse.condition, float(near.min())),)
    return Solved(columns, inverse, dof, "float64", error, notes)


def _over_gap(numerator: Array, gap: Array, power: int = 1) -> Array:
    """numerator/(1 − h)^power, +inf where the record is interpolated."""
    interpolated = gap <= INTERPOLATED
    ratio = numerator / np.where(interpolated, 1.0, gap) ** power
    return np.where(interpolated, np.inf, ratio)


def regression_columns(
    residuals: Array, self_influence: Array, sample_weight: Array | None, *, gaps: Array | None = None
) -> dict[str, Array]:
    """Leverage h, influence 2‖e‖²h, newton 2‖e‖²h/(1−h), loo ‖e‖²(2h−h²)/(1−h)², shift ‖e‖h/(1−h).

    Args:
        residuals: (n, q) e = y − f. self_influence: (n,) q_i. sample_weight: (n,) s scaling the
            loss, h = s·q.
        gaps: (n,) 1 − h where it is known to more digits than the difference has.

    Exact when: the head minimises the (weighted) squared loss with this penalty; then `loo` is the
        refit's gap.
    Reference: [RET] Eq. (9), Props. B.1–B.2; [GLS] Prop. C.1.
    """
    weight = np.ones(len(residuals)) if sample_weight is None else sample_weight
    leverage = np.minimum(weight * self_influence, 1.0)  # above 1 by rounding only
    gap = 1.0 - leverage if gaps is None else gaps
    squared = (residuals**2).sum(1)
    return {
        "leverage": leverage,
        "influence": 2 * weight * squared * leverage,
        "newton": _over_gap(2 * weight * squared * leverage, gap),
        "loo": _over_gap(weight * squared * (2 * leverage - leverage**2), gap, 2),
        "shift": _over_gap(np.sqrt(squared) * leverage, gap),
    }


def binary_columns(
    logits: Array, targets: Array, self_influence: Array, sample_weight: Array | None, *, gaps: Array | None = None
) -> dict[str, Array]:
    """Columns of a one-logit head, written without dividing by w = p(1−p).

    With q = g̃ᵀ(GᵀWG + λI)⁻¹g̃, h = w·q and e = p − y: influence e²q, newton e²q/(1−h),
    leave-one-out logit z + q·e/(1−h), from which loo (the true loss re-evaluated) and shift of φ =
    (2y − 1)z.

    Args:
        logits: (n,). targets: (n,) in [0, 1]. self_influence: (n,). sample_weight: (n,) s scaling
            ℓ, e and w.
        gaps: (n,) 1 − h where it is known to more digits than the difference has.

    Reference: [RET] Eq. (10); [GLS] Prop. 4.5.
    """
    weight = np.ones(len(logits)) if sample_weight is None else sample_weight
    z = torch.from_numpy(logits.astype(np.float64))
    p, q = torch.sigmoid(z).numpy(), torch.sigmoid(-z).numpy()
    error = (1 - targets) * p - targets * q
    leverage = np.minimum(weight * p * q * self_influence, 1.0)
    influence = weight**2 * error**2 * self_influence
    gap = 1.0 - leverage if gaps is None else gaps
    step = _over_gap(weight * error * self_influence, gap)
    interpolated = np.isinf(step)
    step = np.where(interpolated, 0.0, step)
    sign = np.where(targets > 0.5, 1.0, -1.0)
    changes = logit_loss_changes(z, torch.from_numpy(targets.astype(np.float64)), torch.from_numpy(step)).numpy()
    return {
        "leverage": leverage,
        "influence": influence,
        "newton": _over_gap(influence, gap),
        "loo": np.where(interpolated, np.inf, weight * changes),
        "shift": np.where(interpolated, np.inf, -sign * step),
        "margin_leverage": leverage,
    }

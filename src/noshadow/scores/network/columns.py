"""Score columns of many layers from what the inverse curvature says about each record.

Every problem here has curvature Σ_j J_jᵀ R_jR_jᵀ J_j + λI with W_j = R_jR_jᵀ. With H_ii =
J_i𝓗⁻¹J_iᵀ the columns need M_i = H_iiR_i and I − R_iᵀH_iiR_i only; the dual gives both without a
difference of large numbers.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noshadow.blocks import block_tensor
from noshadow.checks import Array
from noshadow.scores.last_layer.single_output import INTERPOLATED, binary_columns, regression_columns
from noshadow.scores.last_layer.softmax import move_columns
from noshadow.scores.network.problem import SMALLEST_WEIGHT, NetworkProblem, residuals

LEAST_EXPONENT = -300.0


@dataclass(frozen=True, eq=False)
class SelfResponse:
    """How a block of records responds to itself.

    It holds the images M = H_iiR_i (b, m, c) and the gaps I − R_iᵀH_iiR_i (b, c, c).
    """

    images: Tensor
    gaps: Tensor


@dataclass(frozen=True, eq=False)
class Roots:
    """Roots of the curvature weights of a block: R_i = diag(scale)·mixing with R_iR_iᵀ = W_i.

    The scale is (b, c); the mixing is (b, c, c), or None for the identity.

    Squared loss: √s·I. Margin: √w. Softmax: √s·diag(√p)(I − √p√pᵀ), whose second factor is a
    projection.
    """

    scale: Tensor
    mixing: Tensor | None

    def matrix(self) -> Tensor:
        """R_i, (b, c, c)."""
        return torch.diag_embed(self.scale) if self.mixing is None else self.scale[:, :, None] * self.mixing


def roots(problem: NetworkProblem, start: int, stop: int) -> Roots:
    """Roots of the curvature of each record's loss in its outputs."""
    if problem.kind == "margin":
        return Roots(torch.from_numpy(np.sqrt(problem.margin_weights()[start:stop]))[:, None], None)
    root = torch.from_numpy(np.sqrt(np.maximum(problem.weights()[start:stop], SMALLEST_WEIGHT)))[:, None]
    if problem.kind == "regression":
        return Roots(root.expand(-1, problem.columns), None)
    log_p = torch.log_softmax(block_tensor(problem.outputs, start, stop), 1)
    half = (0.5 * log_p).clamp(min=LEAST_EXPONENT).exp()
    mixing = -half[:, :, None] * half[:, None, :]
    # 1 − p as the sum of the others: no cancellation when p → 1
    others = half[:, None, :].expand_as(mixing) ** 2 * (1 - torch.eye(problem.columns, dtype=torch.float64))
    mixing.diagonal(dim1=1, dim2=2).copy_(others.sum(2))
    return Roots(root * half, mixing)


def one_output_columns(problem: NetworkProblem, self_influence: Array, gaps: Array) -> dict[str, Array]:
    """Columns of a problem with one number per record from q_i = H_ii (n,) and 1 − h_i (n,).

    Regression: as `regression_columns`. Margin: the record's loss is softplus(−φ), one logit with
    label 1, so influence (1 − p)²q, newton (1 − p)²q/(1 − h), shift (1 − p)q/(1 − h), and loo the
    loss at φ − shift minus the loss.
    """
    if problem.kind == "regression":
        return regression_columns(problem.targets - problem.outputs, self_influence, problem.sample_weight, gaps=gaps)
    columns = binary_columns(*problem.one_logit(), self_influence, problem.sample_weight, gaps=gaps)
    if problem.task == "classification":
        # of a softmax it is the trace over all logits, which the margin does not give
        del columns["leverage"]
    return columns


def many_output_columns(problem: NetworkProblem, start: int, stop: int, response: SelfResponse) -> dict[str, Tensor]:
    """Columns of a block of records with several outputs.

    With the residual g_i = R_it_i the leave-one-out move of the record's own outputs is M_i(I −
    R_iᵀH_iiR_i)⁻¹t_i. Leverage is Tr(W_iH_ii), divided by q in a regression so that it stays in [0,
    1].
    """
    own, c = residuals(problem, start, stop), problem.columns
    root = roots(problem, start, stop)
    # g sums to zero over classes, so dividing by the scale undoes R: the projection leaves what is
    # left as it is.
    lifted = own / root.scale
    factor, failed = torch.linalg.cholesky_ex(response.gaps)
    interpolated = (failed > 0) | (factor.diagonal(dim1=1, dim2=2).amin(1) ** 2 <= INTERPOLATED)
    safe = torch.where(interpolated[:, None, None], torch.eye(c, dtype=torch.float64), factor)
    move = (response.images @ torch.cholesky_solve(lifted[:, :, None], safe))[:, :, 0]
    influence = (own * (response.images @ lifted[:, :, None])[:, :, 0]).sum(1)
    leverage = (root.matrix() * response.images).sum((1, 2))
    if problem.kind == "softmax":
        gaps = move_columns(problem.outputs, problem.targets, problem.sample_weight, start, stop, own, move)
    else:
        gaps = _squared_loss_gaps(problem, start, stop, own, move)
        leverage = leverage / c
        # ∂ℓ/∂f is 2(f − y) and its curvature 2, where the columns count 2eᵀHe with JᵀJ
        influence = 0.5 * influence
    infinite = torch.full_like(influence, torch.inf)
    gaps = {name: torch.where(interpolated, infinite, value) for name, value in gaps.items()}
    return {"leverage": leverage, "influence": influence} | gaps


def _squared_loss_gaps(problem: NetworkProblem, start: int, stop: int, own: Tensor, move: Tensor) -> dict[str, Tensor]:
    """newton, loo and shift of the squared loss.

    `move` belongs to 2(f − y), twice the step in JᵀJ's convention.
    """
    step = 0.5 * move
    error = block_tensor(problem.targets, start, stop) - block_tensor(problem.outputs, start, stop)
    weight = torch.from_numpy(problem.weights()[start:stop])
    return {
        "newton": (own * step).sum(1),
        "loo": weight * ((step**2).sum(1) - 2 * (error * step).sum(1)),
        "shift": step.norm(dim=1),
    }

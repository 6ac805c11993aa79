"""How far float32 products have moved the scores: measured on the riskiest records, in float64."""

from dataclasses import replace

import numpy as np
import torch

from noshadow.blocks import as_blocks_of, block_length, blocks
from noshadow.checks import Array
from noshadow.scores.baselines import block_residuals
from noshadow.scores.curvature import ContrastInverse, SoftmaxProblem


def probe_records(columns: dict[str, Array], *, each: int = 5) -> Array:
    """Records with the largest Newton gap and with the largest leverage, the ones a top-k list depends on."""
    newton, leverage = columns["newton"], columns["leverage"]
    return np.unique(np.concatenate([np.argsort(-newton)[:each], np.argsort(-leverage)[:each]]))


def shift_error(shift: Array, rounding: Array) -> float:
    """Largest share of the shift that rounding may have moved, among the riskiest twentieth."""
    top = shift >= np.quantile(shift, 0.95)
    return float((rounding[top] / np.maximum(shift[top], np.finfo(float).tiny)).max())


def newton_error(problem: SoftmaxProblem, contrast: ContrastInverse, probes: Array, directions: torch.Tensor, newton: Array) -> float:
    """Largest relative error of the Newton gap over the probed records, to first order.

    For record i let x = g_i ⊗ g̃_i and v = 𝓗⁻¹(direction_i ⊗ g̃_i), the step taken with the approximate
    inverse. With the residual ρ = x − 𝓗₋ᵢv against the float64 curvature, the exact gap is
    xᵀv + vᵀρ + O(‖ρ‖²); its distance from the reported gap covers the curvature, the inverse, the
    products and the m × m solve at once.

    Args:
        directions: (k, m) (I − WH)⁻¹g of the probed records. newton: (k,) reported gaps.
    Cost: 4·n·m·d·k flops, one pass, float64.
    """
    own = probe_problem(problem, probes)
    steps = probe_steps(own, contrast, directions)
    return first_order_error(own, steps, curvature_products(problem, steps), newton)


def probe_problem(problem: SoftmaxProblem, probes: Array) -> SoftmaxProblem:
    """The same head seen by the probed records alone."""
    weight = None if problem.sample_weight is None else problem.sample_weight[probes]
    design = replace(problem.design, features=problem.design.features[probes])
    return replace(problem, design=design, outputs=problem.outputs[probes], targets=problem.targets[probes], sample_weight=weight)


def probe_steps(own: SoftmaxProblem, contrast: ContrastInverse, directions: torch.Tensor) -> torch.Tensor:
    """v = 𝓗⁻¹(direction ⊗ g̃) of the k probed records with the approximate inverse, (k, m, r), summing to zero over classes."""
    k, r = len(directions), own.design.rank
    right = directions[:, :, None] * own.design.rows(0, k, torch.float64).T[:, None, :]
    reduced = right[:, contrast.others].reshape(k, -1)
    steps = torch.zeros_like(right)
    steps[:, contrast.others] = (reduced @ torch.from_numpy(contrast.inverse.matrix)).view(k, own.classes - 1, r)
    return steps - steps.mean(1, keepdim=True)


def curvature_products(problem: SoftmaxProblem, steps: torch.Tensor) -> torch.Tensor:
    """Σ_j (W_j ⊗ g̃_jg̃_jᵀ)v over the problem's records, without the penalty, (k, m, r) float64."""
    image = torch.zeros_like(steps)
    for start, stop in blocks(len(problem.design), block_length(4 * problem.classes * len(steps), high=8192)):
        image += _curvature_product(problem, start, stop, steps)
    return image


def first_order_error(own: SoftmaxProblem, steps: torch.Tensor, products: torch.Tensor, newton: Array) -> float:
    """Largest relative distance of the reported gaps from xᵀv + vᵀ(x − 𝓗₋ᵢv)."""
    rows = own.design.rows(0, len(steps), torch.float64).T  # (k, r)
    image = own.damping * (steps @ own.design.penalty) + products - _own_curvature_product(own, rows, steps)
    exact_side = torch.einsum("km,kr,kmr->k", _residuals(own), rows, steps)
    corrected = 2 * exact_side - (steps * image).sum((1, 2))
    reported = torch.from_numpy(newton)
    return float(((corrected - reported).abs() / corrected.abs().clamp(min=torch.finfo(torch.float64).tiny)).max())


def _residuals(own: SoftmaxProblem) -> torch.Tensor:
    k = len(own.outputs)
    logits, targets = as_blocks_of(own.outputs, 0, k), as_blocks_of(own.targets, 0, k)
    return block_residuals(logits, targets, "classification") * own.weights(0, k)[:, None]


def _weighted_moves(logits: torch.Tensor, weights: torch.Tensor, moves: torch.Tensor) -> torch.Tensor:
    """s·W applied to logit moves (…, b, m) for softmax probabilities of `logits` (b, m)."""
    p = torch.softmax(logits, 1)
    return weights[:, None] * p * (moves - (moves * p).sum(-1, keepdim=True))


def _curvature_product(problem: SoftmaxProblem, start: int, stop: int, steps: torch.Tensor) -> torch.Tensor:
    rows = problem.design.rows(start, stop, torch.float64)  # (r, b)
    moves = (steps.flatten(0, 1) @ rows).view(*steps.shape[:2], -1).transpose(1, 2)  # (k, b, m)
    weighted = _weighted_moves(as_blocks_of(problem.outputs, start, stop), problem.weights(start, stop), moves)
    return (weighted.transpose(1, 2).flatten(0, 1) @ rows.T).view_as(steps)


def _own_curvature_product(own: SoftmaxProblem, rows: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    k = len(steps)
    moves = torch.einsum("kmr,kr->km", steps, rows)
    return _weighted_moves(as_blocks_of(own.outputs, 0, k), own.weights(0, k), moves)[:, :, None] * rows[:, None, :]

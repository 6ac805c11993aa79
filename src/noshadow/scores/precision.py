"""How far float32 products have moved the scores: measured on the riskiest records, in float64."""

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
    design, m, k = problem.design, problem.classes, len(probes)
    rows = torch.cat([design.rows(int(i), int(i) + 1, torch.float64) for i in probes], 1).T  # (k, r)
    own = torch.cat([_residual(problem, int(i)) for i in probes])
    right = directions[:, :, None] * rows[:, None, :]  # (k, m, r)
    reduced = right[:, contrast.others].reshape(k, -1)
    steps = torch.zeros_like(right)
    steps[:, contrast.others] = (reduced @ torch.from_numpy(contrast.inverse.matrix)).view(k, m - 1, design.rank)
    steps -= steps.mean(1, keepdim=True)  # v, (k, m, r), summing to zero over classes
    image = problem.damping * (steps @ design.penalty)
    for start, stop in blocks(len(design), block_length(4 * m * k, high=8192)):
        image += _curvature_product(problem, start, stop, steps)
    image -= _own_curvature_product(problem, probes, rows, steps)
    exact_side = torch.einsum("km,kr,kmr->k", own, rows, steps)
    corrected = 2 * exact_side - (steps * image).sum((1, 2))  # xᵀv + vᵀ(x − 𝓗₋ᵢv)
    reported = torch.from_numpy(newton)
    return float(((corrected - reported).abs() / corrected.abs().clamp(min=torch.finfo(torch.float64).tiny)).max())


def _residual(problem: SoftmaxProblem, i: int) -> torch.Tensor:
    logits, targets = as_blocks_of(problem.outputs, i, i + 1), as_blocks_of(problem.targets, i, i + 1)
    return block_residuals(logits, targets, "classification") * problem.weights(i, i + 1)[:, None]


def _weighted_moves(logits: torch.Tensor, weights: torch.Tensor, moves: torch.Tensor) -> torch.Tensor:
    """s·W applied to logit moves (…, b, m) for softmax probabilities of `logits` (b, m)."""
    p = torch.softmax(logits, 1)
    return weights[:, None] * p * (moves - (moves * p).sum(-1, keepdim=True))


def _curvature_product(problem: SoftmaxProblem, start: int, stop: int, steps: torch.Tensor) -> torch.Tensor:
    rows = problem.design.rows(start, stop, torch.float64)  # (r, b)
    moves = (steps.flatten(0, 1) @ rows).view(*steps.shape[:2], -1).transpose(1, 2)  # (k, b, m)
    weighted = _weighted_moves(as_blocks_of(problem.outputs, start, stop), problem.weights(start, stop), moves)
    return (weighted.transpose(1, 2).flatten(0, 1) @ rows.T).view_as(steps)


def _own_curvature_product(problem: SoftmaxProblem, probes: Array, rows: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    logits = torch.cat([as_blocks_of(problem.outputs, int(i), int(i) + 1) for i in probes])
    weights = torch.cat([problem.weights(int(i), int(i) + 1) for i in probes])
    moves = torch.einsum("kmr,kr->km", steps, rows)
    return _weighted_moves(logits, weights, moves)[:, :, None] * rows[:, None, :]

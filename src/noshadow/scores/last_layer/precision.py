"""How far rounding has moved the scores: measured on the riskiest records, in float64."""

from dataclasses import replace

import numpy as np
import torch

from noshadow.blocks import block_length, block_tensor, blocks
from noshadow.checks import Array
from noshadow.outcomes import Note
from noshadow.scores.baselines import block_residuals
from noshadow.scores.last_layer.curvature import ContrastInverse, SoftmaxProblem
from noshadow.scores.last_layer.design import of_records
from noshadow.scores.last_layer.loss_changes import margin_falls

# Where rounding, eps times the condition, may be more than this share of 1 − h, somebody has to
# look.
DOUBTFUL_SHARE = 1e-6


def probe_records(columns: dict[str, Array], *, each: int = 5) -> Array:
    """The records with the largest Newton gap and those with the largest leverage.

    A top-k list depends on these.
    """
    newton, leverage = columns["newton"], columns["leverage"]
    return np.unique(np.concatenate([np.argsort(-newton)[:each], np.argsort(-leverage)[:each]]))


def doubtful_gap(condition: float) -> float:
    """The value of 1 − h below which rounding may have taken a large share of it.

    Below it a difference of float64 numbers may have lost more than `DOUBTFUL_SHARE` of 1 − h.
    """
    return float(np.finfo(float).eps) * condition / DOUBTFUL_SHARE


def nearly_interpolated(columns: dict[str, Array], gaps: Array, condition: float, *, each: int = 5) -> Array:
    """Choose records with finite scores and a doubtful 1 − h.

    These are the ones with the smallest 1 − h and those with the largest shift. The result is empty
    where no record is doubtful.
    """
    near = np.flatnonzero(np.isfinite(columns["newton"]) & (gaps < doubtful_gap(condition)))
    return np.unique(np.concatenate([near[np.argsort(gaps[near])[:each]], near[np.argsort(-columns["shift"][near])[:each]]]))


def rounding_note(error: float, condition: float, gap: float) -> Note:
    """The note for a record whose 1 − h is too small for float64.

    Float64 cannot then hold what is left of the curvature without the record.
    """
    return Note(
        f"records are nearly interpolated (1 − leverage down to {gap:.0e}): rounding in float64 moved their newton, loo and shift by up to "
        f"{error:.1e} (condition {condition / gap:.0e} without the record), raise the damping",
        "NS022",
    )


def largest_relative_error(reported: torch.Tensor, exact: torch.Tensor) -> float:
    """max |reported − exact| / |exact|, both (k,)."""
    return float(((exact - reported).abs() / exact.abs().clamp(min=torch.finfo(torch.float64).tiny)).max())


def shift_error(shift: Array, rounding: Array) -> float:
    """Largest share of the shift that rounding may have moved, among the riskiest twentieth."""
    top = shift >= np.quantile(shift, 0.95)
    return float((rounding[top] / np.maximum(shift[top], np.finfo(float).tiny)).max())


def newton_error(problem: SoftmaxProblem, contrast: ContrastInverse, probes: Array, directions: torch.Tensor, newton: Array) -> float:
    """Largest relative error of the Newton gap over the probed records, to first order.

    For record i let x = g_i ⊗ g̃_i and v = 𝓗⁻¹(direction_i ⊗ g̃_i), the step taken with the
    approximate inverse. With the residual ρ = x − 𝓗₋ᵢv against the float64 curvature, the exact gap
    is xᵀv + vᵀρ + O(‖ρ‖²); its distance from the reported gap covers the curvature, the inverse,
    the products and the m × m solve at once.

    Args:
        directions: (k, m) (I − WH)⁻¹g of the probed records. newton: (k,) reported gaps.
    Cost: 4·n·m·d·k flops, one pass, float64.
    """
    own = probe_problem(problem, probes)
    steps = probe_steps(own, contrast, directions)
    return first_order_error(own, steps, curvature_products(problem, steps), newton)


def float64_error(
    problem: SoftmaxProblem, contrast: ContrastInverse, probes: Array, directions: torch.Tensor, columns: dict[str, Array]
) -> float:
    """Largest relative error of newton and shift over the probed records of a float64 run.

    The error is to first order; it is 1 where no digit is left.
    """
    own = probe_problem(problem, probes)
    steps = probe_steps(own, contrast, directions)
    products = curvature_products(problem, steps)
    shift = refined_shift_error(own, contrast, steps, products, columns["shift"][probes])
    return at_most_all(max(shift, first_order_error(own, steps, products, columns["newton"][probes])))


def at_most_all(error: float) -> float:
    """Limit a relative error to 1.

    An error larger than the number itself, or one that is not a number, means that no digit is
    left.
    """
    return min(error, 1.0) if np.isfinite(error) else 1.0


def probe_problem(problem: SoftmaxProblem, probes: Array) -> SoftmaxProblem:
    """The same problem with the probed records only."""
    weight = None if problem.sample_weight is None else problem.sample_weight[probes]
    return replace(
        problem,
        design=of_records(problem.design, probes),
        outputs=problem.outputs[probes],
        targets=problem.targets[probes],
        sample_weight=weight,
    )


def probe_steps(own: SoftmaxProblem, contrast: ContrastInverse, directions: torch.Tensor) -> torch.Tensor:
    """v = 𝓗⁻¹(direction ⊗ g̃) of the k probed records with the approximate inverse, (k, m, r).

    The steps sum to zero over classes.
    """
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
    image = _left_out_image(own, rows, steps, products)
    exact_side = torch.einsum("km,kr,kmr->k", _residuals(own), rows, steps)
    corrected = 2 * exact_side - (steps * image).sum((1, 2))
    return largest_relative_error(torch.from_numpy(newton), corrected)


def refined_shift_error(own: SoftmaxProblem, contrast: ContrastInverse, steps: torch.Tensor, products: torch.Tensor, shift: Array) -> float:
    """Largest relative change of the reported shifts under one more step of refinement.

    With ρ = x − 𝓗₋ᵢv as in `newton_error` the own logits still lack L𝓗₋ᵢ⁻¹ρ = (I − H_iiW_i)⁻¹L𝓗⁻¹ρ,
    L the map from weights to the record's logits: what rounding did to each class, also to one that
    hardly occurs and adds nothing to the gap.
    """
    k, m, r = steps.shape
    rows = own.design.rows(0, k, torch.float64).T
    missing = torch.einsum("km,kr->kmr", _residuals(own), rows) - _left_out_image(own, rows, steps, products)
    covariance = torch.from_numpy(contrast.inverse.matrix)
    lacking = (missing[:, contrast.others].reshape(k, -1) @ covariance).view(k, m - 1, r)
    seen = torch.einsum("kcr,kr->kc", lacking, rows)
    lifted = torch.einsum("ki,aibj->kabj", rows, covariance.view(m - 1, r, m - 1, r))
    own_response = torch.einsum("kabj,kj->kab", lifted, rows)
    logits, targets = block_tensor(own.outputs, 0, k), block_tensor(own.targets, 0, k)
    p = torch.softmax(logits, 1)
    others = p[:, contrast.others]
    curvature = own.weights(0, k)[:, None, None] * (torch.diag_embed(others) - others[:, :, None] * others[:, None, :])
    last = torch.linalg.solve(torch.eye(m - 1, dtype=torch.float64) - own_response @ curvature, seen[:, :, None])[:, :, 0]
    moves = torch.einsum("kmr,kr->km", steps, rows)
    moves[:, contrast.others] += last
    labels = targets if targets.ndim == 1 else targets.argmax(1)
    refined = margin_falls(logits, labels, moves)
    return largest_relative_error(torch.from_numpy(shift), refined)


def _left_out_image(own: SoftmaxProblem, rows: torch.Tensor, steps: torch.Tensor, products: torch.Tensor) -> torch.Tensor:
    """𝓗₋ᵢv of each probed record, (k, m, r)."""
    return own.damping * (steps @ own.design.penalty) + products - _own_curvature_product(own, rows, steps)


def _residuals(own: SoftmaxProblem) -> torch.Tensor:
    k = len(own.outputs)
    logits, targets = block_tensor(own.outputs, 0, k), block_tensor(own.targets, 0, k)
    return block_residuals(logits, targets, "classification") * own.weights(0, k)[:, None]


def _weighted_moves(logits: torch.Tensor, weights: torch.Tensor, moves: torch.Tensor) -> torch.Tensor:
    """s·W applied to logit moves (…, b, m) for softmax probabilities of `logits` (b, m)."""
    p = torch.softmax(logits, 1)
    return weights[:, None] * p * (moves - (moves * p).sum(-1, keepdim=True))


def _curvature_product(problem: SoftmaxProblem, start: int, stop: int, steps: torch.Tensor) -> torch.Tensor:
    rows = problem.design.rows(start, stop, torch.float64)  # (r, b)
    moves = (steps.flatten(0, 1) @ rows).view(*steps.shape[:2], -1).transpose(1, 2)  # (k, b, m)
    weighted = _weighted_moves(block_tensor(problem.outputs, start, stop), problem.weights(start, stop), moves)
    return (weighted.transpose(1, 2).flatten(0, 1) @ rows.T).view_as(steps)


def _own_curvature_product(own: SoftmaxProblem, rows: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    k = len(steps)
    moves = torch.einsum("kmr,kr->km", steps, rows)
    return _weighted_moves(block_tensor(own.outputs, 0, k), own.weights(0, k), moves)[:, :, None] * rows[:, None, :]

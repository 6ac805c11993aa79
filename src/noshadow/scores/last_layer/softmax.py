"""Exact columns of a softmax head from the variances of each record's logit differences.

What the inverse curvature says about record i is

    D_uv = (e_u − e_v)ᵀ H_ii (e_u − e_v),   aᵀH_ii b = −½ Σ_uv a_u b_v D_uv  for a, b that sum to
    zero.

D is non-negative and each entry is accurate on its own: a class that hardly ever occurs has a huge
variance, and in this form it cannot drown the others, which is what allows float32.
"""

from dataclasses import dataclass

import torch

from noshadow.blocks import block_tensor
from noshadow.checks import Array
from noshadow.linalg import batched_spd_solve
from noshadow.scores.baselines import block_residuals
from noshadow.scores.last_layer.curvature import SoftmaxProblem
from noshadow.scores.last_layer.loss_changes import log_mean_exp, log_others, margin_falls, softmax_loss_changes

# Columns beside the scores: how far rounding may have moved `shift`, and the smallest pivot of I −
# W^½HW^½, which is 1 − h of one logit.
SHIFT_ROUNDING, LEFT_OUT_GAP = "shift_rounding", "left_out_gap"
# Pivots of I − W^½HW^½ below this mean spectral radius 1: an interpolated record.
_INTERPOLATED = {torch.float64: 1e-11, torch.float32: 1e-5}


def square_differences(differences: torch.Tensor, m: int) -> torch.Tensor:
    """D as symmetric matrices, (m(m−1)/2, b) → (b, m, m)."""
    u, v = torch.triu_indices(m, m, 1)
    square = differences.new_empty((differences.shape[1], m, m))
    square[:, u, v] = differences.T
    square[:, v, u] = differences.T
    square.diagonal(dim1=1, dim2=2).zero_()
    return square


@dataclass(frozen=True, eq=False)
class NewtonStep:
    """One Newton step of leaving each record of a block out.

    leverage: (b,) Tr(W_iH_ii). influence: (b,) g_iᵀH_ii g_i. direction: (b, m) (I − W_iH_ii)⁻¹g_i.
    logits: (b, m) H_ii times that, the move of the record's own logits (up to a shift shared by all
    classes). rounding: (b, m) how far rounding of D may have moved each of them. gap: (b,) smallest
    pivot of I − W^½HW^½. interpolated: (b,) where that is 0 up to rounding, the spectral radius of
    W_iH_ii is 1.
    """

    leverage: torch.Tensor
    influence: torch.Tensor
    direction: torch.Tensor
    logits: torch.Tensor
    rounding: torch.Tensor
    gap: torch.Tensor
    interpolated: torch.Tensor


def newton_step(square: torch.Tensor, probabilities: torch.Tensor, residuals: torch.Tensor, weights: torch.Tensor) -> NewtonStep:
    """Solve (I − WH)x = g for every record of a block, symmetrically.

    Logits are measured against the record's most probable class c. There W = RRᵀ in closed form
    with R = diag(√s·u)(I − uuᵀ/(1 + √p_c)), u = √p off c, so that (I − WH)⁻¹g = g + R(I −
    RᵀHR)⁻¹RᵀHg and the matrix I − RᵀHR = I − E + uvᵀ + vuᵀ, E = −½·diag(√s·u)·D·diag(√s·u), is
    symmetric positive definite below spectral radius 1.

    Args:
        square: (b, m, m) D. probabilities: (b, m). residuals: (b, m) s·(p − y). weights: (b,) s.
    Cost: m³/3 flops per record.
    """
    rows = torch.arange(len(square))
    top = probabilities.argmax(1, keepdim=True)
    root = weights.sqrt()[:, None]
    c = 1.0 / (1.0 + probabilities.gather(1, top).sqrt())
    u = probabilities.sqrt().scatter(1, top, 0.0)
    a = root * u
    # one pass over D for all three
    images = square @ torch.stack([residuals, probabilities, a * u], 2)
    leverage = 0.5 * weights * (probabilities * images[:, :, 1]).sum(1)
    influence = -0.5 * (residuals * images[:, :, 0]).sum(1)

    def gauged(image: torch.Tensor) -> torch.Tensor:
        moved = -0.5 * image
        return moved - moved.gather(1, top)

    def projected(vector: torch.Tensor) -> torch.Tensor:
        return vector - c * u * (u * vector).sum(1, keepdim=True)

    lift = 0.5 * a * square[rows, top[:, 0]]
    z = -0.5 * a * images[:, :, 2] + lift * (a * u).sum(1, keepdim=True) + a * (lift * u).sum(1, keepdim=True)
    v = c * z - root * lift - 0.5 * c**2 * (u * z).sum(1, keepdim=True) * u
    matrix = square * (0.5 * a)[:, :, None]
    matrix *= a[:, None, :]  # −E
    matrix.baddbmm_(torch.stack([u, v], 2), torch.stack([v, u], 1))
    matrix.diagonal(dim1=1, dim2=2).add_(1.0)
    solved, pivots = batched_spd_solve(matrix, projected(a * gauged(images[:, :, 0])))
    interpolated = pivots < _INTERPOLATED[square.dtype]
    back = a * projected(solved)
    # The top class takes what makes a direction sum to zero over classes.
    direction = residuals + back.scatter(1, top, -back.sum(1, keepdim=True))
    move = gauged((square @ direction[:, :, None])[:, :, 0])
    # D of a class that hardly occurs is huge and nearly the same against all others: its move is a
    # difference of such terms.
    rounding = torch.finfo(square.dtype).eps * square[rows, top[:, 0]] * direction.abs().sum(1, keepdim=True)
    return NewtonStep(leverage, influence, direction, move, rounding, pivots, interpolated)


def block_columns(
    problem: SoftmaxProblem, start: int, stop: int, differences: torch.Tensor
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Score columns of one block and the Newton directions (b, m).

    `SHIFT_ROUNDING` and `LEFT_OUT_GAP` stand beside the score columns.

    Reference: leverage [GLS] Prop. C.2 in probability space (erratum 3); influence and newton [RET]
        Props. B.3–B.4.
    """
    dtype = differences.dtype
    logits = block_tensor(problem.outputs, start, stop)
    targets = block_tensor(problem.targets, start, stop)
    weights = problem.weights(start, stop)
    residuals = block_residuals(logits, targets, "classification") * weights[:, None]
    square = square_differences(differences, problem.classes)
    step = newton_step(square, torch.softmax(logits, 1).to(dtype), residuals.to(dtype), weights.to(dtype))
    move = step.logits.double()
    gaps = move_columns(problem.outputs, problem.targets, problem.sample_weight, start, stop, residuals, move)
    infinite = torch.full_like(step.influence, torch.inf, dtype=torch.float64)
    labels = targets if targets.ndim == 1 else targets.argmax(1)
    others_after = torch.log_softmax(log_others(logits, labels) + move, 1)
    columns = {
        # above by rounding only
        "leverage": step.leverage.double().clamp(max=problem.classes - 1.0),
        "influence": step.influence.double(),
        SHIFT_ROUNDING: log_mean_exp(others_after, step.rounding.double()),
        LEFT_OUT_GAP: step.gap.double(),
    }
    columns |= {name: torch.where(step.interpolated, infinite, value) for name, value in gaps.items()}
    return columns, step.direction.double()


def move_columns(
    outputs: Array, targets: Array, sample_weight: Array | None, start: int, stop: int, residuals: torch.Tensor, move: torch.Tensor
) -> dict[str, torch.Tensor]:
    """newton, loo and shift of a block of records.

    The record's own logits move by `move` (b, m) when it is left out.

    Args:
        outputs, targets, sample_weight: of all records. residuals: (b, m) s·(p − y) of the block.
    """
    logits, wanted = block_tensor(outputs, start, stop), block_tensor(targets, start, stop)
    labels = wanted if wanted.ndim == 1 else wanted.argmax(1)
    scale = 1.0 if sample_weight is None else block_tensor(sample_weight, start, stop)
    return {
        "newton": (residuals * move).sum(1),
        "loo": scale * softmax_loss_changes(logits, wanted, move),
        "shift": margin_falls(logits, labels, move),
    }

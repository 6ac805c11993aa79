"""The Gauss–Newton leave-one-out step in its dual form.

It needs one factorisation over records instead of one over parameters.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noshadow.blocks import blocks
from noshadow.checks import Array, InputError, NumericalError, advice, its_place, said
from noshadow.linalg import SpdInverse, spd_inverse
from noshadow.scores.network.columns import SelfResponse, many_output_columns, one_output_columns, roots
from noshadow.scores.network.problem import NetworkProblem

ROWS = 1024


@dataclass(frozen=True, eq=False)
class DualColumns:
    """Columns of all records (n,), Σ leverage, and the inverse's condition and jitter."""

    columns: dict[str, Array]
    dof: float
    condition: float
    jitter: float


def dual_bytes(rows: int) -> int:
    """Memory of the dual form: the kernel and its inverse."""
    return 2 * 8 * rows * rows


def require_dual_memory(rows: int, limit: float) -> None:
    """Refuse before allocating when the kernel and its inverse would not fit."""
    need = dual_bytes(rows)
    if need > limit:
        raise InputError(
            said(
                f"records × outputs must be few enough for a kernel and its inverse within max_memory ({limit / 1e9:.1f} GB); "
                f"got {rows:,} rows, which need {need / 1e9:.1f} GB. "
                f"Pass {advice('method', 'projected')}, or raise max_memory{its_place('max_memory')}."
            )
        )


def scaled_kernel(kernel: Tensor, problem: NetworkProblem) -> Tensor:
    """K_R = RᵀKR in place, for the block-diagonal R of the records' roots."""
    n, c = len(problem), problem.columns
    root = roots(problem, 0, n)
    if root.mixing is None:
        flat = root.scale.reshape(-1)
        return kernel.mul_(flat[:, None]).mul_(flat)
    matrix = root.matrix()
    for start, stop in blocks(n, max(ROWS // c, 1)):
        rows = kernel[start * c : stop * c]
        rows.copy_((matrix[start:stop].mT @ rows.view(stop - start, c, n * c)).view_as(rows))
        shaped = rows.view((stop - start) * c, n, c).transpose(0, 1)  # (n, b·c, c)
        rows.copy_((shaped @ matrix).transpose(0, 1).reshape_as(rows))
    return kernel


@dataclass(frozen=True, eq=False)
class DualInverse:
    """The matrices that every column is made of.

    C gives I − R_iᵀH_iiR_i = λC_ii, and `free` and `lift` give what unpenalised weights add to
    R_iᵀH_iiR_i = [K_RC]_ii.

    matrix: (N, N) C. free, lift: (N, f) and (f, N), whose product is added to K_RC; None without
    unpenalised weights.
    """

    matrix: Tensor
    free: Tensor | None
    lift: Tensor | None
    condition: float
    jitter: float

    def hat(self, kernel: Tensor, rows: slice) -> Tensor:
        """R_iᵀH_iiR_i of one record, from the rows of K_R that are its own."""
        own = kernel[rows] @ self.matrix[:, rows]
        return own if self.free is None or self.lift is None else own + self.free[rows] @ self.lift[:, rows]

    def hat_diagonal(self, kernel: Tensor, start: int, stop: int) -> Tensor:
        """The same for records with one number each, (b,)."""
        own = (kernel[start:stop] * self.matrix[start:stop]).sum(1)
        return own if self.free is None or self.lift is None else own + (self.free[start:stop] * self.lift[:, start:stop].T).sum(1)


def dual_columns(kernel: Tensor, problem: NetworkProblem, *, damping: float) -> DualColumns:
    """Compute all columns from K_R = RᵀKR.

    With C = (K_R + λI)⁻¹, I − R_iᵀH_iiR_i = λC_ii and R_iᵀH_iiR_i = [K_RC]_ii.

    Neither is a difference of large numbers, so h keeps its digits as w → 0 and 1 − h as h → 1.

    Args:
        kernel: (nc, nc) K_R, left as it is. damping: λ > 0.

    Exact when: the network is linear in the chosen parameters around the trained ones, and they are
        at a minimum.
    Cost: (nc)³ flops; one further matrix of the kernel's size.
    """
    inverse = dual_inverse(kernel, damping)
    n, c = len(problem), problem.columns
    if c == 1:
        leverage, gaps = dual_leverages(kernel, inverse, damping)
        own = one_output_columns(problem, leverage / (roots(problem, 0, n).scale[:, 0] ** 2).numpy(), gaps)
        return DualColumns(own, float(leverage.sum()), inverse.condition, inverse.jitter)
    parts: dict[str, list[Tensor]] = {}
    dof = 0.0
    for start, stop in blocks(n, max(ROWS // c, 1)):
        response, trace = _self_response(kernel, inverse, problem, damping, start, stop)
        dof += trace
        for name, values in many_output_columns(problem, start, stop, response).items():
            parts.setdefault(name, []).append(values)
    return DualColumns({name: torch.cat(values).numpy() for name, values in parts.items()}, dof, inverse.condition, inverse.jitter)


def dual_leverages(kernel: Tensor, inverse: DualInverse, damping: float) -> tuple[Array, Array]:
    """(h, 1 − h) of records with one number each, (n,), each to its own digits."""
    leverage = torch.cat([inverse.hat_diagonal(kernel, a, b) for a, b in blocks(len(kernel), ROWS)]).numpy()
    return leverage, np.minimum(damping * inverse.matrix.diagonal().numpy(), 1.0)


def dual_inverse(kernel: Tensor, damping: float, *, free: Tensor | None = None) -> DualInverse:
    """C = M⁻¹ with M = K_R + λI, less the fit of unpenalised weights.

    With unpenalised weights C = M⁻¹ − M⁻¹Z(ZᵀM⁻¹Z)⁻¹ZᵀM⁻¹.

    Args:
        kernel: (N, N) K_R of the penalised weights, left as it is. damping: λ > 0.
        free: (N, f) Z = RᵀJ of weights without a penalty; None: there are none.

    Raises:
        NumericalError: M, or the curvature of the unpenalised weights, cannot be factored in
            float64.
    """
    inverse = _damped_inverse(kernel, damping)
    if inverse.jitter > 0:
        # 1 − h = λC_ii holds for λ alone: what the jitter added would pass for leverage.
        raise NumericalError(
            said(
                f"the kernel plus λ = {damping:g} cannot be factored in float64 (its trace is {float(kernel.trace()):.3g}). "
                "Raise the damping."
            )
        )
    matrix = torch.from_numpy(inverse.matrix)
    if free is None:
        return DualInverse(matrix, None, None, inverse.condition, inverse.jitter)
    image = matrix @ free
    weights = spd_inverse((free.T @ image).numpy())
    lift = torch.from_numpy(weights.matrix) @ image.T
    matrix.addmm_(image, lift, alpha=-1.0)
    return DualInverse(matrix, free, lift, max(inverse.condition, weights.condition), weights.jitter)


def _damped_inverse(kernel: Tensor, damping: float) -> SpdInverse:
    damped = kernel.clone()
    damped.diagonal().add_(damping)
    return spd_inverse(damped.numpy(), overwrite=True)


def _self_response(
    kernel: Tensor, inverse: DualInverse, problem: NetworkProblem, damping: float, start: int, stop: int
) -> tuple[SelfResponse, float]:
    """M_i = H_iiR_i and λC_ii of a block, and Σ Tr(R_iᵀM_i).

    R_iᵀM_i = [K_RC]_ii, and dividing by the scale takes R_iᵀ off again, up to a move of all logits
    together that no column sees.
    """
    c = problem.columns
    at = [slice(i * c, (i + 1) * c) for i in range(start, stop)]
    own = torch.stack([inverse.hat(kernel, rows) for rows in at])
    gaps = damping * torch.stack([inverse.matrix[rows, rows] for rows in at])
    return SelfResponse(own / roots(problem, start, stop).scale[:, :, None], gaps), float(own.diagonal(dim1=1, dim2=2).sum())

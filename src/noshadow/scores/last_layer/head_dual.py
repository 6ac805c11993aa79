"""Heads with about as many dimensions as records, or more, solved over the records.

There records are nearly interpolated as λ → 0. In the curvature over weights 1 − h is then the
difference of two numbers near one, of which float64 keeps eps/(1 − h); over records it is λC_ii, to
all digits.
"""

from dataclasses import dataclass

import numpy as np
import torch

from noshadow.blocks import block_tensor
from noshadow.checks import Array
from noshadow.linalg import SpdInverse
from noshadow.scores.baselines import block_residuals
from noshadow.scores.last_layer.curvature import SoftmaxProblem
from noshadow.scores.last_layer.design import Design, raw_rows
from noshadow.scores.last_layer.precision import at_most_all
from noshadow.scores.last_layer.single_output import INTERPOLATED
from noshadow.scores.last_layer.softmax import move_columns
from noshadow.scores.network.columns import LEAST_EXPONENT
from noshadow.scores.network.dual import DualInverse, dual_bytes, dual_inverse, dual_leverages
from noshadow.scores.network.problem import SMALLEST_WEIGHT
from noshadow.scores.result import Solved

NOTE = "hardly any damping for so many dimensions: solved over the records, where 1 − leverage keeps its digits"
# Records for each dimension up to which they are worth a try: eight times the flops of the weights.
MOST_RECORDS = 2


@dataclass(frozen=True, eq=False)
class HeadDual:
    """A head over its records: g̃ᵀg̃ (n, n) float64, and whether the bias in it has no penalty."""

    kernel: torch.Tensor
    free_bias: bool


def over_records(design: Design, damping: float, *, outputs: int, max_memory: float) -> HeadDual | None:
    """The head over its records where that costs little more than over weights, else None.

    It needs λ > 0. The dual has `outputs` numbers per record.
    """
    n = len(design)
    if damping == 0 or n > MOST_RECORDS * design.rank or dual_bytes(n * outputs) > max_memory:
        return None
    free_bias = design.fit_intercept and not design.all_penalised
    rows = raw_rows(design.features, 0, n, design.fit_intercept and not free_bias)
    kernel = rows @ rows.T
    if free_bias:
        # What a free bias sees is taken off again whatever its size; of the size of the others it
        # keeps the kernel well conditioned.
        kernel += kernel.diagonal().mean()
    return HeadDual(kernel, free_bias)


def single_over_records(head: HeadDual, weights: Array | None, damping: float) -> tuple[Array, Array, SpdInverse]:
    """Solve for one output with curvature weights w, over records.

    Returns q and 1 − h of every record, (n,) each, and the condition and jitter of the
    factorisation.

    Raises:
        NumericalError: the kernel plus λ cannot be factored in float64.
    """
    w = np.ones(len(head.kernel)) if weights is None else np.maximum(weights, SMALLEST_WEIGHT)
    root = torch.from_numpy(np.sqrt(w))
    kernel = head.kernel * root[:, None] * root
    inverse = dual_inverse(kernel, damping, free=root[:, None] if head.free_bias else None)
    leverage, gaps = dual_leverages(kernel, inverse, damping)
    return leverage / w, gaps, _told(inverse)


@dataclass(frozen=True, eq=False)
class ContrastRoots:
    """Roots of softmax curvatures, W_i = A_iA_iᵀ with A_i (m, m−1).

    They are in contrasts to each record's likeliest class t.

    With u = √p off t: rows c ≠ t of A are those of R = √s·diag(u)(I − uuᵀ/(1 + √p_t)), row t
    is −√(s·p_t)·uᵀ. No entry is a difference.

    Attributes:
        top: (n, 1) t. others: (n, m−1) the other classes. u: (n, m−1). root_top: (n, 1) √p_t.
            scale: (n, 1) √s.
    """

    top: torch.Tensor
    others: torch.Tensor
    u: torch.Tensor
    root_top: torch.Tensor
    scale: torch.Tensor

    def matrix(self) -> torch.Tensor:
        """A, (n, m, m−1)."""
        n, k = self.u.shape
        own = torch.eye(k, dtype=torch.float64) - self.u[:, :, None] * (self.u / (1.0 + self.root_top))[:, None, :]
        whole = self.u.new_zeros((n, k + 1, k))
        whole.scatter_(1, self.others[:, :, None].expand(n, k, k), own * (self.scale * self.u)[:, :, None])
        return whole.scatter_(1, self.top[:, :, None].expand(n, 1, k), -(self.scale * self.root_top * self.u)[:, None, :])

    def without(self, values: torch.Tensor) -> torch.Tensor:
        """R⁻¹ of a vector over the other classes, (n, m−1)."""
        return self._spread(values / (self.scale * self.u))

    def transposed_without(self, values: torch.Tensor) -> torch.Tensor:
        """R⁻ᵀ of a vector over the other classes, (n, m−1)."""
        return self._spread(values) / (self.scale * self.u)

    def _spread(self, values: torch.Tensor) -> torch.Tensor:
        """(I − uuᵀ/(1 + √p_t))⁻¹ = I + uuᵀ/((1 + √p_t)√p_t)."""
        return values + self.u * (self.u * values).sum(1, keepdim=True) / ((1.0 + self.root_top) * self.root_top)


def contrast_roots(problem: SoftmaxProblem) -> ContrastRoots:
    """Roots of the curvature of all records."""
    n, m = problem.outputs.shape
    log_p = torch.log_softmax(block_tensor(problem.outputs, 0, n), 1)
    root = (0.5 * log_p).clamp(min=LEAST_EXPONENT).exp()
    top = root.argmax(1, keepdim=True)
    others = torch.arange(m).expand(n, m)[torch.arange(m) != top].view(n, m - 1)
    scale = problem.weights(0, n).clamp(min=SMALLEST_WEIGHT).sqrt()[:, None]
    return ContrastRoots(top, others, root.gather(1, others), root.gather(1, top), scale)


def softmax_over_records(head: HeadDual, problem: SoftmaxProblem) -> Solved:
    """leverage, influence, newton, loo and shift of a softmax head, from its dual.

    The dual has m − 1 contrasts per record.

    With E_i = R_iᵀH_iiR_i = [K_RC]_ii, I − E_i = λC_ii of `dual_inverse` and the residual g =
    R_it_i: leverage is the trace of E_i, influence tᵀE_it, and the move of the record's own logits
    R⁻ᵀE_i(λC_ii)⁻¹t.

    Raises:
        NumericalError: the kernel plus λ cannot be factored in float64.

    Cost: (n(m−1))³ flops and two matrices of (n(m−1))² numbers.
    """
    n, m = problem.outputs.shape
    roots = contrast_roots(problem)
    factors = roots.matrix()
    flat = factors.transpose(1, 2).reshape(n * (m - 1), m)
    kernel = flat @ flat.T
    kernel.view(n, m - 1, n, m - 1).mul_(head.kernel[:, None, :, None])
    free = None
    if head.free_bias:
        # The biases in contrasts between them: no column sees a shift of all logits together.
        free = flat @ torch.linalg.qr(torch.eye(m, dtype=torch.float64)[:, 1:] - 1.0 / m)[0]
    inverse = dual_inverse(kernel, problem.damping, free=free)
    at = [slice(i * (m - 1), (i + 1) * (m - 1)) for i in range(n)]
    own = torch.stack([inverse.hat(kernel, rows) for rows in at])
    gaps = problem.damping * torch.stack([inverse.matrix[rows, rows] for rows in at])
    columns = _columns(problem, roots, own, gaps)
    return over_records_solved(columns, _told(inverse))


def over_records_solved(columns: dict[str, Array], inverse: SpdInverse) -> Solved:
    """The columns from the dual with their error.

    1 − h has an error of at most eps times the condition of the kernel.
    """
    error = at_most_all(float(np.finfo(float).eps) * inverse.condition)
    return Solved(columns, inverse, float(columns["leverage"].sum()), "float64", error, (NOTE,))


def more_precise(over_weights: Solved, over_records: Solved) -> Solved:
    """Return the solution with the smaller error.

    The error over weights is not known where all nearly interpolated records came out infinite.
    """
    known, other = over_weights.precision_error, over_records.precision_error
    return over_records if known is None or (other is not None and other < known) else over_weights


def _columns(problem: SoftmaxProblem, roots: ContrastRoots, own: torch.Tensor, gaps: torch.Tensor) -> dict[str, Array]:
    n, m = problem.outputs.shape
    logits, targets = block_tensor(problem.outputs, 0, n), block_tensor(problem.targets, 0, n)
    residuals = block_residuals(logits, targets, "classification") * problem.weights(0, n)[:, None]
    factor, failed = torch.linalg.cholesky_ex(gaps)
    interpolated = (failed > 0) | (factor.diagonal(dim1=1, dim2=2).amin(1) ** 2 <= INTERPOLATED)
    safe = torch.where(interpolated[:, None, None], torch.eye(m - 1, dtype=torch.float64), factor)
    lifted = roots.without(residuals.gather(1, roots.others))
    answer = (own @ torch.cholesky_solve(lifted[:, :, None], safe))[:, :, 0]
    move = torch.zeros_like(logits).scatter(1, roots.others, roots.transposed_without(answer))
    found = move_columns(problem.outputs, problem.targets, problem.sample_weight, 0, n, residuals, move)
    found = {name: torch.where(interpolated, torch.full_like(value, torch.inf), value) for name, value in found.items()}
    found["leverage"] = own.diagonal(dim1=1, dim2=2).sum(1)
    found["influence"] = (lifted * (own @ lifted[:, :, None])[:, :, 0]).sum(1)
    return {name: value.numpy() for name, value in found.items()}


def _told(inverse: DualInverse) -> SpdInverse:
    """The jitter and condition of the factorisation; its matrix is not needed and left empty."""
    return SpdInverse(np.empty((0, 0)), inverse.jitter, inverse.condition)

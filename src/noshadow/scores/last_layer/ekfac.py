"""EK-FAC of a softmax head, for heads whose exact curvature does not fit into memory.

It gives the columns of every record when (classes × features)² numbers are too many to hold.

One orthonormal basis of class contrasts u_b and one of features in which both Σ g̃g̃ᵀ and the
penalty are diagonal; in their product basis only the diagonal of the curvature is kept, and it is
exact: Λ_ab = Σ_j (u_bᵀW_ju_b) z_ja² + λD_a. An unpenalised intercept is a zero in D.

Leaving record i out is done where it is safe. Λ minus the record's own share approximates everybody
else and stays positive, so H₋ᵢ = U diag_b(Σ_a z_ia²/(Λ_ab − (u_bᵀW_iu_b)z_ia²)) Uᵀ gives newton,
loo and shift at once; the record's own curvature W_i is then added back exactly for leverage and
influence, H_ii = H₋ᵢ(I + W_iH₋ᵢ)⁻¹. The other way round, taking W_i exactly out of an approximation
of everybody, leaves an indefinite rest as soon as a class has fewer records than features.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from noshadow.blocks import block_length, block_tensor, blocks
from noshadow.checks import Array, NumericalError, called, said
from noshadow.progress import tracked
from noshadow.scores.baselines import block_residuals
from noshadow.scores.last_layer.curvature import SoftmaxProblem
from noshadow.scores.last_layer.design import Design
from noshadow.scores.last_layer.margin import margin_gradients
from noshadow.scores.last_layer.own_curvature import OwnCurvature, own_curvature_sums
from noshadow.scores.last_layer.softmax import move_columns

# Where all others together hold less than this share of a direction, the record is interpolated.
_INTERPOLATED = {torch.float64: 1e-11, torch.float32: 1e-6}
# Terms of 1/(Λ − x) = Σ x^k/Λ^(k+1), each a matrix product; records for which the rest may matter
# are divided out one by one.
_TERMS = 4
_SERIES_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
# Functions that are told whether the intercept is penalised; others read it from the model.
PENALIZES_ON_REQUEST = frozenset({"audit_signals", "record_scores"})

Shares = Callable[[SoftmaxProblem, int, int, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class EkfacCurvature:
    """A curvature over classes × features, diagonal in a product of two bases.

    Attributes:
        classes: (m, m−1) float64, orthonormal contrasts u_b in columns.
        rotation: (r, d) float64, z = rotation·(g̃ − shift): coordinates with Σ zzᵀ = nI and a
            diagonal penalty.
        eigenvalues: (r, m−1) float64, Λ. penalty: (r,) float64, λD.
    """

    classes: torch.Tensor
    rotation: torch.Tensor
    eigenvalues: torch.Tensor
    penalty: torch.Tensor

    def rows(self, design: Design, start: int, stop: int) -> torch.Tensor:
        """z of a block of records, (b, r) float64."""
        return design.shifted(start, stop) @ self.rotation.T


def ekfac_bytes(classes: int, rank: int) -> int:
    """Memory of the factors and of one right-hand side of a refinement, in float64.

    Blocks of records come on top.
    """
    return 8 * (5 * classes**2 + 20 * classes * rank)


def softmax_shares(problem: SoftmaxProblem, start: int, stop: int, basis: torch.Tensor) -> torch.Tensor:
    """s·u_bᵀW_iu_b of a block, (b, m−1), in the precision of the basis."""
    share = class_variances(torch.softmax(block_tensor(problem.outputs, start, stop), 1), basis)
    return share * problem.weights(start, stop)[:, None].to(basis.dtype)


def class_variances(probabilities: torch.Tensor, basis: torch.Tensor) -> torch.Tensor:
    """u_bᵀ(diag(p) − ppᵀ)u_b for each row of probabilities, (b, m−1).

    The result is in the precision of the basis.

    Written around the most probable class, so that nothing cancels as its probability goes to one.
    Rounding may leave it below zero; in sums that is better than a bias.
    """
    top = probabilities.argmax(1, keepdim=True)
    others = probabilities.scatter(1, top, 0.0)
    spare = others.sum(1, keepdim=True).to(basis.dtype)
    others = others.to(basis.dtype)
    at_top, mean = basis[top[:, 0]], others @ basis
    share = others @ basis**2
    share += (1 - spare) * at_top * (spare * at_top - 2 * mean) - mean**2
    return share


def margin_shares(problem: SoftmaxProblem, start: int, stop: int, basis: torch.Tensor) -> torch.Tensor:
    """w·(u_bᵀ∂φ/∂f)² of a block, (b, m−1)."""
    gradient, weight = margin_gradients(problem, start, stop)
    return (gradient.to(basis.dtype) @ basis) ** 2 * weight[:, None].to(basis.dtype)


def softmax_class_sums(problem: SoftmaxProblem, start: int, stop: int, dtype: torch.dtype) -> torch.Tensor:
    """Σ s·W over a block, (m, m)."""
    probabilities = torch.softmax(block_tensor(problem.outputs, start, stop), 1)
    weighted = probabilities * problem.weights(start, stop)[:, None]
    return torch.diag(weighted.sum(0)) - (weighted.T.to(dtype) @ probabilities.to(dtype)).double()


def margin_class_sums(problem: SoftmaxProblem, start: int, stop: int, dtype: torch.dtype) -> torch.Tensor:
    """Σ w·aaᵀ over a block with a = ∂φ/∂f, (m, m)."""
    gradient, weight = margin_gradients(problem, start, stop)
    return ((gradient * weight[:, None]).T.to(dtype) @ gradient.to(dtype)).double()


def ekfac_curvature(
    problem: SoftmaxProblem, class_sums: Callable[..., torch.Tensor], shares: Shares, *, dtype: torch.dtype, progress: bool
) -> EkfacCurvature:
    """The EK-FAC approximation of Σ_j C_j ⊗ g̃_jg̃_jᵀ + λI, from Σ C_j over a block and u_bᵀC_ju_b.

    Exact when: the curvature is a Kronecker product, for instance all C_j equal. Cost: two passes
        of n·m(3m + d) + 2nd² flops.
    """
    design, m = problem.design, problem.classes
    total = torch.zeros((m, m), dtype=torch.float64)
    walk = blocks(len(design), block_length(6 * m))
    for start, stop in tracked(walk, "classes", show=progress):
        total += class_sums(problem, start, stop, dtype)
    classes = contrast_eigenvectors(total)
    weights, axes = torch.linalg.eigh(design.penalty)
    rotation, penalty = axes.T @ design.whitening, problem.damping * weights.clamp(min=0.0)
    frame = EkfacCurvature(classes, rotation, torch.empty(0), penalty)
    eigenvalues = diagonal(problem, frame, shares, dtype=dtype, progress=progress)
    rounding = 8 * torch.finfo(dtype).eps * eigenvalues.amax(1, keepdim=True)
    empty = int((torch.maximum(eigenvalues, penalty[:, None]) <= rounding).sum())
    if empty:
        raise NumericalError(
            said(
                f"the EK-FAC curvature is zero in {empty} directions (a class nobody predicts, with an unpenalised intercept). "
                + ("Pass penalize_intercept=True." if called() in PENALIZES_ON_REQUEST else "Leave that class out.")
            )
        )
    return replace(frame, eigenvalues=torch.maximum(eigenvalues, penalty[:, None]))


def contrast_eigenvectors(total: torch.Tensor) -> torch.Tensor:
    """Orthonormal eigenvectors (m, m−1) of a curvature (m, m) over classes.

    All of them are orthogonal to the shift that the classes share.
    """
    m = len(total)
    # A reflection takes that shift to the first axis; what is left are contrasts.
    mirror = torch.full((m,), m**-0.5, dtype=torch.float64)
    mirror[0] += 1.0
    contrasts = (torch.eye(m, dtype=torch.float64) - torch.outer(mirror, mirror) * 2 / mirror.dot(mirror))[:, 1:]
    vectors: torch.Tensor = contrasts @ torch.linalg.eigh(contrasts.T @ total @ contrasts)[1]
    return vectors


def diagonal(problem: SoftmaxProblem, curvature: EkfacCurvature, shares: Shares, *, dtype: torch.dtype, progress: bool) -> torch.Tensor:
    """Λ_ab = Σ_j (u_bᵀC_ju_b) z_ja² + λD_a, (r, m−1) float64."""
    m, r = curvature.classes.shape[0], len(curvature.rotation)
    basis = curvature.classes.to(dtype)
    total = curvature.penalty[:, None].expand(r, m - 1).clone()
    for start, stop in tracked(blocks(len(problem.design), block_length(8 * m + 3 * r)), "eigenvalues", show=progress):
        squares = curvature.rows(problem.design, start, stop) ** 2
        total += squares.T.to(dtype) @ shares(problem, start, stop, basis)
    return total


def left_out_variances(curvature: EkfacCurvature, squares: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Variances of the logits of each record of a block with the record left out, (b, m−1).

    The variance is Σ_a z_a²/(Λ_ab − share_b z_a²).

    It is +inf where the record has curvature in a direction that no other record and no penalty
    holds.

    Args:
        squares: (b, r) z². shares: (b, m−1) u_bᵀC_iu_b, same dtype.
    Cost: eight flops per record, feature and class; one division each for records that dominate a
        class.
    """
    # 1/(Λ − s·z²) = Σ_k (s·z²)ᵏ/Λᵏ⁺¹, one matrix product per term. Powers of scale/Λ are at most
    # one.
    scale = curvature.eigenvalues.amin(0)
    inverse = (scale / curvature.eigenvalues).to(squares.dtype)
    shares = shares.clamp(min=0.0)
    ratio = shares / scale.to(squares.dtype)
    powers, weights, total = squares, inverse, squares @ inverse
    term = total
    for k in range(1, _TERMS):
        powers, weights = powers * squares, weights * inverse
        term = (powers @ weights) * ratio**k
        total = total + term
    # Σ_a ρ_a^K of the shares ρ that are the record's own bounds the largest, and with it what the
    # series left out.
    largest = (term * ratio) ** (1 / _TERMS)
    settled = ((largest < 1) & (term * largest <= _SERIES_TOLERANCE[squares.dtype] * (1 - largest) * total)).all(1)
    variances = total / scale.to(squares.dtype)
    for i in (~settled).nonzero()[:, 0].tolist():
        variances[i] = _divided_out(curvature, squares[i].double(), shares[i].double(), _INTERPOLATED[squares.dtype])
    return variances


def _divided_out(curvature: EkfacCurvature, squares: torch.Tensor, shares: torch.Tensor, least: float) -> torch.Tensor:
    others = torch.addr(curvature.eigenvalues, squares, shares, alpha=-1).clamp_(min=0.0)
    # rounding apart, what is left is at least the penalty
    others = torch.maximum(others, curvature.penalty[:, None])
    alone = ((others <= least * curvature.eigenvalues) & (squares[:, None] > 0)).any(0)
    return torch.where(alone, torch.inf, squares @ others.clamp(min=torch.finfo(torch.float64).tiny).reciprocal())


def ekfac_block_columns(
    problem: SoftmaxProblem, curvature: EkfacCurvature, start: int, stop: int, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """leverage, influence, newton, loo and shift of a block by EK-FAC, float64 (b,)."""
    logits, weights = block_tensor(problem.outputs, start, stop), problem.weights(start, stop)
    residuals = block_residuals(logits, block_tensor(problem.targets, start, stop), "classification") * weights[:, None]
    basis = curvature.classes.to(dtype)
    squares = (curvature.rows(problem.design, start, stop) ** 2).to(dtype)
    shares = softmax_shares(problem, start, stop, basis)
    variances = left_out_variances(curvature, squares, shares)
    interpolated = variances.isinf().any(1)
    # Beyond a share of 1 − 1e-6 leverage and influence no longer change: a number in place of
    # infinity.
    variances = torch.where(variances.isinf(), 1e6 / shares, variances)
    coordinates = residuals.to(dtype) @ basis
    move = (coordinates * variances) @ basis.T
    newton = (coordinates**2 * variances).sum(1).double()
    gaps = move_columns(problem.outputs, problem.targets, problem.sample_weight, start, stop, residuals, move.double())
    gaps["newton"] = newton
    own = OwnCurvature(torch.softmax(logits, 1).to(dtype), weights.to(dtype), basis, variances, coordinates, move)
    leverage, reduction = own_curvature_sums(own)
    columns = {"leverage": leverage.double().clamp(0.0, problem.classes - 1.0), "influence": (newton - reduction.double()).clamp(min=0.0)}
    infinite = torch.full_like(newton, torch.inf)
    return columns | {name: torch.where(interpolated, infinite, value) for name, value in gaps.items()}


def ekfac_columns(
    problem: SoftmaxProblem, curvature: EkfacCurvature, *, dtype: torch.dtype, block_size: int | None, progress: bool
) -> dict[str, Array]:
    """leverage, influence, newton, loo and shift of every record by EK-FAC, float64 (n,) each.

    Approximates: the curvature of everybody else, by its diagonal in a Kronecker basis. Exact when:
        that is diagonal there.
    Cost: n·m(10m + 10d) flops; memory O(m² + md) and blocks.
    Reference: [RET] Props. B.3–B.4 and [GLS] Prop. C.2 for the columns; George et al. 2018 for
        EK-FAC; leaving a record out: ours.
    """
    n, m = len(problem.design), problem.classes
    columns: dict[str, Array] = {}
    size = block_size or block_length(40 * m + 4 * problem.design.rank)
    for start, stop in tracked(blocks(n, size), "records", show=progress):
        for name, values in ekfac_block_columns(problem, curvature, start, stop, dtype).items():
            columns.setdefault(name, np.empty(n))[start:stop] = values.numpy()
    return columns


def ekfac_margin_leverages(problem: SoftmaxProblem, *, dtype: torch.dtype, block_size: int | None, progress: bool) -> Array:
    """Margin leverage of every record by EK-FAC, float64 (n,) in [0, 1].

    With everybody else approximated, h = h₋/(1 + h₋) for h₋ = w·xᵀ(Σ_{j≠i} w_jx_jx_jᵀ + λI)⁻¹x: the
    record's own part is exact.

    Cost: n·m(5m + 10d) flops.
    Reference: ours.
    """
    curvature = ekfac_curvature(problem, margin_class_sums, margin_shares, dtype=dtype, progress=progress)
    basis = curvature.classes.to(dtype)
    leverage: Array = np.empty(len(problem.design))
    size = block_size or block_length(12 * problem.classes + 4 * problem.design.rank)
    for start, stop in tracked(blocks(len(leverage), size), "records", show=progress):
        squares = (curvature.rows(problem.design, start, stop) ** 2).to(dtype)
        shares = margin_shares(problem, start, stop, basis)
        others = (shares * left_out_variances(curvature, squares, shares)).sum(1).double()
        leverage[start:stop] = torch.where(others.isinf(), 1.0, others / (1.0 + others)).numpy()
    return leverage

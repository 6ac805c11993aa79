"""Where leave-one-out distinguishability is stationary, and how flat a kernel is.

This file computes the quantities of the theory as numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from noshadow._lood.factor import Posterior, posterior_of, solved
from noshadow._lood.inputs import Kernel, asked_noise, box_of, group_indices, input_rows, kernel_values, target_columns
from noshadow.arguments import MAX_MEMORY
from noshadow.checks import Array, named_in_errors, numeric_array, refuse, require_same_length, require_whole, whole_seed

_POLISHED = 3


@dataclass(frozen=True, eq=False)
class LeastStationary:
    """The differing record at which the mean distance is furthest from stationary.

    Attributes:
        record: its input. target: (C,) its target.
        gradient_norm: ‖∇_Q M(Q)‖ at Q = record.
        gradient: the gradient, of the record's shape.
    """

    record: Array
    target: Array
    gradient_norm: float
    gradient: Array


@dataclass(frozen=True)
class KernelFlatness:
    """Distance of a kernel matrix to the constant matrix nearest to it.

    Attributes:
        constant: α_min ≥ 0. distance: h(α_min) = max |K_ij − α_min|.
        relative: distance/constant, inf when the constant is 0: comparable between kernels of
            different scale.
    """

    constant: float
    distance: float
    relative: float


@named_in_errors
def self_query_gradient(x: object, y: object, *, differing: int, kernel: Kernel, noise: float, max_memory: float = MAX_MEMORY) -> Array:
    """Gradient of the mean-distance LOOD in the query, at the differing record itself.

    ∇_Q M(Q)|_{Q=S} = −a⁻²(a − σ²)‖y_S − K_SD M_D⁻¹y_D‖² · K̇_SD M_D⁻¹K_DS,
    a = K_SS − K_SD M_D⁻¹K_DS + σ², M_D = K_DD + σ²I, K̇ the derivative in the first argument.
    It vanishes when S is far from the data (K_SD ≈ 0) and when S is predicted without itself; in
    between the record is not the query it influences most.

    Args:
        x, y, kernel, noise, max_memory: as in `lood`; the kernel differentiable. differing: row
            number of S.

    Returns:
        Array of a record's shape.

    Raises:
        InputError: as in `lood`, or more than one row.

    Exact when: ∂K(x, x′)/∂x = 0 at x′ = x, as for kernels of constant K(x, x).
    Cost: one factorisation without S.
    Reference: [LOOD] Prop. 5.1, Eq. (23).

    >>> rbf = lambda a, b: torch.exp(-((a[:, None] - b) ** 2).sum(2) / 2)
    >>> x, y = [[0.0], [1.0], [9.0]], [0.0, 1.0, 1.0]
    >>> self_query_gradient(x, y, differing=2, kernel=rbf, noise=0.1).round(6) + 0.0
    array([0.])
    """
    rows, columns = input_rows(x, "x"), target_columns(y, "y")
    chosen = group_indices(differing, len(rows))
    if len(chosen) != 1:
        refuse("differing", "be one row number", f"{len(chosen)} of them")
    kept = np.delete(np.arange(len(rows)), chosen)
    if len(kept) < 2:
        refuse("x", "hold at least 3 records", str(len(rows)))
    rest = posterior_of(rows[kept], columns[kept], kernel=kernel, noise=noise, max_memory=max_memory)
    gradient: Array = _gradients(rest, rows[chosen], columns[chosen])[0]
    return gradient


def _gradients(rest: Posterior, records: Tensor, targets: Array) -> Array:
    """∇_Q M(Q) at Q = S for each candidate S (m, …) added to the data."""
    at = records.detach().clone().requires_grad_(True)
    cross = kernel_values(rest.kernel, at, rest.x)
    with torch.no_grad():
        prior = kernel_values(rest.kernel, records, records).diagonal().numpy()
    fixed = cross.detach().numpy()
    weights = solved(rest, np.asfortranarray(fixed.T)).T  # K_SD M_D⁻¹, one row each
    variance = prior - (fixed * weights).sum(1)
    squares = ((targets - fixed @ rest.weights) ** 2).sum(1)
    (slope,) = torch.autograd.grad((cross * torch.from_numpy(np.ascontiguousarray(weights))).sum(), at)
    factor = -squares * variance / (variance + rest.noise) ** 2
    gradient: Array = factor.reshape(-1, *[1] * (slope.ndim - 1)) * slope.numpy()
    return gradient


@named_in_errors
def least_stationary_record(
    x: object,
    y: object,
    *,
    label: Callable[[Array], object],
    kernel: Kernel,
    noise: float,
    bounds: tuple[object, object],
    candidates: int = 2048,
    seed: int = 0,
    max_memory: float = MAX_MEMORY,
) -> LeastStationary:
    """Find the record at which the mean distance is furthest from stationary once it is added.

    It is then furthest from being its own most influenced query.

    S* = argmax_S ‖∇_Q M(Q)|_{Q=S}‖ over inputs S in a box, with target label(S): seeded uniform
    candidates, the best three polished by bounded quasi-Newton steps with numerical derivatives.

    Args:
        x, y: the data D that S is added to. kernel, noise, max_memory: as in `lood`.
        label: maps inputs (m, …) to their targets (m,) or (m, C). bounds: (low, high), finite, as
            in `optimal_query`.
        candidates: how many to draw, ≥ 1. seed: for the draw.

    Returns:
        LeastStationary.

    Raises:
        InputError: bad arrays, infinite bounds, labels of the wrong shape.

    Approximates: the maximum of a non-convex function in few dimensions.
    Cost: n² flops per candidate after the factorisation.
    Reference: [LOOD] Algorithm 1, Appendix F.1.
    """
    rest = posterior_of(x, y, kernel=kernel, noise=noise, max_memory=max_memory)
    box = box_of(bounds, rest.x.shape[1:])
    if box is None or not bool(torch.isfinite(box[1] - box[0]).all()):
        refuse("bounds", "be a finite pair (low, high)", repr(bounds))
    shape = tuple(rest.x.shape[1:])
    uniform = np.random.default_rng(whole_seed(seed)).random((require_whole(candidates, "candidates", low=1), *shape))
    low, high = (end.numpy() for end in box)

    def gradients(records: Array) -> Array:
        return _gradients(rest, torch.from_numpy(records), _labels(label, records, rest.y.shape[1]))

    def negative_log_norm(flat: Array) -> float:
        return -float(np.log(np.linalg.norm(gradients(flat.reshape(1, *shape))) + np.finfo(float).tiny))

    drawn = low + uniform * (high - low)
    norms = np.concatenate(
        [np.linalg.norm(gradients(part).reshape(len(part), -1), axis=1) for part in np.array_split(drawn, -(-len(drawn) // 256))]
    )
    limits = list(zip(low.reshape(-1), high.reshape(-1), strict=True))
    polished = [
        minimize(negative_log_norm, drawn[i].reshape(-1), bounds=limits, method="L-BFGS-B", options={"gtol": 1e-9})
        for i in np.argsort(-norms)[:_POLISHED]
    ]
    best = np.asarray(min(polished, key=lambda found: found.fun).x).reshape(1, *shape)
    gradient = gradients(best)[0]
    return LeastStationary(best[0], _labels(label, best, rest.y.shape[1])[0], float(np.linalg.norm(gradient)), gradient)


def _labels(label: Callable[[Array], object], records: Array, outputs: int) -> Array:
    values = numeric_array(label(records), "label(records)", ndim=(1, 2)).astype(np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.shape != (len(records), outputs):
        refuse("label(records)", f"have shape {(len(records), outputs)}", f"{values.shape}")
    return values


@named_in_errors
def kernel_flatness(kernel_matrix: object) -> KernelFlatness:
    """Distance of a kernel matrix to the nearest constant matrix with a constant ≥ 0: h(α_min).

    h(α) = max_ij |K_ij − α| is smallest halfway between the extremes, α_min = max(0, (min K + max
    K)/2). The flatter the kernel, the less any record can move the predictions; deep networks
    flatten, activations differ in how fast.

    Args:
        kernel_matrix: (n, n) finite.

    Returns:
        KernelFlatness; constant 0 means that the bound of the proposition, which needs α_min > 0,
        says nothing.

    Raises:
        InputError: not a finite square matrix.

    Exact when: always.
    Cost: one pass.
    Reference: [LOOD] Props. 6.1 and G.1.

    >>> kernel_flatness([[1.0, 0.5], [0.5, 1.0]])
    KernelFlatness(constant=0.75, distance=0.25, relative=0.3333333333333333)
    """
    matrix = numeric_array(kernel_matrix, "kernel_matrix", ndim=2)
    if matrix.shape[0] != matrix.shape[1] or not matrix.size:
        refuse("kernel_matrix", "be square", f"shape {matrix.shape}")
    low, high = float(matrix.min()), float(matrix.max())
    constant = max(0.0, low / 2 + high / 2)
    distance = max(high - constant, constant - low)
    return KernelFlatness(constant, distance, distance / constant if constant > 0 else np.inf)


@named_in_errors
def flatness_bound(kernel_matrix: object, targets: object, *, noise: float) -> float | None:
    """The bound that h(α_min) puts on the mean distance of any record at any record.

    With α = α_min, h = h(α_min), m records in all, ζ the largest ‖y_i‖:

        M ≤ ½δ²,   δ = h·‖Y‖·[(2m − 1)(α + h)^½/σ³ + ((m − 1)^½ + m^½)/σ²] + 2ζ/m.

    It is [LOOD] Proposition 6.1 put right: K is compared with αU (U all ones) by A⁻¹ − B⁻¹ =
    A⁻¹(B − A)B⁻¹, where λ_min of both is at least σ², and M is the square that the printed proof
    drops. ‖K_QD M_D⁻¹‖ ≤ K_QQ^½/σ leaves m^(3/2) before h where the paper has n^(5/2). The page of
    references has the derivation.

    Args:
        kernel_matrix: (m, m) finite, positive semi-definite. targets: (m,) or (m, C).
        noise: σ² > 0.

    Returns:
        The bound, for every record left out and every query among the records; None where α_min is
        0, for which the proposition says nothing.

    Raises:
        InputError: not a finite square matrix, targets of another length, noise ≤ 0.

    Exact when: a bound always, and far above the truth unless m^(3/2)·h/σ³ is small: a kernel has
        to be nearly constant for it to say something.
    Cost: one pass.
    Reference: [LOOD] Prop. 6.1, corrected.

    >>> matrix = np.full((4, 4), 1.0) + 1e-6 * np.eye(4)
    >>> round(flatness_bound(matrix, [1.0, -1.0, 1.0, -1.0], noise=1.0), 4)
    0.125
    """
    flat, matrix = kernel_flatness(kernel_matrix), numeric_array(kernel_matrix, "kernel_matrix", ndim=2)
    y, sigma2 = target_columns(targets, "targets"), asked_noise(noise).value
    count = require_same_length(kernel_matrix=matrix, targets=y)
    if flat.constant == 0:
        return None
    norm, largest = float(np.linalg.norm(y)), float(np.linalg.norm(y, axis=1).max())
    near = (2 * count - 1) * np.sqrt(flat.constant + flat.distance) / sigma2**1.5
    apart = (np.sqrt(count - 1) + np.sqrt(count)) / sigma2
    return float(0.5 * (flat.distance * norm * (near + apart) + 2 * largest / count) ** 2)

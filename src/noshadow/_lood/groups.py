"""Leave-one-group-out distinguishability at any set of queries, by updates of one factorisation."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import solve_triangular

from noshadow._lood.divergence import variance_excess
from noshadow._lood.factor import Posterior, half_solved, posterior_of, require_same_problem, solved
from noshadow._lood.gaussian_attack import likelihood_ratio_auc
from noshadow._lood.inputs import Kernel, asked_noise, group_indices, kernel_values, query_rows
from noshadow.arguments import MAX_MEMORY
from noshadow.checks import Array, named_in_errors

# Posterior variances below this share of the numbers whose difference they are have too few digits
# left to be used.
_SUPPORT = 1e-11


@dataclass(frozen=True, eq=False)
class LoodResult:
    """How far a group of records moves the joint prediction at a set of queries; larger = riskier.

    Attributes:
        kl: KL(f without the group ‖ f with it), nats, summed over outputs.
        mean_distance: half the squared distance between the two means, over queries and outputs.
        auc: of the likelihood-ratio attack on the joint prediction; member = trained with the
            group.
        loo_mean, loo_covariance: (q, C) and (q, q) without the group. mean, covariance: with it.
        differing: (s,) the group's row numbers. noise: σ².
        support: dimension, ≤ q, of the subspace on which kl and auc are taken: repeated queries add
            none.
        condition: 1-norm condition estimate of K + σ²I.
    """

    kl: float
    mean_distance: float
    auc: float
    loo_mean: Array
    loo_covariance: Array
    mean: Array
    covariance: Array
    differing: Array
    noise: float
    support: int
    condition: float


@named_in_errors
def lood(
    x: object,
    y: object,
    *,
    differing: object,
    queries: object = None,
    kernel: Kernel,
    noise: float | None = None,
    relative_noise: float | None = None,
    factor: Posterior | None = None,
    max_memory: float = MAX_MEMORY,
) -> LoodResult:
    """Leave-one-group-out distinguishability of a group S at queries Q under a Gaussian process.

    With M = K + σ²I over all records, A = (M⁻¹)_SS, B = K_QX(M⁻¹)_XS, and D the data without S:

        Σ′ = K_QQ − K_QX M⁻¹K_XQ,   Σ = Σ′ + BA⁻¹Bᵀ,   μ − μ′ = −BA⁻¹(M⁻¹Y)_S,
        KL(f_D ‖ f_D′) = ½[C(tr(Σ′⁻¹Σ) − q − log det(Σ′⁻¹Σ)) + tr((μ − μ′)ᵀΣ′⁻¹(μ − μ′))],
        mean distance = ½‖μ − μ′‖².

    No queries leak more than Q = S, by KL or AUC, whatever the kernel: the two posteriors differ by
    the likelihood of y_S, a function of f(S) alone. The eigenvalues of Σ′⁻¹Σ − I come from BA⁻¹Bᵀ
    itself, so that small leaks keep their digits. When queries repeat each other, the joint law has
    a narrower support, which both models share; the divergence is taken there. Directions whose
    posterior variance is below 1e-11 of the prior's are rounding and left out as well; that can
    only make KL and AUC smaller.

    Args:
        x: (n, …) inputs. y: (n,) or (n, C) floats, or (n,) integer labels 0 … C − 1 (one-hot
            columns).
        differing: row numbers of the group S, distinct, fewer than n. queries: (q, …) inputs; the
            group when None.
        kernel: callable (x, z) → (len(x), len(z)) tensor.
        noise: σ² > 0. relative_noise: σ² as a share of the mean of K(x, x) over the records, in its
            place: with it, kernels of different size can be compared.
        factor: `posterior_of` the same x, y, kernel and noise, to reuse it; made afresh when None.
        max_memory: bytes that a fresh factorisation may take.

    Returns:
        LoodResult.

    Raises:
        InputError: bad arrays, repeated or out-of-range rows, all records as the group, noise ≤ 0,
            both kinds of noise or none, a kernel matrix that is not symmetric positive
            semi-definite, a factor of other data.

    Exact when: always, up to rounding (`condition`) and the support rule.
    Cost: O(n²(s + q)) after the factorisation, which takes n² kernel values and ⅓n³ flops.
    Reference: [LOOD] Definitions C.1 and C.3, Eqs. (3)–(6), Lemma D.1.

    >>> eye = lambda a, b: torch.eye(3, dtype=a.dtype)[a[:, 0].long()][:, b[:, 0].long()]
    >>> round(lood([[0], [1], [2]], [0.0, 1.0, 2.0], differing=[2], kernel=eye, noise=1.0).kl, 4)
    1.1534
    """
    if factor is None:
        factor = posterior_of(x, y, kernel=kernel, noise=noise, relative_noise=relative_noise, max_memory=max_memory)
    else:
        factor = require_same_problem(factor, x, y, kernel, asked_noise(noise, relative_noise))
    rows = group_indices(differing, len(factor.x))
    points = None if queries is None else query_rows(queries, factor.x)
    return _group_result(factor, rows, points)


def _group_result(factor: Posterior, rows: Array, points: torch.Tensor | None) -> LoodResult:
    n, noise = len(factor.x), factor.noise
    unit = np.zeros((n, len(rows)), order="F")
    unit[rows, np.arange(len(rows))] = 1.0
    columns = solved(factor, unit)  # (M⁻¹)_XS
    inner = columns[rows]  # A
    with torch.no_grad():
        at = factor.x[torch.from_numpy(rows)] if points is None else points
        prior = kernel_values(factor.kernel, at, at).numpy()
        beside = kernel_values(factor.kernel, at, factor.x).numpy()
    if points is None and prior.diagonal().max() >= noise:
        # K_SX = (M − σ²I)_SX, with which what noise ≪ K would cancel is never subtracted.
        reach = np.eye(len(rows)) - noise * inner
        covariance, magnitude = noise * reach, np.full(len(rows), noise)
    else:
        reach = beside @ columns  # B
        explained = half_solved(factor, np.asfortranarray(beside.T))
        covariance, magnitude = prior - explained.T @ explained, prior.diagonal()
    lower = np.linalg.cholesky((inner + inner.T) / 2)
    spread = solve_triangular(lower, reach.T, lower=True).T  # BA^(−½)
    shift = -spread @ solve_triangular(lower, factor.weights[rows], lower=True)
    covariance = (covariance + covariance.T) / 2
    outputs = factor.y.shape[1]
    separation, excess = _independent_directions(covariance, spread, shift, magnitude)
    mean = beside @ factor.weights
    return LoodResult(
        kl=float(0.5 * (outputs * variance_excess(excess).sum() + separation.sum())),
        mean_distance=float(0.5 * (shift**2).sum()),
        auc=float(likelihood_ratio_auc(separation[None], excess[None], outputs=outputs)[0]),
        loo_mean=mean + shift,
        loo_covariance=covariance + spread @ spread.T,
        mean=mean,
        covariance=covariance,
        differing=rows,
        noise=noise,
        support=len(separation),
        condition=factor.condition,
    )


def _independent_directions(covariance: Array, spread: Array, shift: Array, magnitude: Array) -> tuple[Array, Array]:
    """Separations and excess variances along directions in which both laws are independent.

    Only directions in the support of the laws are returned.

    `magnitude` (q,) is the size of the numbers whose difference each variance is: rounding is
    relative to it.
    """
    scale = 1.0 / np.sqrt(np.where(magnitude > 0, magnitude, 1.0))
    values, vectors = np.linalg.eigh(covariance * scale[:, None] * scale)
    resolved = values > _SUPPORT
    project = (vectors[:, resolved] * values[resolved] ** -0.5).T * scale
    left, singular, _ = np.linalg.svd(project @ spread, full_matrices=True)
    excess = np.zeros(len(project))
    excess[: len(singular)] = singular**2
    return ((left.T @ project @ shift) ** 2).sum(1), excess

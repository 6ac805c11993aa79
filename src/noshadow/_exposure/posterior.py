"""The posterior of each record's separation under the mixed model.

It has a closed form that takes 2 × 2 algebra per record.
"""

from dataclasses import dataclass

import numpy as np

from noshadow._exposure.basis import Basis
from noshadow._exposure.mixed_model import Fitted
from noshadow._exposure.sufficient import Sides
from noshadow.checks import Array


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posteriors of n records under given coefficients.

    Attributes:
        levels: (2, n) OUT and IN level. separation: (n,) IN − OUT, mean. variance: (n,) of it, of
            (a, b) alone.
        own: (n,) the part of the separation that the record's own margins add. gains: (2, n) share
            of each side's residual in it.
        second: (2, 2) mean of the posterior second moments of (a, b) in units of their scales, from
            which T is estimated anew.
        means: (2, n) of a and b. told: (2, n) share of their prior variances that the record's
            margins explain.
    """

    levels: Array
    separation: Array
    variance: Array
    own: Array
    gains: Array
    second: Array
    means: Array
    told: Array


def expected_levels(basis: Basis, fitted: Fitted) -> Array:
    """f(x) and g(x) of every record, (2, n)."""
    found = np.empty((2, len(basis.scores)))
    for part, x in basis.blocks():
        found[:, part] = fitted.coefficients @ x.T
    return found


def posterior_of(sides: Sides, expected: Array, slopes: Array, variances: Array, scales: Array | None = None) -> Posterior:
    """Posterior of every record's level and slope under given spreads.

    (a, b) | margins ~ N(C Zᵀ W r, C), C = (T⁻¹ + ZᵀWZ)⁻¹, r the residuals of the two side means, W
    their precisions n/σ².

    Args:
        sides: of all records. expected: (2, n) f and g. slopes: (2, 2) T. variances: (2, n) σ² of
            each record's sides.
        scales: (2, n) factors on the standard deviations of a and b; None: 1.

    Cost: O(n).
    """
    f, g = expected
    out, inside = sides.counts / variances
    of_level, of_slope = np.ones((2, 1)) if scales is None else scales
    p, q, s = _precisions(sides.counts, slopes, variances, scales)
    determinant = p * s - q * q
    residuals = sides.means[0] - f, sides.means[1] - f - g
    # Shares of the two residuals in a and in b: the rows of C Zᵀ W.
    of_a = s * out / determinant, (s - q) * inside / determinant
    of_b = -q * out / determinant, (p - q) * inside / determinant
    a, b = (own[0] * residuals[0] + own[1] * residuals[1] for own in (of_a, of_b))
    squares = np.stack([(a * a + s / determinant) / of_level**2, (b * b + p / determinant) / of_slope**2])
    mixed = float(((a * b - q / determinant) / (of_level * of_slope)).mean())
    second = np.array([[float(squares[0].mean()), mixed], [mixed, float(squares[1].mean())]])
    left = np.stack([s / determinant / of_level**2, p / determinant / of_slope**2]) / np.diag(slopes)[:, None]
    told, levels = np.clip(1 - left, 0.0, 1.0), np.stack([f + a, f + a + g + b])
    return Posterior(levels, g + b, p / determinant, b, np.stack(of_b), second, np.stack([a, b]), told)


def _precisions(counts: Array, slopes: Array, variances: Array, scales: Array | None) -> tuple[Array, Array, Array]:
    """p, q and s of C⁻¹ = T⁻¹ + ZᵀWZ = [[p, q], [q, s]], (n,) each."""
    out, inside = counts / variances
    inverse = np.linalg.inv(slopes + 1e-10 * np.trace(slopes) * np.eye(2))
    of_level, of_slope = np.ones((2, 1)) if scales is None else scales
    level, mixed, slope = inverse[0, 0] / of_level**2, inverse[0, 1] / (of_level * of_slope), inverse[1, 1] / of_slope**2
    return level + out + inside, mixed + inside, slope + inside


def slope_variance(counts: Array, slopes: Array, variances: Array, scales: Array | None = None) -> Array:
    """Posterior variance (n,) of b alone, for given numbers of models on each side.

    The last element of C = (T⁻¹ + ZᵀWZ)⁻¹, as in `posterior_of`.

    Args:
        counts, variances: (2, n), OUT first. slopes: (2, 2) T. scales: (2, n) as in `posterior_of`.
    """
    p, q, s = _precisions(counts, slopes, variances, scales)
    found: Array = p / (p * s - q * q)
    return found


def level_variances(counts: Array, slopes: Array, variances: Array, scales: Array | None = None) -> Array:
    """Posterior variances (2, n) of the OUT level a and of the IN level a + b.

    From the elements of C = (T⁻¹ + ZᵀWZ)⁻¹, as in `posterior_of`.

    Args:
        counts, variances: (2, n), OUT first. slopes: (2, 2) T. scales: (2, n) as in `posterior_of`.
    """
    p, q, s = _precisions(counts, slopes, variances, scales)
    found: Array = np.stack([s, p + s - 2 * q]) / (p * s - q * q)
    return found


def coefficient_variance(basis: Basis, fitted: Fitted, gains: Array) -> Array:
    """Variance (n,) that the uncertainty of f and g adds to the separation.

    In the coefficients the separation is g − gain_out · f − gain_in · (f + g).

    Cost: O(np²).
    """
    found = np.empty(len(basis.scores))
    for part, x in basis.blocks():
        of_f, of_g = -gains[:, part].sum(0), 1 - gains[1, part]
        both, mixed, single = (((x @ fitted.uncertainty[i, :, j, :]) * x).sum(1) for i, j in ((0, 0), (0, 1), (1, 1)))
        found[part] = of_f**2 * both + 2 * of_f * of_g * mixed + of_g**2 * single
    return np.maximum(found, 0.0)

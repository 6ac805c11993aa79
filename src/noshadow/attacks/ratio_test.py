"""The most powerful test between two Gaussians of different spread, as online LiRA decides."""

import numpy as np
from scipy.special import ndtr

from noshadow.checks import Array

FAR = 40.0  # standard deviations beyond which a Gaussian has no mass in double precision
HALVINGS = 60  # of an interval of 2 FAR: the threshold to the last digit


def ratio_test_rate(gap: Array, width_in: Array, width_out: Array, fpr: float) -> Array:
    """True-positive rate (n,) of the likelihood-ratio test at `fpr` between Gaussians.

    OUT is N(0, s_out²), IN is N(gap, s_in²). In units of s_out, with δ = |gap|/s_out and ρ =
    s_in/s_out, log IN(z)/OUT(z) is a parabola about c = δ/(1 − ρ²). Where ρ < 1 the test says IN
    between b and 2c − b, b < c, and where ρ > 1 outside of 2c − b and b, b > c; b solves

        ρ < 1: Φ(2c − b) − Φ(b) = fpr,        rate Φ((2c − b − δ)/ρ) − Φ((b − δ)/ρ)
        ρ > 1: Φ(−b) + Φ(2c − b) = fpr,       rate Φ((δ − b)/ρ) + Φ((2c − b − δ)/ρ)

    and ρ = 1 is the test z > b. b is found by halving, since both left sides fall with it. Without
    any spread and with equal means nothing tells the sides apart, and the rate is `fpr`.

    Cost: O(n) with some 60 passes. Exact when: always, to rounding, for the Gaussians given.
    Reference: Neyman and Pearson 1933; Carlini et al. 2022 (LiRA).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        delta, ratio = np.abs(gap) / width_out, width_in / width_out
        centre = np.where(ratio == 1, np.inf, delta / (1 - ratio**2))
    narrow = ratio <= 1
    low, high = np.where(narrow, -FAR, np.maximum(centre, -FAR)), np.where(narrow, np.minimum(centre, FAR), FAR)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = _rate(middle, centre, narrow, 0.0, 1.0) > fpr
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    found = _rate((low + high) / 2, centre, narrow, delta, ratio)
    rates: Array = np.where(np.isfinite(delta) & np.isfinite(ratio), found, np.where(gap == 0, fpr, 1.0))
    return rates


def _rate(bound: Array, centre: Array, narrow: Array, mean: Array | float, width: Array | float) -> Array:
    """Probability (n,) under N(mean, width²) of the side that the test calls IN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        near, far = (bound - mean) / width, (2 * centre - bound - mean) / width
    share: Array = np.where(narrow, ndtr(far) - ndtr(near), ndtr(-near) + ndtr(far))
    return share

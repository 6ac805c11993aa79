"""The joint law of a record's leverage and its left-out error."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from noshadow.checks import Array, named_in_errors, refuse, require_number, require_whole, whole_seed
from noshadow.theory.arguments import degrees_left, numbers_within


@dataclass(frozen=True)
class JointLaw:
    """Law of the leverage h and the left-out error e of one record over training sets.

    h = h̄/(V + h̄) and e = ε + σ√(h̄/V)·Z with V ~ χ²_k and Z ~ N(0, 1) independent of each other:
    given its leverage, the error is N(ε, σ²h/(1 − h)). The residual of a model that was trained
    with the record is (1 − h)·e.

    Attributes:
        h_bar: population leverage xᵀΣ⁻¹x > 0. error: structural error ε = y − xᵀθ.
        noise_variance: σ² > 0. degrees: k = n − p.

    Exact when: as in `expected_gap`.
    Reference: [RET] Lemma 3.1, Eq. (1) and (2).
    """

    h_bar: float
    error: float
    noise_variance: float
    degrees: float

    @named_in_errors
    def leverage_cdf(self, leverage: object) -> Array:
        """P(h ≤ x) = P(V ≥ h̄(1 − x)/x), of any shape of x in [0, 1]."""
        x = numbers_within(leverage, "leverage", low=0, high=1)
        with np.errstate(divide="ignore"):
            return np.asarray(stats.chi2.sf(self.h_bar * (1 - x) / x, self.degrees))

    @named_in_errors
    def leverage_quantile(self, rate: object) -> Array:
        """The x with P(h ≤ x) = rate, for rates in [0, 1]."""
        q = numbers_within(rate, "rate", low=0, high=1)
        return np.asarray(self.h_bar / (stats.chi2.isf(q, self.degrees) + self.h_bar))

    @named_in_errors
    def log_density(self, leverage: object, left_out_error: object) -> Array:
        """Log density of (h, e) at leverages in (0, 1) and errors that broadcast with them."""
        h = numbers_within(leverage, "leverage", low=0, high=1, open_ends=True)
        e = numbers_within(left_out_error, "left_out_error")
        of_leverage = stats.chi2.logpdf(self.h_bar * (1 - h) / h, self.degrees) + np.log(self.h_bar) - 2 * np.log(h)
        deviation = np.sqrt(self.noise_variance * h / (1 - h))
        return np.asarray(of_leverage + stats.norm.logpdf(e, self.error, deviation))

    @named_in_errors
    def sample(self, size: int, *, seed: int = 0) -> tuple[Array, Array]:
        """Draw (size,) leverages and (size,) left-out errors."""
        require_whole(size, "size", low=1)
        rng = np.random.default_rng(whole_seed(seed))
        v = rng.chisquare(self.degrees, size)
        return self.h_bar / (v + self.h_bar), self.error + np.sqrt(self.noise_variance * self.h_bar / v) * rng.standard_normal(size)


@named_in_errors
def joint_law(h_bar: float, error: float, *, noise_variance: float, n: float, p: float) -> JointLaw:
    """The joint law of leverage and left-out error of one record under a Gaussian design.

    Args:
        h_bar: population leverage xᵀΣ⁻¹x > 0 of the record. error: its structural error y − xᵀθ.
        noise_variance: σ² > 0. n: training records, this one included. p: parameters; n − p > 2.

    Returns:
        JointLaw, with the distribution function, quantiles and density, and draws.

    Raises:
        InputError: an argument is out of range.

    Exact when: as in `expected_gap`.
    Cost: O(1).
    Reference: [RET] Lemma 3.1.

    Example:
        >>> law = joint_law(3.0, 1.5, noise_variance=1.0, n=50, p=5)
        >>> law.leverage_quantile([0.05, 0.5, 0.95]).round(4)
        array([0.0464, 0.0634, 0.0893])
    """
    structural = numbers_within(error, "error")
    if structural.ndim:
        refuse("error", "be one number", f"shape {structural.shape}", "Call it once per record.")
    return JointLaw(
        require_number(h_bar, "h_bar", low=0, low_open=True),
        float(structural),
        require_number(noise_variance, "noise_variance", low=0, low_open=True),
        degrees_left(n, p),
    )

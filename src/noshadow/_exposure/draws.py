"""Draws of what records are truly like, from the posterior that an exposure stands for."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, ndtr, ndtri, polygamma

from noshadow._exposure.posterior import slope_variance
from noshadow._exposure.result import Exposure
from noshadow._exposure.spread import LARGEST_FREEDOM
from noshadow.checks import Array, NotApplicable, require_number, said

BLOCK = 1 << 16  # records at once: what is drawn of them stays in the caches


@dataclass(frozen=True, eq=False)
class Truths:
    """One draw of some records: separation, and spread without and with the record, (b,) each."""

    separation: Array
    out: Array
    inside: Array

    def deviates(self, fpr: float) -> Array:
        """The quantile of the rate at `fpr`: larger members only, (b − z σ_out)/σ_in."""
        found: Array = (self.separation + np.float32(ndtri(fpr)) * self.out) / self.inside
        return found

    def rates(self, fpr: float, direction: str) -> Array:
        """Rate (b,) at which a threshold test finds each record, as in `Exposure.tpr`."""
        if direction == "larger":
            one: Array = ndtr(self.deviates(fpr))
            return one
        bar = np.float32(ndtri(fpr / 2)) * self.out
        both: Array = ndtr((self.separation + bar) / self.inside) + ndtr((bar - self.separation) / self.inside)
        return both


@dataclass(frozen=True, eq=False)
class Beliefs:
    """The posterior of n records, ready to be drawn from. All arrays are (n,) or (2, n) float32.

    A record's separation is centre + own · ε + shared · η: ε is its own, η that of the whole draw.
    What records share (coefficients, variances) errs for all of them in one direction; as one
    number it makes the widest interval of a maximum. The logarithms of both spreads are Gaussian:
    they err together, by what their degrees of freedom leave open, and apart, by what is open about
    their ratio.

    Attributes:
        centre: posterior mean, signed. own, shared: standard deviations.
        log_spread: means of log σ, OUT first. together, apart: standard deviations of what both
            have in common, and of what one has more and the other less.
        direction: "larger" or "either".
    """

    centre: Array
    own: Array
    shared: Array
    log_spread: Array
    together: Array
    apart: Array
    direction: str

    def __len__(self) -> int:
        return len(self.centre)

    def chosen(self, rows: Array) -> "Beliefs":
        """The same about some records."""
        one = (self.centre[rows], self.own[rows], self.shared[rows], self.log_spread[:, rows])
        return Beliefs(*one, self.together[rows], self.apart[rows], self.direction)

    def blocks(self) -> Iterator[slice]:
        """All records in blocks."""
        return (slice(start, start + BLOCK) for start in range(0, len(self), BLOCK))

    def drawn(self, part: slice, common: float, generator: np.random.Generator) -> Truths:
        """Draw the records of one block, given what they share."""
        count = len(self.centre[part])
        separation = self.centre[part] + self.own[part] * generator.standard_normal(count, dtype=np.float32)
        separation += np.float32(common) * self.shared[part]
        spreads = self.log_spread[:, part]
        if self.together.any() or self.apart.any():
            both, one = generator.standard_normal((2, count), dtype=np.float32)
            both, one = self.together[part] * both, self.apart[part] * one
            spreads = spreads + np.stack([both - one, both + one])
        out, inside = np.exp(spreads)
        return Truths(separation, out, inside)


def beliefs_of(found: Exposure) -> Beliefs:
    """The posterior behind an exposure.

    Raises:
        NotApplicable: order only.
    """
    if found.order_only:
        raise NotApplicable(said(f"draws need sizes, and this evidence gives the order only: {found.reason}"))
    state, spreads = found.state, np.stack([found.spread_out, found.spread_in])
    centre, alone, freedom = found.separation, found.variance, np.full_like(found.variance, LARGEST_FREEDOM)
    if state is not None:
        centre = found.separation if state.signed is None else state.signed
        # What the estimation of coefficients and variances adds is shared between records.
        alone = np.minimum(slope_variance(state.counts, state.slopes, spreads**2, state.scales), found.variance)
        freedom = np.minimum(state.freedom.sum(0), LARGEST_FREEDOM)
    # σ² = σ̂² ν/χ²_ν of both sides together
    log_spread = np.log(spreads) - (digamma(freedom / 2) - np.log(freedom / 2)) / 2
    together = np.where(freedom < LARGEST_FREEDOM, np.sqrt(polygamma(1, freedom / 2)) / 2, 0.0)
    # log σ_in − log σ_out is half of the ratio's logarithm, and each side has half of that.
    apart = np.sqrt(found.ratio_variance) / 4
    shared = np.sqrt(np.maximum(found.variance - alone, 0.0))
    alike = _single(together), _single(apart)
    return Beliefs(_single(centre), _single(np.sqrt(alone)), _single(shared), _single(log_spread), *alike, found.direction)


def _single(values: Array) -> Array:
    """The same in single precision: 1e-7 of a rate is nothing beside the error of some draws."""
    return np.asarray(values, dtype=np.float32)


def checked_level(fpr: float) -> float:
    """The false-positive rate as a number within (0, 1)."""
    return require_number(fpr, "fpr", low=0, high=1, low_open=True, high_open=True)

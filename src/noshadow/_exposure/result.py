"""Exposure: one rank and one number with an interval per record."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from noshadow._exposure.held_out import Tail
from noshadow.checks import Array, NotApplicable, named_in_errors, require_number, said

# Of the mean over a standard normal: exact for polynomials up to the thirteenth degree.
_PLACES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_LEAST, _MOST = 1e-300, 1e-16  # how near to 0 and 1 a rate has a quantile


@dataclass(frozen=True, eq=False)
class State:
    """What the estimate rests on, for judging what further models would add.

    Attributes:
        counts: (2, n) models without and with each record. slopes: (2, 2) covariance T of a
            record's own level and slope. freedom: (2, n) degrees of freedom of the spreads.
        scales: (2, n) factors on each record's standard deviations of level and slope; None: 1.
        signed: (n,) posterior mean of the separation with its sign; None: `separation` has it.
        tail: what left-out references say of margins without a record; None where they were not
            asked, or could not be.
    """

    counts: Array
    slopes: Array
    freedom: Array
    scales: Array | None = None
    signed: Array | None = None
    tail: Tail | None = None


@dataclass(frozen=True, eq=False)
class Exposure:
    """What all evidence together says about each of n records; larger = riskier.

    Attributes:
        score: (n,) ranks the records. rule: name of what it is.
        separation: (n,) posterior mean of μ_in − μ_out in units of the margins ("either": of its
            size). variance: (n,) of it.
        d_prime: (n,) separation / √((spread_in² + spread_out²)/2). interval: (n, 2) of d_prime at
            `level`; NaN when order only.
        spread_in, spread_out: (n,) standard deviations of the margins over models that had the
            record and that had not. ratio_variance: (n,) variance of log(spread_in²/spread_out²).
        order_only: sizes are not identified; `reason` says what would identify them.
        level: coverage of intervals. direction: "larger" or "either".
        weights: name of a source → its share in what makes the separations differ between records;
            they sum to one.
        notes: sentences a reader needs to know.
        state: what the estimate rests on; None without margins of other models.
    """

    score: Array
    rule: str
    separation: Array
    variance: Array
    d_prime: Array
    interval: Array
    spread_in: Array
    spread_out: Array
    ratio_variance: Array
    order_only: bool
    reason: str
    level: float
    direction: str
    weights: Mapping[str, float]
    notes: tuple[str, ...]
    state: State | None = None

    def __repr__(self) -> str:
        """A few lines without arrays: how many records, what ranks them, and the largest d′."""
        lines = [f"Exposure of {len(self.score):,} records, ranked by {self.rule}"]
        if self.order_only:
            lines.append("  order only: .reason says what would identify sizes")
        else:
            first = int(np.argmax(self.d_prime))
            low, high = self.interval[first]
            lines.append(
                f"  largest d′: {self.d_prime[first]:.3g} ({100 * self.level:g} % interval {low:.3g} to {high:.3g}), of record {first}"
            )
        if self.notes:
            lines.append(f"  {len(self.notes)} note{'' if len(self.notes) == 1 else 's'} in .notes")
        return "\n".join(lines)

    @named_in_errors
    def tpr(self, fpr: float) -> Array:
        """Rate (n,) at which a threshold test on this record's margin finds it.

        The rate is taken at false-positive rate `fpr`.

        The mean of Φ((b − z σ_out)/σ_in), z = Φ⁻¹(1 − fpr), over the posterior of the separation b
        (in closed form) and of log(σ²_in/σ²_out) (by Gauss–Hermite quadrature). "either": the test
        calls a member on both sides, with fpr/2 on each.

        Raises:
            NotApplicable: order only; the message says what would identify sizes. InputError: fpr
                outside (0, 1).
        """
        self._require_sizes()
        deviation = np.sqrt(self.ratio_variance)
        found = np.zeros_like(self.separation)
        for place, weight in zip(_PLACES, _WEIGHTS, strict=True):
            found += weight * self._rate(self.separation, self.variance, place * deviation, fpr)
        return found

    @named_in_errors
    def tpr_interval(self, fpr: float) -> Array:
        """Interval (n, 2) of `tpr` at `level`.

        Both ends lie as far from the rate at the middle, in normal quantiles, as the ends of the
        separation's interval and those of the ratio's take it together: the root of the sum of both
        squares.
        """
        self._require_sizes()
        z = -ndtri((1 - self.level) / 2)
        half, deviation = z * np.sqrt(self.variance), z * np.sqrt(self.ratio_variance)
        low, high = self.separation - half, self.separation + half
        nearest = np.maximum(low, 0.0) if self.direction == "either" else low
        none = np.zeros_like(self.variance)

        def quantile(separation: Array, log_ratio: Array) -> Array:
            found: Array = ndtri(np.clip(self._rate(separation, none, log_ratio, fpr), _LEAST, 1 - _MOST))
            return found

        middle = quantile(self.separation, none)
        moved = np.stack([quantile(self.separation, sign * deviation) for sign in (-1, 1)])
        ends = [
            middle + sign * np.hypot(quantile(end, none) - middle, np.maximum(sign * (moved - middle), 0).max(0))
            for sign, end in ((-1, nearest), (1, high))
        ]
        return np.column_stack([ndtr(end) for end in ends])

    def _rate(self, separation: Array, variance: Array, log_ratio: Array, fpr: float) -> Array:
        """The rate where log(σ²_in/σ²_out) is larger by `log_ratio` than its middle."""
        rate = require_number(fpr, "fpr", low=0, high=1, low_open=True, high_open=True)
        width = np.sqrt(self.spread_in**2 * np.exp(log_ratio / 2) + variance)
        out = self.spread_out * np.exp(-log_ratio / 4)
        if self.direction == "larger":
            found: Array = ndtr((separation + ndtri(rate) * out) / width)
            return found
        bar = ndtri(rate / 2) * out
        both: Array = ndtr((separation + bar) / width) + ndtr((bar - separation) / width)
        return both

    def _require_sizes(self) -> None:
        if self.order_only:
            raise NotApplicable(said(f"rates need sizes, and this evidence gives the order only: {self.reason}"))


def shares(parts: Mapping[str, Array]) -> dict[str, float]:
    """Share of each part in the variance of their sum.

    Each share is ≥ 0 and together they are 1; all are 0 when nothing varies.

    Parts that move together share what they have in common evenly: Johnson's relative weights
    (2000), squared correlations with the nearest orthogonal parts times what those explain.
    """
    held = {name: part for name, part in parts.items() if part.std() > 0}
    if not held:
        return dict.fromkeys(parts, 0.0)
    table = np.array(list(held.values()))
    values, vectors = np.linalg.eigh(np.atleast_2d(np.corrcoef(table)))
    kept = values > 1e-10 * values.max()
    root = (vectors[:, kept] * np.sqrt(values[kept])) @ vectors[:, kept].T
    inverse = (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T
    total = table.sum(0)
    with_total = (table - table.mean(1, keepdims=True)) @ (total - total.mean()) / (len(total) * table.std(1) * max(total.std(), 1e-300))
    weights = root**2 @ (inverse @ with_total) ** 2
    return dict.fromkeys(parts, 0.0) | dict(zip(held, (weights / weights.sum()).tolist(), strict=True))

"""From how a secret stands among others to its exposure in bits, with intervals."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from noshadow.checks import Array
from noshadow.metrics import clopper_pearson

LOG_PROBABILITIES = 4096  # points of the integral that gives a far tail


@dataclass(frozen=True)
class Standing:
    """Where a secret stands: its rank among |R|, exposure in bits, and an interval of each."""

    rank: float
    rank_interval: tuple[float, float]
    bits: float
    bits_interval: tuple[float, float]


@dataclass(frozen=True)
class SkewNormal:
    """Density 2/ω φ(z)Φ(αz) with z = (x − ξ)/ω."""

    location: float
    scale: float
    shape: float

    def log_below(self, value: float) -> float:
        """log P(X ≤ value), to its digits in the far lower tail too.

        The log-density is integrated from the value downwards: a difference of functions of order
        one would lose a tail below 1e-16.
        """
        z = (value - self.location) / self.scale
        # Below z the density falls at least as fast as a normal one.
        reach = 40.0 / (1.0 + max(-z, 0.0)) + 2 * max(z, 0.0)
        depth = np.linspace(0.0, reach, LOG_PROBABILITIES)
        log_density = math.log(2) - 0.5 * math.log(2 * math.pi) - 0.5 * (z - depth) ** 2 + special.log_ndtr(self.shape * (z - depth))
        weights = np.full(LOG_PROBABILITIES, reach / (LOG_PROBABILITIES - 1))
        weights[[0, -1]] /= 2
        return min(float(special.logsumexp(log_density, b=weights)), 0.0)


def exposure_bits(rank: float, space: int) -> float:
    """log₂|R| − log₂ rank, from 0 (the last) to log₂|R| (the first)."""
    return math.log2(space) - math.log2(rank)


def chance_bits(space: int) -> float:
    """Mean exposure of a secret that the model has not seen: its rank is uniform on 1 … |R|.

    log₂|R| − (1/|R|) log₂ |R|!, which tends to log₂e = 1.44 bits.
    """
    return math.log2(space) - math.lgamma(space + 1) / (space * math.log(2)) if space < 10**15 else 1 / math.log(2)


def exact_standing(not_worse: int, space: int) -> Standing:
    """The standing of a secret that was held against all others.

    Args:
        not_worse: others that the model prefers or likes as much. space: |R|, itself included.
    """
    rank = float(not_worse + 1)
    bits = exposure_bits(rank, space)
    return Standing(rank, (rank, rank), bits, (bits, bits))


def sampled_standing(not_worse: int, drawn: int, space: int, level: float) -> Standing:
    """The standing of a secret that was held against others drawn uniformly.

    k of m draws being no worse, the share of the secret itself and all that are no worse is
    estimated by (k + 1)/(m + 1): a rank that is never below the first of m + 1. The interval is
    that of Clopper and Pearson for the share q of the others, rank = 1 + (|R| − 1)q.
    """
    share = (not_worse + 1) / (drawn + 1)
    low, high = clopper_pearson(not_worse, drawn, level=level)
    ranks = (1 + (space - 1) * low, 1 + (space - 1) * high)
    rank = min(max(share * space, ranks[0]), ranks[1])
    ends = (exposure_bits(ranks[1], space), exposure_bits(ranks[0], space))
    return Standing(rank, ranks, exposure_bits(rank, space), ends)


def extrapolated_standings(
    values: Array, others: Array, space: int, level: float, resamples: int, seed: int
) -> tuple[list[Standing], float]:
    """Standings by a skew-normal distribution fitted to the log-perplexities of others.

    Exposure is −log₂ P(X ≤ value), at most log₂|R|. The interval is that of the fit (bootstrap over
    the others): it takes the skew-normal for true, in a tail where no other value stands.

    Returns:
        One standing per value, and the p-value of a Kolmogorov–Smirnov test of the fit (too large,
        since the distribution was fitted to the same values).
    """
    rng = np.random.default_rng(seed)
    fit = fitted(others)
    again = [fitted(rng.choice(others, len(others)), start=fit) for _ in range(resamples)]
    quantiles = [50 * (1 - level), 100 - 50 * (1 - level)]
    most = math.log2(space)
    found = []
    for value in values:
        bits = min(-fit.log_below(float(value)) / math.log(2), most)
        ends = np.percentile([min(-one.log_below(float(value)) / math.log(2), most) for one in again], quantiles)
        low, high = min(float(ends[0]), bits), max(float(ends[1]), bits)
        found.append(Standing(2.0 ** (most - bits), (2.0 ** (most - high), 2.0 ** (most - low)), bits, (low, high)))
    test = stats.kstest(others, stats.skewnorm(fit.shape, fit.location, fit.scale).cdf)
    return found, float(test.pvalue)


def fitted(values: Array, start: SkewNormal | None = None) -> SkewNormal:
    """Skew-normal distribution of largest likelihood, from moments or from another fit on."""
    mean, deviation = float(values.mean()), float(values.std()) or 1.0
    first = _by_moments(values) if start is None else start
    standard = (values - mean) / deviation

    def loss(theta: Array) -> tuple[float, Array]:
        """Mean of −log density without its constant, and its gradient."""
        z = (standard - theta[0]) * math.exp(-theta[1])
        below = special.log_ndtr(theta[2] * z)
        ratio = np.exp(-0.5 * (theta[2] * z) ** 2 - 0.5 * math.log(2 * math.pi) - below)
        slope = z - theta[2] * ratio
        gradient = np.array([-slope.mean() * math.exp(-theta[1]), 1 - (slope * z).mean(), -(ratio * z).mean()])
        return float(theta[1] + (0.5 * z**2 - below).mean()), gradient

    begin = np.array([(first.location - mean) / deviation, math.log(first.scale / deviation), first.shape])
    best = optimize.minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=[(-10, 10), (-10, 5), (-100, 100)]).x
    return SkewNormal(mean + deviation * float(best[0]), deviation * math.exp(float(best[1])), float(best[2]))


def _by_moments(values: Array) -> SkewNormal:
    mean, deviation = float(values.mean()), float(values.std()) or 1.0
    # The largest skewness that the family has is 0.995.
    skewness = float(np.clip(stats.skew(values), -0.95, 0.95))
    part = abs(skewness) ** (2 / 3)
    delta = math.copysign(math.sqrt(math.pi / 2 * part / (part + ((4 - math.pi) / 2) ** (2 / 3))), skewness)
    scale = deviation / math.sqrt(1 - 2 * delta**2 / math.pi)
    return SkewNormal(mean - scale * delta * math.sqrt(2 / math.pi), scale, delta / math.sqrt(1 - delta**2))

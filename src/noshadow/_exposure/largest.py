"""The posterior of the largest rate of any record."""

import numpy as np
from scipy.special import ndtr, ndtri

from noshadow._exposure.draws import Beliefs, beliefs_of, checked_level
from noshadow._exposure.result import Exposure
from noshadow.checks import Array, whole_seed
from noshadow.figures import LargestRate

MOST_DRAWS, LEAST_DRAWS = 2000, 200
NUMBERS = 2e8  # records times draws: a few seconds
# A record this many standard deviations below another one's lower end is never the largest.
FAR_BELOW, LOWER_END = 6.0, 3.0


def largest_rate(found: Exposure, fpr: float, *, seed: int = 0) -> LargestRate:
    """Posterior of max_i rate_i, the largest of all records' true rates, from draws.

    The largest of n noisy estimates is too large, and the largest of n estimates that were shrunk
    is too small: somebody lies above the own estimate, and nobody knows who. Each draw takes every
    record's separation and spreads from their posterior and keeps the largest rate; what records
    share is drawn once a draw.

    Args:
        found: with sizes. fpr: false-positive rate of the rates, in (0, 1).
        seed: of the draws.

    Returns:
        LargestRate: median, mean and the central interval at `found.level`.

    Raises:
        NotApplicable: order only. InputError: fpr outside (0, 1).

    Exact when: the data follow the model of `exposure` and its variances are known. With one record
        and known spreads the interval is the record's own, `tpr_interval`.
    Approximates: slopes with heavier tails than a Gaussian's are shrunk too far, and the largest
        rate is then understated (docs/exposure.md has the measured cover).
    Cost: O(nD) for D draws, 200 to 2,000; records that cannot be the largest are left out first.
        Seconds for 10⁶ records; memory O(n).
    """
    level, beliefs = checked_level(fpr), beliefs_of(found)
    near = beliefs.chosen(_within_reach(beliefs, level))
    draws = int(np.clip(NUMBERS / len(near), LEAST_DRAWS, MOST_DRAWS))
    generator = np.random.default_rng(whole_seed(seed))
    rates = _largest(near, level, draws, generator)
    low, high = np.quantile(rates, [(1 - found.level) / 2, (1 + found.level) / 2])
    return LargestRate(
        fpr=level,
        median=float(np.median(rates)),
        mean=float(rates.mean()),
        interval=(float(low), float(high)),
        level=found.level,
        records=len(beliefs),
        draws=draws,
        seed=seed,
    )


def _largest(beliefs: Beliefs, fpr: float, draws: int, generator: np.random.Generator) -> Array:
    """Largest rate (draws,) of each draw, block by block over the records."""
    common, largest = generator.standard_normal(draws), np.full(draws, -np.inf)
    larger = beliefs.direction == "larger"
    for part in beliefs.blocks():
        for draw in range(draws):
            truths = beliefs.drawn(part, common[draw], generator)
            # Φ grows: it is enough to take it of the largest.
            values = truths.deviates(fpr) if larger else truths.rates(fpr, beliefs.direction)
            largest[draw] = max(largest[draw], float(values.max()))
    found: Array = ndtr(largest) if larger else largest
    return found


def _within_reach(beliefs: Beliefs, fpr: float) -> Array:
    """Rows of the records that may be the largest."""
    out, inside = np.exp(beliefs.log_spread)
    larger = beliefs.direction == "larger"
    bar = ndtri(fpr if larger else fpr / 2) * out
    centre = ((beliefs.centre if larger else np.abs(beliefs.centre)) + bar) / inside
    spread = np.hypot(beliefs.together, beliefs.apart)
    variance = (beliefs.own**2 + beliefs.shared**2 + (bar * spread) ** 2) / inside**2 + (centre * spread) ** 2
    error = np.sqrt(variance)
    rows: Array = np.flatnonzero(centre + FAR_BELOW * error >= (centre - LOWER_END * error).max())
    return rows

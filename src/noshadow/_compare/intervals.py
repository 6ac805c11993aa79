"""Intervals of a difference of rates between two models that may share records."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from noshadow.checks import Array
from noshadow.metrics import error_budget
from noshadow.results import Interval

RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Samples:
    """Losses of two models and which of them belong to the same record.

    Attributes:
        members, nonmembers: (first, second) loss samples.
        shared: (rows in the first, rows in the second) of the members both were trained on; may be
            empty.
        same_tests: whether the two non-member samples are of the same records in the same order.
    """

    members: tuple[Array, Array]
    nonmembers: tuple[Array, Array]
    shared: tuple[Array, Array]
    same_tests: bool


def tnr_difference_interval(samples: Samples, level: float, *, coverage: float, seed: int, resamples: int = RESAMPLES) -> Interval:
    """Percentile-bootstrap interval of TNR(second) − TNR(first) of the loss attack at FNR = level.

    Records are resampled, not losses: one that both models were trained on, or that both were
    tested on, is drawn for both at once. Drawing n records from the union of the members gives
    multinomial counts; only records near the top of either sample can be its threshold, so the
    others are counted together. Given the two thresholds, the resampled non-members fall into four
    cells (above either, both, none): multinomial again.

    Exact when: the bootstrap's distribution is drawn exactly; its coverage is approximate.
    Approximates: in simulation (benchmarks/compare_coverage.py) never too short without a change;
        somewhat with one, when a single member may exceed τ.
    Cost: O(n log n + resamples · (n_nonmembers + level · n_members)).
    """
    rng = np.random.default_rng(seed)
    thresholds = _threshold_draws(samples, level, resamples, rng)
    rates = _share_draws(samples, thresholds, rng)
    outside = (1 - coverage) / 2
    low, high = np.quantile(rates[1] - rates[0], (outside, 1 - outside))
    return float(low), float(high)


def _threshold_draws(samples: Samples, level: float, resamples: int, rng: np.random.Generator) -> Array:
    """(2, resamples) thresholds τ of both models on resampled members."""
    sizes = [len(losses) for losses in samples.members]
    budgets = [error_budget(level, n) for n in sizes]
    # Beyond so many records from the top a resample of as many has its threshold with a probability
    # below 1e-20.
    tops = [np.argsort(-losses, kind="stable")[: 2 * k + 60] for losses, k in zip(samples.members, budgets, strict=True)]
    if not len(samples.shared[0]):
        draws = []
        for losses, top, budget, n in zip(samples.members, tops, budgets, sizes, strict=True):
            counts = rng.multinomial(n, np.append(np.full(len(top), 1 / n), 1 - len(top) / n), size=resamples)
            draws.append(_thresholds(losses[top], counts[:, :-1], np.full(resamples, budget)))
        return np.stack(draws)
    return _joint_threshold_draws(samples, tops, budgets, resamples, rng)


def _joint_threshold_draws(samples: Samples, tops: list[Array], budgets: list[int], resamples: int, rng: np.random.Generator) -> Array:
    """Draw as above, where both models share members.

    Records of the union are drawn, and count for each model that was trained on them.
    """
    first, second = (len(losses) for losses in samples.members)
    # of the second model's records in the union; those it shares stand where the first has them
    place = np.arange(second) + first
    place[samples.shared[1]] = samples.shared[0]
    trained: Array = np.zeros((2, first + second), dtype=bool)
    trained[0, :first] = trained[1, place] = True
    union = int(trained.any(0).sum())
    named = np.unique(np.concatenate([tops[0], place[tops[1]]]))
    rest: Array = np.logical_or(trained[0], trained[1])
    rest[named] = False
    kinds = [(trained[0] & ~trained[1] & rest).sum(), (~trained[0] & trained[1] & rest).sum(), (trained[0] & trained[1] & rest).sum()]
    chances = np.concatenate([np.full(len(named), 1.0), kinds]) / union
    counts = rng.multinomial(union, chances / chances.sum(), size=resamples)
    both = counts[:, -1]
    found = []
    for model, (losses, places) in enumerate(zip(samples.members, (tops[0], place[tops[1]]), strict=True)):
        drawn = counts[:, :-3] @ trained[model, named] + counts[:, -3 + model] + both
        # As many may exceed τ as the level allows in a sample of that size.
        budget = np.rint(budgets[model] * drawn / len(losses))
        found.append(_thresholds(losses[tops[model]], counts[:, np.searchsorted(named, places)], budget))
    return np.stack(found)


def _thresholds(descending: Array, counts: Array, budgets: Array) -> Array:
    """Find, per row of counts, the largest loss that more than `budgets` resampled losses reach."""
    reached = counts.cumsum(1) > budgets[:, None]
    places: Array = np.where(reached.any(1), reached.argmax(1), len(descending) - 1)
    thresholds: Array = descending[places]
    return thresholds


def _share_draws(samples: Samples, thresholds: Array, rng: np.random.Generator) -> Array:
    """(2, resamples) shares of resampled non-members above each model's thresholds."""
    if not samples.same_tests:
        draws = []
        for losses, tau in zip(samples.nonmembers, thresholds, strict=True):
            above = len(losses) - np.searchsorted(np.sort(losses), tau, side="right")
            draws.append(rng.binomial(len(losses), above / len(losses)) / len(losses))
        return np.stack(draws)
    n = len(samples.nonmembers[0])
    pairs, where = np.unique(thresholds, axis=1, return_inverse=True)
    cells = np.empty((pairs.shape[1], 4))
    for k, (tau, other) in enumerate(pairs.T):
        above = (samples.nonmembers[0] > tau, samples.nonmembers[1] > other)
        both = np.count_nonzero(above[0] & above[1])
        one, two = np.count_nonzero(above[0]) - both, np.count_nonzero(above[1]) - both
        cells[k] = both, one, two, n - both - one - two
    drawn = rng.multinomial(n, cells[where.ravel()] / n)
    shares: Array = np.stack([drawn[:, 0] + drawn[:, 1], drawn[:, 0] + drawn[:, 2]]) / n
    return shares


def auc_difference_interval(samples: Samples, *, coverage: float) -> Interval | None:
    """Compute a normal interval of AUC(second) − AUC(first) with DeLong's variance.

    When the variance is zero, the result is (0, 0) for equal AUCs and None for others.

    With a_i the share of non-members whose loss is above member i's (ties half) and b_j likewise
    for non-members, var = Σ_models (var a/n + var b/m) − 2(cov a over shared members + cov b over
    shared non-members).

    Approximates: normal on the difference.
    Cost: O(n log n).
    Reference: DeLong, DeLong and Clarke-Pearson (1988).
    """
    parts = [_auc_parts(inside, outside) for inside, outside in zip(samples.members, samples.nonmembers, strict=True)]
    variance = sum(float(share.var(ddof=1)) / len(share) for pair in parts for share in pair)
    variance -= 2 * _shared_covariance(parts[0][0], parts[1][0], samples.shared)
    if samples.same_tests:
        everyone = np.arange(len(parts[0][1]))
        variance -= 2 * _shared_covariance(parts[0][1], parts[1][1], (everyone, everyone))
    difference = float(parts[1][0].mean() - parts[0][0].mean())
    if variance <= 1e-15:
        return (0.0, 0.0) if difference == 0 else None
    half = float(ndtri((1 + coverage) / 2)) * math.sqrt(variance)
    return difference - half, difference + half


def _auc_parts(members: Array, nonmembers: Array) -> tuple[Array, Array]:
    """Compute the two kinds of shares of which the AUC is the mean.

    They are each member's share of non-members with larger losses, and each non-member's share of
    members with smaller ones.
    """
    inside, outside = np.sort(members), np.sort(nonmembers)
    # Both ends of a run of ties, halved: equal losses count half.
    above = 1 - (np.searchsorted(outside, members, "left") + np.searchsorted(outside, members, "right")) / (2 * len(outside))
    below = (np.searchsorted(inside, nonmembers, "left") + np.searchsorted(inside, nonmembers, "right")) / (2 * len(inside))
    return above, below


def _shared_covariance(first: Array, second: Array, rows: tuple[Array, Array]) -> float:
    """Covariance of two means whose samples share these rows."""
    shared = len(rows[0])
    if shared < 2:
        return 0.0
    products = (first[rows[0]] - first.mean()) @ (second[rows[1]] - second.mean())
    return float(products) * shared / (shared - 1) / (len(first) * len(second))


def separate_difference_interval(first: tuple[float, Interval], second: tuple[float, Interval]) -> Interval:
    """Compute the interval of second − first from a value and an interval of each.

    They are treated as if independent: distances add in squares.

    Approximates: independence; two audits that share records or a calibration err together, and the
        interval is too wide then.
    Reference: Zou and Donner (2008), the MOVER.
    """
    (a, (a_low, a_high)), (b, (b_low, b_high)) = first, second
    return b - a - math.hypot(b - b_low, a_high - a), b - a + math.hypot(b_high - b, a - a_low)

"""Spreads of a record's margins over models.

They depend on the side and on the record's levels, and on the record's own margins as far as these
can tell.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

from noshadow._exposure.basis import clipped_scores
from noshadow._exposure.rules import CHOSEN, Rules
from noshadow._exposure.sufficient import Sides
from noshadow.checks import Array
from noshadow.sizing import FITTED_RECORDS

STEPS = 50
# Share of its level's variance below which a record's margins are equal but for rounding, as those
# of votes may be, and the logarithm of the largest ratio of a record's variances.
EQUAL, LARGEST_RATIO = 1e-6, float(np.log(100.0))
BENT_PRECISION = 10.0  # prior of the slopes in squared levels: a standard deviation of a third
WIDEST = 1e6  # prior degrees of freedom from which a record's own spread says nothing
LARGEST_FREEDOM = 1e12  # degrees of freedom that stand for infinitely many


@dataclass(frozen=True, eq=False)
class Spreads:
    """Variances of margins over models, OUT first.

    Attributes:
        level: (2, n) by side and the record's levels. record: (2, n) shrunk from the record's own
            to that.
        free: (2, n) degrees of freedom behind `record`. prior: degrees of freedom of the prior.
            slopes: (2, 2 or 4) of log σ² of each side in the two levels and their squares.
    """

    level: Array
    record: Array
    free: Array
    prior: float
    slopes: Array


def spreads_of(sides: Sides, levels: Array, variances: Array, rules: Rules = CHOSEN) -> Spreads:
    """Fit the spreads by a gamma regression on the two levels.

    Each record's own spread is then shrunk to the regression by an inverse-gamma prior.

    log σ²_side,i = c_side + d · (z, z² − 1), z the normal scores of the ranks of the OUT and the IN
    level, clipped at two; squares around a record's mean, with n − 1 degrees of freedom each, by
    iterated weighted least squares (a GLM with log link). The squares of z let the spread rise and
    fall again: records that models get wrong every time vary less than those near the boundary. The
    prior's degrees of freedom come from the variance of log squares around the fit (Smyth 2004, the
    moment estimator of d₀).

    Args:
        sides: of all records. levels: (2, n) fitted OUT and IN levels. variances: (2,) of the mixed
            model, the start and, with fewer than 200 records that have two margins on a side, the
            answer of that side.
    """
    scaled = clipped_scores(levels, rules.clip)
    if rules.bent and rules.clip > 0:
        scaled = np.vstack([scaled, scaled**2 - 1])
    free = np.maximum(sides.counts - 1, 0)
    told = [side for side in (0, 1) if (free[side] > 0).sum() >= FITTED_RECORDS]
    constants, slopes = np.log(variances), np.zeros((2, len(scaled)))
    if told:
        constants, slopes = _gamma_fit(sides.squares, free, scaled, told, constants, rules.side_slopes)
    by_level = np.exp(constants[:, None] + slopes @ scaled)
    prior = _prior_freedom(sides.squares, free, by_level, told)
    if prior >= WIDEST or not rules.own_spreads:
        return Spreads(by_level, by_level, np.full_like(free, np.inf), np.inf, slopes)
    return Spreads(by_level, (prior * by_level + sides.squares) / (prior + free), prior + free, prior, slopes)


def with_own_squares(spreads: Spreads, sides: Sides) -> Spreads:
    """The same spreads by level, with each record's own taken from these margins."""
    if not np.isfinite(spreads.prior):
        return spreads
    free = np.maximum(sides.counts - 1, 0)
    return replace(spreads, record=(spreads.prior * spreads.level + sides.squares) / (spreads.prior + free))


@dataclass(frozen=True, eq=False)
class Compared:
    """Variances of both sides whose ratio is told from chance.

    Attributes:
        record: (2, n) variances, OUT first. log_ratio: (n,) variance of log(σ²_in/σ²_out), what
            records' own margins leave open.
    """

    record: Array
    log_ratio: Array


def sides_compared(spreads: Spreads, sides: Sides) -> Compared:
    """Shrink the ratio of each record's two variances to what it is by level.

    A rate at a small false-positive rate rests on σ_in/σ_out: by chance alone the records with the
    largest ratio would seem exposed. The logarithm of each record's ratio is shrunk by how much
    ratios truly differ between records: their variance beyond that of two χ², ψ′(ν_in/2) +
    ψ′(ν_out/2). Where ratios differ no more than chance makes them, all records have the ratio of
    their levels. A shrunk ratio beyond 100 is drawn in. The mean of both variances, weighted by
    degrees of freedom, stays what it was.

    Args:
        spreads: of all records. sides: the margins they rest on.
    """
    free = np.maximum(sides.counts - 1, 0)
    if not np.isfinite(spreads.prior):
        return Compared(spreads.level, np.zeros(free.shape[1]))
    weight = (spreads.prior + free) / (spreads.prior + free).sum(0)
    both = ((free > 0) & (sides.squares > EQUAL * spreads.level)).all(0)
    half = free[:, both] / 2
    out, inside = np.log(sides.squares[:, both] / spreads.level[:, both]) - np.log(2.0) - digamma(half)
    found, noise = inside - out, polygamma(1, half).sum(0)
    usual = np.average(found, weights=1 / noise) if both.any() else 0.0
    beyond = max(float(np.average((found - usual) ** 2 - noise, weights=noise**-2.0)), 0.0) if both.any() else 0.0
    ratio, left = np.full(free.shape[1], usual), np.full(free.shape[1], beyond)
    ratio[both] = np.clip(usual + (found - usual) * beyond / (beyond + noise), -LARGEST_RATIO, LARGEST_RATIO)
    left[both] = beyond * noise / (beyond + noise)
    mean = (weight * spreads.record / spreads.level).sum(0)
    parts = np.exp(np.stack([-ratio * weight[1], ratio * weight[0]]))
    return Compared(spreads.level * mean * parts / (weight * parts).sum(0), left)


def d_prime_error(d_prime: Array, variance: Array, record: Array, freedom: Array) -> Array:
    """Standard error (n,) of d′, to first order.

    It has two parts: the separation's own variance, and that of the logarithm of the spread.

    Args:
        d_prime: (n,). variance: (n,) of the separation. record: (2, n) variances of margins, OUT
            first. freedom: (2, n) degrees of freedom behind them.
    """
    mean_square = record.mean(0)
    share = record / (2 * mean_square)
    log_width = (share**2 * polygamma(1, np.minimum(freedom, LARGEST_FREEDOM) / 2)).sum(0) / 4
    error: Array = np.sqrt(variance / mean_square + d_prime**2 * log_width)
    return error


def _gamma_fit(squares: Array, free: Array, scaled: Array, told: list[int], start: Array, apart: bool) -> tuple[Array, Array]:
    """Constants and slopes of both sides, fitted to the gamma likelihood.

    The sides share their slopes, or have slopes of their own (`apart`); a side without records of
    two margins takes those of the other. The fit uses Newton's method with weights n − 1.
    """
    constants, slopes = start.copy(), np.zeros((2, len(scaled)))
    # Squares of the levels are held near zero: extremes are few.
    precision = np.where(np.arange(len(scaled)) < 2, 0.0, BENT_PRECISION)
    for group in [[side] for side in told] if apart else [told]:
        rows = [free[side] > 0 for side in group]
        own = [[np.full(int(r.sum()), float(side == s)) for s in group] for side, r in zip(group, rows, strict=True)]
        design = np.vstack([np.column_stack([*flags, scaled[:, r].T]) for flags, r in zip(own, rows, strict=True)])
        weight = np.concatenate([free[side][r] for side, r in zip(group, rows, strict=True)])
        mean_square = np.concatenate([squares[side][r] / free[side][r] for side, r in zip(group, rows, strict=True)])
        numbers = _fisher_scoring(design, weight, mean_square, np.concatenate([start[group], np.zeros(len(scaled))]), precision)
        constants[group] = numbers[: len(group)]
        for side in group if apart and len(told) == 2 else (0, 1):
            slopes[side] = numbers[len(group) :]
    return constants, slopes


def _fisher_scoring(design: Array, weight: Array, mean_square: Array, start: Array, precision: Array) -> Array:
    """Coefficients of log E[mean_square] in the design under a gamma likelihood.

    The last ones have a Gaussian prior around 0 of this precision.
    """
    numbers = start
    # Twice the precision: weights n − 1 are twice those of the likelihood.
    penalty = 2 * np.concatenate([np.zeros(len(start) - len(precision)), precision])
    # Fisher scoring with a log link has constant weights, so that one factorisation serves all
    # steps.
    information = (design * weight[:, None]).T @ design + 1e-9 * weight.sum() * np.eye(design.shape[1]) + np.diag(penalty)
    for _ in range(STEPS):
        step = np.linalg.solve(information, design.T @ (weight * (mean_square * np.exp(-design @ numbers) - 1)) - penalty * numbers)
        numbers = numbers + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-10:
            break
    return numbers


def _prior_freedom(squares: Array, free: Array, by_level: Array, told: list[int]) -> float:
    """d₀ of the inverse-gamma prior.

    The variance of log squares beyond that of a χ² is ψ′(d₀/2).
    """
    left: list[Array] = []
    for side in told:
        seen = (free[side] > 0) & (squares[side] > 0)
        half = free[side][seen] / 2
        deviation = np.log(squares[side][seen] / by_level[side][seen]) - np.log(2.0) - digamma(half)
        left.append((deviation - deviation.mean()) ** 2 - polygamma(1, half))
    beyond = float(np.concatenate(left).mean()) if left else 0.0
    if beyond <= polygamma(1, WIDEST / 2):
        return WIDEST
    root: float = brentq(lambda log_half: float(polygamma(1, np.exp(log_half))) - beyond, np.log(1e-3), np.log(WIDEST))
    return float(min(max(2 * np.exp(root), 1.0), WIDEST))

"""Rates below what a sample resolves, extrapolated and labelled so.

A generalised Pareto tail is fitted to the largest values of the sample.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noshadow.arguments import renamed, renamed_attribute
from noshadow.checks import (
    Array,
    NumericalError,
    named_in_errors,
    numeric_array,
    refuse,
    require_choice,
    require_number,
    require_whole,
    said,
)
from noshadow.metrics import error_budget
from noshadow.results import Interval
from noshadow.tail.losses import margins_of_losses
from noshadow.tail.resampling import Bootstrap

LEAST_EXCEEDANCES = 25
LARGEST_SHARE = 0.2
SHORTEST = 1e-300
SCALES = ("margin", "loss")
GRID = 120  # even: log(1 + t x_max) = 0, the exponential law, lies between two points
GRID_RANGE = (-3.0, 30.0)


@dataclass(frozen=True)
class TailRate:
    """A rate beyond the resolution of a sample.

    Attributes:
        error_rate: the false-negative (TNR) or false-positive (TPR) rate asked for.
        value: the rate there, in [0, 1]. interval: percentile bootstrap of both samples and both
            fits.
        threshold: the loss or score that a share `error_rate` of the first sample is expected to
            exceed; may be infinite.
        shape: of the fitted tail; > 0 heavier, < 0 lighter than exponential.
        exceedances: how many of the largest values the tail was fitted to.
        extrapolated: True: below 1/n of the first sample, the fitted tail decides; False: the
            sample resolves the rate.
    """

    error_rate: float
    value: float
    interval: Interval
    threshold: float
    shape: float
    exceedances: int
    extrapolated: bool

    level = renamed_attribute("level", "error_rate")


@dataclass(frozen=True)
class _Tails:
    """Fitted tails of many resamples: n records each, k of them above `start`. Arrays (b,)."""

    start: Array
    scale: Array
    shape: Array
    share: float  # k/n

    def quantile(self, rate: float) -> Array:
        """The value that a share `rate` ≤ share exceeds."""
        ratio = math.log(self.share / rate)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            grown = np.where(np.abs(self.shape) < 1e-8, ratio, np.expm1(self.shape * ratio) / self.shape)
        found: Array = self.start + self.scale * grown
        return found

    def above(self, thresholds: Array) -> Array:
        """Share of the sample's population above each threshold ≥ start."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # A resample of equal values has no scale: nothing lies above them.
            reach = np.where(self.scale > 0, (thresholds - self.start) / self.scale, np.inf)
            base = np.maximum(1 + self.shape * reach, 0.0)
            exponential = np.abs(self.shape) < 1e-8
            survival = np.where(exponential, np.exp(-reach), np.where(base > 0, base ** (-1 / np.where(exponential, 1, self.shape)), 0.0))
        found: Array = self.share * np.clip(survival, 0.0, 1.0)
        return found


@named_in_errors
@renamed(level="fnr", coverage="level")
def extrapolated_tnr(
    member_losses: object,
    nonmember_losses: object,
    fnr: float,
    *,
    scale: str = "margin",
    resamples: int = 400,
    level: float = 0.95,
    seed: int = 0,
) -> TailRate:
    """TNR of the loss attack at a false-negative rate that the members may be too few to resolve.

    τ = the loss that a share `fnr` of members exceeds: beyond the k largest of n member losses
    (or of their image on another scale; rates do not depend on it) from a generalised Pareto tail,
    τ = u + (σ/ξ)((k/(n·fnr))^ξ − 1); TNR = P(non-member loss > τ), counted where τ lies among the
    non-member losses and from their own fitted tail where it lies above their k largest.

    Args:
        member_losses: (n_members,) finite losses of training records, enough for 25 in the tail:
            n ≥ 125.
        nonmember_losses: (n_nonmembers,) of records not trained on, likewise.
        fnr: false-negative rate in (0, 1).
        scale: "margin" fits the tails of log(e^loss − 1), minus the margin of a cross-entropy,
            which is spread far more evenly than the losses of an overfit classifier; "loss" those
            of the losses themselves (squared errors, sequences).
        resamples: of the bootstrap, ≥ 100. level: coverage of the interval, in (0, 1). seed: of
            the resampling.

    Returns:
        TailRate; `extrapolated` is False where the members resolve the rate (then the counted
        TNR).

    Raises:
        InputError: losses that are not finite or too few, an argument out of range.
        NumericalError: a tail without spread, all of the largest losses being equal.

    Exact when: losses beyond their (1 − k/n) quantile follow a generalised Pareto law, as those of
        most continuous distributions do in the limit.
    Approximates: everything else; benchmarks/tail_extrapolation.py measures by how much on real
        losses.
    Cost: O(n log n + 120 · resamples · k), k = min(0.2 n, 3 √n).
    Reference: Pickands 1975; Grimshaw 1993 (the profile likelihood); [TAIL] §5 for TNR.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> members, others = rng.exponential(size=2000), 3 * rng.exponential(size=2000)
        >>> found = extrapolated_tnr(members, others, 1e-4, scale="loss")
        >>> print(f"{found.value:.2f}, {found.extrapolated}")  # truth: 1e-4^(1/3) = 0.046
        0.04, True
    """
    how: dict[str, Any] = {"scale": scale, "resamples": resamples, "level": level, "seed": seed}
    return extrapolated_tnrs(member_losses, nonmember_losses, (fnr,), **how)[0]


def extrapolated_tnrs(
    member_losses: object, nonmember_losses: object, rates: Sequence[float], *, scale: str, resamples: int, level: float, seed: int
) -> list[TailRate]:
    """`extrapolated_tnr` at each of some false-negative rates, with the tails fitted once.

    The numbers are the same as for one rate at a time.
    """
    require_choice(scale, SCALES, "scale")
    names = ("member_losses", "nonmember_losses")
    members, nonmembers = (_sorted_sample(values, name) for values, name in zip((member_losses, nonmember_losses), names, strict=True))
    bootstrap = _bootstrap(resamples, level, seed)
    if scale == "loss":
        return _rates(members, nonmembers, rates, names, bootstrap)
    for sample, name in zip((members, nonmembers), names, strict=True):
        if sample[0] < 0:
            refuse(name, "be ≥ 0 on the scale of margins", f"{sample[0]:g}", "Pass scale='loss'.")
    found = _rates(-margins_of_losses(members), -margins_of_losses(nonmembers), rates, names, bootstrap)
    # Back from margins: the loss at which −φ is that large.
    return [replace(rate, threshold=float(np.logaddexp(0.0, rate.threshold))) for rate in found]


@named_in_errors
@renamed(coverage="level")
def extrapolated_tpr(
    member_scores: object, nonmember_scores: object, fpr: float, *, resamples: int = 400, level: float = 0.95, seed: int = 0
) -> TailRate:
    """TPR of an attack at a false-positive rate that the non-members may be too few to resolve.

    The mirror image of `extrapolated_tnr`: the threshold is the score that a share `fpr` of
    non-members exceeds, from a generalised Pareto tail beyond their largest scores; TPR = P(member
    score > threshold).

    Args:
        member_scores: (n_members,) finite scores, larger = more member-like. nonmember_scores:
            (n_nonmembers,) likewise; n ≥ 125 each.
        fpr: false-positive rate in (0, 1).
        resamples: of the bootstrap, ≥ 100. level: coverage of the interval, in (0, 1). seed: of
            the resampling.

    Returns:
        TailRate.

    Raises:
        InputError: scores that are not finite or too few, an argument out of range.
        NumericalError: a tail without spread, all of the largest scores being equal.

    Approximates: as `extrapolated_tnr`.
    Cost: as `extrapolated_tnr`.
    Reference: Pickands 1975; Grimshaw 1993.
    """
    names = ("nonmember_scores", "member_scores")
    bootstrap = _bootstrap(resamples, level, seed)
    return _rates(nonmember_scores, member_scores, (fpr,), names, bootstrap, argument="fpr")[0]


def _bootstrap(resamples: int, level: float, seed: int) -> Bootstrap:
    return Bootstrap(
        resamples=require_whole(resamples, "resamples", low=100),
        level=require_number(level, "level", low=0, high=1, low_open=True, high_open=True),
        seed=require_whole(seed, "seed", low=0),
    )


def _rates(
    given: object, other: object, rates: Sequence[float], names: tuple[str, str], bootstrap: Bootstrap, *, argument: str = "fnr"
) -> list[TailRate]:
    asked = [require_number(rate, argument, low=0, high=1, low_open=True, high_open=True) for rate in rates]
    first, second = (_sorted_sample(values, name) for values, name in zip((given, other), names, strict=True))
    rng = np.random.default_rng(bootstrap.seed)
    ends = [_with_resampled_ends(sample, bootstrap.resamples, rng) for sample in (first, second)]
    tails = [_fitted(top, len(sample), name) for top, sample, name in zip(ends, (first, second), names, strict=True)]
    state, found = rng.bit_generator.state, []
    for rate in asked:
        # As if this rate had been asked for alone.
        rng.bit_generator.state = state
        found.append(_rate(rate, (first, second), (tails[0], tails[1]), bootstrap, rng))
    return found


def _rate(
    rate: float, samples: tuple[Array, Array], tails: tuple[_Tails, _Tails], bootstrap: Bootstrap, rng: np.random.Generator
) -> TailRate:
    first, second = samples
    place = max(len(first) - 1 - error_budget(rate, len(first)), 0)
    # Where the sample itself resolves the rate: its own order statistics, not the fitted tail.
    resolved = rate >= tails[0].share or rate * len(first) >= 1
    thresholds = _order_statistics(first, place, bootstrap.resamples, rng) if resolved else tails[0].quantile(rate)
    draws = _shares_above(second, tails[1], thresholds, rng)
    return TailRate(
        error_rate=rate,
        value=float(draws[0]),
        interval=bootstrap.interval(draws[1:]),
        threshold=float(thresholds[0]),
        shape=float(tails[0].shape[0]),
        exceedances=_tail_length(len(first)),
        extrapolated=bool(rate * len(first) < 1),
    )


def _sorted_sample(values: object, name: str) -> Array:
    sample = np.sort(numeric_array(values, name, ndim=1).astype(np.float64))
    least = math.ceil(LEAST_EXCEEDANCES / LARGEST_SHARE)
    if len(sample) < least:
        rule = f"hold at least {least} values, {LEAST_EXCEEDANCES} of them in the tail"
        refuse(name, rule, str(len(sample)), "Give more records.")
    return sample


def shows_tail(sample: Array) -> bool:
    """Whether a sorted sample has enough values, and spread among the largest, to fit a tail to."""
    return len(sample) >= LEAST_EXCEEDANCES / LARGEST_SHARE and bool(sample[-1] > sample[-1 - _tail_length(len(sample))])


def _tail_length(n: int) -> int:
    return math.ceil(min(LARGEST_SHARE * n, 3 * math.sqrt(n)))


def _with_resampled_ends(sample: Array, resamples: int, rng: np.random.Generator) -> Array:
    """(1 + resamples, k + 1) largest values, descending: of the sample, then of resamples of it.

    The order statistics of n uniforms from above are 1 − S_j/S_{n+1} with S the partial sums of
    exponentials; a resample of a sorted sample is its image under ⌊nU⌋.
    """
    n, k = len(sample), _tail_length(len(sample))
    steps = np.cumsum(rng.exponential(size=(resamples, k + 1)), axis=1)
    total = steps[:, -1:] + rng.gamma(n - k, size=(resamples, 1))
    places = np.clip((n * (1 - steps / total)).astype(np.int64), 0, n - 1)
    return np.concatenate((sample[::-1][None, : k + 1], sample[places]))


def _order_statistics(sample: Array, place: int, resamples: int, rng: np.random.Generator) -> Array:
    n = len(sample)
    uniforms = rng.beta(place + 1, n - place, size=resamples)
    return np.concatenate(([sample[place]], sample[np.minimum((n * uniforms).astype(np.int64), n - 1)]))


def _fitted(ends: Array, n: int, name: str) -> _Tails:
    """Posterior means of shape and log scale of each row's tail.

    They come from Grimshaw's one-dimensional profile likelihood on a grid.

    With t = ξ/σ the likelihood is highest at ξ(t) = mean log(1 + t x), where it is −k
    (log(ξ(t)/t) + ξ(t) + 1). The grid is even in log(1 + t x_max), which reaches from tails that
    end at x_max to Pareto tails without a mean.
    """
    excess = ends[:, :-1] - ends[:, -1:]
    if excess[0, 0] <= 0:
        raise NumericalError(said(f"the {excess.shape[1] + 1} largest {name} are all equal, so they show no tail."))
    # A resample may draw one value only; its tail is as short as numbers get.
    largest = np.maximum(excess[:, :1], SHORTEST)
    ratio, k = excess / largest, excess.shape[1]
    log_scale, shape, likelihood = (np.empty((len(ends), GRID)) for _ in range(3))
    for j, power in enumerate(np.linspace(*GRID_RANGE, GRID)):
        slope = math.expm1(power)
        shape[:, j] = np.log1p(slope * ratio).mean(axis=1)
        # A resample without any excess has shape 0 on the whole grid; any scale describes it.
        log_scale[:, j] = np.log(np.maximum(shape[:, j] / slope, SHORTEST))
        likelihood[:, j] = -k * (log_scale[:, j] + shape[:, j] + 1)
    # Relative to the largest, so that not all of them underflow.
    weights = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    scale = np.exp((weights * log_scale).sum(axis=1)) * largest[:, 0]
    return _Tails(start=ends[:, -1], scale=scale, shape=(weights * shape).sum(axis=1), share=k / n)


def _shares_above(sample: Array, tails: _Tails, thresholds: Array, rng: np.random.Generator) -> Array:
    """P(value > threshold) for each threshold.

    Below the tail's start it is counted (resampled: binomial); above it, it comes from the tail.
    """
    counted = (len(sample) - np.searchsorted(sample, thresholds, side="right")) / len(sample)
    counted[1:] = rng.binomial(len(sample), counted[1:]) / len(sample)
    return np.where(thresholds < tails.start, counted, tails.above(thresholds))

"""Confidence intervals: exact for shares, DeLong's for the AUC, resampled for TPR at FPR."""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betaincinv, expit, logit, ndtri, stdtrit

from noshadow.checks import Array, named_in_errors, numeric_array, refuse, require_number, require_same_length, require_whole, whole_seed
from noshadow.metrics.inputs import score_sample
from noshadow.metrics.rates import resolved_budget, tpr_at_fpr, twice_counts_below

Interval = tuple[float, float]


@named_in_errors
def clopper_pearson(successes: int, trials: int, *, level: float = 0.95) -> Interval:
    """Exact (Clopper–Pearson) confidence interval of a binomial share.

    The end points are the shares at which a count as large, or as small, as the one seen has
    probability (1 − level)/2: quantiles of Beta(k, n − k + 1) and Beta(k + 1, n − k).

    Args:
        successes: k, whole, 0 ≤ k ≤ trials.
        trials: n ≥ 1, whole.
        level: coverage in (0, 1), reached or exceeded for every true share.

    Returns:
        (low, high), fractions with low ≤ k/n ≤ high.

    Raises:
        InputError: counts that are not whole or out of range, or a level outside (0, 1).

    Exact when: always; conservative, since counts are discrete.
    Cost: O(1).
    Reference: Clopper and Pearson (1934).

    Example:
        >>> low, high = clopper_pearson(0, 10)
        >>> low, round(high, 4)
        (0.0, 0.3085)
    """
    n = require_whole(trials, "trials", low=1)
    k = require_whole(successes, "successes", low=0)
    if k > n:
        refuse("successes", f"be at most trials ({n})", str(k))
    low, high = _beta_ends(np.array([float(k)]), np.array([float(n)]), _outside(level))[0]
    return float(low), float(high)


@named_in_errors
def share_intervals(shares: object, trials: object, *, level: float = 0.95) -> Array:
    """Clopper–Pearson intervals of many shares whose effective number of trials need not be whole.

    The end points are quantiles of Beta(k, t − k + 1) and Beta(k + 1, t − k) with k = share · t,
    where t may be any number ≥ 1: for whole k and t they are those of `clopper_pearson`. A mean of
    two shares, ½(p̂₁ + p̂₂) from k₁ and k₂ trials, has the variance p(1 − p)/t of a share from t =
    4k₁k₂/(k₁ + k₂) trials when both have the same p.

    Args:
        shares: (n,) fractions in [0, 1].
        trials: (n,) effective numbers of trials, ≥ 1.
        level: coverage in (0, 1).

    Returns:
        (n, 2) low and high, float64, low ≤ share ≤ high.

    Raises:
        InputError: not finite or out-of-range arrays, unequal lengths, or a level outside (0, 1).

    Exact when: share · trials successes were counted in `trials` independent trials; conservative
        then.
    Approximates: otherwise, a binomial share of the same variance.
    Cost: O(n).
    Reference: Clopper and Pearson (1934).

    Example:
        >>> share_intervals([0.0, 0.75], [10, 12]).round(4)
        array([[0.    , 0.3085],
               [0.4281, 0.9451]])
    """
    share = numeric_array(shares, "shares", ndim=1).astype(np.float64)
    count = numeric_array(trials, "trials", ndim=1).astype(np.float64)
    n = require_same_length(shares=share, trials=count)
    if n and not (share.min() >= 0 and share.max() <= 1):
        refuse("shares", "be fractions in [0, 1]", f"minimum {share.min():g}, maximum {share.max():g}")
    if n and not count.min() >= 1:
        refuse("trials", "be ≥ 1", f"{count.min():g} at index {int(count.argmin())}")
    return _beta_ends(share * count, count, _outside(level))


@named_in_errors
def auc_interval(member_scores: object, nonmember_scores: object, *, level: float = 0.95) -> Interval:
    """Confidence interval of an attack's AUC: DeLong's variance, normal on the logit scale.

    With A the AUC, a_i the share of non-members below member i and b_j the share of members above
    non-member j (ties half), s² = var(a)/n_members + var(b)/n_nonmembers, and the ends are
    expit(logit A ± z s/(A(1 − A))).

    Where s = 0, which happens just when every pair compares alike, the bound is binomial: of k =
    min(n_members, n_nonmembers) disjoint pairs all have come out alike, so that outcome has a
    probability of at least c = (½(1 − level))^{1/k} (Clopper–Pearson). A = 1 gives (c, 1), A = 0
    gives (0, 1 − c), and all scores tied give ½ ± ½(1 − c).

    Args:
        member_scores: (n_members,) larger = more member-like, n_members ≥ 2; infinities allowed.
        nonmember_scores: (n_nonmembers,) likewise, n_nonmembers ≥ 2.
        level: coverage in (0, 1).

    Returns:
        (low, high), fractions around `auc`.

    Raises:
        InputError: NaN, fewer than two scores on a side, not 1-dimensional arrays, or a level
            outside (0, 1).

    Exact when: every pair compares alike: the binomial bound holds for any scores, and is
        conservative.
    Approximates: otherwise. Simulated with Gaussian scores at level 0.95: 94–98 % with 20 or more
        records on each side and an AUC between 0.5 and 0.99; 91 % with 200 and 200 at 0.999; 86–88
        % with 10 against 200 at 0.9–0.95.
    Cost: O(n log n).
    Reference: DeLong, DeLong and Clarke-Pearson (1988); Sun and Xu (2014) for the ranks.

    Example:
        >>> low, high = auc_interval([0.9, 0.4, 0.8, 0.7], [0.1, 0.5, 0.3, 0.2])
        >>> round(low, 3), round(high, 3)
        (0.438, 0.997)
    """
    members = score_sample(member_scores, "member_scores", least=2)
    nonmembers = score_sample(nonmember_scores, "nonmember_scores", least=2)
    outside = _outside(level)
    below = twice_counts_below(np.sort(nonmembers), members)
    above = 2 * len(members) - twice_counts_below(np.sort(members), nonmembers)
    area = int(below.sum(dtype=np.int64)) / (2 * len(members) * len(nonmembers))
    if below.min() == below.max() and above.min() == above.max():
        alike = outside ** (1 / min(len(members), len(nonmembers)))
        return (area * alike, 1 - (1 - area) * alike)
    variance = (below / (2 * len(nonmembers))).var(ddof=1) / len(members) + (above / (2 * len(members))).var(ddof=1) / len(nonmembers)
    reach = float(ndtri(1 - outside)) * math.sqrt(variance) / (area * (1 - area))
    return float(expit(logit(area) - reach)), float(expit(logit(area) + reach))


@named_in_errors
def tpr_interval(
    member_scores: object, nonmember_scores: object, fpr: float, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Confidence interval of `tpr_at_fpr`.

    It counts both the members found and the threshold's own error.

    Members and non-members are resampled with replacement, independently; the ends are percentiles
    of the resampled TPR, widened to those of Clopper–Pearson at the threshold found where these
    reach further (no member above the threshold, say, where all resamples agree). Nothing is drawn
    record by record: the (j + 1)-th smallest of n resampled scores is the original at place ⌊nU⌋
    with U ~ Beta(j + 1, n − j), and given that threshold the number of resampled members above it
    is binomial.

    Args:
        member_scores: (n_members,) larger = more member-like; infinities allowed.
        nonmember_scores: (n_nonmembers,) likewise.
        fpr: rate in [1/n_nonmembers, 1].
        level: coverage in (0, 1).
        resamples: ≥ 100.
        seed: of the resampling; the same seed gives the same interval.

    Returns:
        (low, high), fractions around `tpr_at_fpr`; (1, 1) at fpr = 1, where every record may be
        called a member.

    Raises:
        InputError: NaN, an empty or not 1-dimensional array, a level that the non-members cannot
            resolve, or an argument out of range.

    Approximates: the interval for the TPR that the attack would have if its threshold were set on
        all non-members there are. Simulated with Gaussian scores at level 0.95, it covers 95 % or a
        little more when ⌊fpr · n_nonmembers⌋ ≥ 10 false positives are allowed. Below that it is too
        short, since no resample holds a score beyond the largest non-member: about 95 % at 5, 91 %
        at 3 and 82 % at 1; Clopper–Pearson alone would cover 49–65 %.
    Cost: O(n log n + resamples · log n).
    Reference: Efron and Tibshirani (1993), ch. 13.

    Example:
        >>> members, nonmembers = range(50, 150), range(100)
        >>> tpr_interval(members, nonmembers, fpr=0.1)
        (0.49, 0.72)
    """
    members = np.sort(score_sample(member_scores, "member_scores"))
    nonmembers = np.sort(score_sample(nonmember_scores, "nonmember_scores"))
    allowed, n = resolved_budget(fpr, len(nonmembers), "fpr", "non-members"), len(nonmembers)
    outside = _outside(level)
    rounds = require_whole(resamples, "resamples", low=100)
    rng = np.random.default_rng(whole_seed(seed))
    if allowed == n:
        return 1.0, 1.0
    found = round(tpr_at_fpr(members, nonmembers, fpr) * len(members))
    exact_low, exact_high = clopper_pearson(found, len(members), level=level)
    # Ascending, the threshold is at place n − 1 − allowed.
    thresholds = nonmembers[np.minimum((n * rng.beta(n - allowed, allowed + 1, rounds)).astype(np.int64), n - 1)]
    share = (len(members) - np.searchsorted(members, thresholds, side="right")) / len(members)
    low, high = np.quantile(rng.binomial(len(members), share) / len(members), (outside, 1 - outside))
    return min(float(low), exact_low), max(float(high), exact_high)


def mean_intervals(values: Array, level: float) -> tuple[Array, Array, Array]:
    """Mean over the first axis of (k, …) values, k ≥ 2, and the ends of its Student interval."""
    mean = values.mean(axis=0)
    reach = float(stdtrit(len(values) - 1, (1 + level) / 2)) * values.std(axis=0, ddof=1) / math.sqrt(len(values))
    return mean, mean - reach, mean + reach


def resampled_intervals(statistic: Callable[[Array], Array], n: int, *, resamples: int, level: float, seed: int) -> tuple[Array, Array]:
    """Percentile intervals of a statistic of n records over resamples.

    The statistic takes how often each record is held by the resample.

    Args:
        statistic: counts (n,) float64, summing to n → array (…), NaN where a resample has no value.
        n: number of records.
        resamples: how many times n records are drawn with replacement.
        level: coverage of the interval.
        seed: of the draws.

    Returns:
        (2, …) low and high over the resamples that have a value (NaN if none has), and (…) how many
        have none.
    """
    rng = np.random.default_rng(seed)
    draws = np.stack([statistic(np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)) for _ in range(resamples)])
    undefined = np.isnan(draws).sum(axis=0)
    kept = np.where(undefined == resamples, 0.0, draws)
    ends = np.nanquantile(kept, ((1 - level) / 2, (1 + level) / 2), axis=0)
    return np.where(undefined == resamples, np.nan, ends), undefined


def _outside(level: object) -> float:
    """The probability left out at each end."""
    return (1 - require_number(level, "level", low=0, high=1, low_open=True, high_open=True)) / 2


def _beta_ends(successes: Array, trials: Array, outside: float) -> Array:
    low, high = np.zeros(len(trials)), np.ones(len(trials))
    some, missed = successes > 0, successes < trials
    low[some] = betaincinv(successes[some], (trials - successes + 1)[some], outside)
    high[missed] = betaincinv((successes + 1)[missed], (trials - successes)[missed], 1 - outside)
    return np.stack((low, high), axis=1)

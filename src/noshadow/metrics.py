"""Rates at a fixed error level, agreement between rankings, and the exact binomial interval: arrays in, numbers out."""

import math

import numpy as np
from scipy.special import betaincinv

from noshadow.checks import Array, NotApplicable, as_array, numeric_array, refuse, require_number, require_same_length, require_whole

# Decimal levels are not binary fractions (0.29 · 100 < 29): products are compared to twelve digits.
RELATIVE_SLACK = 1e-12


def tpr_at_fpr(member_scores: object, nonmember_scores: object, fpr: float) -> float:
    """Largest true-positive rate of an attack whose false-positive rate is at most `fpr`.

    The attack says "member" when score ≥ t. With k = ⌊fpr · n_nonmembers⌋ false positives allowed, t must lie above
    the (k + 1)-th largest non-member score c, so TPR = share of member scores > c. Tied scores fall on the same side
    of every threshold, and nothing is interpolated between two reachable points of the ROC curve.

    Args:
        member_scores: (n_members,) larger = more member-like; infinities allowed.
        nonmember_scores: (n_nonmembers,) likewise.
        fpr: level in [1/n_nonmembers, 1].

    Returns:
        A fraction in [0, 1].

    Raises:
        InputError: NaN, an empty or not 1-dimensional array, or a level that the non-members cannot resolve.

    Exact when: always.
    Cost: O(n).
    Reference: [TAIL] §2.1 (TPR at FPR = α, Eq. 1).

    Example:
        >>> tpr_at_fpr([3.0, 2.0, 1.0, 0.0], [2.5, 1.5, 0.5, -1.0], fpr=0.25)
        0.5
    """
    members = _scores(member_scores, "tpr_at_fpr", "member_scores")
    nonmembers = _scores(nonmember_scores, "tpr_at_fpr", "nonmember_scores")
    allowed = _resolved_budget(fpr, len(nonmembers), "tpr_at_fpr", "fpr", "non-members")
    if allowed == len(nonmembers):
        return 1.0
    return float(np.mean(members > _value_with_at_most_above(nonmembers, allowed)))


def tnr_at_fnr(member_losses: object, nonmember_losses: object, fnr: float) -> float:
    """True-negative rate of the loss attack when it misses at most a share `fnr` of the members.

    TNR = mean(nonmember_losses > τ) with τ from `loss_threshold`: the share of non-members in the high-loss tail that
    training has emptied of members.

    Args:
        member_losses: (n_members,) finite losses of training records.
        nonmember_losses: (n_nonmembers,) finite losses of records the model has not seen.
        fnr: level in [1/n_members, 1].

    Returns:
        A fraction in [0, 1]; larger = riskier.

    Raises:
        InputError: not finite, empty or not 1-dimensional losses, or a level that the members cannot resolve.

    Exact when: always.
    Cost: O(n).
    Reference: [TAIL] Eq. 4, read by its words (erratum 4: the printed inequality counts members).

    Example:
        >>> tnr_at_fnr([0.1, 0.2, 0.3, 5.0], [0.2, 0.4, 2.0, 6.0], fnr=0.25)
        0.75
    """
    members = _losses(member_losses, "tnr_at_fnr", "member_losses")
    nonmembers = _losses(nonmember_losses, "tnr_at_fnr", "nonmember_losses")
    allowed = _resolved_budget(fnr, len(members), "tnr_at_fnr", "fnr", "members")
    return float(np.mean(nonmembers > _value_with_at_most_above(members, allowed)))


def loss_threshold(member_losses: object, fnr: float) -> float:
    """Threshold τ of the loss attack: the smallest member loss that at most ⌊fnr · n⌋ member losses exceed.

    Args:
        member_losses: (n_members,) finite losses.
        fnr: level in [1/n_members, 1].

    Returns:
        One of the member losses, never an interpolated value.

    Raises:
        InputError: as in `tnr_at_fnr`.

    Exact when: always.
    Cost: O(n).
    Reference: [TAIL] §5 (τ chosen for a false-negative rate), erratum 4.

    Example:
        >>> loss_threshold([0.1, 0.2, 0.3, 5.0], fnr=0.25)
        0.3
    """
    members = _losses(member_losses, "loss_threshold", "member_losses")
    allowed = _resolved_budget(fnr, len(members), "loss_threshold", "fnr", "members")
    return _value_with_at_most_above(members, allowed)


def loss_auc(member_losses: object, nonmember_losses: object) -> float:
    """Area under the ROC curve of the loss attack, P(L_in < L_out) + ½ P(L_in = L_out).

    Args:
        member_losses: (n_members,) finite losses.
        nonmember_losses: (n_nonmembers,) finite losses.

    Returns:
        A fraction in [0, 1]; 0.5 = the losses do not tell members apart, larger = riskier.

    Raises:
        InputError: not finite, empty or not 1-dimensional losses.

    Exact when: always; pairs are counted in integers.
    Cost: O(n log n).
    Reference: [TAIL] §5 (loss AUC).

    Example:
        >>> loss_auc([0.1, 0.2], [0.2, 0.3])
        0.875
    """
    members = np.sort(_losses(member_losses, "loss_auc", "member_losses"))
    nonmembers = np.sort(_losses(nonmember_losses, "loss_auc", "nonmember_losses"))
    below = np.searchsorted(members, nonmembers, side="left").sum(dtype=np.int64)
    below_or_tied = np.searchsorted(members, nonmembers, side="right").sum(dtype=np.int64)
    return (int(below) + int(below_or_tied)) / (2 * len(members) * len(nonmembers))


def spearman(truth: object, score: object) -> float:
    """Spearman rank correlation of a score with the truth it should rank; tied values share their average rank.

    Args:
        truth: (n,) n ≥ 2; infinities allowed (a rank is all that counts).
        score: (n,) likewise.

    Returns:
        A number in [−1, 1].

    Raises:
        InputError: NaN, fewer than two records, or unequal lengths.
        NotApplicable: truth or score is constant, so that the correlation does not exist.

    Exact when: always.
    Cost: O(n log n).
    Reference: [GLS] Table 2.

    Example:
        >>> spearman([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
        0.5
    """
    true = _scores(truth, "spearman", "truth")
    scored = _scores(score, "spearman", "score")
    n = require_same_length("spearman", truth=true, score=scored)
    if n < 2:
        refuse("spearman", "truth and score", "hold at least two records", str(n))
    a = _centred_ranks(true, "truth")
    b = _centred_ranks(scored, "score")
    # Rounding may pass ±1 by one unit in the last place.
    return float(np.clip(a @ b / math.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def top_recall(truth: object, score: object, *, top: float = 0.01, keep: float = 0.05) -> float:
    """Share of the truly riskiest records that a score keeps: recall of the true top `top` in the score's top `keep`.

    |T ∩ S| / |T|, where T holds the ⌈top · n⌉ largest truths and S the ⌈keep · n⌉ largest scores. Where ties straddle
    an edge of T or S, the value is the expectation over uniformly random tie-breaking, drawn separately for the two:
    Σ_i P(i ∈ T) P(i ∈ S) / |T|, and P = (places left / records tied) on the edge. A constant score gets |S|/n.

    Args:
        truth: (n,) larger = riskier; infinities allowed.
        score: (n,) likewise; +inf = riskiest.
        top: fraction in (0, 1] of truly riskiest records.
        keep: fraction in (0, 1] of records the score may name.

    Returns:
        A fraction in [0, 1].

    Raises:
        InputError: NaN, no record, unequal lengths or a fraction outside (0, 1].

    Exact when: always (closed form).
    Cost: O(n).
    Reference: [RET] Table 1 (top 1 % in top 5 %), Table 5 (top = keep).

    Example:
        >>> top_recall([9.0, 8.0, 1.0, 0.0], [7.0, 5.0, 5.0, 0.0], top=0.5, keep=0.5)
        0.75
    """
    true = _scores(truth, "top_recall", "truth")
    scored = _scores(score, "top_recall", "score")
    n = require_same_length("top_recall", truth=true, score=scored)
    wanted = _places(require_number(top, "top_recall", "top", low=0, high=1, low_open=True), n)
    kept = _places(require_number(keep, "top_recall", "keep", low=0, high=1, low_open=True), n)
    return float(_top_probability(true, wanted) @ _top_probability(scored, kept) / wanted)


def clopper_pearson(successes: int, trials: int, *, level: float = 0.95) -> tuple[float, float]:
    """Exact (Clopper–Pearson) confidence interval of a binomial share.

    The end points are the shares at which a count as large, or as small, as the one seen has probability (1 − level)/2:
    quantiles of Beta(k, n − k + 1) and Beta(k + 1, n − k).

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
    n = require_whole(trials, "clopper_pearson", "trials", low=1)
    k = require_whole(successes, "clopper_pearson", "successes", low=0)
    if k > n:
        refuse("clopper_pearson", "successes", f"be at most trials ({n})", str(k))
    outside = (1 - require_number(level, "clopper_pearson", "level", low=0, high=1, low_open=True, high_open=True)) / 2
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, outside))
    high = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1 - outside))
    return low, high


def error_budget(rate: float, records: int) -> int:
    """Largest whole number of errors whose share of `records` is at most `rate`: ⌊rate · records⌋, safe against rounding.

    Args:
        rate: fraction in [0, 1].
        records: n ≥ 1.

    Returns:
        A count in 0 … records.

    Example:
        >>> error_budget(0.29, 100), int(0.29 * 100)
        (29, 28)
    """
    return min(math.floor(rate * records * (1 + RELATIVE_SLACK)), records)


def _resolved_budget(rate: object, records: int, owner: str, argument: str, of: str) -> int:
    level = require_number(rate, owner, argument, low=0, high=1, low_open=True)
    budget = error_budget(level, records)
    if budget == 0:
        rule = f"be at least {1 / records}, the smallest level that {records} {of} resolve"
        refuse(owner, argument, rule, f"{level:g}", f"Raise {argument} or give more {of}.")
    return budget


def _value_with_at_most_above(values: Array, count: int) -> float:
    """The smallest of the values that at most `count` of them exceed."""
    place = max(len(values) - 1 - count, 0)
    return float(np.partition(values, place)[place])


def _losses(value: object, owner: str, argument: str) -> Array:
    losses = numeric_array(value, owner, argument, ndim=1).astype(np.float64)
    if len(losses) == 0:
        refuse(owner, argument, "hold at least one loss", "an empty array")
    return losses


def _scores(value: object, owner: str, argument: str) -> Array:
    array = as_array(value, owner, argument)
    if array.ndim != 1 or array.dtype.kind not in "biuf" or len(array) == 0:
        refuse(owner, argument, "be a 1-dimensional numeric array with at least one entry", f"shape {array.shape}, dtype {array.dtype}")
    scores = array.astype(np.float64)
    missing = np.isnan(scores)
    if missing.any():
        refuse(owner, argument, "not hold NaN", f"{int(missing.sum())}, the first at index {int(missing.argmax())}", "Drop those records.")
    return scores


def _centred_ranks(values: Array, argument: str) -> Array:
    """Twice the average rank, less its mean: whole numbers, so that ties cost no precision."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(counts) == 1:
        raise NotApplicable(f"spearman: {argument} is constant over {len(values)} records, so it ranks nothing and has no correlation.")
    centred: Array = (2 * counts.cumsum() - counts - len(values)).astype(np.float64)[place]
    return centred


def _places(fraction: float, n: int) -> int:
    return math.ceil(fraction * n * (1 - RELATIVE_SLACK))


def _top_probability(values: Array, places: int) -> Array:
    """(n,) probability that a record is among the `places` largest when ties are broken at random."""
    edge = np.partition(values, len(values) - places)[len(values) - places]
    above, tied = values > edge, values == edge
    probability: Array = above + tied * ((places - above.sum()) / tied.sum())
    return probability

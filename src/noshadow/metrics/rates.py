"""Error rates of an attack at a fixed level, and the area under its ROC curve."""

import math

import numpy as np

from noshadow.checks import Array, named_in_errors, refuse, require_number
from noshadow.metrics.inputs import RELATIVE_SLACK, loss_sample, score_sample


@named_in_errors
def tpr_at_fpr(member_scores: object, nonmember_scores: object, fpr: float) -> float:
    """Largest true-positive rate of an attack whose false-positive rate is at most `fpr`.

    The attack says "member" when score ≥ t. With k = ⌊fpr · n_nonmembers⌋ false positives allowed,
    t must lie above the (k + 1)-th largest non-member score c, so TPR = share of member scores > c.
    Tied scores fall on the same side of every threshold, and nothing is interpolated between two
    reachable points of the ROC curve.

    Args:
        member_scores: (n_members,) larger = more member-like; infinities allowed.
        nonmember_scores: (n_nonmembers,) likewise.
        fpr: rate in [1/n_nonmembers, 1].

    Returns:
        A fraction in [0, 1].

    Raises:
        InputError: NaN, an empty or not 1-dimensional array, or a level that the non-members cannot
            resolve.

    Exact when: always.
    Cost: O(n).
    Reference: [TAIL] §2.1 (TPR at FPR = α, Eq. 1).

    Example:
        >>> tpr_at_fpr([3.0, 2.0, 1.0, 0.0], [2.5, 1.5, 0.5, -1.0], fpr=0.25)
        0.5
    """
    members = score_sample(member_scores, "member_scores")
    nonmembers = score_sample(nonmember_scores, "nonmember_scores")
    allowed = resolved_budget(fpr, len(nonmembers), "fpr", "non-members")
    if allowed == len(nonmembers):
        return 1.0
    return float(np.mean(members > value_with_at_most_above(nonmembers, allowed)))


@named_in_errors
def accusation_precision(tpr: float, fpr: float, prior: float) -> float:
    """Share of an attack's accusations that are right (positive predictive value).

    π TPR / (π TPR + (1 − π) FPR) by Bayes' rule, π the share of those asked about who are members.
    An attack that says "member" as often to non-members (TPR = FPR) is right in a share π.

    Args:
        tpr, fpr: share of members and of non-members whom the attack calls members, in [0, 1].
        prior: π in (0, 1).

    Returns:
        A fraction in [0, 1]; the prior when nobody is ever accused (TPR = FPR = 0).

    Raises:
        InputError: a share outside its range.

    Exact when: the people asked about are drawn from the same members and non-members that the
        rates were measured on.
    Cost: O(1).

    Example:
        >>> accusation_precision(0.5, 0.001, 0.01)
        0.8347245409015025
    """
    found = require_number(tpr, "tpr", low=0, high=1)
    wrong = require_number(fpr, "fpr", low=0, high=1)
    share = require_number(prior, "prior", low=0, high=1, low_open=True, high_open=True)
    accused = share * found + (1 - share) * wrong
    return share if accused == 0 else share * found / accused


@named_in_errors
def tnr_at_fnr(member_losses: object, nonmember_losses: object, fnr: float) -> float:
    """True-negative rate of the loss attack when it misses at most a share `fnr` of the members.

    TNR = mean(nonmember_losses > τ) with τ from `loss_threshold`: the share of non-members in the
    high-loss tail that training has emptied of members.

    Args:
        member_losses: (n_members,) finite losses of training records.
        nonmember_losses: (n_nonmembers,) finite losses of records the model has not seen.
        fnr: level in [1/n_members, 1].

    Returns:
        A fraction in [0, 1]; larger = riskier.

    Raises:
        InputError: not finite, empty or not 1-dimensional losses, or a level that the members
            cannot resolve.

    Exact when: always.
    Cost: O(n).
    Reference: [TAIL] Eq. 4, read by its words (erratum 4: the printed inequality counts members).

    Example:
        >>> tnr_at_fnr([0.1, 0.2, 0.3, 5.0], [0.2, 0.4, 2.0, 6.0], fnr=0.25)
        0.75
    """
    members = loss_sample(member_losses, "member_losses")
    nonmembers = loss_sample(nonmember_losses, "nonmember_losses")
    allowed = resolved_budget(fnr, len(members), "fnr", "members")
    return float(np.mean(nonmembers > value_with_at_most_above(members, allowed)))


@named_in_errors
def loss_threshold(member_losses: object, fnr: float) -> float:
    """Threshold τ of the loss attack at false-negative rate `fnr`.

    τ is the smallest member loss that at most ⌊fnr · n⌋ member losses exceed.

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
    members = loss_sample(member_losses, "member_losses")
    allowed = resolved_budget(fnr, len(members), "fnr", "members")
    return value_with_at_most_above(members, allowed)


@named_in_errors
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
    members = loss_sample(member_losses, "member_losses")
    nonmembers = loss_sample(nonmember_losses, "nonmember_losses")
    return _share_of_pairs_in_order(members, nonmembers)


@named_in_errors
def auc(member_scores: object, nonmember_scores: object) -> float:
    """Area under the ROC curve of an attack's scores, P(S_in > S_out) + ½ P(S_in = S_out).

    Args:
        member_scores: (n_members,) larger = more member-like; infinities allowed.
        nonmember_scores: (n_nonmembers,) likewise.

    Returns:
        A fraction in [0, 1]; 0.5 = the scores do not tell members apart, larger = riskier.

    Raises:
        InputError: NaN, or an empty or not 1-dimensional array.

    Exact when: always; pairs are counted in integers.
    Cost: O(n log n).
    Reference: Hanley and McNeil (1982).

    Example:
        >>> auc([0.3, 0.2], [0.2, 0.1])
        0.875
    """
    members = score_sample(member_scores, "member_scores")
    nonmembers = score_sample(nonmember_scores, "nonmember_scores")
    return _share_of_pairs_in_order(nonmembers, members)


def error_budget(rate: float, records: int) -> int:
    """Largest whole number of errors whose share of `records` is at most `rate`.

    This is ⌊rate · records⌋, safe against rounding.

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


def resolved_budget(rate: object, records: int, argument: str, of: str) -> int:
    """`error_budget` of a level that the records can resolve, at least 1."""
    level = require_number(rate, argument, low=0, high=1, low_open=True)
    budget = error_budget(level, records)
    if budget == 0:
        rule = f"be at least {1 / records}, the smallest level that {records} {of} resolve"
        refuse(argument, rule, f"{level:g}", f"Raise {argument} or give more {of}.")
    return budget


def value_with_at_most_above(values: Array, count: int) -> float:
    """The smallest of the values that at most `count` of them exceed."""
    place = max(len(values) - 1 - count, 0)
    return float(np.partition(values, place)[place])


def _share_of_pairs_in_order(smaller: Array, larger: Array) -> float:
    """Share of pairs (s, l) with s < l, ties counting half."""
    # Both sorted: looking up values in order walks the other side once, three times faster at
    # 33,000 per side than in any order.
    below = twice_counts_below(np.sort(smaller), np.sort(larger)).sum(dtype=np.int64)
    return int(below) / (2 * len(smaller) * len(larger))


def twice_counts_below(ascending: Array, values: Array) -> Array:
    """Twice the number of `ascending` entries below each value, (len(values),).

    Ties count half, so that all results are whole numbers.
    """
    counts: Array = np.searchsorted(ascending, values, side="left") + np.searchsorted(ascending, values, side="right")
    return counts

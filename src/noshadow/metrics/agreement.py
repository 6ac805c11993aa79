"""Agreement of a score with the truth it should rank."""

import math

import numpy as np

from noshadow.checks import Array, NotApplicable, named_in_errors, refuse, require_number, require_same_length, said
from noshadow.metrics.inputs import places, score_sample


@named_in_errors
def spearman(truth: object, score: object) -> float:
    """Spearman rank correlation of a score with the truth it should rank.

    Tied values share their average rank.

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
    true = score_sample(truth, "truth")
    scored = score_sample(score, "score")
    n = require_same_length(truth=true, score=scored)
    if n < 2:
        refuse("truth and score", "hold at least two records", str(n))
    for argument, values in (("truth", true), ("score", scored)):
        if (values == values[0]).all():
            raise NotApplicable(said(f"{argument} is constant over {n} records, so it ranks nothing and has no correlation."))
    return rank_correlation(true, scored)


def rank_correlation(first: Array, second: Array) -> float:
    """`spearman` of two vectors (n,) that were checked before.

    The result is NaN where one is constant or holds NaN.
    """
    if bool(np.isnan(first).any() or np.isnan(second).any()):
        return math.nan
    a, b = _centred_ranks(first), _centred_ranks(second)
    scale = math.sqrt((a @ a) * (b @ b))
    # Rounding may pass ±1 by one unit in the last place.
    return float(np.clip(a @ b / scale, -1.0, 1.0)) if scale > 0 else math.nan


@named_in_errors
def top_recall(truth: object, score: object, *, top: float = 0.01, keep: float = 0.05) -> float:
    """Share of the truly riskiest records that a score keeps.

    This is the recall of the true top `top` in the score's top `keep`: |T ∩ S| / |T|, where T holds
    the ⌈top · n⌉ largest truths and S the ⌈keep · n⌉ largest scores. Where ties straddle an edge of
    T or S, the value is the expectation over uniformly random tie-breaking, drawn separately for
    the two: Σ_i P(i ∈ T) P(i ∈ S) / |T|, and P = (places left / records tied) on the edge. A
    constant score gets |S|/n.

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
    shared, wanted, _ = _shared_places(truth, score, top, keep)
    return shared / wanted


@named_in_errors
def top_precision(truth: object, score: object, *, top: float = 0.01, keep: float = 0.01) -> float:
    """Share of the records named by a score that are truly among the riskiest.

    This is the precision of the score's top `keep`: |T ∩ S| / |S|, where T holds the ⌈top · n⌉
    largest truths and S the ⌈keep · n⌉ largest scores; ties at an edge are broken at random and the
    expectation taken, as in `top_recall`. A constant score gets |T|/n. With top = keep precision
    and recall are the same number; otherwise it is the recall with truth and score in each other's
    place.

    Args:
        truth: (n,) larger = riskier; infinities allowed.
        score: (n,) likewise; +inf = riskiest.
        top: fraction in (0, 1] of truly riskiest records.
        keep: fraction in (0, 1] of records the score names.

    Returns:
        A fraction in [0, 1].

    Raises:
        InputError: NaN, no record, unequal lengths or a fraction outside (0, 1].

    Exact when: always (closed form).
    Cost: O(n).
    Reference: Pollock et al. (2025), who use it at top = keep.

    Example:
        >>> top_precision([9.0, 8.0, 1.0, 0.0], [7.0, 5.0, 5.0, 0.0], top=0.5, keep=0.25)
        1.0
    """
    shared, _, named = _shared_places(truth, score, top, keep)
    return shared / named


def _shared_places(truth: object, score: object, top: object, keep: object) -> tuple[float, int, int]:
    """Expected |T ∩ S|, |T| and |S|."""
    true = score_sample(truth, "truth")
    scored = score_sample(score, "score")
    n = require_same_length(truth=true, score=scored)
    wanted = places(require_number(top, "top", low=0, high=1, low_open=True), n)
    kept = places(require_number(keep, "keep", low=0, high=1, low_open=True), n)
    return float(_top_probability(true, wanted) @ _top_probability(scored, kept)), wanted, kept


def _centred_ranks(values: Array) -> Array:
    """Twice the average rank, less its mean: whole numbers, so that ties cost no precision."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    centred: Array = (2 * counts.cumsum() - counts - len(values)).astype(np.float64)[place]
    return centred


def _top_probability(values: Array, wanted: int) -> Array:
    """Probability that a record is among the `wanted` largest, (n,).

    Ties are broken at random.
    """
    edge = np.partition(values, len(values) - wanted)[len(values) - wanted]
    above, tied = values > edge, values == edge
    probability: Array = above + tied * ((wanted - above.sum()) / tied.sum())
    return probability

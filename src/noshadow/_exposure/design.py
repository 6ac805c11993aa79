"""Whether reference models share their records so that noise passes for the records' own."""

import numpy as np

from noshadow.checks import Array

PAIRS = 4000  # of records that the ratio is a mean over: known to about 0.03


def noise_between(membership: Array, seen: Array) -> float:
    """How many times the variance within its sides a record's two means differ by, through others.

    A margin y_k of record i depends, nearly linearly, on who else model k was trained on. The part
    that record j has in it differs between the means with and without i by d = mean_IN m_j −
    mean_OUT m_j. The margins on either side tell of it v = s²_IN/n_IN + s²_OUT/n_OUT, with s² the
    unbiased variance of m_j over the models of a side. The ratio is Σ d²/Σ v over pairs (i, j): 1
    where halves are independent or every record is in half of the models, chosen at random, and 2
    for two pairs of complementary halves. Beyond 1, what others do passes for the record's own.

    Args:
        membership: (K, n) bool. seen: (K, n) bool, which margins there are.

    Returns:
        The ratio; 1 where no record has two margins on each side, or nothing differs.

    Cost: O(K) for each of 4,000 pairs.
    """
    inside, outside = seen & membership, seen & ~membership
    enough = np.flatnonzero((inside.sum(0) >= 2) & (outside.sum(0) >= 2))
    if len(enough) == 0 or membership.shape[1] < 2:
        return 1.0
    rng = np.random.default_rng(0)
    own = rng.choice(enough, PAIRS)
    other = (own + rng.integers(1, membership.shape[1], PAIRS)) % membership.shape[1]
    took_part = membership[:, other].astype(np.float64)
    means, told = [], np.zeros(PAIRS)
    for side in (inside[:, own], outside[:, own]):
        count = side.sum(0)
        mean = np.where(side, took_part, 0.0).sum(0) / count
        told += np.where(side, (took_part - mean) ** 2, 0.0).sum(0) / (count - 1) / count
        means.append(mean)
    total = float(told.sum())
    return float(((means[0] - means[1]) ** 2).sum()) / total if total > 0 else 1.0

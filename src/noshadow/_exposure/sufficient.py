"""What the mixed model needs of all margins.

These are sums over the records of each pattern; records of one pattern were seen by the same number
of models on each side.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from noshadow._exposure.basis import BLOCK, Basis
from noshadow.checks import Array

# Beyond this many patterns, counts are gathered to steps of a quarter: variances and slopes are
# estimated from the sums, records are not.
MOST_PATTERNS = 150


@dataclass(frozen=True, eq=False)
class Sides:
    """Margins of each record under the models that had it (IN) and those that had not (OUT).

    Attributes: counts (2, n), means (2, n), 0 where there is none, squares (2, n) sums of squares
        around the means; OUT first.
    """

    counts: Array
    means: Array
    squares: Array


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the records of each pattern (models OUT, models IN).

    There are patterns j = 1 … J and p columns of the basis.

    Attributes:
        counts: (J, 2) models per record. records: (J,) number of records.
        gram: (J, p, p) Σ xxᵀ. cross: (J, 2, p) Σ x ȳ of the OUT and the IN means. products: (J, 2,
            2) Σ ȳȳᵀ.
        within: (2,) Σ over records of squares around their means. free: (2,) their degrees of
            freedom.
    """

    counts: Array
    records: Array
    gram: Array
    cross: Array
    products: Array
    within: Array
    free: Array


def sides_of(references: Array, membership: Array) -> Sides:
    """Counts, means and squares of (K, n) margins by side.

    A margin is NaN where a model has none. This takes one pass over the models.
    """
    n = references.shape[1]
    counts, means, squares = np.zeros((2, n)), np.zeros((2, n)), np.zeros((2, n))
    for row, inside in zip(references, membership, strict=True):
        for side, chosen in enumerate((~inside, inside)):
            seen = chosen & ~np.isnan(row)
            counts[side] += seen
            # Welford's update, so that squares keep their digits.
            step = np.where(seen, row - means[side], 0.0)
            means[side] += step / np.maximum(counts[side], 1.0)
            squares[side] += step * np.where(seen, row - means[side], 0.0)
    return Sides(counts, means, squares)


def sums_of(sides: Sides, basis: Basis) -> Sums:
    """Compute the sums by pattern, without records that no model has seen.

    Cost: O(np²), memory O(Jp² + block).
    """
    counts, pattern = _patterns(sides.counts)
    width, kinds = basis.width, len(counts)
    gram, cross = np.zeros((kinds, width, width)), np.zeros((kinds, 2, width))
    products, records = np.zeros((kinds, 2, 2)), np.bincount(pattern[pattern >= 0], minlength=kinds)
    order = np.argsort(pattern, kind="stable")
    ends = np.searchsorted(pattern[order], np.arange(kinds + 1))
    for kind, (first, last) in enumerate(pairwise(ends.tolist())):
        for start in range(first, last, BLOCK):
            rows = order[start : min(start + BLOCK, last)]
            x, means = basis.rows(rows), sides.means[:, rows]
            gram[kind] += x.T @ x
            cross[kind] += means @ x
            products[kind] += means @ means.T
    free = np.maximum(sides.counts - 1, 0).sum(1)
    return Sums(counts, records, gram, cross, products, sides.squares.sum(1), free)


def _patterns(counts: Array) -> tuple[Array, Array]:
    """Distinct pairs of counts (J, 2), and the number of each record's pair.

    The number is −1 for records without any margin.
    """
    used = counts if len(_distinct(counts)) <= MOST_PATTERNS else np.array([_gathered(side) for side in counts])
    pairs = _distinct(used)
    pairs = pairs[pairs.sum(1) > 0]
    base = used.max() + 1
    keys = pairs[:, 0] * base + pairs[:, 1]
    order = np.argsort(keys)
    own = used[0] * base + used[1]
    place = order[np.searchsorted(keys[order], own).clip(max=len(keys) - 1)]
    return pairs, np.where(own > 0, place, -1)


def _distinct(counts: Array) -> Array:
    return np.unique(counts.T, axis=0)


def _gathered(counts: Array) -> Array:
    """Counts rounded to steps of about a quarter; counts up to 4 stay as they are."""
    steps: Array = np.where(counts <= 4, counts, np.round(np.exp(np.round(np.log(np.maximum(counts, 1)) * 4) / 4)))
    return steps

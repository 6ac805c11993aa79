"""Rows that XGBoost's `subsample` gave each tree, drawn again as its histogram trees draw them."""

from collections.abc import Callable, Sequence

import numpy as np

from noshadow.checks import Array

# One generator per tree, x ← 16807 x mod 2⁶³, is started by the next number of a Mersenne twister
# with the model's seed, whose first number goes to the sampling of columns.
_FACTOR = 16807
_MODULUS = 2**63
_BEFORE = 1


def xgboost_bags(seed: int, share: float, count: int, trees: Sequence[int]) -> Callable[[int], Array]:
    """Round number → which of `count` records each of its trees took, (trees, count).

    Record i is taken where (x_i − 1)/(2⁶³ − 1) < share, x_i the i-th state of the tree's generator.

    Args:
        seed: of the model. share: `subsample`. count: number of records.
        trees: number of trees of each round: one per class, times `num_parallel_tree`.

    Exact when: the leaves that follow from it are the model's, which the scores check. Other
    methods of growing trees draw in other ways, and are found out there.
    Cost: O(count) per tree.
    """
    drawn = _BEFORE + sum(trees)
    starts = np.random.RandomState(seed).randint(0, 2**32, size=drawn, dtype=np.uint32)[_BEFORE:].astype(np.uint64)
    ends = np.cumsum(np.asarray(trees, dtype=np.int64))
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(count, _FACTOR, dtype=np.uint64))
    # The library keeps the share in float32.
    below = float(np.float32(share))

    def bag(number: int) -> Array:
        with np.errstate(over="ignore"):
            own = starts[ends[number] - trees[number] : ends[number], None]
            states = (own * powers) & np.uint64(_MODULUS - 1)
        found: Array = (states - np.uint64(1)).astype(np.float64) / float(_MODULUS - 1) < below
        return found

    return bag

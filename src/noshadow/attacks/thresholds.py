"""The decision threshold that an attacker would fix on other models.

It has the best balanced accuracy over the pooled scores of these models.
"""

from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array

# Order statistics kept of each model's members and of its non-members, and quantiles in the grid.
KEPT = 4096


@dataclass(frozen=True, eq=False)
class ScoreSample:
    """One class of one model's scores.

    At most KEPT evenly spaced order statistics stand for `size` scores.
    """

    size: int
    ordered: Array

    def above(self, grid: Array) -> Array:
        """How many of the scores exceed each threshold, to within size/(2 KEPT).

        The count is exact up to KEPT scores.
        """
        step = self.size / len(self.ordered)
        found: Array = self.size - step * np.searchsorted(self.ordered, grid, side="right")
        return found


def score_sample(scores: Array) -> ScoreSample:
    """Sorted scores, thinned to the order statistics at the middles of KEPT equal parts."""
    ordered = np.sort(scores)
    if len(ordered) <= KEPT:
        return ScoreSample(len(ordered), ordered)
    return ScoreSample(len(ordered), ordered[((np.arange(KEPT) + 0.5) / KEPT * len(ordered)).astype(np.int64)])


def best_thresholds(members: list[ScoreSample], nonmembers: list[ScoreSample]) -> Array:
    """For each model, find the threshold t that is best on all other models, (r,).

    The best t has the highest balanced accuracy of "score > t".

    Balanced accuracy ½ [share of the others' members with score > t + share of their non-members
    with score ≤ t], the smallest t of those that reach the best. The grid of candidate thresholds,
    common to all models, holds KEPT + 1 evenly spaced order statistics, ends included, of the
    pooled samples.

    Exact when: all models together have at most KEPT + 1 scores.
    Approximates: otherwise the exhaustive best, within 1/KEPT by thinning and 1/KEPT by the grid
        when models have about as many members as each other: moving the best t down to the grid
        costs only the non-members passed, moving it up only the members, and one of the two classes
        has at least half of the samples.
    Cost: O(r KEPT log KEPT).
    """
    pooled = np.sort(np.concatenate([sample.ordered for sample in members + nonmembers]))
    grid = np.unique(pooled[np.linspace(0, len(pooled) - 1, min(KEPT + 1, len(pooled))).astype(np.int64)])
    total = [_pooled_above(samples, grid) for samples in (members, nonmembers)]
    sizes = [sum(sample.size for sample in samples) for samples in (members, nonmembers)]
    found = np.empty(len(members))
    for model, (inside, outside) in enumerate(zip(members, nonmembers, strict=True)):
        hits = (total[0] - inside.above(grid)) / (sizes[0] - inside.size)
        alarms = (total[1] - outside.above(grid)) / (sizes[1] - outside.size)
        # Below all scores of the others only the model's own are left as candidates; they must not
        # choose.
        gain = np.where(hits + alarms < 2, hits - alarms, -np.inf)
        found[model] = grid[int(gain.argmax())]
    return found


def _pooled_above(samples: list[ScoreSample], grid: Array) -> Array:
    total = np.zeros(len(grid))
    for sample in samples:
        total += sample.above(grid)
    return total

"""Agreement of many rankings at once, over records counted as often as a resample holds them.

Every vector is sorted once. A resample of the records is a vector of counts, and its average ranks,
the edges of its tops and its ties follow from sums of counts over distinct values: the same numbers
as ranking the resampled records anew, without sorting again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array
from noshadow.metrics.inputs import places


@dataclass(frozen=True)
class Metric:
    """One way to compare a score with the truth; `top` and `keep` are None for a correlation."""

    name: str
    top: float | None = None
    keep: float | None = None

    @property
    def least(self) -> float:
        """The smallest value it can take; the largest is 1."""
        return 0.0 if self.name in ("recall", "precision") else -1.0

    def counted(self, n: int) -> int | None:
        """How many of n records the metric is a share of; None for a correlation.

        These records are the truly riskiest, or those named.
        """
        if self.top is None or self.keep is None:
            return None
        return places(self.top if self.name == "recall" else self.keep, n)


@dataclass(frozen=True)
class Ranking:
    """The order of one vector's n records."""

    place: Array  # (n,) which distinct value, ascending
    order: Array  # (n,) records by ascending value
    starts: Array  # (values,) where each distinct value begins in `order`

    @property
    def is_constant(self) -> bool:
        """Whether all records have one value."""
        return len(self.starts) == 1


@dataclass(frozen=True)
class Held:
    """A ranking over the records a resample holds, counted by distinct value."""

    ranked: Ranking
    at: Array  # (values,) records held with this value
    below: Array  # (values,) records held with a smaller one
    records: float  # records held


@dataclass(frozen=True)
class Top:
    """The largest of a resample's records.

    All of the values beyond the edge count, and a share of those tied on it.
    """

    ranked: Ranking
    records: Array  # on the edge or beyond it, held or not
    edge: int  # distinct value
    share: float  # in (0, 1]


def ranking(values: Array) -> Ranking:
    """Rank a vector by sorting it once, O(n log n)."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return Ranking(place, np.argsort(place, kind="stable"), counts.cumsum() - counts)


def agreement(truths: Sequence[Ranking], scores: Sequence[Ranking], metrics: Sequence[Metric], counts: Array) -> Array:
    """Values of every metric for every pair, (truths, scores, metrics).

    Each record is held `counts` times.

    Spearman is NaN where a ranking is constant over the records held.

    Cost: O((truths + scores) n) and, for every pair, O(n) for Spearman, O(min(top, keep) n) for a
        recall or precision.
    """
    n = int(counts.sum())
    held_truths, held_scores = [_held(r, counts) for r in truths], [_held(r, counts) for r in scores]
    found = np.empty((len(truths), len(scores), len(metrics)))
    for column, metric in enumerate(metrics):
        if metric.top is None or metric.keep is None:
            found[:, :, column] = _spearman(held_truths, held_scores, counts)
            continue
        wanted, kept = places(metric.top, n), places(metric.keep, n)
        named = [_top(held, kept) for held in held_scores]
        for row, truth in enumerate(held_truths):
            top = _top(truth, wanted)
            found[row, :, column] = [_shared(top, keep, counts) for keep in named]
        # Rounding may pass 1 by one unit in the last place.
        found[:, :, column] = np.minimum(found[:, :, column] / (wanted if metric.name == "recall" else kept), 1.0)
    return found


def _held(ranked: Ranking, counts: Array) -> Held:
    at = np.bincount(ranked.place, weights=counts, minlength=len(ranked.starts))
    return Held(ranked, at, at.cumsum() - at, float(counts.sum()))


def _spearman(truths: Sequence[Held], scores: Sequence[Held], counts: Array) -> Array:
    a, b = (np.stack([_centred_ranks(held) for held in side]) for side in (truths, scores))
    squares = [np.einsum("n,vn,vn->v", counts, side, side) for side in (a, b)]
    scale = np.sqrt(np.outer(*squares))
    correlation = np.full(scale.shape, np.nan)
    np.divide((a * counts) @ b.T, scale, out=correlation, where=scale > 0)
    # Rounding may pass ±1 by one unit in the last place.
    clipped: Array = np.clip(correlation, -1.0, 1.0)
    return clipped


def _centred_ranks(held: Held) -> Array:
    """(n,) twice the average rank among the records held, less its mean: whole numbers."""
    centred: Array = (2 * held.below + held.at - held.records)[held.ranked.place]
    return centred


def _top(held: Held, wanted: int) -> Top:
    # The last value that at least `wanted` records reach; it is itself held, or the next one would
    # be reached by as many.
    edge = int(np.searchsorted(held.below, held.records - wanted, side="right")) - 1
    beyond = held.records - held.below[edge] - held.at[edge]
    records = held.ranked.order[held.ranked.starts[edge] :]
    return Top(held.ranked, records, edge, float((wanted - beyond) / held.at[edge]))


def _shared(top: Top, keep: Top, counts: Array) -> float:
    """Expected number of records in both tops, the ties of each broken at random and separately."""
    records = min(top.records, keep.records, key=len)
    return float((counts[records] * _chance(top, records)) @ _chance(keep, records))


def _chance(top: Top, records: Array) -> Array:
    place = top.ranked.place[records]
    chance: Array = (place > top.edge) + top.share * (place == top.edge)
    return chance

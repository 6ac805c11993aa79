"""A pass over all shards from the driver's side.

Results are taken as they come and put together in an order that does not depend on their arrival.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array
from noshadow.progress import tracked
from noshadow.scores.sharded.passes import UNEXPLAINED, Given, Reading, ShardJob, Values, Walk, added, appended
from noshadow.scores.sharded.shards import HeadRecords, Shard
from noshadow.workers import ReadyWorkers, Wording, surviving_results


@dataclass(frozen=True, eq=False)
class ShardWalk:
    """How the driver walks the shards.

    It holds the workers, the records and their shards, how records are read, the threads of each
    worker, the fruitless rounds allowed, and a bar or none.
    """

    ready: ReadyWorkers
    records: HeadRecords
    shards: tuple[Shard, ...]
    reading: Reading
    wording: Wording
    threads: int
    attempts: int
    progress: bool

    def total(self, begun: Callable[[Given], Walk], given: Given, label: str, merged: Callable[[Values, Values], Values] = added) -> Values:
        """The pass's values of all records."""
        return merged_in_order(self._results(begun, merged, given, label), len(self.shards), merged)

    def columns(self, begun: Callable[[Given], Walk], given: Given, label: str) -> tuple[dict[str, Array], float]:
        """The pass's columns of all records, and Σ of what is unexplained."""
        held: dict[str, Array] = {}
        off = np.zeros(len(self.shards))
        for number, values in self._results(begun, appended, given, label):
            off[number] = values.pop(UNEXPLAINED).sum()
            shard = self.shards[number]
            for name, column in values.items():
                held.setdefault(name, np.empty(len(self.records)))[shard.start : shard.stop] = column
        return held, float(off.sum())

    def _results(
        self, begun: Callable[[Given], Walk], merged: Callable[[Values, Values], Values], given: Given, label: str
    ) -> Iterator[tuple[int, Values]]:
        """Yield the values of shards as they come.

        If shards failed, the error of the first shard in order is raised at the end, so that it is
        always the same.
        """
        job = ShardJob(begun, merged, given, self.records, self.reading, self.threads)
        stream = surviving_results(self.ready, job, self.shards, attempts=self.attempts, wording=self.wording)
        wrong: dict[int, Exception] = {}
        for number, values in tracked(stream, label, total=len(self.shards), show=self.progress):
            if isinstance(values, Exception):
                wrong[number] = values
            elif not wrong:
                yield number, values
        if wrong:
            raise wrong[min(wrong)]


def merged_in_order(results: Iterator[tuple[int, Values]], count: int, merged: Callable[[Values, Values], Values]) -> Values:
    """Merge the results 0 … count − 1 pair by pair, in a fixed binary tree.

    The tree does not depend on the order in which the results come.

    Cost: at most ⌈log₂ count⌉ values wait for each result that is still out.
    """
    waiting: dict[tuple[int, int], Values] = {}
    for number, result in results:
        level, position, width, value = 0, number, count, result
        while width > 1:
            partner = position ^ 1
            if partner < width:
                if (level, partner) not in waiting:
                    break
                other = waiting.pop((level, partner))
                value = merged(other, value) if partner < position else merged(value, other)
            level, position, width = level + 1, position // 2, (width + 1) // 2
        waiting[level, position] = value
    (whole,) = waiting.values()
    return whole

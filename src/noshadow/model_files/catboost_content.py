"""What a CatBoost file says, held against itself before the library sees it.

CatBoost checks the form of its files (FlatBuffers) and believes the numbers in them: a split or a
column that is not there is read from memory that is not the model's.
"""

import struct
from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array

MARK = b"CBM1"
MOST_OUTPUTS = 2**20
DEEPEST = 31
BUCKET = 254  # borders of a column that share a byte
# Places of fields in the tables of CatBoost's model.fbs, features.fbs and ctr_data.fbs.
TREES, PARTS = 1, 3
OUTPUTS, SPLITS, SIZES, STARTS, CATEGORICAL, FLOATS, ONE_HOT, CTRS, LEAVES, WEIGHTS, STEPS, NODE_LEAVES, TEXTS, ESTIMATED = range(14)
# Bytes of an entry by the kind of statistic: counts by class, a mean with its count, and counts.
ENTRY, BY_CLASS = {0: 4, 1: 4, 2: 8, 3: 8, 4: 4, 5: 4}, (0, 1)
BUCKETS, EMPTY = np.dtype([("hash", "<u8"), ("place", "<u4")]), 2**64 - 1
MANY_BIASES, BINS, EMBEDDINGS = 16, 17, 18


def require_sound_catboost(content: bytes) -> None:
    """Refuse a model in binary form whose parts do not fit each other, or that ends early.

    Raises:
        ValueError: with the part, or struct.error where an offset leads out of the file.
    """
    size = int.from_bytes(content[4:8], "little")
    if content[:4] != MARK or 8 + size > len(content):
        raise ValueError("no whole model of CatBoost in binary form")
    held = content[8 : 8 + size]
    core = _Table(held, struct.unpack_from("<I", held)[0])
    trees = core.table(TREES)
    for place, name in ((TEXTS, "text"), (EMBEDDINGS, "embeddings"), (ESTIMATED, "estimated columns")):
        if trees.count(place):
            raise ValueError(f"columns of {name}, which are not read from files")
    splits = _require_sound_columns(trees)
    _require_sound_trees(trees, splits)
    columns = trees.count(FLOATS), trees.count(CATEGORICAL)
    classes = _classes_of_statistics(content[8 + size :], core.count(PARTS), *columns)
    for one in trees.tables(CTRS):
        statistic = one.table(0)
        if not 0 <= statistic.whole(1, 0) < classes.get(statistic.table(0).small(1, 0), 1):
            raise ValueError("statistics of a class that is not there")


def _require_sound_columns(trees: "_Table") -> int:
    """Check the columns; how many splits there are to choose from."""
    floats, kinds, hot, ctrs = (trees.tables(place) for place in (FLOATS, CATEGORICAL, ONE_HOT, CTRS))
    total = len(floats) + len(kinds)
    places = [(one.whole(1, -1), one.whole(2, -1)) for one in floats] + [(one.whole(0, -1), one.whole(1, -1)) for one in kinds]
    own, flat = [place for place, _ in places], [place for _, place in places]
    if own != [*range(len(floats)), *range(len(kinds))] or sorted(flat) != list(range(total)):
        raise ValueError("columns that are not numbered one after the other")
    borders = [one.array(3, "<f4") for one in floats] + [one.array(1, "<f4") for one in ctrs]
    if any(np.isnan(one).any() or (np.diff(one) < 0).any() for one in borders):
        raise ValueError("borders of a column that are in no order")
    values = [one.array(1, "<i4") for one in hot]
    if any(not 0 <= one.whole(0, -1) < len(kinds) for one in hot):
        raise ValueError("categories of a column that is not there")
    for one in ctrs:
        _require_sound_statistic(one.table(0).table(0), len(floats), len(kinds))
    counts = [len(one) for one in (*borders, *values)]
    buckets = sum(-(-count // BUCKET) for count in counts)
    bins = trees.array(BINS, "<u2", 2)
    if len(bins) and (len(bins) != trees.count(SPLITS) or (bins[:, 0] >= buckets).any()):
        raise ValueError("bins of columns that are not there")
    return sum(counts)


def _require_sound_statistic(base: "_Table", floats: int, kinds: int) -> None:
    """A target statistic of categories: the columns that are combined in it are there."""
    combined = base.table(0)
    if not _within(combined.array(0, "<i4"), kinds):
        raise ValueError("statistics of categories that are not there")
    for place, many in ((1, floats), (2, kinds)):
        if not _within(combined.array(place, "<i4", 2)[:, 0], many):
            raise ValueError("statistics of columns that are not there")


def _require_sound_trees(trees: "_Table", splits: int) -> None:
    outputs, leaves = trees.whole(OUTPUTS, 0), trees.count(LEAVES)
    chosen, sizes, starts = (trees.array(place, "<i4").astype(np.int64) for place in (SPLITS, SIZES, STARTS))
    if not 1 <= outputs <= MOST_OUTPUTS or trees.count(MANY_BIASES) not in (0, 1, outputs):
        raise ValueError(f"{outputs} outputs and {trees.count(MANY_BIASES)} biases")
    if not _within(chosen, splits) or (sizes < 0).any() or sizes.sum() != len(chosen):
        raise ValueError("splits that are not there")
    if not np.array_equal(starts, np.cumsum(sizes) - sizes):
        raise ValueError("trees that do not follow each other")
    if not np.isfinite(trees.array(LEAVES, "<f8")).all():
        raise ValueError("leaf values that are not finite")
    if trees.count(STEPS):
        _require_sound_steps(trees, sizes, outputs, leaves)
        return
    if len(sizes) and (sizes.max() > DEEPEST or int((2**sizes).sum()) * outputs != leaves):
        raise ValueError(f"{leaves} leaf values, which are not those of its trees")
    if trees.count(WEIGHTS) not in (0, leaves // outputs):
        raise ValueError("weights of other leaves")


def _require_sound_steps(trees: "_Table", sizes: Array, outputs: int, leaves: int) -> None:
    """Trees of any shape: how far down the next node is, nothing for a leaf."""
    steps = trees.array(STEPS, "<u2", 2).astype(np.int64)
    ends = np.repeat(np.cumsum(sizes), sizes)
    nodes = trees.array(NODE_LEAVES, "<u4").astype(np.int64)
    if len(steps) != len(ends) or (np.arange(len(steps))[:, None] + steps >= ends[:, None]).any():
        raise ValueError("nodes that are not there")
    if len(nodes) != len(steps) or (nodes[(steps == 0).any(1)] + outputs > leaves).any():
        raise ValueError("leaves that are not there")


def _classes_of_statistics(content: bytes, parts: int, floats: int, kinds: int) -> dict[int, int]:
    """Check the tables of target statistics; kind → least number of classes among its tables."""
    if parts == 0:
        if content:
            raise ValueError(f"{len(content)} bytes behind its end")
        return {}
    place = 4
    found: dict[int, int] = {}
    for _ in range(int(struct.unpack_from("<I", content)[0])):
        size = int(struct.unpack_from("<I", content, place)[0])
        held = content[place + 4 : place + 4 + size]
        if len(held) != size:
            raise ValueError("it ends early, in its target statistics")
        table = _Table(held, struct.unpack_from("<I", held)[0])
        _require_sound_statistic(table.table(0), floats, kinds)
        kind, classes = _require_sound_values(table)
        found[kind] = min(classes, found.get(kind, classes))
        place += 4 + size
    if place != len(content):
        raise ValueError(f"{len(content) - place} bytes behind its end")
    return found


def _require_sound_values(table: "_Table") -> tuple[int, int]:
    """A hash of categories and the counts it leads to; the kind of statistic and its classes."""
    kind, classes = table.table(0).small(1, 0), max(1, table.whole(4, 0))
    raw, counts = table.array(1, "<u1"), table.count(2)
    if kind not in ENTRY or classes > MOST_OUTPUTS or len(raw) % BUCKETS.itemsize:
        raise ValueError("target statistics of no known kind")
    buckets = np.frombuffer(raw.tobytes(), BUCKETS)
    used = buckets["hash"] != EMPTY
    entry = ENTRY[kind] * (classes if kind in BY_CLASS else 1)
    table.array(2, "<u1")  # fails where the counts lead out of the file
    # A search goes on to the next bucket, round and round, until one is empty.
    if len(buckets) & (len(buckets) - 1) or (len(buckets) and used.all()):
        raise ValueError("target statistics that are searched for ever")
    if ((buckets["place"][used].astype(np.int64) + 1) * entry > counts).any():
        raise ValueError("target statistics that are not there")
    return kind, classes if kind in BY_CLASS else 1


def _within(places: Array, stop: int) -> bool:
    return len(places) == 0 or bool(places.min() >= 0 and places.max() < stop)


@dataclass(frozen=True)
class _Table:
    """A table of a FlatBuffer, whose fields are found by their places."""

    content: bytes
    start: int

    def at(self, place: int) -> int | None:
        fields = self.start - int(struct.unpack_from("<i", self.content, self.start)[0])
        if not 0 <= fields < len(self.content):
            raise ValueError("a table outside of the file")
        size = struct.unpack_from("<H", self.content, fields)[0]
        offset = struct.unpack_from("<H", self.content, fields + 4 + 2 * place)[0] if 6 + 2 * place <= size else 0
        return self.start + offset if offset else None

    def whole(self, place: int, rest: int) -> int:
        at = self.at(place)
        return rest if at is None else int(struct.unpack_from("<i", self.content, at)[0])

    def small(self, place: int, rest: int) -> int:
        at = self.at(place)
        return rest if at is None else int(struct.unpack_from("<b", self.content, at)[0])

    def _pointed(self, at: int) -> int:
        return at + int(struct.unpack_from("<I", self.content, at)[0])

    def table(self, place: int) -> "_Table":
        at = self.at(place)
        if at is None:
            raise ValueError("a table that is missing")
        return _Table(self.content, self._pointed(at))

    def count(self, place: int) -> int:
        at = self.at(place)
        return 0 if at is None else int(struct.unpack_from("<I", self.content, self._pointed(at))[0])

    def array(self, place: int, kind: str, parts: int = 1) -> Array:
        """Numbers (n,) of one type; of structs with several such parts (n, parts)."""
        at, count = self.at(place), self.count(place) * parts
        found = np.zeros(0, kind) if at is None or not count else np.frombuffer(self.content, kind, count, self._pointed(at) + 4)
        return found if parts == 1 else found.reshape(-1, parts)

    def tables(self, place: int) -> list["_Table"]:
        at, count = self.at(place), self.count(place)
        if at is None:
            return []
        start = self._pointed(at) + 4
        if start + 4 * count > len(self.content):
            raise ValueError(f"{count} tables where there is no room for them")
        return [_Table(self.content, self._pointed(start + 4 * k)) for k in range(count)]

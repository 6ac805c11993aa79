"""The records of a head in files.

Files are named here, opened where they are needed, and read a stretch of records at a time.
"""

import os
import platform
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from noshadow.blocks import blocks
from noshadow.checks import Array, InputError, as_array, refuse, require_same_length, said
from noshadow.storage.numpy_files import mapped_npy
from noshadow.storage.reasons import reason_of


@dataclass(frozen=True, eq=False)
class Parts:
    """One array in consecutive parts.

    Attributes:
        argument: its name in messages.
        held: absolute paths of .npy files, or arrays. lengths: rows of each, none of them empty.
        width: shape of a row. kind: NumPy's letter for the kind of numbers.
    """

    argument: str
    held: tuple[str | Array, ...]
    lengths: tuple[int, ...]
    width: tuple[int, ...]
    kind: str

    def __len__(self) -> int:
        return sum(self.lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return (len(self), *self.width)

    @property
    def edges(self) -> list[int]:
        """Where parts begin, and where the last one ends."""
        return [0, *map(int, np.cumsum(self.lengths))]

    def part(self, i: int) -> Array:
        """A whole part; memory-mapped when it is a file."""
        there = self.held[i]
        if not isinstance(there, str):
            return there
        array = mapped(there, self.argument)
        if array.shape != (self.lengths[i], *self.width):
            refuse(self.argument, "not change while it is read", f"'{there}' with shape {array.shape} instead")
        return array

    def rows(self, start: int, stop: int) -> Array:
        """Rows that lie in one part."""
        edges = self.edges
        i = bisect_right(edges, start) - 1
        return self.part(i)[start - edges[i] : stop - edges[i]]


def mapped(path: str, argument: str) -> Array:
    """A .npy file, memory-mapped; nothing in it is ever unpickled."""
    try:
        return mapped_npy(Path(path))
    except OSError as error:
        where = f"'{path}' on {platform.node()} ({error.strerror or error})"
        raise InputError(
            said(
                f"{argument} must be a file that every worker can open; got {where}. "
                "Workers open the files themselves: put them where all of them can see them."
            )
        ) from error
    except ValueError as error:
        rule = f"{argument} must be a .npy file of plain numbers"
        raise InputError(said(f"{rule}; got '{path}' ({reason_of(error)}). Use np.save.")) from error


def parts_of(value: object, argument: str, *, ndim: tuple[int, ...]) -> Parts:
    """Read where an array lies; of files only the headers are read.

    The array is given as the path of a .npy file, as paths of consecutive files, or as itself.
    """
    named = list(value) if isinstance(value, (list, tuple)) else [value]
    # Absolute: workers may stand elsewhere.
    paths = [str(Path(one).absolute()) for one in named if isinstance(one, (str, os.PathLike))]
    if paths and len(paths) < len(named):
        refuse(argument, "be all paths or one array", f"{len(paths)} paths among {len(named)} things")
    held: list[str | Array] = [*paths] or [as_array(value, argument)]
    arrays = [mapped(there, argument) if isinstance(there, str) else there for there in held]
    for there, array in zip(held, arrays, strict=True):
        name = f"'{there}' with shape {array.shape}" if isinstance(there, str) else f"shape {array.shape}"
        if array.ndim not in ndim:
            refuse(argument, "be " + " or ".join(f"{k}-dimensional" for k in ndim), name)
        if array.dtype.kind not in "biuf":
            refuse(argument, "be numeric", f"dtype {array.dtype}")
        if array.shape[1:] != arrays[0].shape[1:] or array.dtype != arrays[0].dtype:
            first = f"{arrays[0].shape[1:]} of {arrays[0].dtype}"
            refuse(argument, "have rows of one kind in all files", f"rows {first}, and '{there}' with {array.shape[1:]} of {array.dtype}")
    full = [(there, len(array)) for there, array in zip(held, arrays, strict=True) if len(array)]
    if not full:
        refuse(argument, "have at least 2 records", 0)
    return Parts(argument, tuple(there for there, _ in full), tuple(rows for _, rows in full), arrays[0].shape[1:], arrays[0].dtype.kind)


@dataclass(frozen=True, eq=False)
class HeadRecords:
    """All arrays of a head; row i of each belongs to record i."""

    features: Parts
    outputs: Parts
    targets: Parts
    sample_weight: Parts | None

    def __len__(self) -> int:
        return len(self.features)

    @property
    def given(self) -> tuple[Parts, ...]:
        """The arrays that were given."""
        weight = () if self.sample_weight is None else (self.sample_weight,)
        return (self.features, self.outputs, self.targets, *weight)


def head_records(features: object, outputs: object, targets: object, sample_weight: object) -> HeadRecords:
    """The arrays of a head, named and measured; nothing but headers is read.

    Raises:
        InputError: a file cannot be opened, is no plain array, or lengths differ.
    """
    records = HeadRecords(
        parts_of(features, "features", ndim=(2,)),
        parts_of(outputs, "outputs", ndim=(1, 2)),
        parts_of(targets, "targets", ndim=(1, 2)),
        None if sample_weight is None else parts_of(sample_weight, "sample_weight", ndim=(1,)),
    )
    n = require_same_length(**{parts.argument: range(len(parts)) for parts in records.given})
    if n < 2:
        refuse("features", "have at least 2 records", n)
    columns = records.features.width[0]
    if columns > n:
        hint = "Use record_scores, which works in the span of the records."
        refuse("features", "have at most as many columns as records", f"shape {records.features.shape}", hint)
    return records


@dataclass(frozen=True)
class Shard:
    """Consecutive records, start ≤ i < stop, that one worker walks.

    No array changes files within a stretch.
    """

    number: int
    stretches: tuple[tuple[int, int], ...]

    @property
    def wanted(self) -> tuple[int]:
        """The results that a worker returns for this shard: its own number."""
        return (self.number,)

    @property
    def start(self) -> int:
        """Row number of the first record."""
        return self.stretches[0][0]

    @property
    def stop(self) -> int:
        """Row number after the last record."""
        return self.stretches[-1][1]


def cut(records: HeadRecords, shards: int, stretch: int) -> list[Shard]:
    """Cut the records into shards of about equal size.

    A worker walks each shard in stretches of at most `stretch` records that end where files end.
    """
    n = len(records)
    size = -(-n // min(shards, n))
    ends: set[int] = set().union(*(parts.edges for parts in records.given))
    found = []
    for number, (start, stop) in enumerate(blocks(n, size)):
        edges = sorted({start, stop, *(edge for edge in ends if start < edge < stop)})
        pieces = [(low + a, low + b) for low, high in pairwise(edges) for a, b in blocks(high - low, stretch)]
        found.append(Shard(number, tuple(pieces)))
    return found


def whole(parts: Parts) -> Array:
    """All rows at once: for arrays of one number per record."""
    arrays: Sequence[Array] = [parts.part(i) for i in range(len(parts.held))]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

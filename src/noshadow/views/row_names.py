"""Name the records that nobody names.

Names are rows of the data set behind Subsets, or labels of a data frame's index.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from torch.utils.data import Subset

from noshadow.checks import Array, refuse

INDEX = "index"


@dataclass(frozen=True, eq=False)
class RowNames:
    """Ids of the records of one split, taken from the data.

    Attributes:
        ids: (n,) whole numbers or text; all text where a row is taken more than once: "17", then
            "17#2", "17#3", ….
        repeats: records whose row was already taken by one before them.
        origin: the data set whose rows they are, or INDEX for the labels of a data frame.
    """

    ids: Array
    repeats: int
    origin: object


def rows_behind(dataset: object, argument: str) -> RowNames | None:
    """Return the rows of the data set behind nested Subsets; None without a Subset.

    Rows are counted from the start of the data set, also where an index is negative.

    Raises:
        InputError: an index is no whole number, or none of the rows it chooses from.
    """
    rows: list[int] | None = None
    while type(dataset) is Subset:
        own = row_numbers(dataset.indices, len(dataset.dataset), argument)  # type: ignore[arg-type]
        rows = own if rows is None else [own[row] for row in rows]
        dataset = dataset.dataset
    if rows is None:
        return None
    ids, repeats = _told_apart(rows)
    return RowNames(ids, repeats, dataset)


def repeats_among(ids: Array) -> int:
    """How many ids of `rows_behind` are of a row that was taken before."""
    return sum("#" in str(name) for name in ids.tolist()) if ids.dtype.kind == "U" else 0


def row_numbers(indices: Iterable[object], count: int, argument: str) -> list[int]:
    """Indices as 0 … count − 1: −1 is the last row, as it is to the data set."""
    rows = []
    for index in indices:
        try:
            row = int(index.__index__())  # type: ignore[attr-defined]
        except (AttributeError, TypeError):
            refuse(argument, "choose its records by whole numbers", f"the index {index!r}")
        if not -count <= row < count:
            refuse(argument, f"choose among the {count} records of its data set", f"the index {row}")
        rows.append(row % count)
    return rows


def index_names(X: object) -> RowNames | None:
    """A data frame's own index as record ids, where it says more than the row number."""
    index = getattr(X, "index", None)
    if not isinstance(index, pd.Index) or isinstance(index, pd.MultiIndex):
        return None
    if isinstance(index, pd.RangeIndex) and (index.start, index.step) == (0, 1):
        return None
    labels = index.tolist() if index.dtype.kind in "iu" else [str(label) for label in index]
    ids, repeats = _told_apart(labels)
    return RowNames(ids, repeats, INDEX)


def index_ids(X: object) -> Array | None:
    """The ids of `index_names` alone."""
    names = index_names(X)
    return None if names is None else names.ids


def name_facts(names: Mapping[str, RowNames | None]) -> dict[str, Any]:
    """Summarise the names of the splits for an audit (JSON-ready).

    The summary says how many names repeat a row, and where each split's ids come from.

    `ids` holds "index" or "rows" for each split, None for row numbers; rows count as such only when
    both splits choose from one data set, since row 5 of one says nothing about row 5 of another.
    """
    one_data_set = len({id(own.origin) for own in names.values() if own is not None}) == 1
    kinds = {split: None if own is None else INDEX if own.origin is INDEX else "rows" for split, own in names.items()}
    return {
        "repeated_rows": {split: 0 if own is None else own.repeats for split, own in names.items()},
        "ids": {split: kind if kind != "rows" or one_data_set else None for split, kind in kinds.items()},
    }


def _told_apart(names: list[int] | list[str]) -> tuple[Array, int]:
    """Names that are unique, and how many of them are of a row that was there before."""
    repeats = len(names) - len(set(names))
    if not repeats:
        return np.array(names, dtype=None if names else np.int64), 0
    taken, seen, unique = {str(name) for name in names}, dict.fromkeys(names, 0), []
    for name in names:
        seen[name] += 1
        told = str(name) if seen[name] == 1 else f"{name}#{seen[name]}"
        # A label of the data's own may look like a suffix of ours.
        while seen[name] > 1 and told in taken:
            seen[name] += 1
            told = f"{name}#{seen[name]}"
        taken.add(told)
        unique.append(told)
    return np.array(unique), repeats

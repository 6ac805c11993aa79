"""Tables of records from CSV and Parquet, as a model from a file reads them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from noshadow.checks import Array, InputError, refuse, said
from noshadow.model_files.held import HeldModel
from noshadow.storage.parquet_files import parquet_table
from noshadow.storage.reasons import one_kind_of_error, reason_of

SUFFIXES = (".csv", ".parquet")
MOST_NAMED = 5


@dataclass(frozen=True)
class Columns:
    """Columns that are not for the model: its target, ids, groups, and those to drop."""

    target: str
    id: str | None = None
    group: str | None = None
    drop: tuple[str, ...] = ()

    @property
    def named(self) -> dict[str, str]:
        """Option → column, for those that were given."""
        given = {"--target": self.target, "--id": self.id, "--group": self.group}
        return {option: column for option, column in given.items() if column is not None}


@dataclass(frozen=True, eq=False)
class Split:
    """One table taken apart.

    Attributes:
        X: what the model reads: a data frame whose index holds the ids, or for a module an array.
        y: (n,) targets. ids, groups: (n,) text or whole numbers; None where no column was named.
    """

    X: Any
    y: Array
    ids: Sequence[object] | None
    groups: Sequence[object] | None


def read_split(path: Path, held: HeldModel, columns: Columns, *, option: str) -> Split:
    """Read the table of one split and take it apart as the model wants it.

    Columns reach the model in the order of the names that it keeps, whatever their order in the
    table. A model without names takes them in the table's order.

    Args:
        path: .csv or .parquet. held: the model. columns: what is not for the model.
        option: named in error messages, such as "--train".

    Raises:
        InputError: no such file or column, missing or unknown columns, missing targets, ids or
            groups, labels that the model does not know, or text where it takes numbers.
    """
    table = _table(path, columns, option)
    absent = [f"{name} {column!r}" for name, column in columns.named.items() if column not in table.columns]
    absent += [f"--drop {column!r}" for column in columns.drop if column not in table.columns]
    if absent:
        have = ", ".join(map(repr, list(map(str, table.columns))[:20]))
        refuse(option, "have the columns that were named", f"none for {', '.join(absent)} among {have}")
    for name, column in columns.named.items():
        empty = np.flatnonzero(table[column].isna().to_numpy())
        if len(empty):
            refuse(f"{name} of {option}", "have a value in each row", f"{len(empty)} without, row {empty[0]} first")
    ids = None if columns.id is None else _names(table[columns.id])
    groups = None if columns.group is None else list(map(str, table[columns.group]))
    y = _targets(table[columns.target], held, option)
    X = _inputs(table.drop(columns=[*columns.named.values(), *columns.drop]), held, option)
    if held.module:
        return Split(_numbers(X, option), y, ids, groups)
    return Split(X if ids is None else X.set_axis(pd.Index(ids), axis=0), y, ids, groups)


def _table(path: Path, columns: Columns, option: str) -> pd.DataFrame:
    if path.suffix not in SUFFIXES:
        refuse(option, f"end in {' or '.join(SUFFIXES)}", f"'{path}'")
    try:
        if path.suffix == ".parquet":
            held: pd.DataFrame = parquet_table(path).reset_index(drop=True)
            return held
        with one_kind_of_error():
            # Ids such as 007 stay as they are, and labels are held against the model's own.
            table = pd.read_csv(path, dtype=dict.fromkeys(columns.named.values(), str))
        if not isinstance(table.index, pd.RangeIndex):
            raise ValueError("its rows have more fields than its first line has names")
        return table
    except (ValueError, OSError) as error:
        raise InputError(said(f"{option} must be a readable {path.suffix} file; got '{path}' ({reason_of(error)}).")) from error


def _names(column: pd.Series) -> list[object]:
    return column.to_list() if column.dtype.kind in "iu" else list(map(str, column))


def _targets(column: pd.Series, held: HeldModel, option: str) -> Array:
    """Labels as the model names them, or numbers."""
    if held.classes is not None and not all(isinstance(label, (int, float)) for label in held.classes):
        return column.astype(str).to_numpy(dtype=object)
    if held.classes is not None and all(isinstance(label, bool) for label in held.classes):
        return np.array([{"true": True, "false": False}.get(str(value).lower(), value) for value in column.tolist()], dtype=object)
    try:
        return np.asarray(pd.to_numeric(column).to_numpy())
    except (ValueError, TypeError) as error:
        hint = "The model's file holds no such labels: number them from 0 in the order of its classes."
        refuse(f"--target of {option}", "hold numbers for this model", reason_of(error), hint)


def _inputs(table: pd.DataFrame, held: HeldModel, option: str) -> pd.DataFrame:
    """The columns of the model in its order; without names, all in the table's order."""
    if held.columns is None:
        found: pd.DataFrame = table.set_axis(range(table.shape[1]), axis=1)
    else:
        missing = [name for name in held.columns if name not in table.columns]
        extra = [str(name) for name in table.columns if name not in held.columns]
        if missing or extra:
            parts = [f"{word} {_first(names)}" for word, names in (("without", missing), ("with also", extra)) if names]
            hint = "Name what is not for the model with --id, --group or --drop." if extra else ""
            refuse(option, f"have the model's {len(held.columns)} columns", f"a table {' and '.join(parts)}", hint)
        found = table[list(held.columns)]
    texts = [name for name in found.columns if pd.api.types.is_string_dtype(found[name].dtype) or found[name].dtype == object]
    if texts and held.text == "refused":
        # Without names of its own the model numbers the columns, and the table's names are told.
        named = table.columns[np.flatnonzero(found.columns.isin(texts))] if held.columns is None else texts
        hint = "The file does not say which category is which number: put in the numbers that the training used."
        refuse(option, "hold numbers for this model", f"text in {_first(list(map(str, named)))}", hint)
    if texts and held.text == "category":
        found = found.astype(dict.fromkeys(texts, "category"))
    return found


def _numbers(X: pd.DataFrame, option: str) -> Array:
    try:
        return X.to_numpy(dtype=np.float32)
    except (ValueError, TypeError) as error:
        refuse(option, "hold numbers for an nn.Module", reason_of(error))


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(repr(name) for name in names[:MOST_NAMED]) + more

"""Tables of records from CSV and Parquet, as a model from a file reads them."""

import re
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
# Floats as Python reads them, since trees ask on which side of a threshold a value is. pandas does
# so by itself from 3.1 on, and warns of the word.
NEAREST: dict[str, Any] = {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}


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
        names: of the columns of X in the table.
        y: (n,) targets. ids, groups: (n,) text or whole numbers; None where no column was named.
    """

    X: Any
    names: tuple[str, ...]
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
    table = _table(path, held, columns, option)
    absent = [f"{name} {column!r}" for name, column in columns.named.items() if column not in table.columns]
    absent += [f"--drop {column!r}" for column in columns.drop if column not in table.columns]
    if absent:
        have = [str(name) for name in table.columns]
        hint = "Separate its columns by commas." if len(have) == 1 and {";", "\t"} & set(have[0]) else ""
        refuse(option, "have the columns that were named", f"none for {', '.join(absent)} among {_first(have, most=20)}", hint)
    if not len(table):
        refuse(option, "hold at least one record", "none")
    for name, column in columns.named.items():
        empty = np.flatnonzero(table[column].isna().to_numpy())
        if len(empty):
            refuse(f"{name} of {option}", "have a value in each row", f"{len(empty)} without, row {empty[0]} first")
    ids = None if columns.id is None else _names(table[columns.id])
    groups = None if columns.group is None else list(map(str, table[columns.group]))
    y = _targets(table[columns.target], held, option)
    own = table.drop(columns=[*columns.named.values(), *columns.drop])
    X, names = _inputs(own, held, option), tuple(map(str, own.columns))
    if held.module:
        return Split(_numbers(X, option), names, y, ids, groups)
    return Split(X if ids is None else X.set_axis(pd.Index(ids), axis=0), names, y, ids, groups)


def _table(path: Path, held: HeldModel, columns: Columns, option: str) -> pd.DataFrame:
    if path.suffix.lower() not in SUFFIXES:
        refuse(option, f"end in {' or '.join(SUFFIXES)}", f"'{path}'")
    try:
        with one_kind_of_error():
            return _parquet(path, columns) if path.suffix.lower() == ".parquet" else _csv(path, held, columns)
    except (ValueError, OSError) as error:
        raise InputError(said(f"{option} must be a readable {path.suffix} file; got '{path}' ({reason_of(error)}).")) from error


def _parquet(path: Path, columns: Columns) -> pd.DataFrame:
    """The table, with levels of its index as columns where these are named."""
    table = parquet_table(path)
    _require_once(list(table.columns))
    wanted = {*columns.named.values(), *columns.drop}
    levels = [name for name in table.index.names if name in wanted and name not in table.columns]
    found: pd.DataFrame = (table.reset_index(level=levels) if levels else table).reset_index(drop=True)
    return found


def _csv(path: Path, held: HeldModel, columns: Columns) -> pd.DataFrame:
    """The table; named columns and those that the model knows as text stay as they are written."""
    header = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
    names = header.iloc[0].tolist()
    _require_once(names)
    apart = set(columns.named.values())
    own = [name for name in names if name not in apart and name not in columns.drop]
    texts = {name for place, name in enumerate(own) if (name if held.columns is not None else place) in held.texts}
    table = pd.read_csv(path, dtype=dict.fromkeys(texts, str), **NEAREST)
    if not isinstance(table.index, pd.RangeIndex):
        raise ValueError("its rows have more fields than its first line has names")
    # A label or an id may be 007, or the text NA, which pandas takes for nothing.
    named = pd.read_csv(path, usecols=[name for name in names if name in apart], dtype=str, keep_default_na=False, na_values=[""])
    found: pd.DataFrame = table.assign(**{name: named[name] for name in named.columns})
    return found


def _require_once(names: list[Any]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise ValueError(f"the column {str(twice)!r} stands twice")


def _names(column: pd.Series) -> list[object]:
    return column.to_list() if column.dtype.kind in "iu" else list(map(str, column))


def _targets(column: pd.Series, held: HeldModel, option: str) -> Array:
    """Labels as the model names them, or numbers."""
    if held.classes is not None and not all(isinstance(label, (int, float)) for label in held.classes):
        return column.astype(str).to_numpy(dtype=object)
    if held.classes is not None and all(isinstance(label, bool) for label in held.classes):
        return np.array([{"true": True, "false": False}.get(str(value).lower(), value) for value in column.tolist()], dtype=object)
    try:
        if column.dtype.kind in "biuf":
            return np.asarray(column.to_numpy(dtype=column.dtype.kind if column.dtype.kind == "b" else f"{column.dtype.kind}8"))
        texts = list(map(str, column))
        whole = all(re.fullmatch(r"[+-]?[0-9]{1,18}", text) for text in texts)
        return np.array([int(text) if whole else float(text) for text in texts])
    except (ValueError, TypeError) as error:
        hint = "The model's file holds no such labels: number them from 0 in the order of its classes."
        refuse(f"--target of {option}", "hold numbers for this model", reason_of(error), hint)


def _inputs(table: pd.DataFrame, held: HeldModel, option: str) -> pd.DataFrame:
    """The columns of the model in its order; without names, all in the table's order."""
    if held.columns is None:
        found: pd.DataFrame = table.set_axis(range(table.shape[1]), axis=1)
    else:
        _require_columns(table, held.columns, option)
        found = table[list(held.columns)]
    own = [name for name in found.columns if name in held.categories]
    texts = [name for name in found.columns if _is_text(found[name]) and name not in held.categories]
    if texts and held.numbers:
        # Without names of its own the model numbers the columns, and the table's names are told.
        named = [
            str(own_name)
            for own_name, name in zip(table.columns if held.columns is None else found.columns, found.columns, strict=True)
            if name in texts
        ]
        hint = "The file does not say which category is which number: put in the numbers that the training used."
        refuse(option, "hold numbers for this model", f"text in {_first(named)}", hint)
    return found.astype(dict.fromkeys(own, "category")) if own else found


def _require_columns(table: pd.DataFrame, names: Sequence[str], option: str) -> None:
    missing = [name for name in names if name not in table.columns]
    extra = [str(name) for name in table.columns if name not in names]
    if missing or extra:
        parts = [f"{word} {_first(found)}" for word, found in (("without", missing), ("with also", extra)) if found]
        hint = "Name what is not for the model with --id, --group or --drop." if extra else ""
        refuse(option, f"have the model's {len(names)} columns", f"a table {' and '.join(parts)}", hint)


def _is_text(column: pd.Series) -> bool:
    kind = column.dtype
    return bool(pd.api.types.is_string_dtype(kind) or kind.kind == "O")


def require_same_columns(train: Split, test: Split, held: HeldModel) -> None:
    """Refuse tables whose columns differ where the model keeps no names to tell them apart.

    Raises:
        InputError: that.
    """
    if held.columns is None and train.names != test.names:
        place = next((k for k, (a, b) in enumerate(zip(train.names, test.names, strict=False)) if a != b), None)
        got = (
            f"{len(test.names)} for {len(train.names)}"
            if place is None
            else f"{test.names[place]!r} for {train.names[place]!r} as column {place}"
        )
        hint = "The model's file names no columns, so that it takes them in the table's order."
        refuse("--test", "have the columns of --train in their order", got, hint)


def _numbers(X: pd.DataFrame, option: str) -> Array:
    try:
        return X.to_numpy(dtype=np.float32)
    except (ValueError, TypeError) as error:
        refuse(option, "hold numbers for an nn.Module", reason_of(error))


def _first(names: Sequence[str], most: int = MOST_NAMED) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(str(name)) for name in names[:most]) + more

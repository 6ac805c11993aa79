"""The record table of a folder, checked before anybody relies on it."""

import numpy as np
import pandas as pd

from noshadow.checks import InputError, refuse, said
from noshadow.columns import is_target, named
from noshadow.storage.parquet_files import parquet_table
from noshadow.storage.reasons import reason_of

TEXT_COLUMNS = named(kind="text")
NULLABLE_COLUMNS = ("audit_rank",)


def record_table(content: bytes, claimed: dict[str, object], again: str) -> pd.DataFrame:
    """Read the table of `records.parquet` and check it.

    It must have the rows and columns that the manifest claims, unique ids, and numbers in all other
    columns.

    Raises:
        InputError: it is not that table.
    """
    name, count = "records.parquet", claimed["count"]
    try:
        table = parquet_table(content, rows=count if isinstance(count, int) else None)
    except (ValueError, OSError) as error:
        raise InputError(said(f"{name} must be the record table; got one that cannot be read ({reason_of(error)}). {again}.")) from error
    held = list(table.columns)
    if held != claimed["columns"] or len(set(held)) < len(held) or not isinstance(table.index, pd.RangeIndex):
        refuse(name, f"have the columns that the manifest lists ({_listed(claimed['columns'])})", _listed(held), f"{again}.")
    for column in table.columns:
        _require_column(table[column], str(column), again)
    if "id" not in table or table["id"].duplicated().any():
        refuse(name, "have a column id of unique ids", "one id twice" if "id" in table else "none", f"{again}.")
    return table


def require_ranks(table: pd.DataFrame, ranked_by: str | None, again: str) -> None:
    """Refuse ranks that are not 1 … n by a column that is there and holds no NaN.

    Where nothing is ranked, there must be no ranks.
    """
    if (ranked_by is not None) != ("rank" in table):
        refuse("ranked_by", "name a column exactly when there are ranks", repr(ranked_by), f"{again}.")
    if ranked_by is None:
        return
    if ranked_by not in table or ranked_by in TEXT_COLUMNS or bool(table[ranked_by].isna().any()):
        refuse("ranked_by", "name a column of numbers without NaN", repr(ranked_by), f"{again}.")
    ranks = table["rank"].to_numpy()
    if ranks.dtype.kind not in "iu" or not np.array_equal(np.sort(ranks), np.arange(1, len(ranks) + 1)):
        refuse("rank", f"hold each of 1 … {len(ranks)} once", f"{_listed(ranks.tolist())}", f"{again}.")


def require_numbers(table: pd.DataFrame, names: tuple[str, ...], again: str) -> None:
    """Refuse columns that are missing or hold NaN."""
    for name in names:
        if name not in table:
            refuse("records.parquet", f"have a column {name}", _listed(list(table.columns)), f"{again}.")
        if bool(table[name].isna().any()):
            refuse(name, "hold no NaN", f"{int(table[name].isna().sum())} in {len(table)} records", f"{again}.")


def require_shares(table: pd.DataFrame, names: tuple[str, ...], again: str) -> None:
    """Refuse numbers outside 0 to 1 in those columns that are there; NaN may stand in them."""
    for name in (name for name in names if name in table):
        values = table[name].to_numpy(np.float64)
        outside = (values < 0) | (values > 1)
        if outside.any():
            refuse(name, "lie between 0 and 1", f"{values[outside][0]:g} in record {int(np.argmax(outside))}", f"{again}.")


def target_columns(table: pd.DataFrame) -> tuple[str, ...]:
    """Names of the columns that hold targets."""
    return tuple(str(name) for name in table.columns if is_target(str(name)))


def _require_column(column: pd.Series, name: str, again: str) -> None:
    plain = isinstance(column.dtype, np.dtype) or name in NULLABLE_COLUMNS
    if name not in TEXT_COLUMNS:
        if not plain or column.dtype.kind not in "biuf":
            refuse(name, "be a column of numbers", f"one of {column.dtype}", f"{again}.")
    elif not (name == "id" and plain and column.dtype.kind in "iu") and not all(isinstance(value, str) for value in column):
        refuse(name, "be a column of text" + (" or whole numbers" if name == "id" else ""), f"one of {column.dtype}", f"{again}.")


def _listed(values: object) -> str:
    text = ", ".join(map(str, values)) if isinstance(values, list) else str(values)
    return text if len(text) <= 200 else f"{text[:200]}…"

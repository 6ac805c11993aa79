"""Parquet: rows counted from the footer before a table is made."""

import io
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from noshadow.storage.numpy_files import MOST_EXPANSION, SPARE
from noshadow.storage.reasons import one_kind_of_error


def parquet_table(source: Path | bytes, *, rows: int | None = None) -> pd.DataFrame:
    """The table of a parquet file.

    Args:
        source: the file, or its bytes. rows: how many it must have, None where the caller does not
            know.

    Raises:
        ValueError: not a parquet file, another number of rows, or more than its bytes can honestly
            hold. OSError: as the system gives it.
    """
    with one_kind_of_error():
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        # Of the footer only this number is asked for: pyarrow aborts the process over others when
        # they are damaged.
        claimed = pq.read_metadata(_opened(source)).num_rows
        # Constant columns shrink without limit; ids do not, and so many rows of anything are no
        # record table.
        if not 0 <= claimed <= MOST_EXPANSION * size + SPARE:
            raise ValueError(f"it claims {claimed} rows in {size} bytes")
        if rows not in (None, claimed):
            raise ValueError(f"it claims {claimed} rows, not {rows}")
        table: pd.DataFrame = pd.read_parquet(_opened(source))
        if len(table) != claimed:
            raise ValueError(f"{len(table)} rows where it claims {claimed}")
        return table


def _opened(source: Path | bytes) -> Path | io.BytesIO:
    return io.BytesIO(source) if isinstance(source, bytes) else source

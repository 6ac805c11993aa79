"""One writer a format: each writes a described table to a file that is already private."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from noshadow.record_files.described import FIELDS, Described
from noshadow.record_files.harmless_text import harmless_cell

# Rows that are turned into text at a time.
BLOCK = 50_000
# Made once: `json.dumps` would make one for each of a million ids.
_json = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
_CSV = arrow_csv.WriteOptions(include_header=True, quoting_style="needed")


def write_csv(found: Described, path: Path) -> None:
    """Write rows with cells of text made harmless; what is missing stays empty."""
    table = found.table
    # The header is of the registry's own words, and a name that nobody registered is text.
    fields = [harmless_cell(str(name)) for name in table.columns]
    columns = [_arrow(_without_formulas(table[name])) for name in table.columns]
    arrow_csv.write_csv(pa.table(columns, names=fields), path, _CSV)


def write_meanings(found: Described, path: Path) -> None:
    """Write one row a column: the sidecar of a CSV file."""
    rows = {field: [harmless_cell(column[field]) for column in found.columns] for field in FIELDS}
    arrow_csv.write_csv(pa.table(rows), path, _CSV)


def write_parquet(found: Described, path: Path) -> None:
    """Write the table with the meaning of each column in the metadata of its field."""
    columns = [_arrow(found.table[name]) for name in found.table.columns]
    fields = [
        pa.field(str(name), column.type, metadata={key: told[key] for key in FIELDS if key != "name"})
        for name, column, told in zip(found.table.columns, columns, found.columns, strict=True)
    ]
    about = {"noshadow": json.dumps(found.about, allow_nan=False, sort_keys=True)}
    pq.write_table(pa.table(columns, schema=pa.schema(fields, metadata=about)), path)


def write_json(found: Described, path: Path) -> None:
    """Write strict JSON, one line a record; missing is null, infinite "inf" or "-inf"."""
    head = {**found.about, "columns": list(found.columns)}
    with path.open("wb") as file:
        file.write((_json(head)[:-1] + ', "rows": [').encode())
        for start in range(0, len(found.table), BLOCK):
            rows = _json_rows(found.table.iloc[start : start + BLOCK])
            file.write((",\n" if start else "\n").encode() + ",\n".join(rows.to_pylist()).encode())
        file.write(b"\n]}\n")


def _json_rows(block: pd.DataFrame) -> pa.Array:
    """Rows as objects, put together column by column: a million dictionaries would take long."""
    parts: list[Any] = []
    for place, name in enumerate(block.columns):
        parts += [("{" if place == 0 else ", ") + f"{_json(str(name))}: ", _json_values(block[name])]
    return compute.binary_join_element_wise(*parts, "}", "")


def _json_values(column: pd.Series) -> pa.Array:
    """Values as JSON spells them."""
    if column.dtype.kind not in "biuf":
        return pa.array([_json(str(value)) for value in column], type=pa.string())
    values = _arrow(column)
    texts = compute.cast(values, pa.string())
    if pa.types.is_floating(values.type):
        infinite = compute.binary_join_element_wise('"', texts, '"', "")
        texts = compute.if_else(compute.is_inf(values), infinite, texts)
    return compute.fill_null(texts, "null")


def _without_formulas(column: pd.Series) -> pd.Series:
    if column.dtype.kind in "biuf":
        return column
    return pd.Series([harmless_cell(str(value)) for value in column], dtype=object)


def _arrow(column: pd.Series) -> pa.Array:
    """The values as Arrow has them: NaN is missing, text is UTF-8."""
    if column.dtype.kind in "biuf":
        return pa.array(column.to_numpy(), from_pandas=True)
    return pa.array([str(value) for value in column], type=pa.string())


WRITERS: dict[str, Callable[[Described, Path], None]] = {"csv": write_csv, "parquet": write_parquet, "json": write_json}

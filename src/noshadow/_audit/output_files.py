"""Outputs that a caller hands in beside a model, from memory or from a file.

Files are `.npy`, `.npz`, `.csv` or `.parquet`. Nothing is unpickled.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from noshadow.checks import Array, InputError, as_array, numeric_array, refuse
from noshadow.signals import record_ids
from noshadow.storage.array_files import read_arrays, read_text
from noshadow.storage.numpy_files import mapped_npy
from noshadow.storage.parquet_files import parquet_table
from noshadow.storage.reasons import one_kind_of_error, reason_of

SUFFIXES = (".npy", ".npz", ".csv", ".parquet")
_IDS = ("id", "ids")
_LABELS = "Predicted labels say too little: ask cross_val_predict for 'predict_proba' or 'decision_function'."


@dataclass(frozen=True, eq=False)
class GivenOutputs:
    """Outputs (n, k) of records.

    Attributes:
        values: (n, k), finite. ids: (n,) of the rows, None where they are matched by position.
        given: what the caller gave, whose pandas index may name the records.
    """

    values: Array
    ids: Array | None
    given: object

    def in_order_of(self, ids: Array, owner: str, argument: str) -> Array:
        """The rows in the order of these record ids, (n, k).

        Ids are compared as text.

        Raises:
            InputError: another number of records, or a record that has no row.
        """
        if len(self.values) != len(ids):
            refuse(owner, argument, f"have one row for each of {len(ids)} training records", f"{len(self.values)}")
        if self.ids is None:
            return self.values
        wanted = [str(name) for name in ids.tolist()]
        places = pd.Index([str(name) for name in self.ids.tolist()]).get_indexer(wanted)
        if (places < 0).any():
            row = int((places < 0).argmax())
            got = f"no row of record '{wanted[row]}' (row {row})"
            refuse(owner, argument, "have the ids of the training records", got, "Outputs without ids are matched by position.")
        matched: Array = self.values[places]
        return matched


def given_outputs(value: object, owner: str, argument: str) -> GivenOutputs | None:
    """Outputs from an array (n,) or (n, k) or from the path of a file; None stays None.

    A `.npz` file holds one array and may hold ids; a table may have a column id, and its other
    columns are outputs in their order.

    Raises:
        InputError: the file or the array cannot be read, or does not hold finite numbers.
    """
    if value is None:
        return None
    held, ids = _read(Path(value), owner, argument) if isinstance(value, (str, Path)) else (value, None)
    array = np.asarray(held) if isinstance(held, (pd.Series, pd.DataFrame)) else as_array(held, owner, argument)
    if array.dtype.kind not in "biuf":
        refuse(owner, argument, "hold numbers, the outputs of models", f"dtype {array.dtype}", _LABELS)
    unknown = int((~np.isfinite(array)).sum())
    if unknown:
        got = f"{unknown} NaN or infinite values"
        refuse(owner, argument, "be known for every training record", got, "Folds that hold each record once give one output per record.")
    values = numeric_array(array, owner, argument, ndim=(1, 2)).astype(np.float64)
    values = values[:, None] if values.ndim == 1 else values
    names = None if ids is None else record_ids(ids, len(values), owner)
    return GivenOutputs(values, names, held)


def _read(path: Path, owner: str, argument: str) -> tuple[object, object]:
    if path.suffix not in SUFFIXES:
        refuse(owner, argument, f"end in {', '.join(SUFFIXES)}", f"'{path}'")
    if not path.is_file():
        refuse(owner, argument, "be a file that exists", f"'{path}'")
    if path.suffix == ".npz":
        return _archive(path, owner, argument)
    try:
        return (mapped_npy(path), None) if path.suffix == ".npy" else _columns(_table(path))
    except (ValueError, OSError) as error:
        raise InputError(f"{owner}: {argument} must be a readable {path.suffix} file; got '{path}' ({reason_of(error)}).") from error


def _archive(path: Path, owner: str, argument: str) -> tuple[Array, Array | None]:
    arrays = read_arrays(path, owner)
    ids = next((arrays[name] for name in _IDS if name in arrays), None)
    others = [name for name in arrays if name not in _IDS]
    if len(others) != 1:
        got = f"'{path}' with {', '.join(sorted(arrays)) or 'nothing'}"
        refuse(owner, argument, "hold one array of outputs and, if you like, ids", got, "Save it with np.savez(path, outputs=…, ids=…).")
    return arrays[others[0]], None if ids is None else read_text(ids, owner, "ids")


def _table(path: Path) -> pd.DataFrame:
    if path.suffix == ".parquet":
        return parquet_table(path)
    with one_kind_of_error():
        # Ids as text: 007 is another record than 7.
        table = pd.read_csv(path, dtype=dict.fromkeys(_IDS, str))
    if not isinstance(table.index, pd.RangeIndex):
        raise ValueError("its rows have more fields than its first line has names")
    return table


def _columns(table: pd.DataFrame) -> tuple[Array, list[str] | None]:
    """Outputs of a table, and its ids where it has a column of that name."""
    name = next((name for name in _IDS if name in table), None)
    outputs = table if name is None else table.drop(columns=name)
    for column in outputs:
        if not pd.api.types.is_numeric_dtype(outputs[column]):
            raise ValueError(f"its column '{column}' holds no numbers")
    return outputs.to_numpy(), None if name is None else [str(entry) for entry in table[name]]

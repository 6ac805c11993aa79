"""Named arrays in one `.npz` or `.safetensors` file, written whole and read without unpickling."""

import os
from collections.abc import Mapping
from pathlib import Path

from noshadow.checks import Array, InputError, refuse, said
from noshadow.storage.numpy_files import npz_arrays, write_npz
from noshadow.storage.reasons import reason_of
from noshadow.storage.safetensors_files import safetensors_arrays, write_safetensors
from noshadow.storage.text_ids import is_rows_of_text, rows_as_text, text_as_rows

SUFFIXES = (".npz", ".safetensors")


def require_suffix(path: str | Path, hint: str = "") -> str:
    """The suffix of a file of named arrays; any other is refused."""
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        refuse("path", f"end in {' or '.join(SUFFIXES)}", f"'{path}'", hint)
    return suffix


def write_arrays(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Write named arrays in the format of the suffix, whole or not at all.

    Only the owner can read the file. Text goes to safetensors as rows of bytes, see `text_as_rows`.

    Raises:
        InputError: another suffix, a place that cannot be written, or arrays that safetensors has
            no type for.
    """
    suffix = require_suffix(path)
    try:
        if suffix == ".npz":
            write_npz(path, arrays)
        else:
            write_safetensors(path, {name: text_as_rows(array) if array.dtype.kind == "U" else array for name, array in arrays.items()})
    except ValueError as error:
        raise InputError(said(f"arrays must hold numbers or text that the file can hold; got {error}. Save a .npz file.")) from error
    except OSError as error:
        raise InputError(said(f"path must be writable; got '{path}' ({error}). Choose another place.")) from error


def read_arrays(path: str | Path) -> dict[str, Array]:
    """Named arrays of a `.npz` or `.safetensors` file, never unpickled.

    Raises:
        InputError: it cannot be read, is not such a file, or claims more than it holds.
    """
    return _read_npz(path) if Path(path).suffix == ".npz" else _read_safetensors(path)


def read_text(array: Array, name: str) -> Array:
    """The text of an array that `write_arrays` wrote as rows of bytes; any other array as it is.

    Raises:
        InputError: rows of bytes that are not UTF-8.
    """
    try:
        return rows_as_text(array) if is_rows_of_text(array) else array
    except ValueError as error:
        raise InputError(said(f"{name} must be UTF-8 text in its rows of bytes; got {error}.")) from error


def _read_npz(path: str | Path) -> dict[str, Array]:
    try:
        with Path(path).open("rb") as file:
            return npz_arrays(file, os.fstat(file.fileno()).st_size)
    except (ValueError, OSError) as error:
        raise InputError(
            said(
                f"file must be a .npz archive of plain arrays; got '{path}' ({reason_of(error)}). "
                "Pickled objects are never loaded: save numeric arrays."
            )
        ) from error


def _read_safetensors(path: str | Path) -> dict[str, Array]:
    try:
        return safetensors_arrays(Path(path))
    except (ValueError, OSError) as error:
        raise InputError(said(f"file must be a safetensors file NumPy can read; got '{path}' ({reason_of(error)}).")) from error

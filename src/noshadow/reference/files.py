"""Arrays as safetensors files, and such files read without being loaded."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noshadow.checks import Array
from noshadow.private_files import write_private

UNFINISHED = re.compile(r"^\..+\.partial-\d+$")
LARGEST_HEADER = 100_000_000
DTYPES = {
    "BOOL": "bool",
    "U8": "<u1",
    "I8": "<i1",
    "I16": "<i2",
    "U16": "<u2",
    "I32": "<i4",
    "U32": "<u4",
    "I64": "<i8",
    "U64": "<u8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}
CODES = {np.dtype(name): code for code, name in DTYPES.items()}


@dataclass(frozen=True)
class Layout:
    """Where the arrays of a safetensors file are: name → (dtype, shape, first byte), and its metadata."""

    path: Path
    metadata: Mapping[str, str]
    places: Mapping[str, tuple[str, tuple[int, ...], int]]

    def array(self, name: str) -> Array:
        """One array, memory-mapped and read-only."""
        dtype, shape, offset = self.places[name]
        return np.memmap(self.path, dtype=dtype, mode="r", offset=offset, shape=shape)


def write_arrays(path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write arrays as one safetensors file, as `write_private` does; equal arrays and metadata give equal bytes.

    The library's own writer puts metadata in an order that differs from run to run.
    """
    placed = sorted(((name, np.ascontiguousarray(array)) for name, array in arrays.items()), key=lambda item: (-item[1].itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name, array in placed:
        header[name] = {"dtype": CODES[array.dtype.newbyteorder("<")], "shape": array.shape, "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # arrays start at a multiple of their item size
    contents = (array.astype(array.dtype.newbyteorder("<"), copy=False).data.cast("B") for _, array in placed if array.size)
    write_private(path, chained(len(text).to_bytes(8, "little") + text, contents))


def layout(path: Path) -> Layout:
    """The layout of a safetensors file from its header; no array is read.

    Raises:
        ValueError: it is not a whole safetensors file of number formats NumPy has.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 0 < size <= LARGEST_HEADER:
            raise ValueError("no safetensors header")
        header: Any = json.loads(file.read(size))
        length = os.fstat(file.fileno()).st_size
    try:
        places, end = _places(header, 8 + size)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a header that is not of safetensors ({error!r})") from error
    if end != length:
        raise ValueError(f"{length} bytes where its header says {end}")
    return Layout(path, header.get("__metadata__", {}), places)


def _places(header: Any, origin: int) -> tuple[dict[str, tuple[str, tuple[int, ...], int]], int]:
    """Where each array is, and where the last one ends."""
    places, end = {}, origin
    for name, entry in header.items():
        if name != "__metadata__":
            start, stop = entry["data_offsets"]
            places[name] = (DTYPES[entry["dtype"]], tuple(entry["shape"]), origin + start)
            end = max(end, origin + stop)
    return places, end


def file_sha256(path: Path) -> str:
    """Hex digest of a file, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """First bytes of a .npy file whose rows are then written one after the other."""
    description = f"{{'descr': {np.lib.format.dtype_to_descr(dtype)!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    # The format pads the header so that the data start at a multiple of 64 bytes, after 10 bytes of magic and length.
    padded = description.ljust(-(-(len(description) + 11) // 64) * 64 - 11) + "\n"
    return np.lib.format.magic(1, 0) + len(padded).to_bytes(2, "little") + padded.encode("latin1")


def chained(head: bytes, rows: Iterable[memoryview]) -> Iterator[bytes | memoryview]:
    """A header and the rows after it."""
    yield head
    yield from rows

"""safetensors read by their header: where each array is, checked before it is mapped or read."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from noshadow.checks import Array
from noshadow.storage.json_text import parsed_json
from noshadow.storage.numpy_files import require_held
from noshadow.storage.private_files import write_private

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
_ENTRY = {"dtype", "shape", "data_offsets"}
Places = dict[str, tuple[str, tuple[int, ...], int]]


@dataclass(frozen=True)
class Layout:
    """Where the arrays of a safetensors file are, by its header.

    Attributes:
        path: the file. metadata: its text.
        places: name → (dtype, shape, first byte).
        state: size and time of the file's last change, in nanoseconds, when the header was read.
    """

    path: Path
    metadata: Mapping[str, str]
    places: Mapping[str, tuple[str, tuple[int, ...], int]]
    state: tuple[int, int]

    @property
    def is_current(self) -> bool:
        """Whether the file is still the one whose header was read, by size and time."""
        try:
            return self.state == state_of(self.path.stat())
        except OSError:
            return False

    def array(self, name: str) -> Array:
        """One array, memory-mapped and read-only."""
        dtype, shape, offset = self.places[name]
        return np.memmap(self.path, dtype=dtype, mode="r", offset=offset, shape=shape)


def state_of(there: os.stat_result) -> tuple[int, int]:
    """Size of a file and time of its last change: what tells one state of it from another."""
    return there.st_size, there.st_mtime_ns


def layout(path: Path) -> Layout:
    """The layout of a safetensors file from its header; no array is read.

    Raises:
        ValueError: it is not a whole safetensors file of number formats NumPy has.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        there = os.fstat(file.fileno())
        length = there.st_size
        size = int.from_bytes(file.read(8), "little")
        if not 0 < size <= min(LARGEST_HEADER, length - 8):
            raise ValueError("no safetensors header")
        header = parsed_json(file.read(size))
    if not isinstance(header, dict):
        raise ValueError("a header that is not of safetensors")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("metadata other than text")
    places, end = _places(header, 8 + size, length)
    if end != length:
        raise ValueError(f"{length} bytes where its header says {end}")
    return Layout(path, metadata, places, state_of(there))


def write_safetensors(path: str | Path, arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays as one safetensors file, as `write_private` does.

    Equal arrays and metadata give equal bytes.

    The library's own writer puts metadata in an order that differs from run to run.

    Raises:
        ValueError: an array of a type that safetensors does not have.
        OSError: as the system gives it; nothing is left behind.
    """
    placed = sorted(((name, np.ascontiguousarray(array)) for name, array in arrays.items()), key=lambda item: (-item[1].itemsize, item[0]))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name, array in placed:
        code = CODES.get(array.dtype.newbyteorder("<"))
        if code is None:
            raise ValueError(f"{name!r} of type {array.dtype}, which safetensors does not have")
        header[name] = {"dtype": code, "shape": array.shape, "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # arrays start at a multiple of their item size
    contents = (array.astype(array.dtype.newbyteorder("<"), copy=False).data.cast("B") for _, array in placed if array.size)
    write_private(path, chain([len(text).to_bytes(8, "little") + text], contents))


def safetensors_arrays(path: Path) -> dict[str, Array]:
    """All arrays of a safetensors file, in memory; raises as `layout`."""
    there = layout(path)
    return {name: _read(path, place) for name, place in there.places.items()}


def _read(path: Path, place: tuple[str, tuple[int, ...], int]) -> Array:
    dtype, shape, offset = place
    array = np.fromfile(path, dtype="<u1" if dtype == "bool" else dtype, count=math.prod(shape), offset=offset).reshape(shape)
    # Any byte but 0 is true: NumPy's own bools hold 0 and 1 only.
    return array != 0 if dtype == "bool" else array


def _places(header: Mapping[str, Any], origin: int, length: int) -> tuple[Places, int]:
    """Where each array is, and where the last one ends."""
    places, end = {}, origin
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != _ENTRY:
            raise ValueError(f"{name!r} without exactly dtype, shape and data_offsets")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise ValueError(f"{name!r} of type {dtype!r}, which NumPy does not have: save it as float32")
        if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
            raise ValueError(f"{name!r} with shape {str(shape)[:60]} at {str(offsets)[:60]}")
        start, stop = offsets
        if not start <= stop <= length - origin:
            raise ValueError(f"{name!r} at bytes {start} to {stop} where {length - origin} are there")
        itemsize = np.dtype(DTYPES[dtype]).itemsize
        require_held(shape, itemsize, stop - start, repr(name))
        if math.prod(shape) * itemsize < stop - start:
            raise ValueError(f"{name!r} of shape {tuple(shape)} in {stop - start} bytes")
        places[name] = (DTYPES[dtype], tuple(shape), origin + start)
        end = max(end, origin + stop)
    return places, end


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)

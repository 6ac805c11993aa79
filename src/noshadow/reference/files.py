"""Arrays as safetensors files, the same bytes in every run, and their digests."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noshadow.checks import Array
from noshadow.storage.private_files import write_private
from noshadow.storage.safetensors_files import DTYPES

UNFINISHED = re.compile(r"^\..+\.partial-\d+$")
CODES = {np.dtype(name): code for code, name in DTYPES.items()}


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

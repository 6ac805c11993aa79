"""SHA-256 in hex of bytes, files, arrays and record ids.

There is one way for each, so that equal things have equal digests wherever they are stamped.
"""

import hashlib
from pathlib import Path
from typing import Protocol

import numpy as np

from noshadow.checks import Array

BLOCK = 1 << 24


class Digest(Protocol):
    """What `hashlib` gives: bytes go in one after the other."""

    def update(self, data: bytes, /) -> None:
        """Add bytes."""


def sha256(*chunks: bytes) -> str:
    """Digest of these bytes, one after the other."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Digest of a file, read in blocks; raises OSError as the system gives it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def arrays_sha256(*arrays: Array) -> str:
    """Digest of arrays one after the other: type, shape and values in row order."""
    digest = hashlib.sha256()
    for array in arrays:
        add_array(digest, array)
    return digest.hexdigest()


def ids_sha256(ids: Array) -> str:
    """Digest of record ids in their order: their text, one per line."""
    return sha256("\n".join(map(str, ids.tolist())).encode())


def add_array(digest: Digest, array: Array) -> None:
    """Add an array's type, shape and values in row order to a digest.

    No more than 16 MB, or one row, is copied at a time.
    """
    digest.update(array_form(array))
    rows = array if array.ndim else array[None]
    block = max(BLOCK // max(rows[:1].nbytes, 1), 1)
    for start in range(0, len(rows), block):
        digest.update(np.ascontiguousarray(rows[start : start + block]).tobytes())


def array_form(array: Array) -> bytes:
    """Type and shape of an array, as digests count them."""
    return f"{array.dtype.str}{array.shape}".encode()

"""Read and write `.npy` and `.npz` files.

The size a header claims is held against the bytes that are there before anything is allocated.
"""

import math
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from noshadow.checks import Array
from noshadow.storage.private_files import write_private, written_whole
from noshadow.storage.reasons import one_kind_of_error

# Deflate shrinks nothing further than 1032 : 1, so that an honest member is never larger than this
# many times its bytes in the file.
MOST_EXPANSION = 1032
SPARE = 4096
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 0x1


def require_held(shape: Sequence[int], itemsize: int, held: int, name: str) -> None:
    """Refuse an array of more bytes than the `held` ones there are.

    An empty array with more rows than that is refused, too.

    Raises:
        ValueError: with the claim and the bytes.
    """
    claimed = math.prod(shape) * itemsize
    if claimed > held or (claimed == 0 and max(shape, default=0) > held + SPARE):
        raise ValueError(f"{name} claims shape {tuple(shape)} of {itemsize} bytes each where {held} bytes are there")


def npz_arrays(source: IO[bytes], size: int) -> dict[str, Array]:
    """Named arrays of an archive of `size` bytes, never unpickled.

    Raises:
        ValueError: not such an archive, encrypted, or with a member that claims more than it holds.
            OSError: as the system gives it.
    """
    with one_kind_of_error():
        if source.read(6) == b"\x93NUMPY":
            raise ValueError("one bare array, not an archive of named ones")
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
            require_honest(members, size)
            return {info.filename.removesuffix(".npy"): _member(archive, info) for info in members}


def mapped_npy(path: Path) -> Array:
    """The array of a `.npy` file, memory-mapped and read-only.

    Raises:
        ValueError: not such a file, or one that claims more than it holds. OSError: as the system
            gives it.
    """
    with one_kind_of_error():
        with path.open("rb") as file:
            if file.read(4) == b"PK\x03\x04":
                raise ValueError("an archive of several arrays")
            file.seek(0)
            _header(file, os.fstat(file.fileno()).st_size, "it")
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array


def write_npz(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Write named arrays as one `.npz` file, as `written_whole` does.

    It raises OSError as the system gives it.
    """
    with written_whole(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def write_npy(path: str | Path, dtype: np.dtype[Any], shape: tuple[int, ...], rows: Iterable[Array]) -> None:
    """Write one array as a `.npy` file row by row, as `write_private` does.

    The array is never held in memory.

    Args:
        path: where to. dtype, shape: of the whole. rows: its rows in their order, each of `dtype`.

    Raises:
        OSError: as the system gives it; nothing is left behind.
    """
    contents = (np.ascontiguousarray(row).data.cast("B") for row in rows)
    write_private(path, chain([npy_header(dtype, shape)], contents))


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """First bytes of a `.npy` file whose rows are then written one after the other."""
    description = f"{{'descr': {np.lib.format.dtype_to_descr(dtype)!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    # The format pads the header so that the data start at a multiple of 64 bytes, after 10 bytes of
    # magic and length.
    padded = description.ljust(-(-(len(description) + 11) // 64) * 64 - 11) + "\n"
    return np.lib.format.magic(1, 0) + len(padded).to_bytes(2, "little") + padded.encode("latin1")


def require_honest(members: Sequence[zipfile.ZipInfo], size: int) -> None:
    """Refuse an archive of `size` bytes whose members claim more than they can honestly hold.

    Raises:
        ValueError: that, a name that stands twice, an encrypted member, or an unknown compression.
    """
    names = [info.filename.removesuffix(".npy") for info in members]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise ValueError(f"the name {twice!r} stands twice")
    if sum(info.compress_size for info in members) > size:
        raise ValueError(f"members of more bytes than the {size} of the file")
    for info in members:
        name = f"member {info.filename!r}"
        if info.flag_bits & ENCRYPTED:
            raise ValueError(f"{name} is encrypted")
        if info.compress_type not in COMPRESSIONS:
            raise ValueError(f"{name} is compressed in another way than by deflate")
        if info.file_size > MOST_EXPANSION * info.compress_size + SPARE:
            raise ValueError(f"{name} claims {info.file_size} bytes from {info.compress_size}")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    with archive.open(info) as member:
        _header(member, info.file_size, f"member {info.filename!r}")
        member.seek(0)
        array: Array = np.lib.format.read_array(member, allow_pickle=False)
    return array


def _header(file: IO[bytes], size: int, name: str) -> None:
    """Read past a header that is plain and claims no more than its file of `size` bytes holds."""
    try:
        version = np.lib.format.read_magic(file)
    except ValueError as error:
        raise ValueError(f"{name} is no array") from error
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{name} is in version {version} of the format, which plain arrays do not need")
    read: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError(f"{name} holds pickled objects")
    if dtype.itemsize == 0 or not all(isinstance(side, int) and side >= 0 for side in shape):
        raise ValueError(f"{name} claims shape {shape} of type {dtype}")
    require_held(shape, dtype.itemsize, size - file.tell(), name)

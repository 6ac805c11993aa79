"""Files of serialised Python objects, known by their first bytes whatever they are called.

Nothing is unpickled: the names of opcodes are looked at, and of archives the names of members.
"""

import pickletools
import zipfile
from pathlib import Path

SUFFIXES = (".pkl", ".joblib", ".pt", ".pth", ".ckpt", ".sav", ".cloudpickle")
MARKS = tuple(bytes([0x80, version]) for version in range(2, 6))
# How joblib's compressions begin: gzip, bz2, xz, lzma, lz4 and zlib.
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x5d\x00\x00", b"\x04\x22\x4d\x18", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
LOOKED_AT = 1 << 16


def holds_objects(path: Path) -> bool:
    """Whether a file is one of serialised objects, as joblib and torch.save write them, too.

    It raises OSError as the system gives it.
    """
    with path.open("rb") as file:
        begins = file.read(LOOKED_AT)
    # The size of a header stands first in safetensors, and may look like anything.
    if begins[8:9] == b"{" and int.from_bytes(begins[:8], "little") <= path.stat().st_size:
        return False
    if begins.startswith((*MARKS, *COMPRESSED)):
        return True
    return _is_torch_archive(path) if begins.startswith(b"PK") else _is_unmarked(begins)


def _is_torch_archive(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def _is_unmarked(begins: bytes) -> bool:
    """Whether bytes are a short file of protocol 0 or 1, which has no mark and ends in STOP."""
    if not begins.endswith(b"."):
        return False
    try:
        return [operation.name for operation, *_ in pickletools.genops(begins)][-1] == "STOP"
    except (ValueError, IndexError, EOFError):
        return False

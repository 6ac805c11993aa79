"""Write files and folders that only their owner can read, whole or not at all.

A link is followed and never replaced.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
# Names of files that a killed run left half-written.
UNFINISHED = re.compile(r"^\..+\.partial-\d+$")


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yield an empty file beside `path`, which takes the place of `path` when the block ends.

    No torn file stays when the process is killed anywhere.

    Only the owner can read it, whatever the umask. Where `path` is a link, the file that it points
    to is replaced and the link stays.

    Raises:
        OSError: as the system gives it; nothing is left behind.
    """
    target = followed(path)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        # of a killed process with our number: never written through, it may be a link
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
        partial.chmod(FILE_MODE)
        yield partial
        partial.chmod(FILE_MODE)  # what a library wrote may have been a new file
        _pushed_to_disk(partial)
        partial.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_private(path: str | Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write bytes to a file as `written_whole` does."""
    with written_whole(path) as partial, partial.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)


def make_private_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, for the owner alone.

    The umask does not matter. A folder that is there stays as it is.

    Raises:
        OSError: as the system gives it.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        folder.chmod(FOLDER_MODE)


def followed(path: str | Path) -> Path:
    """Return where a link leads, and anything else as it is.

    The way may go through any number of links, and to a place that need not exist.

    Raises:
        OSError: links that lead in a circle.
    """
    given = Path(path)
    if not given.is_symlink():
        return given
    with contextlib.suppress(FileNotFoundError):
        given.stat()  # fails in a circle, where realpath would give the link itself
    return Path(os.path.realpath(given))


def _pushed_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())

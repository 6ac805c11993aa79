"""Folders that are whole or not there: filled under another name, then moved into place."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from noshadow.storage.private_files import FOLDER_MODE, make_private_folder


@contextmanager
def folder_written_whole(path: Path, *, replace: bool) -> Iterator[Path]:
    """An empty folder beside `path` to fill, which takes the place of `path` when the block ends.

    Only the owner can read it, whatever the umask. A run that is killed leaves at most a folder
    `.NAME.partial-…` beside `path`, never half of one. Killed between the two renames of a
    replacement, the old folder is whole under `.NAME.retired-…`.

    Args:
        path: where to; not a link (see `followed`).
        replace: whether a folder with something in it may be replaced; an empty one always is.

    Raises:
        OSError: as the system gives it, also where `path` is not empty and may not be replaced.
            Nothing is left behind.
    """
    make_private_folder(path.parent)
    partial = _beside(path, "partial")
    try:
        yield partial
        _move_into_place(partial, path, replace=replace)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def temporary_folder() -> Path:
    """A new folder of this run's own among the system's temporary files, for its owner alone.

    Whoever asks for it removes it.
    """
    return Path(tempfile.mkdtemp(prefix="noshadow-"))


def _beside(path: Path, kind: str) -> Path:
    """A new folder beside the path, for its owner whatever the umask."""
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.{kind}-", dir=path.parent))
    folder.chmod(FOLDER_MODE)
    return folder


def _move_into_place(partial: Path, path: Path, *, replace: bool) -> None:
    if not path.exists():
        partial.rename(path)
        return
    if not replace:
        path.rmdir()
        partial.rename(path)
        return
    retired = _beside(path, "retired")
    try:
        path.rename(retired / path.name)
        partial.rename(path)
    finally:
        if not path.exists():
            (retired / path.name).rename(path)
        shutil.rmtree(retired, ignore_errors=True)

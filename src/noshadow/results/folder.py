"""Write and read folders that are either whole or not there.

A folder is written under a temporary name, and checked by digest when read.
"""

import errno
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noshadow.checks import InputError, called, refuse, said
from noshadow.storage.digests import file_sha256, sha256
from noshadow.storage.folders import folder_written_whole
from noshadow.storage.json_text import parsed_json, strict_json
from noshadow.storage.private_files import followed, write_private


@dataclass(frozen=True)
class FolderKind:
    """What a folder of ours holds.

    Attributes:
        noun: what its manifest records, with its article. manifest: name of the JSON file with the
            digests of the others.
        files: names of the other files, without the page. page: name of the HTML file, written
            after the others.
        again: how to get a whole folder back.
        made_of_it: further files that are made of these on request, and may be there.
    """

    noun: str
    manifest: str
    files: tuple[str, ...]
    page: str
    again: str
    made_of_it: tuple[str, ...] = ()

    @property
    def own_names(self) -> frozenset[str]:
        """Names of all files that such a folder may hold."""
        return frozenset({self.manifest, self.page, *self.files, *self.made_of_it})

    def is_unfinished(self, name: str) -> bool:
        """Whether a killed run that wrote a page, or what is beside it, has left a file behind."""
        return any(name.startswith(f".{page}.partial-") for page in (self.page, *self.made_of_it))


ANNEX = ("annex.html", "annex.json")
AUDIT = FolderKind("an audit", "audit.json", ("records.parquet", "losses.npz"), "report.html", "Run the audit again", ANNEX)


def require_writable_folder(folder: str | Path, *, overwrite: bool, kind: FolderKind = AUDIT) -> Path:
    """Return the path of a folder that may be created or, with `overwrite`, replaced.

    Where the path is a link, the result is where it leads.

    An existing folder is only ever replaced when it is empty or holds one of its kind and nothing
    else, no links among it.
    """
    path = Path(folder)
    path = path if path.name not in ("", "..") else path.resolve()
    try:
        path = followed(path)
        if path.exists() and not path.is_dir():
            refuse("folder", "be a folder", f"the file '{path}'")
        held = {entry.name: entry.is_symlink() for entry in path.iterdir()} if path.is_dir() else {}
        above = next(parent for parent in (*path.absolute().parents, path) if parent.exists())
    except OSError as error:
        raise _unwritable(path, error) from error
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        refuse("folder", "be writable", f"'{path}' under '{above}'", "Choose another place.")
    foreign = sorted(name for name in held.keys() - kind.own_names if not kind.is_unfinished(name))
    foreign += sorted(f"the link {name}" for name, is_link in held.items() if is_link and name in kind.own_names)
    if foreign or (held and kind.manifest not in held):
        got = f"'{path}' with {', '.join(foreign or sorted(held))}"
        refuse("folder", f"not exist yet, or hold {kind.noun} and nothing else", got)
    if held and not overwrite:
        # methods are called, commands are typed
        how = "overwrite=True" if "." in called() else "--force"
        refuse("folder", "not exist yet", f"'{path}'", f"Choose another name, or overwrite it ({how}).")
    return path


def write_folder(
    folder: str | Path, manifest: Mapping[str, Any], files: Mapping[str, bytes], *, overwrite: bool, kind: FolderKind = AUDIT
) -> Path:
    """Write files and then the manifest with their digests, and move the whole into place.

    Only their owner can read them.

    Where `folder` is a link, the folder it points to is written and the link stays. A run that is
    killed never leaves half an audit, see `folder_written_whole`.
    """
    path = require_writable_folder(folder, overwrite=overwrite, kind=kind)
    stamped = dict(manifest) | {"files": {name: sha256(content) for name, content in files.items()}}
    stamped["files"][kind.manifest] = _own_digest(stamped)
    try:
        with folder_written_whole(path, replace=True) as partial:
            for name, content in (*files.items(), (kind.manifest, strict_json(stamped))):
                write_private(partial / name, [content])
    except OSError as error:
        raise _unwritable(path, error) from error
    asked = Path(folder)
    return asked if asked.is_symlink() else path


def read_folder(
    folder: str | Path, *, form: int, names: Iterable[str], kind: FolderKind = AUDIT
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read the manifest, of format `form`, and the named files it vouches for.

    Anything missing or altered is refused.
    """
    path = Path(folder)
    try:
        manifest = _read_manifest(path, kind)
        contents = {name: (path / name).read_bytes() if (path / name).is_file() else None for name in names}
    except OSError as error:
        raise InputError(said(f"folder must be readable; got '{path}' ({error}).")) from error
    if type(manifest.get("format")) is not int or manifest["format"] != form:
        refuse("folder", f"be of format {form}", manifest.get("format"), f"{kind.again} with this version{_newer(manifest, form)}.")
    expected = manifest["files"]
    files = {name: content for name, content in contents.items() if content is not None and sha256(content) == expected.get(name)}
    altered = [name for name in contents if name not in files]
    altered += [kind.manifest] * (_own_digest(manifest) != expected.get(kind.manifest))
    if altered:
        refuse("folder", "be as it was written", f"'{path}' with {', '.join(altered)} missing or altered", f"{kind.again}.")
    return manifest, files


def files_of(folder: str | Path, manifest: Mapping[str, Any], kind: FolderKind = AUDIT) -> dict[str, str]:
    """Name → SHA-256 of the files that hold what the manifest is of, as they are on disk.

    Args:
        folder: where it was saved. manifest: of what is in memory, whose arguments, times and
            columns must be those of the folder.

    Raises:
        InputError: the folder holds something else, or cannot be read.
    """
    path = Path(folder)
    plain = json.loads(strict_json(manifest))
    try:
        held = _read_manifest(path, kind)
        found = {name: file_sha256(path / name) for name in (kind.manifest, *kind.files)}
    except OSError as error:
        raise InputError(said(f"folder must be readable; got '{path}' ({error}).")) from error
    differing = [name for name in ("provenance", "records", "timings") if held.get(name) != plain[name]]
    if differing:
        refuse("folder", f"hold {kind.noun} that is the given one", f"'{path}' with another {' and '.join(differing)}")
    return found


def write_file(path: str | Path, content: bytes) -> Path:
    """Replace one file in one step; only its owner can read it.

    Where the path is a link, the file it points to is replaced.
    """
    target = Path(path)
    if target.is_dir():
        refuse("path", "be a file", f"the folder '{target}'")
    try:
        write_private(target, [content])
    except OSError as error:
        raise InputError(said(f"path must be writable; got '{target}' ({error}). Choose another place.")) from error
    return target


def _read_manifest(path: Path, kind: FolderKind) -> dict[str, Any]:
    name = kind.manifest
    if not (path / name).is_file():
        refuse("folder", f"hold {kind.noun} ({name})", f"'{path}'")
    try:
        manifest = parsed_json((path / name).read_bytes())
    except ValueError as error:
        raise InputError(said(f"{name} must be JSON; got '{path}' ({error}). {kind.again}.")) from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        refuse(name, "list the files beside it", f"'{path}'", f"{kind.again}.")
    return manifest


def _newer(manifest: Mapping[str, Any], form: int) -> str:
    """Say what else helps when a newer version wrote the folder."""
    number = manifest.get("format")
    return ", or update noshadow: a newer version wrote it" if isinstance(number, int) and number > form else ""


def _own_digest(manifest: Mapping[str, Any]) -> str:
    """Compute the digest of the manifest's findings.

    `timings` differ between equal runs and `files` holds the digest itself, so both are left out.
    """
    # Through JSON once, so that what is hashed when writing is what is hashed when reading.
    plain = json.loads(strict_json(manifest))
    return sha256(strict_json({name: value for name, value in plain.items() if name not in ("files", "timings")}))


def _unwritable(path: Path, error: OSError) -> InputError:
    reason = "the disk is full" if error.errno == errno.ENOSPC else str(error)
    return InputError(said(f"folder must be writable; got '{path}' ({reason}). Choose another place."))

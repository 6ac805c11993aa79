"""The folder of an experiment: created in one step, opened again, refused when it is another's."""

import io
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noshadow.checks import Array, refuse
from noshadow.private_files import followed, make_private_folder, write_private
from noshadow.reference.files import UNFINISHED, Layout, chained, file_sha256, layout, npy_header, write_arrays
from noshadow.reference.manifest import plan_digest, read_manifest, require_same_plan
from noshadow.reference.plan import Plan
from noshadow.results.folder import strict_json

PLAN, MEMBERSHIP, RECORDS, TARGET = "plan.json", "membership.npy", "records.npz", "target.safetensors"
OWN_NAMES = frozenset({PLAN, MEMBERSHIP, RECORDS, TARGET, "models", "failures", "stacked"})
INSIDE = {
    "models": re.compile(r"\d{5,}\.safetensors"),
    "failures": re.compile(r"\d{5,}\.txt"),
    "stacked": re.compile(r"\w+-[0-9a-f]{16}\.npy"),
}


def create_folder(
    path: Path, manifest: dict[str, Any], drawn: Plan, records: Mapping[str, Array], target: tuple[dict[str, Array], str] | None
) -> dict[str, Any]:
    """Write plan, membership, records and the target's arrays and task in one step; returns the manifest with their digests.

    Only the owner can read them. Where `path` is a link, the folder it points to is made and the link stays.

    Raises:
        OSError: as the system gives it; nothing is left behind.
    """
    path = followed(path)
    make_private_folder(path.parent)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for name in ("", *INSIDE):
            make_private_folder(partial / name)
        rows = (np.ascontiguousarray(row).data for row in drawn.membership)
        write_private(partial / MEMBERSHIP, chained(npy_header(np.dtype(bool), drawn.membership.shape), rows))
        buffer = io.BytesIO()
        np.savez(buffer, seeds=drawn.seeds, **records)  # type: ignore[arg-type]
        write_private(partial / RECORDS, [buffer.getvalue()])
        written = {"membership": file_sha256(partial / MEMBERSHIP), "records": file_sha256(partial / RECORDS)}
        content = strict_json(manifest | {"hashes": manifest["hashes"] | written})
        stamped = read_manifest(content, path, "train_references")
        if target is not None:
            write_arrays(partial / TARGET, target[0], {"plan": plan_digest(stamped), "task": target[1], "model": "target"})
        write_private(partial / PLAN, [content])
        if path.is_dir():
            path.rmdir()
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return stamped


def require_own_folder(path: Path, owner: str) -> bool:
    """Whether the folder already holds an experiment; anything else in it is refused."""
    if path.exists() and not path.is_dir():
        refuse(owner, "folder", "be a folder", f"the file '{path}'")
    held = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    foreign = [name for name in held if name not in OWN_NAMES and not UNFINISHED.match(name)]
    for name, pattern in INSIDE.items():
        inner = sorted(entry.name for entry in (path / name).iterdir()) if (path / name).is_dir() else []
        foreign += [f"{name}/{entry}" for entry in inner if not pattern.fullmatch(entry) and not UNFINISHED.match(entry)]
    if foreign or (held and PLAN not in held):
        listed = ", ".join((foreign or held)[:8])
        refuse(owner, "folder", "not exist yet, or hold reference models and nothing else", f"'{path}' with {listed}", "Choose another.")
    return bool(held)


def opened_manifest(path: Path, owner: str) -> dict[str, Any]:
    """The plan of an existing experiment."""
    if not (path / PLAN).is_file():
        refuse(owner, "folder", f"hold reference models ({PLAN})", f"'{path}'")
    return read_manifest((path / PLAN).read_bytes(), path, owner)


def resumed_manifest(path: Path, here: Mapping[str, Any], owner: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The stored plan, which must be the one asked for now, and notes on what changed beside it."""
    there = opened_manifest(path, owner)
    return there, require_same_plan(there, here, owner)


def stored_plan(path: Path, manifest: Mapping[str, Any], owner: str) -> tuple[Plan, dict[str, Array]]:
    """Membership (memory-mapped) with the seeds, and ids, targets, member; altered files are refused."""
    for name, file in (("membership", MEMBERSHIP), ("records", RECORDS)):
        if not (path / file).is_file() or file_sha256(path / file) != manifest["hashes"][name]:
            refuse(owner, "folder", "be as it was written", f"'{path}' with {file} missing or altered", "Train again in another folder.")
    membership = np.load(path / MEMBERSHIP, mmap_mode="r", allow_pickle=False)
    with (path / RECORDS).open("rb") as opened, np.load(opened, allow_pickle=False) as archive:
        records = {name: archive[name] for name in archive.files}
    arguments = manifest["plan"]
    return Plan(membership, records.pop("seeds"), arguments["fraction"], arguments["seed"]), records


def model_path(folder: Path, number: int) -> Path:
    """File of one model."""
    return folder / "models" / f"{number:05d}.safetensors"


def whole_models(folder: Path, manifest: Mapping[str, Any]) -> dict[int, Layout]:
    """Models that are there and whole: number → layout. A damaged file, or one of another plan, does not count."""
    expected, found = plan_digest(manifest), {}
    for number in range(manifest["plan"]["models"]):
        try:
            there = layout(model_path(folder, number))
        except (OSError, ValueError):
            continue
        if there.metadata.get("plan") == expected and there.metadata.get("model") == str(number):
            found[number] = there
    return found

"""The folder of an experiment: created in one step, opened again, refused when it is another's."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noshadow.checks import Array, refuse
from noshadow.reference.manifest import plan_digest, read_manifest, require_same_plan
from noshadow.reference.opening import MEMBERSHIP, PLAN, RECORDS, TARGET, opened_manifest
from noshadow.reference.plan import Plan
from noshadow.storage.digests import file_sha256
from noshadow.storage.folders import folder_written_whole
from noshadow.storage.json_text import strict_json
from noshadow.storage.numpy_files import write_npy, write_npz
from noshadow.storage.private_files import UNFINISHED, followed, make_private_folder, write_private
from noshadow.storage.safetensors_files import write_safetensors

OWN_NAMES = frozenset({PLAN, MEMBERSHIP, RECORDS, TARGET, "models", "failures", "stacked"})
INSIDE = {
    "models": re.compile(r"\d{5,}\.safetensors"),
    "failures": re.compile(r"\d{5,}\.txt"),
    "stacked": re.compile(r"\w+-[0-9a-f]{16}\.npy"),
}


def create_folder(
    path: Path, manifest: dict[str, Any], drawn: Plan, records: Mapping[str, Array], target: tuple[dict[str, Array], dict[str, str]] | None
) -> dict[str, Any]:
    """Write plan, membership, records, the target's arrays and what is said of them, in one step.

    The result is the manifest with their digests.

    Only the owner can read them. Where `path` is a link, the folder it points to is made and the
    link stays.

    Raises:
        OSError: as the system gives it; nothing is left behind.
    """
    path = followed(path)
    with folder_written_whole(path, replace=False) as partial:
        for name in INSIDE:
            make_private_folder(partial / name)
        write_npy(partial / MEMBERSHIP, np.dtype(bool), drawn.membership.shape, drawn.membership)
        write_npz(partial / RECORDS, {"seeds": drawn.seeds, **records})
        written = {"membership": file_sha256(partial / MEMBERSHIP), "records": file_sha256(partial / RECORDS)}
        content = strict_json(manifest | {"hashes": manifest["hashes"] | written})
        stamped = read_manifest(content, path)
        if target is not None:
            write_safetensors(partial / TARGET, target[0], {"plan": plan_digest(stamped), "model": "target"} | target[1])
        write_private(partial / PLAN, [content])
    return stamped


def require_own_folder(path: Path) -> bool:
    """Tell whether the folder already holds an experiment, and refuse anything else in it."""
    if path.exists() and not path.is_dir():
        refuse("folder", "be a folder", f"the file '{path}'")
    held = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    foreign = [name for name in held if name not in OWN_NAMES and not UNFINISHED.match(name)]
    for name, pattern in INSIDE.items():
        inner = sorted(entry.name for entry in (path / name).iterdir()) if (path / name).is_dir() else []
        foreign += [f"{name}/{entry}" for entry in inner if not pattern.fullmatch(entry) and not UNFINISHED.match(entry)]
    if foreign or (held and PLAN not in held):
        listed = ", ".join((foreign or held)[:8])
        refuse("folder", "not exist yet, or hold reference models and nothing else", f"'{path}' with {listed}", "Choose another.")
    return bool(held)


def resumed_manifest(path: Path, here: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The stored plan, which must be the one asked for now, and notes on what changed beside it."""
    there = opened_manifest(path)
    return there, require_same_plan(there, here)

"""Open an experiment's folder.

Plan, membership, records and models are each checked before they are relied on.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noshadow.checks import Array, InputError, refuse, said
from noshadow.columns import LANGUAGE_MODEL, TASKS
from noshadow.reference.manifest import plan_digest, read_manifest
from noshadow.reference.plan import BALANCED_FROM, Plan
from noshadow.signals import record_ids
from noshadow.storage.digests import file_sha256
from noshadow.storage.forms import Count, Keys, Level, OneOf, require_form
from noshadow.storage.numpy_files import mapped_npy, npz_arrays
from noshadow.storage.reasons import reason_of
from noshadow.storage.safetensors_files import Layout, layout
from noshadow.votes import VOTES

PLAN, MEMBERSHIP, RECORDS, TARGET = "plan.json", "membership.npy", "records.npz", "target.safetensors"
EXTRA = "extra."
AGAIN = "Train again in another folder."
MIXED_VOTES = (
    "Some of these models vote for a class and others do not: margins of all are log-odds, which stand far from all others where a "
    "vote is unanimous."
)
PLAN_FORM = Keys(
    {
        "plan": Keys({"models": Count, "records": Count, "fraction": Level, "seed": Count}, {"design": OneOf("folds")}),
        "pool": OneOf("all", "train"),
        "task": str,
        "train": Keys({"engine": str}),
        "signals": Keys({"queries": list[str], "traces": bool, "keep_outputs": bool, "extra_models": Count}),
        "hashes": Keys({"membership": str, "records": str, "weights": str | None}),
        "versions": dict[str, str],
        "engine_reason": str,
        "notes": list[str],
    }
)


def opened_manifest(path: Path) -> dict[str, Any]:
    """Read the plan of an existing experiment.

    Its numbers of models and records must be those of its membership.
    """
    if not (path / PLAN).is_file():
        refuse("folder", f"hold reference models ({PLAN})", f"'{path}'")
    try:
        manifest = read_manifest((path / PLAN).read_bytes(), path)
    except OSError as error:
        raise InputError(said(f"folder must be readable; got '{path}' ({error}).")) from error
    require_form(manifest, PLAN_FORM, "", AGAIN)
    # Everything below walks over the models: their number is taken from what is there, not from
    # what is claimed.
    for name, there in zip(("models", "records"), _membership(path).shape, strict=True):
        if manifest["plan"][name] != there:
            refuse(f"plan.{name}", f"be the {there} {name} of {MEMBERSHIP}", manifest["plan"][name], AGAIN)
    return manifest


def stored_plan(path: Path, manifest: Mapping[str, Any]) -> tuple[Plan, dict[str, Array]]:
    """Read membership (memory-mapped) with the seeds, and ids, targets and member.

    Altered files are refused.
    """
    for name, file in (("membership", MEMBERSHIP), ("records", RECORDS)):
        if not (path / file).is_file() or _sha256(path / file) != manifest["hashes"][name]:
            refuse("folder", "be as it was written", f"'{path}' with {file} missing or altered", AGAIN)
    arguments = manifest["plan"]
    membership = _membership(path)
    counts = _require_models_with_both_sides(membership)
    records = _records(path, arguments["models"], arguments["records"])
    _require_sides(counts, arguments["models"], records["member"] if "design" in arguments else None)
    return Plan(membership, records.pop("seeds"), arguments["fraction"], arguments["seed"]), records


def model_path(folder: Path, number: int) -> Path:
    """File of one model."""
    return folder / "models" / f"{number:05d}.safetensors"


def whole_models(folder: Path, manifest: Mapping[str, Any]) -> dict[int, Layout]:
    """Find the models that are there and whole: number → layout.

    A damaged file, or one of another plan, does not count.
    """
    expected, found = plan_digest(manifest), {}
    for number in range(manifest["plan"]["models"]):
        try:
            there = layout(model_path(folder, number))
        except (OSError, ValueError):
            continue
        own = (there.metadata.get("plan"), there.metadata.get("model")) == (expected, str(number))
        if own and _is_described(there.metadata) and _fits(there, manifest["plan"]["records"]):
            found[number] = there
    return found


def target_layout(folder: Path, manifest: Mapping[str, Any]) -> Layout | None:
    """Find where the target's arrays are; None without a target.

    A damaged file, or that of another plan, is refused.
    """
    path = folder / TARGET
    if not path.is_file():
        return None
    try:
        there = layout(path)
    except (OSError, ValueError) as error:
        raise InputError(said(f"{TARGET} must be whole; got '{folder}' ({reason_of(error)}). {AGAIN}")) from error
    own = there.metadata.get("plan") == plan_digest(manifest) and there.metadata.get("task") in TASKS and _tells_votes(there.metadata)
    if not own or not _fits(there, manifest["plan"]["records"]):
        refuse(TARGET, "belong to this plan", f"another in '{folder}'", AGAIN)
    return there


def told_votes(parts: int | None) -> dict[str, str]:
    """What a model's file says of how many of its parts vote; nothing where that is not known."""
    return {} if parts is None else {VOTES: str(parts)}


def votes_of(there: Layout) -> int | None:
    """How many parts of a model vote for a class, by its file; 0 for none, None for unknown."""
    return int(there.metadata[VOTES]) if VOTES in there.metadata else None


def common_votes(models: Mapping[int, Layout], target: Layout | None) -> tuple[int, tuple[str, ...]]:
    """On the votes of how many parts the margins of all models are brought; 0 where they are none.

    They are the target's, or else the fewest of any model. Models that do not say (outputs in the
    place of a model, files of earlier versions) follow the others. Where some are known to be no
    votes, all margins are log-odds, and a note says so.
    """
    said_so = [votes for there in models.values() if (votes := votes_of(there)) is not None]
    own = None if target is None else votes_of(target)
    stated = [own, *said_so] if own is not None else said_so
    voting = [votes for votes in stated if votes]
    if voting and len(voting) < len(stated):
        return 0, (MIXED_VOTES,)
    return (own or min(voting, default=0)), ()


def require_one_form(models: Mapping[int, Layout], target: Layout | None, drawn: Plan, manifest: Mapping[str, Any]) -> str:
    """The task of all models, which must leave arrays of one form behind, as the target does."""
    forms = {_form(there) for there in (*models.values(), *(() if target is None else (target,)))}
    if len(forms) != 1:
        told = sorted(f"{task} with statistic {statistic}, outputs {outputs}" for task, statistic, outputs in forms)
        refuse("models", "be of one task and form", "; ".join(told[:3]), "Train again in another folder with train_references(…, task=…).")
    ((task, statistic, outputs),) = forms
    if manifest["signals"]["keep_outputs"] and outputs is None:
        refuse("models", "hold the outputs that the plan says were kept", "none", AGAIN)
    queries = 1 + len(manifest["signals"]["queries"])
    if queries > 1 and statistic[1:] != (queries,):
        refuse("statistic", f"have a column for each of {queries} queries", f"shape {statistic}", AGAIN)
    if task != "regression" and queries == 1 and len(statistic) > 1:
        refuse("statistic", "be one number per record", f"shape {statistic}", AGAIN)
    for number, there in models.items():
        own = (drawn.records,), (int(drawn.membership[number].sum()),)
        wrong = [name for name, place in there.places.items() if name.startswith(EXTRA) and (place[1] not in own or place[0] == "bool")]
        if wrong:
            refuse(wrong[0], "have one number per record, or per member of its model", f"{there.places[wrong[0]]}", AGAIN)
    return task


def _form(there: Layout) -> tuple[str, tuple[int, ...], tuple[int, ...] | None]:
    outputs = there.places.get("outputs")
    return there.metadata["task"], there.places["statistic"][1], None if outputs is None else outputs[1]


def require_finite_rows(array: Array, name: str, place: object) -> None:
    """Refuse NaN and infinity in what a model left behind."""
    if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
        refuse(name, "be finite", f"{int((~np.isfinite(array)).sum())} NaN or infinite values in {place}", AGAIN)


def _membership(path: Path) -> Array:
    try:
        membership = mapped_npy(path / MEMBERSHIP)
    except FileNotFoundError:
        refuse("folder", "be as it was written", f"'{path}' with {MEMBERSHIP} missing or altered", AGAIN)
    except (OSError, ValueError) as error:
        raise InputError(said(f"{MEMBERSHIP} must be a plain array; got '{path}' ({reason_of(error)}). {AGAIN}")) from error
    if membership.dtype != bool or membership.ndim != 2:
        refuse(MEMBERSHIP, "hold true or false, models by records", f"shape {membership.shape} of {membership.dtype}", AGAIN)
    return membership


def _require_models_with_both_sides(membership: Array) -> Array:
    """Number of models of each record, (n,).

    Bytes that are no truth values are refused, and a model that was trained on all records or none.
    """
    models, records = membership.shape
    counts, sizes = np.zeros(records, dtype=np.int64), np.zeros(models, dtype=np.int64)
    for number in range(models):
        row = np.asarray(membership[number]).view(np.uint8)
        if int(row.max(initial=0)) > 1:
            refuse(MEMBERSHIP, "hold true or false", f"{int(row.max())} in model {number}", AGAIN)
        counts += row
        sizes[number] = row.sum()
    if not models or not records or sizes.min() < 1 or sizes.max() >= records:
        refuse(MEMBERSHIP, "put every record in some of the models and leave it out of others", "one on one side only", AGAIN)
    return counts


def _require_sides(counts: Array, models: int, folded: Array | None) -> None:
    """Refuse records on a side where the design of the plan does not put them.

    Args:
        counts: (n,) models of each record. models: how many there are.
        folded: (n,) the records that were folded, each out of one model; None where models have
            random parts of all records.
    """
    if folded is not None:
        if not np.array_equal(counts, np.where(folded, models - 1, 0)):
            refuse(MEMBERSHIP, "leave each training record out of one fold's model, and test records out of all", "others", AGAIN)
    elif models >= BALANCED_FROM and (counts.min() < 1 or counts.max() >= models):
        refuse(MEMBERSHIP, "put every record in some of the models and leave it out of others", "one on one side only", AGAIN)


def _records(path: Path, models: int, n: int) -> dict[str, Array]:
    try:
        with (path / RECORDS).open("rb") as file:
            held = npz_arrays(file, (path / RECORDS).stat().st_size)
    except (OSError, ValueError) as error:
        raise InputError(said(f"{RECORDS} must hold plain arrays; got '{path}' ({reason_of(error)}). {AGAIN}")) from error
    expected = {"seeds": ("iu", (models,)), "ids": ("iuU", (n,)), "member": ("b", (n,)), "targets": ("biuf", None)}
    for name, (kinds, shape) in expected.items():
        array = held.get(name)
        if array is None or array.dtype.kind not in kinds or (shape is not None and array.shape != shape):
            got = "none" if array is None else f"shape {array.shape} of {array.dtype}"
            refuse(f"{RECORDS}, {name}", f"have one entry per {'model' if name == 'seeds' else 'record'}", got, AGAIN)
    targets = held["targets"]
    if targets.ndim not in (1, 2) or len(targets) != n or not bool(np.isfinite(targets).all()):
        refuse(f"{RECORDS}, targets", "hold one finite row per record", f"shape {targets.shape}", AGAIN)
    if not held["member"].any():
        refuse(f"{RECORDS}, member", "name the target's training records", "none", AGAIN)
    record_ids(held["ids"], n)
    return {name: held[name] for name in expected}


def _is_described(metadata: Mapping[str, str]) -> bool:
    """Whether a model's file says what every model's file says."""
    try:
        seconds, workers = float(metadata["seconds"]), int(metadata["workers"])
    except (KeyError, ValueError):
        return False
    return metadata.get("task") in TASKS and math.isfinite(seconds) and seconds >= 0 and 0 < workers < 2**31 and _tells_votes(metadata)


def _tells_votes(metadata: Mapping[str, str]) -> bool:
    """Whether what a file says of votes, if anything, is a number that a model may have."""
    text = metadata.get(VOTES, "0")
    return text.isascii() and text.isdigit() and len(text) <= 9


def _fits(there: Layout, n: int) -> bool:
    """Whether a file holds what every model leaves behind, one row per record."""
    needed = {"statistic": ("<f8", (1, 2)), "loss": ("<f8", (1,))}
    needed |= {} if there.metadata.get("task") in ("regression", LANGUAGE_MODEL) else {"correct": ("bool", (1,))}
    optional = {"outputs": (None, (2,)), "loss_traces": (None, (2,))}
    for name, (kind, sides) in (needed | optional).items():
        dtype, shape, _ = there.places.get(name, (None, (), 0))
        if dtype is None and name in optional:
            continue
        if dtype is None or kind not in (None, dtype) or len(shape) not in sides or shape[0] != n or 0 in shape:
            return False
    return True


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise InputError(said(f"folder must be readable; got '{path}' ({error}).")) from error

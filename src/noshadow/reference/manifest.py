"""plan.json says what an experiment is.

A second start on its folder is therefore the same experiment or is refused.
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from noshadow.checks import InputError, refuse, said
from noshadow.reference.function_names import function_name
from noshadow.reference.work import ReferenceJob, TrainsMany
from noshadow.storage.digests import sha256
from noshadow.storage.json_text import parsed_json, strict_json
from noshadow.storage.versions import versions_of

FORMAT = 1
# Everything else in plan.json decides what the models are.
NOTED = ("versions", "source", "notes", "engine_reason")
DERIVED = ("hashes.membership", "hashes.records")
DIFFERENCES_NAMED = 12


def plain_settings(settings: object) -> Any:
    """Settings as JSON holds them, so that those read back compare equal."""
    try:
        return json.loads(strict_json(settings))
    except (TypeError, ValueError) as error:
        raise InputError(said(f"settings must be plain numbers, text, lists and dicts; got {error}.")) from error


def source_digest(train_fn: Callable[..., Any]) -> str | None:
    """Digest of the function's source text, None where it has none to read."""
    try:
        return sha256(inspect.getsource(inspect.unwrap(train_fn)).encode())
    except (TypeError, OSError):
        return None


def job_manifest(
    job: ReferenceJob,
    *,
    plan: dict[str, Any],
    pool: str,
    engine: dict[str, Any],
    reason: str,
    settings: Mapping[str, Any] | None,
    weights: str | None,
) -> dict[str, Any]:
    """All that plan.json holds but the digests of the files beside it.

    Args:
        job: what the workers get. plan: arguments of the plan and the number of records. pool:
            "all" or "train".
        engine: name and stack. reason: why not the faster engine, or nothing.
        settings: of a train_fn that is a function. weights: digest of the target's, None without
            one.
    """
    reading = job.reading
    own: dict[str, Any] = job.train_fn.settings() if isinstance(job.train_fn, TrainsMany) else {}
    return {
        "format": FORMAT,
        "versions": versions_of("noshadow", "torch", "numpy", "scikit-learn", "joblib"),
        "plan": plan,
        "pool": pool,
        "task": reading.task,
        "train": {
            "function": function_name(job.train_fn),
            "settings": plain_settings(own | dict(settings or {})),
            "threads": job.threads,
        }
        | engine,
        "signals": {
            "queries": [function_name(query) for query in reading.queries],
            "traces": job.traces,
            "keep_outputs": reading.keep_outputs,
            "output_scale": reading.output_scale,
            "extra": None if job.extra is None else function_name(job.extra),
            "extra_models": job.extra_models,
            "batch_size": reading.batch_size,
            "device": None if reading.device is None else str(reading.device),
        }
        | ({} if reading.output == "auto" else {"output": reading.output}),
        "hashes": job.pool.hashes | {"weights": weights},
        "source": source_digest(job.train_fn),
        "engine_reason": reason,
        "notes": [*job.pool.notes, *([reason] if reason else [])],
    }


def plan_digest(manifest: Mapping[str, Any]) -> str:
    """Digest of all that decides what the models are: the key of every model file."""
    return sha256(strict_json({name: value for name, value in manifest.items() if name not in NOTED}))


def read_manifest(content: bytes, place: object) -> dict[str, Any]:
    """plan.json parsed strictly; another format or anything but an object is refused."""
    try:
        manifest = parsed_json(content)
    except ValueError as error:
        raise InputError(said(f"plan.json must be JSON; got '{place}' ({error}).")) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        got = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        refuse("folder", f"hold a plan of format {FORMAT}", got, "Train the reference models again with this version.")
    return manifest


def require_same_plan(there: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[str, ...]:
    """Note what changed without changing the experiment, and refuse anything else by name.

    Raises:
        InputError: lists what differs as "name: there → here".
    """
    old, new = dict(_flat(there)), dict(_flat(here))
    names = [name for name in sorted(old | new) if name.split(".")[0] not in NOTED and name not in DERIVED]
    absent = "nothing"
    differing = [
        f"{name}: {_short(old.get(name, absent))} → {_short(new.get(name, absent))}" for name in names if old.get(name) != new.get(name)
    ]
    if differing:
        more = f"; and {len(differing) - DIFFERENCES_NAMED} more" if len(differing) > DIFFERENCES_NAMED else ""
        got = f"other values ({'; '.join(differing[:DIFFERENCES_NAMED])}{more})"
        refuse("folder", "hold the same experiment", got, "Use the same arguments and data, or another folder.")
    changed = [
        f"{name.removeprefix('versions.')} {old.get(name)} → {new.get(name)}"
        for name in sorted(old | new)
        if name.startswith("versions.") and old.get(name) != new.get(name)
    ]
    notes = [f"Some models were trained with other versions: {', '.join(changed)}."] if changed else []
    if there.get("source") != here.get("source"):
        notes.append("The source text of train_fn is not the one the first models were trained with.")
    return tuple(notes)


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, value


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # Digests are told apart by their first digits.
    return text[:12] if len(text) == 64 else text if len(text) <= 80 else f"{text[:77]}…"

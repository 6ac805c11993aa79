"""Models as they arrive: written one by one, failures reported, a full disk survived."""

import contextlib
import errno
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from noshadow.checks import InputError, said
from noshadow.progress import tracked
from noshadow.reference.folder import INSIDE
from noshadow.reference.manifest import FORMAT, plan_digest
from noshadow.reference.opening import model_path, target_layout, told_votes, whole_models
from noshadow.reference.work import Outcome
from noshadow.storage.private_files import UNFINISHED, write_private
from noshadow.storage.safetensors_files import write_safetensors

FAILURES_NAMED = 5
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
Form = tuple[str, dict[str, tuple[int, ...]]]


def write_outcomes(
    path: Path, stored: Mapping[str, Any], stream: Iterator[Outcome], *, total: int, workers: int, progress: bool
) -> tuple[str, ...]:
    """Write each model when it arrives, and return notes on how the models were read.

    Failed models are named when all the others are there.

    Args:
        path: the experiment's folder. stored: its plan. stream: outcomes in any order. total: how
            many.
        workers: noted in each file, for estimates of the time left.
        progress: draw a bar on a terminal.

    Raises:
        InputError: models failed, or the disk is full; what is written stays.
    """
    models, failed = stored["plan"]["models"], {}
    notes: set[str] = set()
    described = {"format": str(FORMAT), "plan": plan_digest(stored), "engine": stored["train"]["engine"], "workers": str(workers)}
    form = _known_form(path, stored)
    what = "Training models without each fold" if "design" in stored["plan"] else "Training reference models"
    bar = tracked(stream, what, total=total, show=progress)
    with closing(stream), closing(bar) as outcomes:  # type: ignore[type-var]
        for outcome in outcomes:
            text = outcome.failure
            if outcome.arrays is not None:
                here = _form(outcome.task, {name: array.shape for name, array in outcome.arrays.items()})
                form = form or here
                text = "" if here == form else f"Its outputs differ in form from the other models': {_told(form)} → {_told(here)}."
            report = path / "failures" / f"{outcome.number:05d}.txt"
            with disk(path, models):
                if outcome.arrays is None or text:
                    failed[outcome.number] = text.splitlines()[0]
                    write_private(report, [text.encode()])
                else:
                    own = {
                        "model": str(outcome.number),
                        "seed": str(outcome.seed),
                        "task": outcome.task,
                        "seconds": f"{outcome.seconds:.6g}",
                        **told_votes(outcome.votes),
                    }
                    write_safetensors(model_path(path, outcome.number), outcome.arrays, described | own)
                    report.unlink(missing_ok=True)
                    notes |= set(outcome.notes)
    if failed:
        raise InputError(_failures(path, models, failed))
    return tuple(sorted(notes))


@contextmanager
def disk(path: Path, models: int) -> Iterator[None]:
    """Say in one sentence what the disk refused, and how many models are safe."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            kept = len(list((path / "models").glob("[0-9]*.safetensors"))) if path.is_dir() else 0
            raise InputError(
                said(
                    f"folder must have room for the models; got '{path}' where the disk is full. "
                    f"Clear some and run again when there is room: {kept} of {models} models are kept."
                )
            ) from error
        raise InputError(said(f"folder must be writable; got '{path}' ({error}). Choose another place.")) from error


def remove_unfinished(path: Path) -> None:
    """Remove what killed runs left half-written.

    This is done only when all models are there, since nobody can still be writing one.
    """
    for name in INSIDE:
        for entry in (path / name).glob(".*"):
            if UNFINISHED.match(entry.name):
                with contextlib.suppress(OSError):
                    entry.unlink()


def _known_form(path: Path, stored: Mapping[str, Any]) -> Form | None:
    """Find the task and shapes that every model must have.

    They are those of the target, or of the first model that is there.
    """
    there = target_layout(path, stored) or next(iter(whole_models(path, stored).values()), None)
    return None if there is None else _form(there.metadata.get("task", ""), {name: place[1] for name, place in there.places.items()})


def _form(task: str, shapes: Mapping[str, tuple[int, ...]]) -> Form:
    return task, {name: shapes[name] for name in ("statistic", "outputs") if name in shapes}


def _told(form: Form) -> str:
    return f"{form[0]} with " + ", ".join(f"{name} {shape}" for name, shape in form[1].items())


def _failures(path: Path, models: int, failed: Mapping[int, str]) -> str:
    named = [f"model {number}: {failed[number].rstrip('.')}" for number in sorted(failed)[:FAILURES_NAMED]]
    more = f"; and {len(failed) - FAILURES_NAMED} more" if len(failed) > FAILURES_NAMED else ""
    return said(
        f"train_fn must train every model; got {len(failed)} of {models} that failed ({'; '.join(named)}{more}). "
        f"Tracebacks are in '{path / 'failures'}'; all others are kept, and running again tries these once more."
    )

"""Sources of evidence that are trained for an audit: folds, few references, short references."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from noshadow._audit.exposing import SEVERAL_RESIDUALS, Known
from noshadow._audit.known_references import Audited, Words, known_references
from noshadow._audit.options import Options
from noshadow._audit.trainings import Trainings
from noshadow._exposure import Source
from noshadow.checks import InputError, said, unnamed
from noshadow.reference import References, load_references, train_references
from noshadow.reference.plan import checked_folds
from noshadow.results import Evidence
from noshadow.storage.folders import temporary_folder

FOLDS, FEW, SHORT = "folds", "few references", "short references"
# Trains when it is asked what it knows of the audited records.
TrainedSource = Callable[[Audited], Known]
WHOLE = "short references stop at the end here: as many reference_models cost the same and say more"


@dataclass(frozen=True, eq=False)
class Subject:
    """The audited model, its records, and how other models are read as it was.

    Attributes:
        model: the audited model. train, test: its data, as the audit was given them.
        reading: batch_size, device, output and output_scale of the audit.
    """

    model: object
    train: object
    test: object
    reading: Mapping[str, Any]


def trained_sources(asked: Trainings, subject: Subject, options: Options) -> tuple[TrainedSource, ...]:
    """A source for each kind of model that is asked for; it trains when it is called."""
    wanted: dict[Callable[..., Known], object] = {
        folds_known: asked.folds,
        few_references_known: asked.reference_models,
        short_references_known: asked.short_references,
    }
    return tuple(partial(_timed, partial(source, asked, subject, options)) for source, count in wanted.items() if count is not None)


def folds_known(asked: Trainings, subject: Subject, options: Options, audited: Audited) -> Known:
    """Cross-fitting on the training records: a margin without each record, and `fold_loss`.

    k models, each trained on all training records but a fold; test records are in none. Price:
    k − 1 trainings. One margin without the record gives the order only.
    """
    assert asked.folds is not None
    checked_folds(len(audited.records.ids), len(audited.test_losses), asked.folds, options.seed, "folds")
    words = Words(FOLDS, "folds", "models of folds")
    plan = {"models": asked.folds, "design": "folds", "seed": options.seed}
    with _trained(asked, subject, options, audited, asked.train_fn, plan, f"folds-{asked.folds}") as (references, notes):
        return _noted(known_references(references, audited, words, columns=("fold_loss",)), notes)


def few_references_known(asked: Trainings, subject: Subject, options: Options, audited: Audited) -> Known:
    """Models on random halves of training and test records, trained now or read from a folder.

    Two and three are drawn independently of each other, more are balanced (`reference.plan`).
    """
    words = Words(FEW, "reference_models", "reference models")
    if audited.has_several_residuals:
        return _nothing(words)
    if isinstance(asked.reference_models, Path):
        return known_references(_set_in(asked.reference_models), audited, words, attack=True)
    plan = {"models": asked.reference_models, "seed": options.seed}
    with _trained(asked, subject, options, audited, asked.train_fn, plan, f"references-{asked.reference_models}") as (references, notes):
        return _noted(known_references(references, audited, words, attack=True), notes)


def _set_in(folder: Path) -> References:
    """The set in a folder; what is wrong with it is said of the argument that named it."""
    try:
        return load_references(folder)
    except InputError as error:
        raise InputError(said(unnamed(error).replace("folder must", "reference_models must", 1))) from error


def short_references_known(asked: Trainings, subject: Subject, options: Options, audited: Audited) -> Known:
    """Models on random halves that stop where the audited training was best on unseen records.

    Their level without a record counts, not their slope. Price: a share `stop` of a training each.
    """
    words = Words(SHORT, "short_references", "short references")
    if audited.has_several_residuals:
        return _nothing(words)
    # Another draw than that of the whole reference models, so that the two do not share their luck.
    plan = {"models": asked.short_references, "seed": options.seed + 1}
    place = f"short-references-{asked.short_references}-{asked.stop:.4g}"
    with _trained(asked, subject, options, audited, asked.short_fn, plan, place) as (references, notes):
        known = known_references(references, audited, words, stop=asked.stop)
        return _noted(known, (*notes, *((WHOLE,) if asked.stop == 1.0 else ())))


@contextmanager
def _trained(
    asked: Trainings,
    subject: Subject,
    options: Options,
    audited: Audited,
    train_fn: Callable[..., Any] | None,
    plan: Mapping[str, Any],
    name: str,
) -> Iterator[tuple[References, tuple[str, ...]]]:
    """The set of models in its folder, trained as far as it is not there yet.

    Without a work folder it is there until the block ends. Notes say what became of it.
    """
    assert train_fn is not None
    unseen = len(audited.test_losses) > 0
    how = (
        dict(subject.reading)
        | dict(asked.options or {})
        | dict(plan)
        | {"pool": "all" if unseen else "train", "progress": options.progress}
    )

    def run(place: Path) -> References:
        data = subject.train, subject.test if unseen else None
        return train_references(place, train_fn, *data, model=subject.model, ids=audited.records.ids, task=audited.task, **how)

    if asked.work is not None:
        yield run(asked.work / name), ()
        return
    folder = temporary_folder()
    try:
        references = run(folder / name)
    except InputError as error:
        if not (folder / name).is_dir():
            folder.rmdir()
            raise
        raise InputError(said(f"{unnamed(error)} Pass work='{folder}' to go on there.")) from error
    except BaseException:
        shutil.rmtree(folder)
        raise
    try:
        yield references, (f"the models of {name} were trained in a folder that is gone by now; pass work= to keep them",)
    finally:
        shutil.rmtree(folder)


def _nothing(words: Words) -> Known:
    """Nothing is trained for a record of several residuals, whose exposure is not defined."""
    stamp = {"models": 0, "trainings": 0.0}
    return Known(Source(words.source), Evidence(words.source, absent={words.argument: SEVERAL_RESIDUALS}, stamp=stamp))


def _timed(source: TrainedSource, audited: Audited) -> Known:
    started = time.perf_counter()
    known = source(audited)
    return replace(known, evidence=replace(known.evidence, seconds=time.perf_counter() - started))


def _noted(known: Known, notes: tuple[str, ...]) -> Known:
    return replace(known, evidence=replace(known.evidence, notes=(*known.evidence.notes, *notes)))

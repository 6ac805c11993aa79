"""Earlier checkpoints and the base model as sources: other states of the audited model's weights.

They are read by the walk and the reader that read the audited model.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from noshadow._audit.evidence import Scores, scored
from noshadow._audit.exposing import Known, SourceOf, free_columns, statistic_of
from noshadow._audit.options import GivenColumns, Options
from noshadow._audit.score_options import head_options
from noshadow._audit.settled import Settled, settled
from noshadow._audit.standing import agreement, follows_targets, require_other_model
from noshadow._exposure import Source
from noshadow._exposure.odd_rows import OPPOSITE
from noshadow._exposure.sources import ORIGIN
from noshadow.checks import Array, InputError, refuse, said, unnamed
from noshadow.joins import FEWEST_RANKED, LEAST_CORRELATION
from noshadow.outcomes import Absent, not_applicable
from noshadow.results import Evidence
from noshadow.scores.result import RecordScores
from noshadow.scores.trees.boosting import LeafScores
from noshadow.views import View

CHECKPOINTS, BASE = "checkpoints", "base model"
LEFT_OUT = (
    "the base is left out: it is right no more often than by chance, and its margins have no relation to the model's. Was its head trained?"
)
# Hands a model, or signals that stand for one, to the reader of the audited model.
Reading = Callable[[Any], View]


def checkpoint_source(given: Sequence[object], read: Reading, options: Options) -> tuple[SourceOf, ...]:
    """The source that earlier checkpoints are; none where none were given."""
    return (partial(checkpoint_known, given, read, options),) if given else ()


def base_source(given: Sequence[object], read: Reading, options: Options) -> tuple[SourceOf, ...]:
    """The source that the base model is; none where none was given."""
    return (partial(base_known, given[0], read, options),) if given else ()


@dataclass(frozen=True, eq=False)
class _Earlier:
    """One checkpoint: its records, its scores, and its mean loss on test records."""

    found: Settled
    scores: Scores
    test_loss: float | None


def checkpoint_known(given: Sequence[object], read: Reading, options: Options, found: Settled) -> Known:
    """Losses and last-layer columns of earlier states of the same training.

    They are covariates: the checkpoint was trained on the same records, but did not yet know them
    by heart. Of several, `checkpoint_loss` and `checkpoint_shift` are those of the one with the
    lowest mean loss on test records, the first without test records. The others are covariates
    beside it.

    Args:
        given: the checkpoints. read: how they are read. options: of the audit. found: the audited
            model's records.

    Raises:
        InputError: other outputs or targets than the audited model's, or its final weights.
    """
    started = time.perf_counter()
    how = replace(options, layers="last", score_options=head_options(options.score_options))
    states = []
    for one in given:
        seen = _read_alike(one, read, found, how, "checkpoint")
        require_other_model(seen.train.outputs, found, "checkpoint", "Give weights from earlier in the training.")
        states.append(_Earlier(seen, scored(seen, how, None), _mean(seen.losses[1])))
    best = min(range(len(states)), key=lambda place: (states[place].test_loss or 0.0, place))
    chosen = states[best]
    covariates = {f"checkpoint_{name}": values for name, values in _columns(chosen).items()}
    for place, state in enumerate(states):
        if place != best:
            covariates |= {f"checkpoint {place + 1} {name}": values for name, values in _columns(state).items()}
    held = chosen.scores
    shift = held.shift if isinstance(held, RecordScores) else held.columns["shift"] if isinstance(held, LeafScores) else None
    columns = {"checkpoint_loss": chosen.found.losses[0]} | ({} if shift is None else {"checkpoint_shift": shift})
    why = chosen.scores if isinstance(chosen.scores, Absent) else not_applicable("the checkpoint's scores hold no shift")
    evidence = Evidence(
        CHECKPOINTS,
        columns,
        absent={} if shift is not None else {"checkpoint_shift": why},
        notes=_late(chosen, found),
        stamp={"trainings": 0.0, "used": best, "checkpoints": [_told(state) for state in states]},
        seconds=time.perf_counter() - started,
    )
    return Known(Source(CHECKPOINTS, covariates=covariates), evidence)


def base_known(given: object, read: Reading, options: Options, found: Settled) -> Known:
    """Margins of the model that the training started from, which had none of the records.

    Test records show its scale: neither model was trained on them. Beside other models it is a
    covariate: it is no draw of the trainings that these are draws of.

    Args:
        given: the base model. read: how it is read. options: of the audit. found: the audited
            model's records.

    Raises:
        InputError: other outputs or targets than the audited model's, its final weights, or margins
            that contradict it.
    """
    started = time.perf_counter()
    seen = _read_alike(given, read, found, options, "base")
    require_other_model(seen.train.outputs, found, "base", "Give the model before it was fine-tuned.")
    related = agreement(seen.train.outputs, found)
    if found.task != "regression" and related is not None and related < OPPOSITE and len(found.train) >= FEWEST_RANKED:
        got = f"margins that fall where its own rise (rank correlation {related:.2f})"
        refuse("base", "know the audited model's classes", got, "Leave out a base whose head was not trained.")
    notes, source = _no_better_than_a_guess(seen), Source(BASE, role=ORIGIN)
    if found.task != "regression" and _says_nothing(seen, found, related):
        notes = (LEFT_OUT,)
    elif found.task != "regression" or found.targets.shape[1] == 1:
        source = _without_records(seen)
    stamp = {"trainings": 0.0, "correlation": related, **_told(_Earlier(seen, not_applicable(""), _mean(seen.losses[1])))}
    seconds = time.perf_counter() - started
    evidence = Evidence(BASE, {"base_loss": seen.losses[0]}, notes=notes, stamp=stamp, seconds=seconds)
    return Known(source, evidence)


def _without_records(seen: Settled) -> Source:
    """A base's margins of records that it was not trained on."""
    test = seen.seen.test
    margins = statistic_of(seen.train.outputs, seen.targets, seen.task)[None, :]
    unseen = statistic_of(test.outputs, seen.unseen, seen.task)[None, :] if len(test) else np.empty((1, 0))
    return Source(BASE, margins=margins, membership=np.zeros(margins.shape, dtype=bool), test_margins=unseen, role=ORIGIN)


def _says_nothing(seen: Settled, found: Settled, related: float | None) -> bool:
    """Whether a base knows nothing of the records: an untrained head, most often."""
    if len(found.train) < FEWEST_RANKED or (related is not None and related >= LEAST_CORRELATION):
        return False
    return not follows_targets(seen.train.outputs, found)


def _no_better_than_a_guess(seen: Settled) -> tuple[str, ...]:
    """Say when a base is right no more often than whoever always names the most frequent class."""
    if seen.task != "classification" or seen.targets.ndim != 1:
        return ()
    labels = np.concatenate([seen.targets, seen.unseen]).astype(np.int64)
    named = np.concatenate([seen.train.outputs, seen.seen.test.outputs]).argmax(1)
    right, guess = int((named == labels).sum()), int(np.bincount(labels).max())
    if right > guess:
        return ()
    words = f"the base is right on {right} of {len(labels)} records, and always naming the most frequent class on {guess}"
    return (f"{words}: was its head trained? A base without a trained head says nothing of the records",)


def _read_alike(one: object, read: Reading, found: Settled, options: Options, argument: str) -> Settled:
    """The records as another model sees them, held against what the audited model saw."""
    with told_of(argument):
        view = read(one)
    for split, theirs, ours in (("train", view.train, found.train), ("test", view.test, found.seen.test)):
        if theirs.outputs.shape != ours.outputs.shape:
            got = f"shape {theirs.outputs.shape} for {split}"
            refuse(argument, f"give outputs of the audited model's shape {ours.outputs.shape}", got)
    with told_of(argument):
        seen = settled(replace(view, sample_weight=found.seen.sample_weight), options, GivenColumns())
    if seen.task != found.task:
        refuse(argument, f"have the audited model's task '{found.task}'", f"'{seen.task}'")
    if seen.seen.class_names != found.seen.class_names:
        refuse(argument, "have the classes of the audited model in its order", f"{_names(seen)} for {_names(found)}")
    if not (np.array_equal(seen.targets, found.targets) and np.array_equal(seen.unseen, found.unseen)):
        hint = "Let no transform change a record from pass to pass, and give signals of the same records."
        refuse(argument, "be read on the audited model's records", "other targets", hint)
    return seen


@contextmanager
def told_of(argument: str) -> Iterator[None]:
    """Say which argument holds the model that could not be read."""
    try:
        yield
    except InputError as error:
        reason = unnamed(error).rstrip(".")
        raise InputError(said(f"{argument} must be readable as the audited model is; got this: {reason}.")) from error


def _columns(state: _Earlier) -> dict[str, Array]:
    return {"loss": state.found.losses[0]} | free_columns(state.found, state.scores)


def _mean(losses: Array) -> float | None:
    return float(losses.mean()) if len(losses) else None


def _late(chosen: _Earlier, found: Settled) -> tuple[str, ...]:
    """Say when the best checkpoint is worse on test records than the audited model is."""
    final = _mean(found.losses[1])
    if final is None or chosen.test_loss is None or chosen.test_loss <= final:
        return ()
    return (
        f"the checkpoint's mean loss on test records is {chosen.test_loss:.3g}, above the audited model's {final:.3g}: it is not the state "
        "from before records were learnt by heart, whose loss there is lowest",
    )


def _told(state: _Earlier) -> dict[str, Any]:
    return {"test_loss": state.test_loss, "weights": state.found.seen.weights_sha256 or None}


def _names(found: Settled) -> str:
    names = found.seen.class_names
    return "no names" if names is None else ", ".join(names[:5])

"""What other models than the base say of sequences, weighed into one exposure per sequence.

Earlier states of the same training, out-of-fold losses, and models that are trained for the audit.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from noshadow._audit.exposing import FREE_OF_SEQUENCES, SOURCE, Known, Statistics, too_few_records, weighed_exposure
from noshadow._audit.given_language_models import language_models_given
from noshadow._audit.known_references import Audited
from noshadow._audit.language_base import ReadBase
from noshadow._audit.options import Options
from noshadow._audit.other_models import BASE, CHECKPOINTS, told_of
from noshadow._audit.out_of_fold import ARGUMENT
from noshadow._audit.out_of_fold import SOURCE as OUT_OF_FOLD
from noshadow._audit.output_files import GivenOutputs
from noshadow._audit.trained_sources import TrainedSource
from noshadow._exposure import Source
from noshadow._exposure.sources import FOLDS
from noshadow.checks import Array, NotApplicable, refuse
from noshadow.columns import LANGUAGE_MODEL
from noshadow.joins import FLOOR_NATS, held_by, loss_agreement
from noshadow.outcomes import not_applicable
from noshadow.results import Evidence
from noshadow.tail.losses import resolved_level
from noshadow.views import SequenceLosses, sequence_losses, weights_sha256

NO_SHIFT = not_applicable("a sequence has no one margin whose shift could be told: its tokens have one each")
BASE_ALONE = not_applicable(
    "what a fine-tuning gains on a sequence over its base is as much its style as its memory, and says neither order nor size: "
    "fine-tunes of the same base without the sequence do (reference_models=2 with train_fn=…)"
)
_SIZES = ("exposure", "attack_rate")


@dataclass(frozen=True, eq=False)
class Sequences:
    """What an audit says of its sequences, and how models are read.

    Attributes:
        members, others: of both splits; others None without test sequences.
        identity: the columns that say which sequence a record is.
        weights: digest of the audited model's. reading: batch_size, device and progress.
    """

    members: SequenceLosses
    others: SequenceLosses | None
    identity: Mapping[str, Any]
    weights: str
    reading: Mapping[str, Any]

    @property
    def losses(self) -> tuple[Array, Array]:
        """(n,) and (t,) losses of both splits."""
        return self.members.loss, np.empty(0) if self.others is None else self.others.loss

    @property
    def audited(self) -> Audited:
        """What sets of other models are held against."""
        table = pd.DataFrame(dict(self.identity) | {"loss": self.members.loss})
        return Audited(held_by(table, losses=True), self.losses[1], self.weights, LANGUAGE_MODEL)


@dataclass(frozen=True, eq=False)
class OtherModels:
    """What was given beside the model and its base.

    Attributes:
        checkpoints: earlier states of the training, as given. out_of_fold: losses, None without.
        trained: sources that train when they are asked.
    """

    checkpoints: object = None
    out_of_fold: GivenOutputs | None = None
    trained: tuple[TrainedSource, ...] = ()


def other_models_known(given: OtherModels, model: object) -> tuple[Callable[[Sequences], Known], ...]:
    """A source for each kind of model that was given or is to be trained.

    Checkpoints are checked now and read when the source is asked.

    Raises:
        InputError: checkpoints that cannot be states of this model.
    """
    states = language_models_given(given.checkpoints, model, "checkpoint")
    found: list[Callable[[Sequences], Known]] = []
    if states:
        found.append(lambda seen: checkpoints_known(states, seen))
    if given.out_of_fold is not None:
        losses = given.out_of_fold
        found.append(lambda seen: out_of_fold_losses_known(losses, seen))
    # Bound now: a loop's name is looked up when the function runs.
    found += [lambda seen, source=source: source(seen.audited) for source in given.trained]  # type: ignore[misc]
    return tuple(found)


def checkpoints_known(states: Sequence[object], seen: Sequences) -> Known:
    """Losses of earlier states of the same training: covariates of the mixed model.

    Of several, `checkpoint_loss` is that of the one with the lowest mean loss on test sequences,
    the first without test sequences. The others are covariates beside it.
    """
    started = time.perf_counter()
    read = [_read_alike(state, seen) for state in states]
    tests = [None if test is None else float(test.mean()) for _, test in read]
    best = min(range(len(read)), key=lambda place: (tests[place] or 0.0, place))
    covariates = {"checkpoint_loss": read[best][0]}
    covariates |= {f"checkpoint {place + 1} loss": losses for place, (losses, _) in enumerate(read) if place != best}
    told = [
        {"test_loss": test, "weights": weights_sha256(state, losses)} for state, test, (losses, _) in zip(states, tests, read, strict=True)
    ]
    stamp = {"trainings": 0.0, "used": best, "checkpoints": told}
    columns = {"checkpoint_loss": read[best][0]}
    evidence = Evidence(CHECKPOINTS, columns, absent={"checkpoint_shift": NO_SHIFT}, stamp=stamp, seconds=time.perf_counter() - started)
    return Known(Source(CHECKPOINTS, covariates=covariates), evidence)


def _read_alike(state: object, seen: Sequences) -> tuple[Array, Array | None]:
    """Losses of the very sequences that the audited model was read on."""
    found: list[Array | None] = []
    for argument, split in (("train", seen.members), ("test", seen.others)):
        if split is None:
            found.append(None)
            continue
        context = None if split.sequences is None or split.sequences.sources is not None else split.context
        with told_of("checkpoint"):
            found.append(sequence_losses(state, split.sequences, argument=argument, context=context, **seen.reading).loss)
    assert found[0] is not None
    if np.allclose(found[0], seen.members.loss, rtol=1e-6, atol=0):
        hint = "Give weights from earlier in the training."
        refuse("checkpoint", "be another state of the model", "one that says the same of every sequence", hint)
    return found[0], found[1]


def out_of_fold_losses_known(given: GivenOutputs, seen: Sequences) -> Known:
    """One loss per sequence of a model that was not trained on it: an order.

    Args:
        given: (n,) mean negative log-likelihoods in nats per token. seen: the audited sequences.

    Raises:
        InputError: several columns, negative numbers, the audited model's own losses, or losses of
            other sequences.
    """
    started = time.perf_counter()
    values = given.in_order_of(np.asarray(seen.identity["id"]), ARGUMENT)
    rule = "be one loss per training sequence, in nats per token"
    if values.shape[1] != 1:
        refuse(ARGUMENT, rule, f"{values.shape[1]} columns")
    losses = values[:, 0].astype(np.float64)
    if float(losses.min()) < 0:
        refuse(ARGUMENT, rule, f"{int((losses < 0).sum())} negative numbers", "A log-likelihood is minus that.")
    found = loss_agreement(losses, seen.members.loss, floor=FLOOR_NATS)
    if found.kind in ("equal", "reordered"):
        got = "the audited model's own" + (" in another order" if found.kind == "reordered" else "")
        refuse(ARGUMENT, "be losses of other models", got, "Give those of models that were not trained on the sequence.")
    if found.kind == "unrelated":
        got = f"losses without relation to the audited model's (rank correlation {found.correlation:.2f})"
        refuse(ARGUMENT, "be losses of the training sequences in their order", got, "Or give a file with the ids beside them.")
    source = Source(OUT_OF_FOLD, margins=-losses[None, :], membership=np.zeros((1, len(losses)), dtype=bool), role=FOLDS)
    stamp = {"trainings": 0.0, "matched_by": "position" if given.ids is None else "id"}
    evidence = Evidence(OUT_OF_FOLD, {"out_of_fold_loss": losses}, stamp=stamp, seconds=time.perf_counter() - started)
    return Known(source, evidence)


def sequence_exposure(
    seen: Sequences, known: Sequence[Known], columns: Mapping[str, Array], base: ReadBase | NotApplicable, options: Options
) -> tuple[Evidence, ...]:
    """One rank per sequence, and sizes where models with and without it were read.

    The statistic is −loss of a sequence, and the gain over the base is a covariate of the mixed
    model of `exposure`. Without any model that was trained without some of the sequences there is
    no exposure, base or none: what a fine-tuning gains on a sequence is as much its style.

    Args:
        seen: the audited sequences. known: what other models say. columns: name → (n,) of the
            training sequences. base: what was read of the base, or why nothing was.
        options: of the audit, for its false-positive rate and seed.
    """
    if not any(entry.source.margins is not None for entry in known):
        # Among members the gain orders sequences against what attacks find: docs/language_models.md
        return () if isinstance(base, NotApplicable) else (Evidence(SOURCE, absent=dict.fromkeys(_SIZES, BASE_ALONE)),)
    few = too_few_records(len(seen.members))
    if few is not None:
        return (Evidence(SOURCE, absent=dict.fromkeys(("exposure_score", *_SIZES), few)),)
    own, test = (-losses for losses in seen.losses)
    beside = {name: columns[name] for name in FREE_OF_SEQUENCES if name in columns}
    every = [*known]
    if not isinstance(base, NotApplicable):
        every.insert(0, Known(Source(BASE, covariates=beside), Evidence(BASE)))
    sizes = [len(losses) for losses in seen.losses if len(losses) > 1]
    fpr = resolved_level("auto", min(sizes)) if isinstance(options.fpr, str) else options.fpr
    return (weighed_exposure(Statistics(own, test, "larger"), every, {}, fpr=fpr, seed=options.seed),)

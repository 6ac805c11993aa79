"""The base of a fine-tuned language model: the same sequences under a model that never saw them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from noshadow._audit.given_language_models import language_model_given, require_same_tokenizer, require_tokenizer, why_no_base
from noshadow._audit.other_models import told_of
from noshadow.checks import NotApplicable, refuse
from noshadow.views import (
    SequenceLosses,
    adapters_of,
    context_of,
    model_inside,
    sequence_losses,
    storage_words,
    vocabulary_of,
    weights_sha256,
)

# Nats by which two passes of one model may differ, as a share of the log-probability where it is
# large: another order of sums.
SAME_TOKENS = 1e-6
ADAPTERS_OFF = "the audited model with its adapters switched off"


@dataclass(frozen=True, eq=False)
class Base:
    """A base that can be read.

    Attributes:
        model: to be run. adapters: False where it is the audited model itself, its adapters off.
        tokenizer: its own, where it came from a folder with one.
    """

    model: object
    adapters: bool
    tokenizer: object | None = None


@dataclass(frozen=True, eq=False)
class ReadBase:
    """What a base says of both splits.

    Attributes:
        train, test: its losses with what it says of each token; test is None without test records.
        stamp: facts about it (JSON-ready). notes: sentences a reader must see. seconds: it took.
    """

    train: SequenceLosses
    test: SequenceLosses | None
    stamp: dict[str, Any]
    notes: tuple[str, ...]
    seconds: float


def base_given(value: object, audited: object, tokenizer: object | None) -> Base | NotApplicable:
    """The base that was given, or the model with its adapters off; else why there is none.

    Raises:
        InputError: a base that cannot be one of this model (`language_model_given`), or a
            tokenizer that is none.
    """
    if tokenizer is not None:
        require_tokenizer(tokenizer)
    if value is None:
        why = why_no_base(audited)
        return Base(audited, adapters=False) if why is None else why
    made, own = language_model_given(value, audited, "base")
    require_same_tokenizer(tokenizer, own, "base")
    return Base(made, adapters=True, tokenizer=own)


def read_base(
    base: Base, audited: object, members: SequenceLosses, others: SequenceLosses | None, reading: Mapping[str, Any]
) -> ReadBase | NotApplicable:
    """Run the base over the sequences that the audited model was run over, token for token.

    Args:
        base: to be run. audited: the model under audit. members, others: what it says, with
            statistics. reading: how models are run.

    Returns:
        ReadBase; a reason where adapters that were switched off changed nothing.

    Raises:
        InputError: a base that cannot be read, or that was given and says the same of every token.
    """
    started = time.perf_counter()
    context = _context(base, members)
    with told_of("base"):
        train, test = (
            None
            if split is None
            else sequence_losses(
                base.model,
                split.sequences,
                argument=argument,
                context=context,
                statistics=True,
                adapters=base.adapters,
                **reading,
            )
            for argument, split in (("train", members), ("test", others))
        )
    assert train is not None
    if _says_the_same(members, train):
        if not base.adapters:
            return NotApplicable("switching the adapters off changes nothing: were they trained, and loaded?")
        refuse("base", "be another model", "one that says the same of every token", "Give the model before it was fine-tuned.")
    stamp = {
        "trainings": 0.0,
        "kind": "given" if base.adapters else "adapters off",
        "model": type(model_inside(base.model)).__name__,
        "weights": weights_sha256(base.model, train.loss) if base.adapters else None,
        "vocabulary": vocabulary_of(model_inside(base.model)).size,
        "context": train.context,
        "train_loss": float(train.loss.mean()),
        "test_loss": None if test is None else float(test.loss.mean()),
    }
    notes = (*_adapter_notes(base, audited), *_context_notes(base, members, train), *_storage_notes(base, audited))
    return ReadBase(train, test, stamp, notes, time.perf_counter() - started)


def _context(base: Base, members: SequenceLosses) -> int | None:
    """The context of the audited model, or of a base that holds less."""
    limits = [limit for limit in (members.context, context_of(model_inside(base.model))) if limit is not None]
    return None if members.sequences is None or members.sequences.sources is not None else min(limits, default=None)


def _says_the_same(members: SequenceLosses, train: SequenceLosses) -> bool:
    assert members.statistics is not None and train.statistics is not None
    one, other = (held.statistics.log_probability for held in (members, train) if held.statistics is not None)
    return bool((np.abs(one - other) <= SAME_TOKENS * np.maximum(np.abs(one), 1.0)).all())


def _adapter_notes(base: Base, audited: object) -> tuple[str, ...]:
    held = adapters_of(audited)
    if held is None or base.adapters:
        return ()
    told = f"the base is {ADAPTERS_OFF}: no second copy was made"
    if len(held.names) > 1:
        told += f"; of its {len(held.names)} adapters ({', '.join(held.names)}) {', '.join(held.active)} was audited"
    return (told,)


def _context_notes(base: Base, members: SequenceLosses, train: SequenceLosses) -> tuple[str, ...]:
    if train.context == members.context or (train.windows == 1).all():
        return ()
    kind = type(model_inside(base.model)).__name__
    return (
        f"the base ({kind}) reads {train.context} tokens at a time and the model {members.context}: long sequences are compared unevenly",
    )


def _storage_notes(base: Base, audited: object) -> tuple[str, ...]:
    own, others = (storage_words(one) for one in (audited, base.model))
    if own == others:
        return ()
    words = [f"the {who} in {held or 'full'}" for who, held in (("model", own), ("base", others))]
    return (f"weights are stored differently, {' and '.join(words)}: a part of each gain over the base is rounding",)

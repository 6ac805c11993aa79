"""From arrays of any framework to an Audit: `audit_signals`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noshadow._audit.gather import audit_view
from noshadow._audit.options import GivenColumns, Options
from noshadow._audit.other_models import base_source, checkpoint_source
from noshadow._audit.out_of_fold import out_of_fold_source
from noshadow._audit.output_files import given_outputs
from noshadow._audit.scale import in_logits
from noshadow._audit.score_options import HEAD, checked_score_options
from noshadow.arguments import PROGRESS
from noshadow.checks import named_in_errors, refuse, require_weights, resolved_task
from noshadow.outcomes import ARRAYS
from noshadow.results import Audit
from noshadow.signals import Signals, load_splits
from noshadow.traces import given_traces
from noshadow.views import View
from noshadow.weight_decay import training_damping

NO_FEATURES = "no features were given, and record scores need the last layer's inputs"
Pair = tuple[Signals, Signals]


@named_in_errors
def audit_signals(
    train: Signals,
    test: Signals,
    *,
    task: str = "auto",
    damping: float | str = "auto",
    weight_decay: float | None = None,
    fpr: float | str = "auto",
    ids: Sequence[object] | None = None,
    groups: Sequence[object] | None = None,
    test_groups: Sequence[object] | None = None,
    loss_traces: object = None,
    fit_intercept: bool = True,
    penalize_intercept: bool = True,
    sample_weight: object = None,
    output_scale: str = "auto",
    family: str = "auto",
    score_options: Mapping[str, Any] | None = None,
    checkpoint: object = None,
    out_of_fold: object = None,
    base: object = None,
    progress: bool = PROGRESS,
    seed: int = 0,
) -> Audit:
    """Audit any framework's model from arrays: Signals of the training records and of unseen ones.

    Arguments as in `audit`; `fit_intercept` and `penalize_intercept` describe the head the outputs
    came from. Without features the model-level risk remains and record scores read "not
    applicable".

    `output_scale` says whether the outputs of a classifier are "logits" or "probabilities" (log p
    is then taken, with a finding). "auto" recognises rows of probabilities; log-probabilities of
    classes are logits; one column within [0, 1] could be either and is asked for, unless the
    features or the labels settle it.

    `family` is the kind of model behind the outputs: "linear" and "network" are those the attack's
    rate is predicted for, any other name ("random forest") is not. "auto" takes outputs that are a
    linear function of the features for a linear head; without such features nothing is known, and
    nothing is predicted.

    `checkpoint` and `base` are what the other model says about the same records: the pair (train,
    test) of Signals, or the path of a file of both as `save_splits` writes it. A list holds several
    checkpoints. `out_of_fold` is as in `audit`.
    """
    handed_on = checked_score_options(score_options, HEAD)
    options = Options(
        task, damping, weight_decay, fpr, seed, progress, "audit_signals", output_scale=output_scale, score_options=handed_on, source=ARRAYS
    )
    given = GivenColumns(ids, groups, test_groups, given_traces(loss_traces))
    for name, split in (("train", train), ("test", test)):
        if not isinstance(split, Signals):
            refuse(name, "be Signals", type(split).__name__, "Build it with ns.Signals(features, outputs, targets).")
    if train.outputs.shape[1] != test.outputs.shape[1]:
        refuse("test", f"have the {train.outputs.shape[1]} outputs of train", f"{test.outputs.shape[1]}")
    if not isinstance(family, str) or not family:
        refuse("family", "be 'auto' or a name", repr(family))
    kind: dict[str, Any] = {} if family == "auto" else {"family": family}

    def read(pair: Pair) -> View:
        resolved = resolved_task(task, pair[0].outputs, pair[0].targets)
        seen = View(
            train=pair[0],
            test=pair[1],
            task=resolved,
            head=None,
            fit_intercept=fit_intercept,
            penalize_intercept=penalize_intercept,
            penalty=training_damping(options.weight_decay, resolved, *pair[0].outputs.shape),
            sample_weight=None if sample_weight is None else require_weights(sample_weight, len(pair[0])),
            class_names=None,
            not_applicable=None if pair[0].features is not None else NO_FEATURES,
            notes=(),
            weights_sha256="",
            inputs={"ids": {name: "given" if split.has_ids else None for name, split in zip(("train", "test"), pair, strict=True)}} | kind,
        )
        return in_logits(seen, output_scale)

    sources = (
        *checkpoint_source(_pairs(checkpoint, train, "checkpoint"), read, options),
        *out_of_fold_source(given_outputs(out_of_fold, "out_of_fold"), options),
        *base_source(_pairs(base, train, "base")[:1], read, options),
    )
    return audit_view(read((train, test)), options, given, signal_seconds=0.0, sources=sources)


def _pairs(value: object, train: Signals, argument: str) -> tuple[Pair, ...]:
    """The signals of other models, each as (train, test); none where nothing was given."""
    if value is None:
        return ()
    several = value if isinstance(value, list) else [value]
    if argument == "base" and len(several) != 1:
        refuse(argument, "be one model's signals", f"{len(several)}")
    return tuple(_pair(one, train, argument) for one in several)


def _pair(value: object, train: Signals, argument: str) -> Pair:
    if isinstance(value, (str, Path)):
        value = load_splits(value)[:2]
    if not (isinstance(value, tuple) and len(value) == 2 and all(isinstance(split, Signals) for split in value)):
        got = type(value).__name__
        refuse(argument, "be a pair (train, test) of Signals or the path of their file", got, "Models are given to audit.")
    pair: Pair = value
    if pair[0].has_ids and train.has_ids and not np.array_equal(pair[0].ids.astype(str), train.ids.astype(str)):
        refuse(argument, "hold the records of train in its order", "other ids", "Collect both with the same data.")
    return pair

"""What the stages of a model's own training say about its records: loss traces, a checkpoint."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from noshadow._audit.exposing import Known
from noshadow._audit.other_models import CHECKPOINTS
from noshadow._audit.settled import Settled
from noshadow._exposure import Source
from noshadow.checks import Array, NotApplicable
from noshadow.losses import record_losses
from noshadow.outcomes import Absent, not_applicable
from noshadow.results import Evidence
from noshadow.scores.baselines import record_entropies
from noshadow.scores.traces import early_trace_mean, loss_trace_iqr
from noshadow.scores.trees.boosting import stage_scores
from noshadow.traces.best import best_recording
from noshadow.views import Reader
from noshadow.views.pairing import paired_targets
from noshadow.views.view import Settings

# Rounds whose losses are kept, spread evenly over their logarithms: most is learnt in the first.
RECORDINGS = 32
# Losses of probabilities in float32, as a share of the mean loss.
SAME_LOSS = 1e-3
NO_TEST = Absent("not available", "it needs the losses of test records after each round, and the test split is empty")


@dataclass(frozen=True, eq=False)
class Stages:
    """Loss traces of the stages, and the stage with the lowest loss on test records."""

    traces: tuple[Evidence, ...] = ()
    known: tuple[Known, ...] = ()


def kept_rounds(count: int) -> Array:
    """Numbers of the rounds whose losses are kept, from 0; the first and the last among them."""
    return np.unique(np.round(np.geomspace(1, max(count, 1), RECORDINGS)).astype(np.int64)) - 1


def stage_evidence(reader: Reader, model: Any, train: object, test: object, found: Settled) -> Stages:
    """Losses after each round as traces: `lt_iqr`, and `early_loss` where there are test records.

    The stage whose loss on these is lowest is a checkpoint that the model kept by itself. The last
    stage must be the audited model itself. Nothing where the family keeps no stages.

    Cost: one prediction of every round for both splits; memory of RECORDINGS losses per record. The
    checkpoint costs the leaf scores of the rounds up to it once more.
    """
    stages_of = reader.history
    if isinstance(stages_of, NotApplicable):
        return Stages()
    started = time.perf_counter()
    how = {"settings": Settings()}
    try:
        count = sum(1 for _ in stages_of(model, _few(train), **how))
        if count < 2:
            return Stages()
        kept = kept_rounds(count)
        unseen = _losses(stages_of(model, test, **how), kept, found.unseen, found.task)[0] if len(found.unseen) else None
        best = None if unseen is None else best_recording(unseen)
        own, outputs = _losses(stages_of(model, train, **how), kept, found.targets, found.task, best)
    except NotApplicable as reason:
        return _without(not_applicable(reason))
    if not np.allclose(own[:, -1], found.losses[0], rtol=SAME_LOSS, atol=SAME_LOSS * float(found.losses[0].mean())):
        return _without(not_applicable("the last stage of the model is not what it predicts with"))
    columns, stamp = {"lt_iqr": loss_trace_iqr(own)}, {"last_recording": "equal", "recordings": len(kept), "rounds": (kept + 1).tolist()}
    if unseen is None or best is None or outputs is None:
        return Stages((Evidence("traces", columns, {"early_loss": NO_TEST}, (), stamp, time.perf_counter() - started),))
    columns["early_loss"] = early_trace_mean(own, best)
    traces = Evidence("traces", columns, {}, (), stamp | {"best_recording": best}, time.perf_counter() - started)
    if best == len(kept) - 1:
        return Stages((traces,))  # the audited model itself: no stage before it knew the test records better
    earlier = Earlier(int(kept[best]) + 1, own[:, best], outputs, float(unseen[:, best].mean()))
    return Stages((traces,), (_checkpoint(reader, model, train, earlier, found),))


def _without(why: Absent) -> Stages:
    return Stages((Evidence("traces", absent={"lt_iqr": why, "early_loss": why}),))


@dataclass(frozen=True, eq=False)
class Earlier:
    """The model after some rounds: (n,) losses, (n, m) outputs, mean loss on test records."""

    rounds: int
    losses: Array
    outputs: Array
    test_loss: float


def _checkpoint(reader: Reader, model: Any, train: object, earlier: Earlier, found: Settled) -> Known:
    """The earlier stage as a source: its losses, and its shift where its leaves can be rebuilt.

    They are covariates, as those of a checkpoint that was handed in: the stage was trained on the
    same records, but did not yet know them by heart.
    """
    started = time.perf_counter()
    columns, covariates = {"checkpoint_loss": earlier.losses}, {"checkpoint_loss": earlier.losses}
    if found.task != "regression":
        covariates["checkpoint_entropy"] = record_entropies(earlier.outputs, found.task)
    absent: dict[str, str] = {}
    try:
        if isinstance(reader.boosted, NotApplicable):
            raise reader.boosted
        training = reader.boosted(model, train, weights=found.seen.sample_weight, settings=Settings())
        scores = stage_scores(training, earlier.rounds).columns
        columns["checkpoint_shift"] = scores["shift"]
        covariates |= {f"checkpoint_{name}": scores[name] for name in ("shift", "leverage")}
    except NotApplicable as reason:
        absent["checkpoint_shift"] = not_applicable(reason)
    stamp = {"trainings": 0.0, "rounds": earlier.rounds, "test_loss": earlier.test_loss}
    evidence = Evidence(CHECKPOINTS, columns, absent, (), stamp, time.perf_counter() - started)
    return Known(Source(CHECKPOINTS, covariates=covariates), evidence)


def _few(data: Any) -> Any:
    """The first two records, to count rounds by; targets go with their inputs by their labels."""
    X, y = data
    y, _ = paired_targets(X, y, "train")
    return (X.iloc[:2] if hasattr(X, "iloc") else X[:2]), (y.iloc[:2] if hasattr(y, "iloc") else y[:2])


def _losses(stages: Iterator[Array], kept: Array, targets: Array, task: str, best: int | None = None) -> tuple[Array, Array | None]:
    """Losses (n, recordings) after the kept rounds, and the outputs (n, m) of recording `best`."""
    places, columns, held = {int(number): place for place, number in enumerate(kept)}, [], None
    for number, outputs in enumerate(stages):
        if number in places:
            rows = outputs.reshape(len(targets), -1)
            columns.append(record_losses(rows, targets, task))
            held = rows.copy() if places[number] == best else held
    return np.stack(columns, axis=1), held

"""What a boosted model's own rounds say about its records: leaf scores, stages as traces."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from noshadow._audit.evidence import Contradicted, LayeredScores
from noshadow._audit.options import Options
from noshadow._audit.settled import Settled
from noshadow.checks import Array, NotApplicable
from noshadow.losses import record_losses
from noshadow.outcomes import Absent, not_applicable
from noshadow.results import Evidence
from noshadow.scores.traces import early_trace_mean, loss_trace_iqr
from noshadow.scores.trees.boosting import LeafScores, boosting_scores
from noshadow.traces.best import best_recording
from noshadow.views import OtherRecords, Reader, View
from noshadow.views.view import Settings

# Rounds whose losses are kept, spread evenly over their logarithms: most is learnt in the first.
RECORDINGS = 32
# Losses of probabilities in float32, as a share of the mean loss.
SAME_LOSS = 1e-3
NO_OPTIONS = "scores of boosted trees have no options"
NO_TEST = Absent("not available", "it needs the losses of test records after each round, and the test split is empty")


def leaf_scores(reader: Reader, model: Any, train: object, seen: View, options: Options) -> LayeredScores | None:
    """Scores of a boosted model's records for the settled task; None for any other model.

    A model whose leaves cannot be rebuilt gets the reason in their place.
    """
    rounds_of = reader.boosted
    if isinstance(rounds_of, NotApplicable):
        return None

    def scores(task: str) -> LeafScores | Absent:
        options.refuse_score_options(NO_OPTIONS)
        try:
            return boosting_scores(rounds_of(model, train, weights=seen.sample_weight, settings=Settings()))
        except OtherRecords as reason:
            return Contradicted("not applicable", str(reason))
        except NotApplicable as reason:
            return not_applicable(reason)

    return scores


def kept_rounds(count: int) -> Array:
    """Numbers of the rounds whose losses are kept, from 0; the first and the last among them."""
    return np.unique(np.round(np.geomspace(1, max(count, 1), RECORDINGS)).astype(np.int64)) - 1


def stage_evidence(reader: Reader, model: Any, train: object, test: object, found: Settled, options: Options) -> tuple[Evidence, ...]:
    """Losses after each round as traces: `lt_iqr`, and `early_loss` where there are test records.

    The last stage must be the audited model itself. No evidence where the family keeps no stages.

    Cost: one prediction of every round for both splits; memory of RECORDINGS losses per record.
    """
    stages_of = reader.history
    if isinstance(stages_of, NotApplicable):
        return ()
    started = time.perf_counter()
    how = {"settings": Settings()}
    try:
        count = sum(1 for _ in stages_of(model, _few(train), **how))
        if count < 2:
            return ()
        kept = kept_rounds(count)
        own = _losses(stages_of(model, train, **how), kept, found.targets, found.task)
        unseen = _losses(stages_of(model, test, **how), kept, found.unseen, found.task) if len(found.unseen) else None
    except NotApplicable as reason:
        why = not_applicable(reason)
        return (Evidence("traces", absent={"lt_iqr": why, "early_loss": why}),)
    if not np.allclose(own[:, -1], found.losses[0], rtol=SAME_LOSS, atol=SAME_LOSS * float(found.losses[0].mean())):
        why = not_applicable("the last stage of the model is not what it predicts with")
        return (Evidence("traces", absent={"lt_iqr": why, "early_loss": why}),)
    columns, stamp = {"lt_iqr": loss_trace_iqr(own)}, {"last_recording": "equal", "recordings": len(kept), "rounds": (kept + 1).tolist()}
    if unseen is None:
        return (Evidence("traces", columns, {"early_loss": NO_TEST}, (), stamp, time.perf_counter() - started),)
    best = best_recording(unseen)
    columns["early_loss"] = early_trace_mean(own, best)
    return (Evidence("traces", columns, {}, (), stamp | {"best_recording": best}, time.perf_counter() - started),)


def _few(data: Any) -> Any:
    """The first two records, to count rounds by."""
    X, y = data
    return (X.iloc[:2] if hasattr(X, "iloc") else X[:2]), (y.iloc[:2] if hasattr(y, "iloc") else y[:2])


def _losses(stages: Iterator[Array], kept: Array, targets: Array, task: str) -> Array:
    """Losses (n, recordings) after the kept rounds."""
    wanted, columns = set(kept.tolist()), []
    for number, outputs in enumerate(stages):
        if number in wanted:
            columns.append(record_losses(outputs.reshape(len(targets), -1), targets, task))
    return np.stack(columns, axis=1)

"""Turn loss traces into the columns that they add to an audit.

Their last recording is compared with the losses of the audited model.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from noshadow._audit.risks import Pair
from noshadow.checks import Array, refuse
from noshadow.joins import Held, join, loss_agreement, loss_floor, require_agreement
from noshadow.outcomes import Absent
from noshadow.results import Evidence
from noshadow.scores.traces import early_trace_mean, loss_trace_iqr
from noshadow.traces import GivenTraces

_WHY = "was it made in training mode, on augmented records or before the last step?"
# What the exposure calls the `lt_iqr` of the rounds of a boosted model.
OF_ROUNDS = "range of the rounds"
NO_UNSEEN = Absent(
    "not available",
    "it needs losses of records that the training does not see; record with LossTraces(…, test=…), or append them as test_losses",
)


def trace_evidence(given: GivenTraces | None, ids: Array, losses: Pair, targets: Array | None, task: str) -> tuple[Evidence, ...]:
    """`lt_iqr` and `early_loss` of the traces in the order of the records; none without traces.

    A trace ends with the loss of the finished model, so the last recording says whose trace it is:
    the same losses under other records, or losses that have nothing to do with the audited ones,
    are refused. Others get a note with the rank correlation. Of unseen records only the mean
    counts, and they need not be those of the audit: where there are as many, and their last losses
    differ, a note says so.

    Args:
        given: the traces, or None. ids: (n,) of the training records. losses: of the audited model
            on training records, (n,), and on test records, (t,).
        targets: of the records, for the scale of squared losses. task: as audited.

    Raises:
        InputError: traces of other records, in another order, or of another model; traces of the
            training records in the place of unseen ones.
    """
    if given is None:
        return ()
    ordered = given.in_order_of(ids)
    floor = loss_floor(targets, task)
    last = Held(ids, losses=ordered[:, -1])
    found = join(last, Held(ids, losses=losses[0]), floor=floor)
    hint = "Record the losses of train in its order, or give LossTraces and this call the same ids=."
    notes = require_agreement(found, "the last recording of loss_traces", "the audited model", hint)
    assert found.losses is not None
    stamp: dict[str, Any] = {"last_recording": found.losses.kind, "correlation": found.losses.correlation}
    notes = tuple(f"{note}: {_WHY}" for note in notes)
    columns: dict[str, Array] = {"lt_iqr": loss_trace_iqr(ordered)}
    absent: dict[str, str] = {}
    if given.test_losses is None or given.best is None:
        absent["early_loss"] = NO_UNSEEN
    else:
        _require_unseen(given.losses, given.test_losses)
        columns["early_loss"] = early_trace_mean(ordered, given.best)
        kind, more = _unseen_agreement(given.test_losses[:, -1], losses[1], floor)
        stamp |= {"last_test_recording": kind}
        notes += more
    return (Evidence("traces", columns, absent, notes=notes, stamp=stamp | _course(given)),)


def trace_covariates(columns: Mapping[str, Array], stamp: Mapping[str, Any]) -> dict[str, Array]:
    """Columns of evidence as the exposure reads them, name → (n,), by the stamp of its traces.

    The rounds of a boosted model are no epochs of a training. Their `lt_iqr` ranks far worse there
    than `early_loss` does, and beside it makes the order worse on the choosing settings
    (benchmarks/results/tree_calibration, tree_tried.json). So it goes by a name that orders no
    records by itself, and stays a covariate beside other models.
    """
    if "rounds" not in stamp:
        return dict(columns)
    return {OF_ROUNDS if name == "lt_iqr" else name: values for name, values in columns.items()}


def traced_facts(traces: tuple[Evidence, ...]) -> dict[str, Any]:
    """What `provenance["inputs"]` keeps of how the traces were read."""
    return {"loss_traces": traces[0].stamp} if traces else {}


def _course(given: GivenTraces) -> dict[str, Any]:
    """How the training went: mean losses at the best and at the last recording, and half-way.

    Half of the recordings have a mean loss below the median.
    """
    facts: dict[str, Any] = {"recordings": given.losses.shape[1], "best_recording": given.best}
    for name, traced in (("train_loss", given.losses), ("test_loss", given.test_losses)):
        if traced is not None:
            means = traced.mean(axis=0)
            facts[name] = {"median": float(np.median(means)), "last": float(means[-1])}
            facts[name] |= {} if given.best is None else {"best": float(means[given.best])}
    return facts


def _require_unseen(losses: Array, test_losses: Array) -> None:
    """Refuse the training records in the place of unseen ones: their loss falls to the end."""
    if losses.shape != test_losses.shape or not np.ptp(losses, axis=0).any():
        return
    if np.array_equal(np.sort(losses, axis=0), np.sort(test_losses, axis=0)):
        hint = "Give LossTraces(…, test=…) the records of test or of a validation split."
        refuse("loss_traces", "trace unseen records beside the training's own", "the training records twice", hint)


def _unseen_agreement(last: Array, losses: Array, floor: float) -> tuple[str, tuple[str, ...]]:
    """How the last losses of traced unseen records go with those of the audited test records.

    Their order does not matter, for only their mean is used.
    """
    if len(last) != len(losses):
        return "other records", ()
    found = loss_agreement(last, losses, floor=floor)
    if found.kind in ("equal", "reordered"):
        return found.kind, ()
    ranked = "one of the two does not vary" if found.correlation is None else f"rank correlation {found.correlation:.3f}"
    return found.kind, (
        f"the last recording of the unseen records of loss_traces is not the audited model's loss on test for {len(found.differing)} of "
        f"{len(last)} records ({ranked}): other records of the same number are fine; of the same records, {_WHY}",
    )

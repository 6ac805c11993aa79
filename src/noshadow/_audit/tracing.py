"""Turn loss traces into the column that they add to an audit.

Their last recording is compared with the losses of the audited model.
"""

from typing import Any

from noshadow.checks import Array
from noshadow.joins import Held, join, loss_floor, require_agreement
from noshadow.results import Evidence
from noshadow.scores.traces import loss_trace_iqr
from noshadow.traces import GivenTraces

_WHY = "was it made in training mode, on augmented records or before the last step?"


def trace_evidence(given: GivenTraces | None, ids: Array, losses: Array, targets: Array | None, task: str) -> tuple[Evidence, ...]:
    """`lt_iqr` of the traces in the order of the records; no evidence without traces.

    A trace ends with the loss of the finished model, so the last recording says whose trace it is:
    the same losses under other records, or losses that have nothing to do with the audited ones,
    are refused. Others get a note with the rank correlation.

    Args:
        given: the traces, or None. ids: (n,) of the training records. losses: (n,) of the audited
            model.
        targets: of the records, for the scale of squared losses. task: as audited.

    Raises:
        InputError: traces of other records, in another order, or of another model.
    """
    if given is None:
        return ()
    ordered = given.in_order_of(ids)
    columns = {"lt_iqr": loss_trace_iqr(ordered)}
    last = Held(ids, losses=ordered[:, -1])
    found = join(last, Held(ids, losses=losses), floor=loss_floor(targets, task))
    hint = "Record the losses of train in its order, or give LossTraces and this call the same ids=."
    notes = require_agreement(found, "the last recording of loss_traces", "the audited model", hint)
    assert found.losses is not None
    stamp = {"last_recording": found.losses.kind, "correlation": found.losses.correlation}
    return (Evidence("traces", columns, notes=tuple(f"{note}: {_WHY}" for note in notes), stamp=stamp),)


def traced_facts(traces: tuple[Evidence, ...]) -> dict[str, Any]:
    """What `provenance["inputs"]` keeps of how the traces were read."""
    return {"loss_traces": traces[0].stamp} if traces else {}

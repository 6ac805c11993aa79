"""Looking at models while they are being trained: outputs in eval mode, and loss traces."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noshadow.checks import Array, as_array, floating, numeric_array, refuse, require_same_length
from noshadow.losses import record_losses, task_targets
from noshadow.reference.job import TrainingSetup

ROWS_AT_ONCE = 2048


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Models at the end of an epoch, valid until training goes on.

    Attributes:
        models: positions of these models among those being trained.
        outputs: (n, …) inputs → (models, n, m) outputs in eval mode.
    """

    models: tuple[int, ...]
    outputs: Callable[[Tensor], Tensor]


Observer = Callable[[int, Snapshot], None]


@dataclass(frozen=True, eq=False)
class TracedRecords:
    """Records whose losses are followed.

    They are inputs, and targets in the layout of `losses.task_targets`.
    """

    x: Tensor
    y: Array


def traced_records(records: object, job: TrainingSetup) -> TracedRecords:
    """Return the records named by True or by row numbers, or given as (x, y).

    True names the whole pool, and row numbers are those of the pool.
    """
    if records is True:
        return TracedRecords(job.x, job.y.numpy())
    if isinstance(records, tuple) and len(records) == 2:
        return _given_records(records[0], records[1], job)
    rows = as_array(records, "traces")
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or len(rows) == 0 or rows.min() < 0 or rows.max() >= len(job.x):
        refuse("traces", f"be True, row numbers in 0 … {len(job.x) - 1}, or a pair (x, y)", repr(records)[:60])
    chosen = torch.from_numpy(rows.astype(np.int64))
    return TracedRecords(job.x[chosen], job.y[chosen].numpy())


def _given_records(x: object, y: object, job: TrainingSetup) -> TracedRecords:
    inputs = numeric_array(x, "traced x", ndim=job.x.ndim)
    targets = numeric_array(y, "traced y", ndim=(1, 2))
    rows = require_same_length(x=inputs, y=targets)
    if rows == 0 or inputs.shape[1:] != tuple(job.x.shape[1:]):
        refuse("traced x", f"hold records of shape {tuple(job.x.shape[1:])}", f"shape {inputs.shape}")
    # Only the shape of the outputs matters to the check of the targets.
    shape = np.broadcast_to(0.0, (rows, job.outputs))
    return TracedRecords(torch.from_numpy(floating(inputs)).to(job.x.dtype), task_targets(shape, targets, job.task))


def snapshot_losses(snapshot: Snapshot, records: TracedRecords, task: str) -> Array:
    """Compute the loss of every traced record under every model of the snapshot.

    Losses are float64 (models, n), as the audit defines them.

    Cost: a forward pass of each model over the records.
    """
    losses = np.empty((len(snapshot.models), len(records.x)))
    for start in range(0, len(records.x), ROWS_AT_ONCE):
        stop = start + ROWS_AT_ONCE
        outputs = snapshot.outputs(records.x[start:stop]).numpy()
        for position, own in enumerate(outputs):
            losses[position, start:stop] = record_losses(own, records.y[start:stop], task)
    return losses


def recorder(traces: Array, records: TracedRecords, task: str) -> Observer:
    """An observer that fills traces[model, record, epoch]."""

    def record(epoch: int, snapshot: Snapshot) -> None:
        traces[list(snapshot.models), :, epoch] = snapshot_losses(snapshot, records, task)

    return record


def observed(observers: Sequence[Observer]) -> Observer:
    """One observer that calls each of several."""

    def observe(epoch: int, snapshot: Snapshot) -> None:
        for observer in observers:
            observer(epoch, snapshot)

    return observe

"""Record what one model leaves behind on the records.

That is the attack's statistic, losses, correctness and outputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from noshadow.arguments import BATCH_SIZE
from noshadow.checks import Array, as_array, refuse, require_one_label, require_output_columns, resolved_task
from noshadow.columns import LANGUAGE_MODEL
from noshadow.losses import correct_predictions, record_losses, record_margins, task_targets
from noshadow.output_scale import Part, logits_of, settled_scale
from noshadow.reference.pool import Pool
from noshadow.reference.queries import Query
from noshadow.reference.sequences import sequence_arrays, sequence_pool_losses
from noshadow.signals import Signals
from noshadow.views import collect_outputs, reader_of

TAKEN_BY_LOG = (
    "Outputs were given as probabilities, and their logarithms recorded as logits: near p = 1 rounding hides what sets records apart."
)
RETURNED = "return an nn.Module, a fitted scikit-learn estimator or the outputs of all records"


@dataclass(frozen=True)
class Reading:
    """How every model is read: the same for the target and all reference models."""

    task: str = "auto"
    queries: tuple[Query, ...] = ()
    keep_outputs: bool = True
    batch_size: int = BATCH_SIZE
    device: object = None
    output: str | int = "auto"
    output_scale: str = "auto"


def record_arrays(model: object, pool: Pool, reading: Reading) -> tuple[dict[str, Array], str, tuple[str, ...]]:
    """Arrays of one model over all records, the task, and notes on how its outputs were read.

    Args:
        model: an nn.Module, a fitted scikit-learn estimator, or its outputs (n, m) on all records.
        pool: the records. reading: how to read it.

    Returns:
        `statistic` float64 (n,): the margin φ = log p_y − log Σ_{c≠y} p_c, or the signed residual
        y − f of a regression, (n, q) with q outputs or queries, or −loss of a sequence; `loss`
        float64 (n,); `correct` bool (n,) of a classifier; `outputs` (n, m) if kept.

    Raises:
        InputError: the model cannot be read, an output is not finite, or outputs given as an array
            could be logits or probabilities.
    """
    if pool.sequences:
        return sequence_arrays(model, pool, batch_size=reading.batch_size, device=reading.device), LANGUAGE_MODEL, ()
    outputs, task, notes = pool_outputs(model, pool, reading)
    targets = task_targets(outputs, pool.targets, task)
    columns = [_statistic(outputs, targets, task)]
    for query in reading.queries:
        asked, _, _ = pool_outputs(model, pool, reading, transform=query)
        columns.append(_statistic(asked, targets, task))
    arrays = {"statistic": np.stack(columns, axis=1) if reading.queries else columns[0], "loss": record_losses(outputs, targets, task)}
    if task != "regression":
        arrays["correct"] = correct_predictions(outputs, targets, task)
    if reading.keep_outputs:
        arrays["outputs"] = outputs
    return arrays, task, notes


def require_one_statistic(pool: Pool, reading: Reading) -> None:
    """Refuse queries beside several residuals per record, before anything is trained.

    Both would share one axis.
    """
    if reading.task == "auto":
        require_one_label(pool.targets)
    several = pool.targets.ndim == 2 and (reading.task == "regression" or (reading.task == "auto" and pool.targets.dtype.kind == "f"))
    if reading.queries and several:
        got = f"{len(reading.queries)} beside {pool.targets.shape[1]} outputs"
        refuse("queries", "be empty in a regression with several outputs", got)


def pool_losses(model: object, pool: Pool, reading: Reading) -> Array:
    """Loss of every record under a model in eval mode, float64 (n,): one column of a loss trace."""
    if pool.sequences:
        return sequence_pool_losses(model, pool, batch_size=reading.batch_size, device=reading.device)
    outputs, task, _ = pool_outputs(model, pool, reading)
    return record_losses(outputs, task_targets(outputs, pool.targets, task), task)


def pool_outputs(
    model: object, pool: Pool, reading: Reading, *, transform: Callable[[Any], Any] | None = None
) -> tuple[Array, str, tuple[str, ...]]:
    """Compute raw outputs (n, m) of a model on all records, logits of a classifier.

    With them come the task they settle, and notes on how they were read.
    """
    reader = reader_of(model)
    if reader is None:
        if transform is not None:
            refuse("train_fn", "return a model when there are queries", f"{type(model).__name__}", "We ask it for each query.")
        outputs, settled = _given_outputs(model, len(pool)), "auto"
    else:
        outputs, settled = _collected(model, pool, reading, transform)
    if settled == "auto":
        task = resolved_task(reading.task, outputs, pool.targets)
    elif reading.task in ("auto", settled):
        task = settled
    else:
        refuse("task", f"be 'auto' or '{settled}' for this {type(model).__name__}", repr(reading.task))
    require_output_columns(outputs, task)
    if (reader is None or is_open(model)) and settled_scale(
        [Part(outputs, pool.targets)], task, reading.output_scale
    ).given == "probabilities":
        return logits_of([outputs], task)[0][0], task, (TAKEN_BY_LOG,)
    return outputs, task, ()


def is_open(model: object) -> bool:
    """Whether a model is a function of a table, whose outputs say no more of their scale.

    They are read as those of an array are, and as an audit reads them.
    """
    reader = reader_of(model)
    return reader is not None and reader.form == "table" and reader.open_scale


def training_outputs(model: object, pool: Pool, reading: Reading) -> Array:
    """Outputs of a model on the first split of a pool, on the scale that it gives them."""
    options = {name: getattr(reading, name) for name in ("task", "batch_size", "device", "output")}
    return collect_outputs(model, pool.splits[0], **options)[0].outputs


def _collected(model: object, pool: Pool, reading: Reading, transform: Callable[[Any], Any] | None) -> tuple[Array, str]:
    blocks: list[Array] = []
    start, settled = 0, "auto"
    for data, count in zip(pool.splits, pool.counts, strict=True):
        options = {name: getattr(reading, name) for name in ("task", "batch_size", "device", "output")}
        signals, settled = collect_outputs(model, data, transform=transform, **options)
        if not np.array_equal(signals.targets, pool.targets[start : start + count]):
            hint = "Number the classes 0 … m − 1, and let no transform change a target from pass to pass."
            refuse("targets", "be the same for every model", "others from this model's view of the data", hint)
        blocks.append(signals.outputs)
        start += count
    return np.concatenate(blocks) if len(blocks) > 1 else blocks[0], settled


def _given_outputs(value: object, n: int) -> Array:
    if not isinstance(value, (np.ndarray, Tensor, list, tuple)):
        got = f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"
        refuse("train_fn", RETURNED, got)
    array = as_array(value, "outputs returned by train_fn")
    if array.ndim not in (1, 2) or len(array) != n:
        refuse("train_fn", f"{RETURNED} ({n}, m), members or not", f"an array of shape {array.shape}")
    return Signals(None, array, np.zeros(n)).outputs


def _statistic(outputs: Array, targets: Array, task: str) -> Array:
    if task != "regression":
        return record_margins(outputs, targets, task)
    residuals: Array = targets - outputs.astype(np.float64)
    return residuals[:, 0] if residuals.shape[1] == 1 else residuals

"""The one loop over the batches of a split: inputs, what a model says of them, targets and ids."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from torch import Tensor

from noshadow.checks import Array, as_array, refuse
from noshadow.progress import tracked
from noshadow.views.batch import Batch
from noshadow.views.loading import Records


@dataclass(frozen=True, eq=False)
class Said:
    """What a model says of one batch, on the CPU.

    Attributes:
        outputs: (b, m) logits or predictions.
        features: (b, d) inputs of the head, or None.
        gaps: (b,) differences between the model's output and its head's, or None.
    """

    outputs: Tensor
    features: Tensor | None = None
    gaps: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Walked:
    """One batch of a walk over a split.

    Attributes:
        inputs: the model's arguments.
        targets: (b,) or (b, q).
        start, stop: the rows of these records in the split.
        ids: (b,) the records' names in the data's own terms; None where they are row numbers.
        said: what the model says of them; None on a walk without a model.
    """

    inputs: Batch
    targets: Array
    start: int
    stop: int
    ids: Array | None
    said: Said | None


@dataclass(frozen=True, eq=False)
class Collected:
    """What a walk with a model leaves behind, in the data's own order.

    Attributes:
        outputs: (n, m). targets: (n,) or (n, q). ids: (n,) or None.
        features: (n, d); None unless every batch had them.
        gaps: (n,), zero where none were given.
    """

    outputs: Array
    targets: Array
    ids: Array | None
    features: Array | None
    gaps: Array


Run = Callable[[Batch, int], Said]


def walked(
    records: Records, batch_size: int, *, argument: str, run: Run | None = None, description: str | None = None, progress: bool = False
) -> Iterator[Walked]:
    """Batches of a split in the data set's own order, each run through the model if there is one.

    Args:
        records: the split. batch_size: most records in a batch.
        argument: named in error messages.
        run: (batch, rows) → what the model says of a batch of so many records.
        description: of the progress bar; None: "Reading" and the argument.
        progress: draw the bar on a terminal.

    Raises:
        InputError: the batches do not hold every record of the data set, or the model does not give
            one row of outputs per record.

    Cost: one reading of the data; memory is that of one batch.
    """
    ids, start = records.rows, 0
    width: int | None = None
    title = f"Reading {argument}" if description is None else description
    total = -(-records.count // batch_size)
    steps = tracked(records.batches(batch_size), title, total=total, show=progress)
    with closing(steps) as batches:  # type: ignore[type-var]
        for batch in batches:
            targets = as_array(batch.target, f"{argument} targets")
            size = len(targets) if targets.ndim else 0
            stop = start + size
            said = None if run is None else run(batch, size)
            if said is not None:
                width = said.outputs.shape[1] if width is None else width
                if said.outputs.shape != (size, width) or stop > records.count:
                    refuse_rows(size, f"shape {tuple(said.outputs.shape)}")
            yield Walked(batch, targets, start, stop, None if ids is None else ids[start:stop], said)
            start = stop
    if start != records.count:
        hint = "Does collate_fn drop some?"
        refuse(argument, "give every record of its data set", f"{start} rows from {records.count} records", hint)


def refuse_rows(size: int, got: str) -> NoReturn:
    """Refuse a model that does not give one row of outputs per record of a batch."""
    hint = "Token-level heads are not supported: pool to one row per record, or pass arrays as Signals."
    refuse("model", f"give one row of outputs per record ({size} in a batch)", got, hint)


def collected(steps: Iterator[Walked], count: int) -> Collected:
    """Outputs, targets, ids and features of `count` records from one walk with a model.

    The arrays are filled in place, so that features are never held twice.
    """
    outputs: Array | None = None
    features: Array | None = None
    targets: list[Array] = []
    ids: list[Array] = []
    gaps = np.zeros(count)
    whole = True
    for step in steps:
        said, rows = step.said, slice(step.start, step.stop)
        assert said is not None
        outputs = _room(said.outputs, count) if outputs is None else outputs
        outputs[rows] = said.outputs.numpy()
        if said.gaps is not None:
            gaps[rows] = said.gaps.numpy()
        whole = whole and said.features is not None
        if whole and said.features is not None:
            features = _room(said.features, count) if features is None else features
            features[rows] = said.features.numpy()
        targets.append(step.targets)
        ids += [] if step.ids is None else [step.ids]
    assert outputs is not None
    stacked = np.concatenate(targets)
    one_column = stacked.ndim == 2 and stacked.shape[1] == 1
    return Collected(
        outputs=outputs,
        targets=stacked[:, 0] if one_column else stacked,
        ids=np.concatenate(ids) if ids else None,
        features=features if whole else None,
        gaps=gaps,
    )


def _room(block: Tensor, count: int) -> Array:
    return np.empty((count, block.shape[1]), str(block.dtype).removeprefix("torch."))

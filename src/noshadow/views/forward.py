"""Run one forward pass over a split.

What the model says of each record is held against what its head says.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noshadow.views.batch import Batch
from noshadow.views.chosen_output import Ran, part_at
from noshadow.views.endings import as_rows, logits_of, row_differences
from noshadow.views.head import Head, Source, called, described
from noshadow.views.loading import Records
from noshadow.views.pooled_head import pooled, watched_positions
from noshadow.views.view import Settings
from noshadow.views.walk import Collected, Said, collected, refuse_rows, walked

ROWS_NAMED = 10
# The head's run for the batch just read, given the model's own output; None where it did not run.
LastRun = Callable[[Tensor | None], Ran | None]


def forward_pass(
    model: nn.Module, source: Source, records: Records, device: torch.device, settings: Settings, argument: str, *, features: bool
) -> Collected:
    """Run the model over the records once.

    Args:
        model: in eval mode, under no_grad; random states are seeded by the caller.
        source: where its output is read, and its head if it has one.
        records: the split. argument: its name in error messages.
        device: where the model is. settings: batch size, progress.
        features: whether to keep the inputs of the head.

    Returns:
        The outputs are the head's own where the model's ending says the same, else the model's; of
        a head that the caller named, its own throughout. The gaps say by how much the model's
        output differs from the ending of its head's. Features are None when they were not asked
        for, or when the head did not run for every record.

    Raises:
        InputError: a batch does not give one row of outputs per record, or records are missing.

    Cost: one forward pass; memory is that of what is kept and one batch.
    """
    runs = _pooled_run if source.head is not None and source.head.pooled else _last_run
    with runs(source.head, features=features) as last:

        def run(batch: Batch, size: int) -> Said:
            returned = called(model, batch, device)
            own = None if source.path is None else part_at(returned, source.path)
            ran = last(own)
            outputs, gaps = _outputs_of(source, None if ran is None else ran.raw, own, size)
            return Said(outputs, None if ran is None or not features else ran.given, gaps)

        steps = walked(records, settings.batch_size, argument=argument, run=run, progress=settings.progress)
        return collected(steps, records.count)


def head_agreement(source: Source, passes: Mapping[str, Collected]) -> dict[str, Any]:
    """Report how far the outputs of the splits are those of the head (JSON-ready).

    Finding NS043 is drawn from this.

    Keys: `layer`, `ending` and `output` (the way to the model's output, "" for a lone tensor),
    `used` ("model", or "layer" when the caller named it), `records` compared, `differing`,
    `largest` difference (None when shapes differ too), `first` (the split and row of the first),
    `train_rows` (up to ten).
    """
    assert source.head is not None
    places = {name: np.flatnonzero(one.gaps) for name, one in passes.items()}
    first = next(((name, int(rows[0])) for name, rows in places.items() if len(rows)), None)
    largest = max((float(one.gaps.max(initial=0.0)) for one in passes.values()), default=0.0)
    return {
        "layer": source.head.name,
        "ending": source.head.ending,
        "output": ".".join(source.path or ()),
        "used": "layer" if source.head.asked else "model",
        "records": sum(len(one.gaps) for one in passes.values()),
        "differing": sum(map(len, places.values())),
        "largest": largest if np.isfinite(largest) else None,
        "first": None if first is None else {"split": first[0], "row": first[1]},
        "train_rows": [int(row) for row in places.get("train", np.empty(0))[:ROWS_NAMED]],
    }


def disagreement(head: Head, facts: Mapping[str, Any]) -> str | None:
    """In words what `head_agreement` found, None when every output is the head's."""
    if not facts["differing"]:
        return None
    under = f"the {head.ending} of " if head.ending else ""
    size = "" if facts["largest"] is None else f" by up to {facts['largest']:.3g}"
    where = f"the first in row {facts['first']['row']} of {facts['first']['split']}"
    return (
        f"the model's outputs differ from {under}{described(head.name, head.layer)} for {facts['differing']} of {facts['records']} "
        f"records{size}, {where}"
    )


def _outputs_of(source: Source, raw: Tensor | None, own: Tensor | None, size: int) -> tuple[Tensor, Tensor]:
    """Return a batch's outputs (size, m) on the CPU, and each record's difference from the head."""
    head = source.head
    mine = None if own is None else as_rows(_held(own), size)
    if head is not None and (raw is not None or head.asked):
        shape = "nothing" if raw is None else tuple(raw.shape)
        if raw is None or shape != (size, head.layer.out_features):
            refuse_rows(size, f"{shape} from '{head.name}'")
        comparable = mine if mine is not None and mine.shape == raw.shape else None
        gap = _everywhere(size) if comparable is None else row_differences(head.ending, raw, comparable)
        if head.asked or not bool(gap.any()):
            return _kept(raw), gap
    else:
        gap = torch.zeros(size, dtype=torch.float64) if head is None else _everywhere(size)
    if mine is None or (head is not None and mine.shape[1] != head.layer.out_features):
        got = "nothing" if own is None else f"shape {tuple(own.shape)}"
        refuse_rows(size, got)
    if head is None or raw is None:
        return _kept(mine if head is None else logits_of(head.ending, mine)), gap
    block, rows = _kept(raw).clone(), gap > 0
    block[rows] = logits_of(head.ending, mine[rows]).to(block.dtype)
    return block, gap


def _everywhere(size: int) -> Tensor:
    """Return an infinite difference for every record, where no number can say how large it is."""
    return torch.full((size,), torch.inf, dtype=torch.float64)


def _held(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu")


def _kept(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float64 if tensor.dtype == torch.float64 else torch.float32)


@contextmanager
def _last_run(head: Head | None, *, features: bool) -> Iterator[LastRun]:
    """Yield a function that gives the head's last run, copied to the CPU, and forgets it.

    It is copied because a later operation in place must not change it.
    """
    last: list[Ran] = []

    def taken(_: Tensor | None) -> Ran | None:
        return last.pop() if last else None

    if head is None:
        yield taken
        return

    def keep(_: object, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> None:
        given = args[0] if args else kwargs["input"]
        inputs = _kept(given.detach().to("cpu", copy=True)) if features else torch.empty(0)
        last[:] = [Ran(head.name, inputs, output.detach().to("cpu", copy=True))]

    hook = head.layer.register_forward_hook(keep, with_kwargs=True)
    try:
        yield taken
    finally:
        hook.remove()


@contextmanager
def _pooled_run(head: Head | None, *, features: bool) -> Iterator[LastRun]:
    """Yield a function that pools the head's last run as the model did to get its output."""
    assert head is not None
    with watched_positions(head.layer) as seen:

        def taken(own: Tensor | None) -> Ran | None:
            found = None if own is None else pooled(seen, own)
            seen.given = seen.raw = None
            torch.set_grad_enabled(False)
            if found is None:
                return None
            return Ran(head.name, _kept(_held(found[0])) if features else torch.empty(0), _held(found[1]))

        yield taken

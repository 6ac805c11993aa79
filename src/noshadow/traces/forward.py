"""Losses of all records under an nn.Module in the middle of its training, which goes on as if nothing had happened."""

import random
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from noshadow.checks import Array, InputError, as_array, numeric_array, refuse, require_output_columns, resolved_task
from noshadow.losses import record_losses, task_targets
from noshadow.views.head import Head, called, found_head
from noshadow.views.loading import Batch, Records, records_of
from noshadow.views.torch import PROBE_RECORDS, _undisturbed, require_fitting_task
from noshadow.views.view import Settings


def module_losses(
    model: nn.Module, data: object, *, task: str, settings: Settings, last_head: nn.Linear | None
) -> tuple[Array, nn.Linear | None]:
    """Loss of each record, (n,), which may be NaN when training diverged, and the Linear that was read.

    The Linear is the one `audit` reads. Where no Linear gives the output, as in transformers that pool the logits of
    tokens, `.logits` of the output is taken and the second value is None.

    Args:
        model: any nn.Module that `audit` reads, or one whose output has `.logits`, one row per record.
        data: the records, as for `audit`.
        task: "auto" or a task.
        settings: how to run.
        last_head: the Linear read before. A diverged model's head cannot be told by its output: NaN equals nothing.

    Raises:
        InputError: the model or the data cannot be read.
    """
    owner = settings.owner
    records = records_of(data, owner, "data", seed=settings.seed)
    if records.count == 0:
        refuse(owner, "data", "hold at least one record", "none")
    layer = settings.layer
    if layer == "auto":
        layer = next((name for name, module in model.named_modules() if module is last_head), "auto")
    with _undisturbed(model, settings) as device:
        _seed_transforms(settings.seed)
        batch = next(iter(records.batches(min(PROBE_RECORDS, settings.batch_size))))
        head = _head_unless_logits(model, batch, device, layer=layer, owner=owner)
        outputs, targets = _outputs_and_targets(model, head, records, device, settings)
    settled = resolved_task(task, outputs, targets, owner)
    require_output_columns(outputs, settled, owner)
    if head is not None:
        require_fitting_task(head, settled, owner)
    losses = record_losses(outputs, task_targets(outputs, targets, settled, owner), settled)
    return losses, None if head is None else head.layer


def _head_unless_logits(model: nn.Module, batch: Batch, device: torch.device, *, layer: str, owner: str) -> Head | None:
    try:
        return found_head(model, batch, device, layer=layer, owner=owner)
    except InputError:
        if layer != "auto" or _logits(called(model, batch, device, owner)) is None:
            raise
        return None


def _logits(output: object) -> Tensor | None:
    """What an output calls its logits, when that is one row per record."""
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    return named if isinstance(named, Tensor) and named.ndim == 2 else None


def _outputs_and_targets(
    model: nn.Module, head: Head | None, records: Records, device: torch.device, settings: Settings
) -> tuple[Array, Array]:
    """Raw outputs (n, m) and targets of all records, as the views collect them but without features."""
    owner = settings.owner
    outputs: list[Array] = []
    targets: list[Array] = []
    _seed_transforms(settings.seed)
    with _last_output(head) as last, closing(iter(records.batches(settings.batch_size))) as batches:  # type: ignore[type-var]
        for batch in batches:
            target = as_array(batch.target, owner, "data targets")
            last.clear()
            output = called(model, batch, device, owner)
            given = (last[-1] if last else None) if head is not None else _logits(output)
            shape = None if given is None else tuple(given.shape)
            size = len(target) if target.ndim else 0
            if given is None or shape != (size, outputs[0].shape[1] if outputs else given.shape[-1]):
                source = ".logits" if head is None else f"'{head.name}'"
                refuse(owner, "model", f"give one row of outputs per record ({size} in a batch)", f"{shape or 'nothing'} from {source}")
            outputs.append(given.to("cpu", torch.float64 if given.dtype == torch.float64 else torch.float32, copy=True).numpy())
            targets.append(target)
    rows = sum(map(len, outputs))
    if rows != records.count:
        refuse(
            owner, "data", "give every record of its data set", f"{rows} rows from {records.count} records", "Does collate_fn drop some?"
        )
    stacked = numeric_array(np.concatenate(targets), owner, "data targets", ndim=(1, 2))
    return np.concatenate(outputs), stacked[:, 0] if stacked.ndim == 2 and stacked.shape[1] == 1 else stacked


@contextmanager
def _last_output(head: Head | None) -> Iterator[list[Tensor]]:
    """A list whose last element is the head's latest output, copied: a later operation in place would change it."""
    kept: list[Tensor] = []
    if head is None:
        yield kept
        return
    hook = head.layer.register_forward_hook(lambda _, __, output: kept.append(output.detach().clone()))
    try:
        yield kept
    finally:
        hook.remove()


def _seed_transforms(seed: int) -> None:
    """Random transforms of users' data draw what they draw in an audit; generators of GPUs stay as training left them."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - users' transforms draw from it

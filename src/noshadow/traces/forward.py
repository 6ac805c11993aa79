"""Compute losses of all records under an nn.Module in the middle of its training.

Training goes on as if nothing had happened.
"""

import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from noshadow.checks import Array, numeric_array, refuse, require_output_columns, resolved_task
from noshadow.losses import record_losses, task_targets
from noshadow.views.forward import forward_pass
from noshadow.views.head import Source, found_source
from noshadow.views.loading import records_of
from noshadow.views.torch import PROBE_RECORDS, require_fitting_task
from noshadow.views.undisturbed import undisturbed
from noshadow.views.view import Settings
from noshadow.views.walk import Collected


def module_losses(
    model: nn.Module, splits: Mapping[str, object], *, task: str, settings: Settings, last: Source | None
) -> tuple[list[Array], Source]:
    """Compute the loss of each record of each split, (n,), and say where the outputs were read.

    A loss may be NaN when training diverged.

    The output is the one `audit` reads. Where no Linear gives it, as in transformers that pool the
    logits of tokens, what is called its logits is taken, or the output that the caller named.

    Args:
        model: any nn.Module that `audit` reads, or one whose output has `.logits`, one row per
            record.
        splits: argument that error messages name → the records, as for `audit`. The first one
            settles the task.
        task: "auto" or a task.
        settings: how to run.
        last: where the outputs were read before. A diverged model's head cannot be told by its
            output: NaN equals nothing.

    Raises:
        InputError: the model or the data cannot be read.
    """
    owner = settings.owner
    records = {name: records_of(data, owner, name, seed=settings.seed) for name, data in splits.items()}
    for name, held in records.items():
        if held.count == 0:
            refuse(owner, name, "hold at least one record", "none")
    with undisturbed(model, settings) as device:
        if last is not None and (last.head is None or any(module is last.head.layer for module in model.modules())):
            source = last
        else:
            _seed_transforms(settings.seed)
            batch = next(iter(next(iter(records.values())).batches(min(PROBE_RECORDS, settings.batch_size))))
            source = found_source(model, batch, device, settings, headless="logits")
        passes = {}
        for name, held in records.items():
            _seed_transforms(settings.seed)
            passes[name] = forward_pass(model, source, held, device, settings, name, features=False)
    losses = []
    for name, found in passes.items():
        values, task = _losses(found, source, task, owner, name)
        losses.append(values)
    return losses, source


def _losses(found: Collected, source: Source, task: str, owner: str, name: str) -> tuple[Array, str]:
    """The losses of a split, and the task they were settled by."""
    targets = numeric_array(found.targets, owner, f"{name} targets", ndim=(1, 2))
    settled = resolved_task(task, found.outputs, targets, owner)
    require_output_columns(found.outputs, settled, owner)
    if source.head is not None:
        require_fitting_task(source.head, settled, owner)
    return record_losses(found.outputs, task_targets(found.outputs, targets, settled, owner), settled), settled


def _seed_transforms(seed: int) -> None:
    """Seed the random transforms of users' data, so that they draw what they draw in an audit.

    Generators of GPUs stay as training left them.
    """
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - users' transforms draw from it

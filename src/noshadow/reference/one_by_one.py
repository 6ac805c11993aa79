"""Train one model by the plain loop with torch's own optimisers and nothing clever.

The vectorised engine is held against it.
"""

import numpy as np
import torch
from torch import Tensor, nn

from noshadow.checks import users_code
from noshadow.reference.job import TrainingSetup, epoch_orders, fresh_module, mean_loss, output_rows, own_generator, require_still_finite
from noshadow.reference.snapshots import Observer, Snapshot

FORWARD_RULE = "the module must train on batches of the pool"


def trained_module(job: TrainingSetup, indices: Tensor, seed: int, *, observe: Observer, position: int = 0) -> nn.Module:
    """The module of this seed trained on these rows, in eval mode.

    Args:
        job: the recipe. indices: int64 (n,) rows of the pool. seed: of initial weights and batch
            order.
        observe: called before training (epoch 0) and after each epoch.
        position: what the model is called in snapshots and errors.

    Raises:
        InputError: the module fails on a batch. NumericalError: the loss became NaN.
    """
    module = fresh_module(job.build, seed, job.x.dtype)
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimiser = job.optimiser(trainable, fused=False)
    rates, snapshot = job.rates(len(indices)), Snapshot((position,), lambda x: _eval_outputs(module, x))
    with own_generator(seed):
        observe(0, snapshot)
        for epoch, order in enumerate(epoch_orders(job, indices, seed), 1):
            for start, stop in job.batches(len(indices)):
                rows = order[start:stop]
                optimiser.param_groups[0]["lr"] = next(rates)
                optimiser.zero_grad()
                with users_code(FORWARD_RULE):
                    outputs = output_rows(module(job.x.index_select(0, rows)), len(rows))
                    mean_loss(outputs, job.y.index_select(0, rows), job.task).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            finite = all(bool(parameter.isfinite().all()) for parameter in trainable)
            require_still_finite(np.array([finite]), [position], epoch)
            observe(epoch, snapshot)
    optimiser.zero_grad()
    return module.eval()


def _eval_outputs(module: nn.Module, x: Tensor) -> Tensor:
    """(1, n, m) outputs in eval mode, from which the module returns to training mode."""
    module.eval()
    try:
        with torch.no_grad(), users_code("the module must predict records of the pool"):
            return output_rows(module(x), len(x))[None]
    finally:
        module.train()

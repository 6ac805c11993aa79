"""TrainingSetup: a checked recipe as the two training engines read it.

The module also holds what both engines share.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noshadow.checks import Array, NumericalError, as_array, refuse, said, users_code, whole_seed
from noshadow.reference.schedules import Schedule, schedule_factors

OPTIMISERS: dict[str, type[torch.optim.Optimizer]] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
# Keep the streams that order the batches and that modules may draw from apart from the one of the
# initial weights.
_ORDER_STREAM, _FORWARD_STREAM = 0x2545F491, 0x6C078965


@dataclass(frozen=True, eq=False)
class TrainingSetup:
    """What is trained, on what, how.

    Attributes:
        build: zero-argument factory of the module.
        x: (N, …) inputs of the pool, float32 or float64. y: their targets in the layout of
            `losses.task_targets`.
        task: "classification", "binary" or "regression". outputs: number m of the module's outputs.
        options: keyword arguments of the torch optimiser named by `optimizer`, its lr among them.
        epochs: of the whole training, which the schedule is drawn for. stop: the epoch after which
            it ends, None for the last.
    """

    build: Callable[[], nn.Module]
    x: Tensor
    y: Tensor
    task: str
    outputs: int
    epochs: int
    stop: int | None
    batch_size: int
    shuffle: bool
    drop_last: bool
    optimizer: str
    options: dict[str, Any]
    schedule: Schedule
    warmup: float
    milestones: Sequence[int]
    gamma: float

    @property
    def last_epoch(self) -> int:
        """The epoch after which training ends."""
        return self.epochs if self.stop is None else self.stop

    def batches(self, n: int) -> list[tuple[int, int]]:
        """Return (start, stop) of the batches of an epoch over n records.

        The last batch may be shorter, or is dropped.
        """
        whole = n // self.batch_size * self.batch_size if self.drop_last else n
        return [(start, min(start + self.batch_size, whole)) for start in range(0, whole, self.batch_size)]

    def rates(self, n: int) -> Iterator[float]:
        """Learning rate of each step of a whole training on n records."""
        factors = schedule_factors(
            self.schedule,
            epochs=self.epochs,
            steps=len(self.batches(n)),
            warmup=self.warmup,
            milestones=self.milestones,
            gamma=self.gamma,
        )
        return iter([self.options["lr"] * factor for factor in factors])

    def optimiser(self, parameters: Sequence[Tensor], *, fused: bool) -> torch.optim.Optimizer:
        """Make the torch optimiser, as its plain loop or as its one-pass kernel.

        Both compute the same formula, elementwise.
        """
        return OPTIMISERS[self.optimizer](parameters, **self.options, fused=fused or None)  # type: ignore[call-arg]


def fresh_module(build: Callable[[], nn.Module], seed: int, dtype: torch.dtype) -> nn.Module:
    """Build the module under the seed, in the pool's precision and training mode.

    The caller's generator is left alone.
    """
    with torch.random.fork_rng(devices=[]), users_code("build must make a module without arguments"):
        # Only the CPU's generator: torch.manual_seed would reach those of other devices too.
        torch.default_generator.manual_seed(seed)
        module: object = build()
    if not isinstance(module, nn.Module):
        refuse("build", "return a torch.nn.Module", type(module).__name__)
    if not any(parameter.requires_grad for parameter in module.parameters()):
        refuse("build", "return a module with parameters to train", type(module).__name__)
    return module.to(dtype).train()


@contextmanager
def own_generator(seed: int) -> Iterator[None]:
    """Put torch's CPU generator into a state that follows from the model's seed.

    It serves modules that draw while they train, and is put back after.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed ^ _FORWARD_STREAM)
        yield


def epoch_orders(job: TrainingSetup, indices: Tensor, seed: int) -> Iterator[Tensor]:
    """Yield the training rows in the order of each epoch.

    Each epoch has its own permutation, drawn from a generator of the model's own.
    """
    generator = torch.Generator().manual_seed(seed ^ _ORDER_STREAM)
    for _ in range(job.last_epoch):
        yield indices[torch.randperm(len(indices), generator=generator)] if job.shuffle else indices


def mean_loss(outputs: Tensor, targets: Tensor, task: str) -> Tensor:
    """Mean loss of a batch as torch's own losses define it: what is minimised."""
    if task == "classification":
        return F.cross_entropy(outputs, targets)
    if task == "binary":
        return F.binary_cross_entropy_with_logits(outputs[:, 0], targets)
    return F.mse_loss(outputs, targets)


def output_rows(outputs: object, rows: int) -> Tensor:
    """A module's outputs as (rows, m); one number per record becomes a column."""
    if not isinstance(outputs, Tensor):
        refuse("build", "return a module that gives a tensor", type(outputs).__name__)
    table = outputs[:, None] if outputs.ndim == 1 else outputs
    if table.ndim != 2 or len(table) != rows:
        refuse("build", f"return a module that gives one row of outputs a record ({rows})", f"shape {tuple(outputs.shape)}")
    return table


def training_rows(indices: object, job: TrainingSetup) -> Tensor:
    """Check row numbers of the pool to train on, int64 (n,).

    They must be in range, none twice, and enough for one batch.
    """
    rows = as_array(indices, "indices")
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        got = f"dtype {rows.dtype} and shape {rows.shape}"
        refuse("indices", "be a 1-dimensional array of row numbers", got, "Of a mask, take np.flatnonzero.")
    if len(rows) == 0:
        refuse("indices", "hold at least one row", "none")
    if int(rows.min()) < 0 or int(rows.max()) >= len(job.x):
        refuse("indices", f"lie in 0 … {len(job.x) - 1}", f"{rows.min()} to {rows.max()}")
    values, counts = np.unique(rows, return_counts=True)
    if len(values) < len(rows):
        refuse("indices", "name each row once", f"row {values[counts.argmax()]} {counts.max()} times")
    if not job.batches(len(rows)):
        refuse("indices", f"fill one batch of {job.batch_size} with drop_last", f"{len(rows)} rows")
    return torch.from_numpy(rows.astype(np.int64))


def training_seed(seed: object) -> int:
    """Check a model's seed.

    Seeds that agree in their lowest 32 bits are one to torch's generator, so larger ones are
    refused.
    """
    whole = whole_seed(seed)
    if whole >= 2**32:
        refuse("seed", "be < 2³², all that torch's generator reads", whole)
    return whole


def require_still_finite(finite: Array, positions: Sequence[int], epoch: int) -> None:
    """Stop at the epoch in which a model's parameters, and so its loss, stopped being finite."""
    if not finite.all():
        model = positions[int(np.argmin(finite))]
        raise NumericalError(said(f"the training loss of model {model} must stay finite; it became NaN in epoch {epoch}. Lower lr."))

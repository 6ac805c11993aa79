"""Recipe: the user's training function, which trains the target and its references alike.

It trains models one by one or many at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from noshadow.checks import (
    Array,
    InputError,
    named_in_errors,
    numeric_array,
    refuse,
    require_choice,
    require_number,
    require_output_columns,
    require_same_length,
    require_whole,
    resolved_task,
    said,
    users_code,
)
from noshadow.losses import task_targets
from noshadow.reference.function_names import function_name
from noshadow.reference.job import OPTIMISERS, TrainingSetup, fresh_module, output_rows, training_rows, training_seed
from noshadow.reference.one_by_one import trained_module
from noshadow.reference.schedules import Schedule, require_schedule
from noshadow.reference.snapshots import Observer, observed, recorder, traced_records
from noshadow.reference.vectorised import reason_not_vectorisable, trained_modules

PROBE_RECORDS = 8
BETAS, EPS = (0.9, 0.999), 1e-8


@dataclass(frozen=True, eq=False)
class Recipe:
    """A training function: module, data and every hyper-parameter.

    The same object trains the target and its references.

    `recipe(indices, seed)` is the plain loop over torch's own optimiser. `recipe.train_many` trains
    many models at once and gives the same models to rounding. A model's seed decides its initial
    weights (torch's generator is seeded while `build` runs, and put back) and the order of its
    batches (a permutation of its rows each epoch); it decides the masks of `SeededDropout` too.
    Losses: mean cross-entropy, binary cross-entropy with logits, MSELoss. On the CPU.

    Attributes:
        build: zero-argument factory of an nn.Module that gives (b, m) outputs, logits in a
            classification.
        x: (N, …) inputs of the whole pool; float64 stays and makes the training float64, all else
            becomes float32. The caller's memory is shared where it can be.
        y: (N,) labels, (N, m) rows of probabilities, or (N,) or (N, q) floats.
        task: "classification", "binary", "regression"; "auto" (settled when the recipe is made) as
            in `audit`.
        epochs: passes over the rows. batch_size: rows per step; the last batch of an epoch may be
            shorter.
        stop: epoch after which training ends, None for the last; the schedule stays that of all
            `epochs`.
        optimizer: "sgd" (with momentum, nesterov), "adam" or "adamw" (with betas, eps); lr,
            weight_decay for all.
        schedule: "constant", "cosine", "linear", "step" (with milestones in epochs, and gamma) or a
            callable (step, total) → factor on lr; see `schedules.schedule_factors`. warmup: share
            of the steps with rising lr.
        drop_last: leave out a last batch that is shorter. shuffle: permute the rows each epoch.

    Raises:
        InputError: a value out of its range, data that do not fit each other, or a build that makes
            no such module.

    Example:
        >>> import functools
        >>> build = functools.partial(nn.Linear, 2, 1)
        >>> recipe = Recipe(
        ...     build,
        ...     [[0.0, 1.0], [1.0, 0.0]],
        ...     [0.3, 0.7],
        ...     epochs=3,
        ...     batch_size=2,
        ...     optimizer="sgd",
        ...     lr=0.1,
        ... )
        >>> one, many = recipe([0, 1], seed=5), recipe.train_many([[0, 1], [1]], seeds=[5, 6])
        >>> bool(torch.allclose(one.weight, many[0].weight))
        True
    """

    build: Callable[[], nn.Module]
    x: Any = field(repr=False)
    y: Any = field(repr=False)
    _: KW_ONLY
    epochs: int
    batch_size: int
    lr: float
    task: str = "auto"
    optimizer: str = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    betas: tuple[float, float] = BETAS
    eps: float = EPS
    weight_decay: float = 0.0
    schedule: Schedule = "constant"
    warmup: float = 0.0
    milestones: Sequence[int] = ()
    gamma: float = 0.1
    drop_last: bool = False
    shuffle: bool = True
    stop: int | None = None
    outputs: int = field(init=False, repr=False)

    @named_in_errors
    def __post_init__(self) -> None:
        _require_optimiser(self)
        milestones = require_schedule(self.schedule, epochs=self.epochs, warmup=self.warmup, milestones=self.milestones, gamma=self.gamma)
        x = _pool_inputs(self.x)
        y = numeric_array(self.y, "y", ndim=(1, 2))
        n = require_same_length(x=x.numpy(), y=y)
        # Only the shape of the outputs matters to the checks of the targets.
        outputs = np.broadcast_to(0.0, (n, _probed_outputs(self.build, x)))
        task = resolved_task(self.task, outputs, y)
        require_output_columns(outputs, task)
        targets = torch.from_numpy(task_targets(outputs, y, task))
        settled = {"x": x, "y": targets.to(x.dtype) if targets.is_floating_point() else targets, "task": task}
        for name, value in (settled | {"milestones": milestones, "outputs": outputs.shape[1]}).items():
            object.__setattr__(self, name, value)

    def __call__(self, indices: object, seed: int) -> nn.Module:
        """Train the module of this seed on these rows of the pool by the plain loop.

        The module is in eval mode; see `train_one`.
        """
        return self.train_one(indices, seed)

    @overload
    def train_one(self, indices: object, seed: int, *, traces: None = None, on_epoch: Observer | None = None) -> nn.Module: ...
    @overload
    def train_one(self, indices: object, seed: int, *, traces: object, on_epoch: Observer | None = None) -> tuple[nn.Module, Array]: ...
    @named_in_errors
    def train_one(
        self, indices: object, seed: int, *, traces: object = None, on_epoch: Observer | None = None
    ) -> nn.Module | tuple[nn.Module, Array]:
        """Train the module of one seed on these rows of the pool by the plain loop.

        Its loss traces are returned when asked for.

        Args:
            indices: (n,) distinct rows of the pool; their order counts, as the batches are drawn
                from it.
            seed: whole number in 0 … 2³² − 1.
            traces: records whose losses are followed: True (the whole pool), (k,) rows of the pool,
                or a pair (x, y).
            on_epoch: called as on_epoch(epoch, snapshot) before training (epoch 0) and after each
                epoch; snapshot.outputs(x) gives the model's (1, k, m) outputs in eval mode.

        Returns:
            The module in eval mode; with traces also (k, epochs + 1) losses in eval mode (stop + 1
            of a training that stops), in nats or squared units.

        Raises:
            InputError: wrong rows, seed or records, or a module that fails on a batch.
                NumericalError: the loss became NaN.
        """
        job = self._job()
        rows, number = training_rows(indices, job), training_seed(seed)
        observe, losses = _observer(job, 1, traces, on_epoch)
        module = trained_module(job, rows, number, observe=observe)
        return module if losses is None else (module, losses[0])

    @overload
    def train_many(
        self,
        indices_list: Sequence[object],
        seeds: Sequence[int],
        *,
        traces_on: None = None,
        on_epoch: Observer | None = None,
        stack: int | str = "auto",
    ) -> list[nn.Module]: ...
    @overload
    def train_many(
        self,
        indices_list: Sequence[object],
        seeds: Sequence[int],
        *,
        traces_on: object,
        on_epoch: Observer | None = None,
        stack: int | str = "auto",
    ) -> tuple[list[nn.Module], Array]: ...
    @named_in_errors
    def train_many(
        self,
        indices_list: Sequence[object],
        seeds: Sequence[int],
        *,
        traces_on: object = None,
        on_epoch: Observer | None = None,
        stack: int | str = "auto",
    ) -> list[nn.Module] | tuple[list[nn.Module], Array]:
        """The modules of many seeds, each trained on its own rows of the pool, all at once.

        Equals [recipe(indices, seed) for …] to rounding. Models with equally many rows are stacked
        and every step is taken for the whole stack; models whose numbers of rows differ are in
        different stacks. The number of threads is the caller's.

        Args:
            indices_list: r arrays of distinct rows of the pool. seeds: r whole numbers in 0 … 2³² −
                1.
            traces_on: records whose losses are followed: True (the whole pool), (k,) rows of the
                pool, or a pair (x, y).
            on_epoch: called as on_epoch(epoch, snapshot) for each stack, before training (epoch 0)
                and after each epoch; snapshot.models are positions in `seeds`, snapshot.outputs(x)
                the (models, k, m) outputs in eval mode.
            stack: models trained at once; "auto" fits a stack into the cache, and trains networks
                with convolutions, which gain nothing from stacking, one by one.

        Returns:
            r modules in eval mode; with traces_on also (r, k, epochs + 1) losses in eval mode (stop
            + 1 of a training that stops), in nats or squared units.

        Raises:
            InputError: wrong rows, seeds or records, or a module that cannot be stacked (see
                `vectorisable`).
            NumericalError: the loss of a model became NaN.

        Exact when: always, to rounding; the same call gives the same bits under the same number of
            threads.
        Cost: about the matrix products of r trainings; memory of one stack's weights, gradients and
            optimiser state, of
        its activations, and of the r modules returned.
        """
        job = self._job()
        rows, numbers = _many(indices_list, seeds, job)
        size = None if stack == "auto" else require_whole(stack, "stack", low=1)
        reason = reason_not_vectorisable(job)
        if reason is not None:
            raise InputError(said(f"build must make a module that can be stacked; got {reason}. Train it one by one."))
        observe, losses = _observer(job, len(rows), traces_on, on_epoch)
        modules = trained_modules(job, rows, numbers, observe=observe, stack=size)
        return modules if losses is None else (modules, losses)

    @named_in_errors
    def vectorisable(self) -> str | None:
        """Why `train_many` cannot train this module, in a few words; None when it can.

        This is tried, not guessed: two models take one step on a few records, in a stack and one by
        one, and are compared.
        """
        return reason_not_vectorisable(self._job())

    def settings(self) -> dict[str, Any]:
        """Return every hyper-parameter, ready for JSON.

        Functions go by their qualified names, and data by count, shape and precision.
        """
        # Whole trainings are described as they were before there were any that stop: sets resume.
        left_out = {"x", "y"} | ({"stop"} if self.stop is None else set())
        held = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in left_out}
        named = {name: function_name(value) if callable(value) else value for name, value in held.items()}
        data = {"records": len(self.x), "input_shape": list(self.x.shape[1:]), "dtype": str(self.x.dtype).removeprefix("torch.")}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in (named | data).items()}

    def _job(self) -> TrainingSetup:
        own = {"momentum": self.momentum, "nesterov": self.nesterov} if self.optimizer == "sgd" else {"betas": self.betas, "eps": self.eps}
        options = own | {"lr": self.lr, "weight_decay": self.weight_decay}
        shared = {item.name: getattr(self, item.name) for item in fields(TrainingSetup) if item.name != "options"}
        return TrainingSetup(options=options, **shared)


def _require_optimiser(recipe: Recipe) -> None:
    if not callable(recipe.build):
        refuse("build", "be callable without arguments", type(recipe.build).__name__, "Pass a function that makes the module.")
    for name in ("epochs", "batch_size"):
        require_whole(getattr(recipe, name), name, low=1)
    if recipe.stop is not None and require_whole(recipe.stop, "stop", low=1) > recipe.epochs:
        refuse("stop", f"be one of the {recipe.epochs} epochs", recipe.stop)
    for name in ("nesterov", "drop_last", "shuffle"):
        if not isinstance(getattr(recipe, name), bool):
            refuse(name, "be True or False", repr(getattr(recipe, name)))
    require_choice(recipe.optimizer, tuple(OPTIMISERS), "optimizer")
    require_number(recipe.lr, "lr", low=0, low_open=True)
    require_number(recipe.weight_decay, "weight_decay", low=0)
    require_number(recipe.momentum, "momentum", low=0, high=1, high_open=True)
    require_number(recipe.eps, "eps", low=0, low_open=True)
    if not isinstance(recipe.betas, (tuple, list)) or len(recipe.betas) != 2:
        refuse("betas", "be a pair of numbers", repr(recipe.betas))
    for beta in recipe.betas:
        require_number(beta, "betas", low=0, high=1, high_open=True)
    adaptive = recipe.optimizer != "sgd"
    if adaptive and (recipe.momentum or recipe.nesterov):
        refuse("momentum and nesterov", "be left out with Adam and AdamW", f"optimizer={recipe.optimizer!r}", "Set betas instead.")
    if not adaptive and (tuple(recipe.betas) != BETAS or recipe.eps != EPS):
        refuse("betas and eps", "be left out with SGD", f"betas={recipe.betas}, eps={recipe.eps:g}", "Set momentum instead.")
    if recipe.nesterov and not recipe.momentum:
        refuse("nesterov", "come with momentum > 0", "momentum=0")


def _pool_inputs(x: object) -> Tensor:
    """Inputs as a float tensor that shares the caller's memory where it can."""
    array = numeric_array(x, "x", ndim=(2, 3, 4, 5))
    if len(array) == 0:
        refuse("x", "hold at least one record", "none")
    # Read-only arrays are copied: torch has no read-only tensors.
    return torch.from_numpy(np.require(array, np.float64 if array.dtype == np.float64 else np.float32, ["C", "W"]))


def _probed_outputs(build: Callable[[], nn.Module], x: Tensor) -> int:
    """Number of outputs of the module, from a few records in eval mode."""
    module, few = fresh_module(build, 0, x.dtype).eval(), x[:PROBE_RECORDS]
    with torch.no_grad(), users_code("build must make a module that takes rows of x"):
        return output_rows(module(few), len(few)).shape[1]


def _many(indices_list: Sequence[object], seeds: Sequence[int], job: TrainingSetup) -> tuple[list[Tensor], list[int]]:
    if len(indices_list) != len(seeds) or len(seeds) == 0:
        refuse("indices_list and seeds", "have one entry a model, at least one", f"lengths {len(indices_list)} and {len(seeds)}")
    return [training_rows(rows, job) for rows in indices_list], [training_seed(seed) for seed in seeds]


def _observer(job: TrainingSetup, models: int, traces: object, on_epoch: Observer | None) -> tuple[Observer, Array | None]:
    """One observer for the user's hook and the traces, and the array that the traces go to."""
    observers = [] if on_epoch is None else [on_epoch]
    if traces is None:
        return observed(observers), None
    records = traced_records(traces, job)
    losses = np.empty((models, len(records.x), job.last_epoch + 1))
    return observed([recorder(losses, records, job.task), *observers]), losses

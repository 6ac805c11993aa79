"""What a worker does: train one model, or a stack of them, and read each on all records."""

import random
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from noshadow.checks import Array, InputError, numeric_array, open_to_names, refuse
from noshadow.reference.pool import Pool
from noshadow.reference.recorded import Reading, pool_losses, record_arrays
from noshadow.views import voting_parts
from noshadow.workers import alone_in_process


@runtime_checkable
class TrainsMany(Protocol):
    """A training that can also train a stack of models at once; `Recipe` is one."""

    def train_many(self, indices_list: Sequence[Array], seeds: Sequence[int], *, traces_on: Any = None) -> Any:
        """Train models together.

        With traces_on=True their loss traces (k, n, epochs + 1) are returned as well.
        """

    def train_one(self, indices: Array, seed: int, *, traces: Any = None) -> Any:
        """One model; with traces=True also its loss traces (n, epochs + 1)."""

    def settings(self) -> dict[str, Any]:
        """What decides the training, JSON-ready."""

    def vectorisable(self) -> str | None:
        """Why a stack cannot be trained at once, or None when it can."""


@dataclass(frozen=True, eq=False)
class ReferenceJob:
    """All that a worker needs beside the task: it travels once (`workers.WorkerJob`)."""

    train_fn: Callable[..., Any]
    pool: Pool
    reading: Reading
    vectorised: bool
    traces: bool
    extra: Callable[..., Mapping[str, Any]] | None
    extra_models: int
    threads: int

    def carried_out(self, task: "ReferenceTask") -> list["Outcome"]:
        """The outcome of each wanted model of a task."""
        _, outcomes = task_outcomes(self, task)
        return outcomes


@dataclass(frozen=True, eq=False)
class ReferenceTask:
    """Models that are trained together: one, or a stack. Only the wanted ones are read."""

    numbers: tuple[int, ...]
    seeds: tuple[int, ...]
    packed: Array  # (k, ⌈n/8⌉) uint8: membership, one bit per record
    wanted: frozenset[int]

    @property
    def number(self) -> int:
        """The first model names the task."""
        return self.numbers[0]


@dataclass(frozen=True, eq=False)
class Outcome:
    """One model's arrays, or the text of its failure: a line that says what, then the traceback."""

    number: int
    seed: int
    seconds: float
    arrays: dict[str, Array] | None = None
    task: str = ""
    failure: str = ""
    notes: tuple[str, ...] = ()
    votes: int | None = None  # parts that vote, as `voting_parts` has it


def packed_members(membership: Array) -> Array:
    """Pack the membership of some models into one bit per record."""
    return np.packbits(membership, axis=1)


def task_outcomes(job: ReferenceJob, task: ReferenceTask) -> tuple[int, list[Outcome]]:
    """Return the task's first model, which names it, and the outcome of each wanted model.

    A failure is an outcome, too.
    """
    members = [np.flatnonzero(np.unpackbits(row, count=len(job.pool))) for row in task.packed]
    started = time.perf_counter()
    with alone_in_process(job.threads), _seeded(task.seeds[0]):
        try:
            with open_to_names():
                models = _models(job, members, task.seeds)
        except (Exception, SystemExit) as error:
            text, seconds = _failure(error), (time.perf_counter() - started) / len(members)
            return task.number, [
                Outcome(number, seed, seconds, failure=text)
                for number, seed in zip(task.numbers, task.seeds, strict=True)
                if number in task.wanted
            ]
        share, outcomes = (time.perf_counter() - started) / len(members), []
        for number, seed, indices, (model, traces) in zip(task.numbers, task.seeds, members, models, strict=True):
            if number in task.wanted:
                outcomes.append(_read(job, number, seed, indices, model, traces, share))
    return task.number, outcomes


def _models(job: ReferenceJob, members: Sequence[Array], seeds: Sequence[int]) -> list[tuple[Any, Array | None]]:
    """The models, each with its loss traces when they are asked for."""
    recipe = job.train_fn if isinstance(job.train_fn, TrainsMany) else None
    if recipe is not None and job.vectorised:
        if job.traces:
            models, traces = recipe.train_many(members, seeds, traces_on=True)
            return list(zip(models, traces, strict=True))
        return [(model, None) for model in recipe.train_many(members, seeds)]
    (indices,), (seed,) = members, seeds
    if not job.traces:
        return [(job.train_fn(indices, seed), None)]
    if recipe is not None:
        return [recipe.train_one(indices, seed, traces=True)]
    columns: list[Array] = []
    model = job.train_fn(indices, seed, record=lambda model: columns.append(pool_losses(model, job.pool, job.reading)))
    if len(columns) < 2:
        rule = "call record(model) before training and after each epoch when traces=True"
        refuse("train_fn", rule, f"{len(columns)} calls")
    return [(model, np.stack(columns, axis=1))]


def _read(job: ReferenceJob, number: int, seed: int, indices: Array, model: object, traces: Array | None, seconds: float) -> Outcome:
    started = time.perf_counter()
    try:
        arrays, task, notes = record_arrays(model, job.pool, job.reading)
        if traces is not None:
            arrays["loss_traces"] = _checked_traces(traces, len(job.pool))
        if job.extra is not None and number < job.extra_models:
            with open_to_names():
                found = job.extra(model, indices, seed)
            arrays |= _extra_arrays(found, indices, job)
    except (Exception, SystemExit) as error:
        return Outcome(number, seed, seconds + time.perf_counter() - started, failure=_failure(error))
    return Outcome(number, seed, seconds + time.perf_counter() - started, arrays, task, notes=notes, votes=voting_parts(model))


def _checked_traces(traces: object, n: int) -> Array:
    array = numeric_array(traces, "traces", ndim=2)
    if len(array) != n:
        refuse("traces", f"have one row for each of the {n} records of the pool", f"shape {array.shape}")
    return array.astype(np.float64)


def _extra_arrays(found: object, indices: Array, job: ReferenceJob) -> dict[str, Array]:
    n = len(job.pool)
    if not isinstance(found, Mapping):
        refuse("extra", "return a dict of arrays", type(found).__name__)
    arrays = {}
    for name, value in found.items():
        array = np.asarray(value)
        if array.dtype.kind not in "biuf" or array.shape not in ((n,), (len(indices),)):
            rule = f"return numeric arrays over all {n} records or the model's {len(indices)}"
            refuse("extra", rule, f"{name!r} of shape {array.shape}, dtype {array.dtype}")
        arrays[f"extra.{name}"] = array
    return arrays


def _failure(error: BaseException) -> str:
    first = (str(error).strip() or "no message").splitlines()[0]
    line = first if isinstance(error, InputError) else f"{type(error).__name__}: {first}"
    return f"{line}\n\n{traceback.format_exc()}"


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Set random states that depend on the seed alone, and put them back afterwards."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - train_fn may draw from it
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002

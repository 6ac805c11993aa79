"""What `train_references` was asked for: bundles of options, checked at the door and handed on."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from noshadow.checks import InputError, as_array, refuse, require_choice, require_whole, said
from noshadow.reference.function_names import function_name
from noshadow.reference.plan import Plan, checked_arguments, checked_folds, fold_fraction, fold_plan, plan
from noshadow.reference.pool import Pool
from noshadow.reference.recorded import Reading
from noshadow.reference.work import ReferenceJob, TrainsMany

DESIGNS = ("halves", "folds")
FRACTION = 0.5
ENGINES = ("auto", "one-by-one", "vectorised")
STACK = 16


@dataclass(frozen=True)
class Engine:
    """How models are trained: one by one, or `stack` at a time; and why."""

    name: str
    stack: int | None
    reason: str

    def manifest(self) -> dict[str, Any]:
        """What plan.json says of it."""
        return {"engine": self.name, "stack": self.stack}


@dataclass(frozen=True, eq=False)
class Training:
    """What is trained, how, and what is recorded of it beside the outputs."""

    train_fn: Callable[..., Any]
    engine: Engine
    traces: bool
    extra: Callable[..., Mapping[str, Any]] | None
    extra_models: int
    settings: Mapping[str, Any] | None

    def job(self, records: Pool, reading: Reading, threads: int) -> ReferenceJob:
        """All that a worker needs."""
        return ReferenceJob(
            self.train_fn, records, reading, self.engine.stack is not None, self.traces, self.extra, self.extra_models, threads
        )


@dataclass(frozen=True)
class Drawing:
    """Who is drawn into how many models, from which pool, by which design.

    Attributes:
        train, test: records of each split in the pool. models: number r. fraction: mean share of
            the pool in a model. seed: of the plan. pool: "all" or "train".
        design: "halves" (`plan`) or "folds" (`fold_plan`).
    """

    train: int
    test: int
    models: int
    fraction: float
    seed: int
    pool: str
    design: str

    def manifest(self) -> dict[str, Any]:
        """What plan.json says of it."""
        drawn = {"models": self.models, "fraction": self.fraction, "seed": self.seed, "records": self.train + self.test}
        return drawn if self.design == "halves" else drawn | {"design": self.design}

    def drawn(self) -> Plan:
        """The plan itself."""
        if self.design == "folds":
            return fold_plan(self.train, self.test, folds=self.models, seed=self.seed)
        return plan(self.train + self.test, models=self.models, fraction=self.fraction, seed=self.seed)


def checked_drawing(records: Pool, models: object, fraction: object, seed: object, pool: str, design: str) -> Drawing:
    """Arguments of the plan as plain numbers; those without a plan are refused."""
    require_choice(design, DESIGNS, "design")
    train, test = records.counts[0], sum(records.counts[1:])
    if design == "halves":
        _, r, share, number = checked_arguments(train + test, models, fraction, seed)
        return Drawing(train, test, r, share, number, pool, design)
    if fraction != FRACTION:
        refuse("fraction", "be left out with design='folds', whose models have all records but one fold", fraction)
    train, test, r, number = checked_folds(train, test, models, seed, "models")
    return Drawing(train, test, r, fold_fraction(train, test, r), number, pool, design)


def require_arguments(train_fn: object, traces: bool, workers: object, **whole: object) -> None:
    """Refuse a training function that cannot be called, and counts that are no whole numbers.

    `whole` holds the counts by name.
    """
    if not callable(train_fn):
        refuse("train_fn", "be callable as train_fn(indices, seed)", type(train_fn).__name__)
    for name, value in whole.items():
        require_whole(value, name, low=0 if name == "extra_models" else 1)
    if workers is not None:
        require_whole(workers, "workers", low=1)
    if traces and not isinstance(train_fn, TrainsMany):
        try:
            inspect.signature(train_fn).bind(None, None, record=None)
        except TypeError as error:
            rule = "take a third argument 'record' when traces=True"
            hint = "Call record(model) before training and after each epoch."
            raise InputError(said(f"train_fn must {rule}; got {function_name(train_fn)} ({error}). {hint}")) from error
        except ValueError:
            return  # a callable without a readable signature: the call itself will tell


def require_same_records(train_fn: object, records: Pool) -> None:
    """A Recipe holds data of its own: the rows it trains on must be those of the pool."""
    if not isinstance(train_fn, TrainsMany):
        return
    count = train_fn.settings().get("records", len(records))
    if count != len(records):
        refuse("train_fn", f"hold the {len(records)} records of the pool, train before test", f"a Recipe of {count}")
    held = getattr(train_fn, "y", None)
    own = None if held is None else as_array(held, "train_fn.y")
    if own is not None and own.size == records.targets.size and not np.allclose(own.ravel(), records.targets.ravel(), rtol=1e-5):
        refuse("train_fn", "hold the targets of the pool in its order, train before test", "a Recipe with others")


def chosen_engine(train_fn: object, engine: str, stack: int) -> Engine:
    """The engine asked for, or the fastest that this training allows."""
    require_choice(engine, ENGINES, "engine")
    require_whole(stack, "stack", low=1)
    if engine == "one-by-one":
        return Engine(engine, None, "")
    reason = train_fn.vectorisable() if isinstance(train_fn, TrainsMany) else "train_fn trains one model at a time; a Recipe trains several"
    if reason is None:
        return Engine("vectorised", stack, "")
    if engine == "vectorised":
        refuse("engine", "be 'auto' or 'one-by-one' here", "'vectorised'", f"{reason[:1].upper()}{reason[1:].rstrip('.')}.")
    return Engine("one-by-one", None, f"Models are trained one by one: {reason.rstrip('.')}.")

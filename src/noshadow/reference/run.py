"""Train reference models.

Training is planned once and resumed as often as needed, with the same arrays in the end.
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from noshadow.arguments import BATCH_SIZE, PROGRESS
from noshadow.checks import Array, InputError, as_array, refuse, require_choice, require_whole
from noshadow.output_scale import SCALES
from noshadow.reference.folder import create_folder, require_own_folder, resumed_manifest
from noshadow.reference.manifest import function_name, job_manifest
from noshadow.reference.model_writing import disk, remove_unfinished, write_outcomes
from noshadow.reference.opening import stored_plan, whole_models
from noshadow.reference.plan import Plan, checked_arguments, plan
from noshadow.reference.pool import Pool, record_pool
from noshadow.reference.queries import Query, checked_queries
from noshadow.reference.recorded import Reading, record_arrays, require_one_statistic
from noshadow.reference.store import References, load_references, with_notes
from noshadow.reference.work import Outcome, ReferenceJob, ReferenceTask, TrainsMany, packed_members
from noshadow.views import weights_sha256
from noshadow.workers import ReadyWorkers, Wording, ready_workers, surviving_results

OWNER = "train_references"
ENGINES = ("auto", "one-by-one", "vectorised")
STACK = 16
WORDING = Wording(OWNER, "train_fn, extra, queries and data", "train", "trained", "model", "what is done is kept")


@dataclass(frozen=True)
class _Engine:
    """How models are trained: one by one, or `stack` at a time; and why."""

    name: str
    stack: int | None
    reason: str


def train_references(
    folder: str | Path,
    train_fn: Callable[..., Any],
    train: object,
    test: object = None,
    *,
    model: object = None,
    ids: object = None,
    task: str = "auto",
    models: int = 64,
    fraction: float = 0.5,
    seed: int = 0,
    pool: str = "all",
    engine: str = "auto",
    stack: int = STACK,
    workers: int | None = None,
    threads: int = 1,
    backend: str = "loky",
    address: str | None = None,
    attempts: int = 3,
    traces: bool = False,
    keep_outputs: bool = True,
    queries: Sequence[Query] = (),
    extra: Callable[..., Mapping[str, Any]] | None = None,
    extra_models: int = 0,
    output_scale: str = "auto",
    batch_size: int = BATCH_SIZE,
    device: object = None,
    output: str | int = "auto",
    settings: Mapping[str, Any] | None = None,
    progress: bool = PROGRESS,
) -> References:
    """Train reference models on random, balanced subsets, and store what they say of every record.

    Run again on the same folder with the same arguments, it trains only what is missing; the arrays
    do not depend on interruptions, on the number of workers or on where they run (on machines of
    one kind).

    Args:
        folder: where everything goes; must not exist yet, be empty, or hold this same experiment.
        train_fn: `train_fn(indices, seed)` trains one model on the given rows of the pool (sorted
            int64; 0 … n_train − 1 are `train`, then follows `test`) and returns an nn.Module, a
            fitted scikit-learn estimator, or its outputs (n, m) on all records of the pool; or a
            Recipe. Random states of torch, NumPy and Python are seeded before each call.
        train: the target's training records: (X, y), a map-style Dataset or a DataLoader.
        test: records the target has not seen, in the same form.
        model: the target; its arrays are recorded like those of the reference models.
        ids: unique ids of all records of the pool, or of those of `train`.
        task: "auto", "classification", "binary" or "regression".
        models: number r ≥ 4. fraction: share of the pool each is trained on. seed: of the plan, see
            `plan`.
        pool: "all": records of train and test; "train": of train alone.
        engine: "one-by-one"; "vectorised": `stack` models of a Recipe at once; "auto": the latter
            where the Recipe allows it.
        stack: models trained together; part of the experiment, since it may move the last digits.
        workers: how many at a time; None: all cores divided by `threads`; 1 with loky: in this
            process.
        threads: of torch and BLAS in each worker.
        backend: "loky", "ray" or "dask". address: of a running Ray or Dask cluster.
        attempts: rounds in a row in which workers die and no model arrives before the run gives up.
        traces: record the losses of all records before training and after each epoch; `train_fn` is
            then called with a third argument `record`, to be called as record(model) at those
            points.
        keep_outputs: keep the outputs (n, m) of every model.
        queries: callables on a batch of inputs; every record is also asked as each of them, see
            `mirrored`, `shifted`.
        extra: `extra(model, indices, seed)` gives further columns, a dict of arrays (n,) or
            (len(indices),), of the first `extra_models` models.
        output_scale: what arrays returned by `train_fn` (or given as `model`) are, "logits" or
            "probabilities", whose logarithms are recorded; "auto" recognises rows of probabilities
            and refuses one column that could be either. Models are read themselves.
        batch_size: records in one forward pass. device: where nn.Modules are read.
        output: of modules that return several tensors, the name or position of the output, or
            "auto"; as in `audit`.
        settings: what decides the training, when `train_fn` is a function: plain values that a
            second start must match.
        progress: draw a bar on a terminal.

    Returns:
        The complete set, memory-mapped.

    Raises:
        InputError: an argument is wrong, the folder holds another experiment (what differs is
            listed), models failed (which, and where their tracebacks are), workers keep dying, or
            the disk is full. What is done is kept.

    Exact when: training is deterministic given its seed and number of threads.

    Cost: r trainings and r·(1 + queries) passes over the pool; memory O(n) per worker, flat in r.

    Reference: Carlini et al. 2022; Feldman and Zhang 2020.
    """
    path = Path(folder)
    _require_arguments(train_fn, traces, workers, threads=threads, attempts=attempts, batch_size=batch_size, extra_models=extra_models)
    chosen = _engine(train_fn, engine, stack)
    require_choice(output_scale, SCALES, OWNER, "output_scale")
    reading = Reading(task, checked_queries(queries, OWNER), keep_outputs, batch_size, device, OWNER, output, output_scale)
    with disk(path, models, OWNER):
        resumes = require_own_folder(path, OWNER)
    records = record_pool(train, test, pool=pool, ids=ids, owner=OWNER)
    require_one_statistic(records, reading)
    _require_same_records(train_fn, records)
    n, r, share, number = checked_arguments(len(records), models, fraction, seed, OWNER)
    job = ReferenceJob(train_fn, records, reading, chosen.stack is not None, traces, extra, extra_models, threads)
    target = None if model is None else _target(model, records, reading)
    manifest = job_manifest(
        job,
        plan={"models": r, "fraction": share, "seed": number, "records": n},
        pool=pool,
        engine={"engine": chosen.name, "stack": chosen.stack},
        reason=chosen.reason,
        settings=settings,
        weights=None if target is None else target.weights,
    )
    with disk(path, r, OWNER):
        stored, drawn, notes = _opened(path, manifest, records, target, resumes=resumes)
    notes += () if target is None else target.notes
    tasks = _tasks(drawn, whole_models(path, stored), chosen.stack)
    if tasks:
        with ready_workers(backend, workers=workers, threads=threads, address=address, attempts=attempts, wording=WORDING) as ready:
            stream = _outcomes(ready, job, tasks, attempts)
            total = sum(len(task.wanted) for task in tasks)
            read = write_outcomes(path, stored, stream, total=total, workers=ready.workers, progress=progress, owner=OWNER)
            notes = tuple(dict.fromkeys((*notes, *read, *ready.notes)))
    remove_unfinished(path)
    return with_notes(load_references(path), notes)


@dataclass(frozen=True, eq=False)
class _Target:
    """The target's arrays, its task, the digest of its weights, and notes on how it was read."""

    arrays: dict[str, Array]
    task: str
    weights: str
    notes: tuple[str, ...]


def _target(model: object, records: Pool, reading: Reading) -> _Target:
    arrays, task, notes = record_arrays(model, records, replace(reading, keep_outputs=True))
    # As an audit takes it: where there are no weights to read, of the outputs on the training
    # records.
    digest = weights_sha256(model, arrays["outputs"][: records.counts[0]])
    kept = {name: array for name, array in arrays.items() if reading.keep_outputs or name != "outputs"}
    return _Target(kept, task, digest, notes)


def _require_arguments(train_fn: object, traces: bool, workers: object, **whole: object) -> None:
    if not callable(train_fn):
        refuse(OWNER, "train_fn", "be callable as train_fn(indices, seed)", type(train_fn).__name__)
    for name, value in whole.items():
        require_whole(value, OWNER, name, low=0 if name == "extra_models" else 1)
    if workers is not None:
        require_whole(workers, OWNER, "workers", low=1)
    if traces and not isinstance(train_fn, TrainsMany):
        try:
            inspect.signature(train_fn).bind(None, None, record=None)
        except TypeError as error:
            rule = "take a third argument 'record' when traces=True"
            hint = "Call record(model) before training and after each epoch."
            raise InputError(f"{OWNER}: train_fn must {rule}; got {function_name(train_fn)} ({error}). {hint}") from error
        except ValueError:
            return  # a callable without a readable signature: the call itself will tell


def _require_same_records(train_fn: object, records: Pool) -> None:
    """Refuse a Recipe, which holds data of its own, whose records are not those of the pool."""
    if not isinstance(train_fn, TrainsMany):
        return
    count = train_fn.settings().get("records", len(records))
    if count != len(records):
        refuse(OWNER, "train_fn", f"hold the {len(records)} records of the pool, train before test", f"a Recipe of {count}")
    held = getattr(train_fn, "y", None)
    own = None if held is None else as_array(held, OWNER, "train_fn.y")
    if own is not None and own.size == records.targets.size and not np.allclose(own.ravel(), records.targets.ravel(), rtol=1e-5):
        refuse(OWNER, "train_fn", "hold the targets of the pool in its order, train before test", "a Recipe with others")


def _engine(train_fn: object, engine: str, stack: int) -> _Engine:
    require_choice(engine, ENGINES, OWNER, "engine")
    require_whole(stack, OWNER, "stack", low=1)
    if engine == "one-by-one":
        return _Engine(engine, None, "")
    reason = train_fn.vectorisable() if isinstance(train_fn, TrainsMany) else "train_fn trains one model at a time; a Recipe trains several"
    if reason is None:
        return _Engine("vectorised", stack, "")
    if engine == "vectorised":
        refuse(OWNER, "engine", "be 'auto' or 'one-by-one' here", "'vectorised'", f"{reason[:1].upper()}{reason[1:].rstrip('.')}.")
    return _Engine("one-by-one", None, f"Models are trained one by one: {reason.rstrip('.')}.")


def _opened(
    path: Path, manifest: dict[str, Any], records: Pool, target: _Target | None, *, resumes: bool
) -> tuple[dict[str, Any], Plan, tuple[str, ...]]:
    """Return the stored manifest, the plan and notes.

    They are of a new folder, or of the one that is there when it is the same experiment.
    """
    notes: tuple[str, ...] = ()
    if resumes:
        stored, notes = resumed_manifest(path, manifest, OWNER)
    else:
        arguments = manifest["plan"]
        drawn = plan(arguments["records"], models=arguments["models"], fraction=arguments["fraction"], seed=arguments["seed"])
        columns = {"ids": records.ids, "targets": records.targets, "member": records.member}
        stored = create_folder(path, manifest, drawn, columns, None if target is None else (target.arrays, target.task))
    drawn, _ = stored_plan(path, stored, OWNER)
    return stored, drawn, notes


def _outcomes(ready: ReadyWorkers, job: ReferenceJob, tasks: Sequence[ReferenceTask], attempts: int) -> Iterator[Outcome]:
    for _, outcomes in surviving_results(ready, job, tasks, attempts=attempts, wording=WORDING):
        yield from outcomes


def _tasks(drawn: Plan, done: Collection[int], stack: int | None) -> list[ReferenceTask]:
    """List what is left to train.

    Stacks are fixed by the plan: a stack with any model missing is trained whole, and only the
    missing models are kept.
    """
    size, tasks = stack or 1, []
    for start in range(0, drawn.models, size):
        numbers = tuple(range(start, min(start + size, drawn.models)))
        wanted = frozenset(numbers) - set(done)
        if wanted:
            seeds = tuple(int(drawn.seeds[number]) for number in numbers)
            tasks.append(ReferenceTask(numbers, seeds, packed_members(drawn.membership[start : numbers[-1] + 1]), wanted))
    return tasks

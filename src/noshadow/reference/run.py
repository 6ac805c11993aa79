"""Train reference models.

Training is planned once and resumed as often as needed, with the same arrays in the end.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noshadow.arguments import BATCH_SIZE, PROGRESS
from noshadow.checks import Array, named_in_errors, require_choice
from noshadow.columns import LANGUAGE_MODEL
from noshadow.output_scale import SCALES
from noshadow.reference.folder import create_folder, require_own_folder, resumed_manifest
from noshadow.reference.manifest import job_manifest
from noshadow.reference.model_writing import disk, remove_unfinished, write_outcomes
from noshadow.reference.opening import stored_plan, told_votes, whole_models
from noshadow.reference.plan import Plan
from noshadow.reference.pool import Pool, record_pool
from noshadow.reference.queries import Query, checked_queries
from noshadow.reference.recorded import Reading, is_open, record_arrays, require_one_statistic, training_outputs
from noshadow.reference.sequences import is_of_sequences, require_sequence_task, sequence_pool
from noshadow.reference.store import References, load_references, with_notes
from noshadow.reference.training import (
    FRACTION,
    STACK,
    Drawing,
    Training,
    checked_drawing,
    chosen_engine,
    require_arguments,
    require_same_records,
)
from noshadow.reference.work import Outcome, ReferenceJob, ReferenceTask, packed_members
from noshadow.views import voting_parts, weights_sha256
from noshadow.workers import ReadyWorkers, Wording, WorkerOptions, ready_workers, surviving_results

WORDING = Wording("train_fn, extra, queries and data", "train", "trained", "model", "what is done is kept")


@named_in_errors
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
    fraction: float = FRACTION,
    seed: int = 0,
    pool: str = "all",
    design: str = "halves",
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
    """Train reference models on random parts of the records, and store what they say of each.

    Run again on the same folder with the same arguments, it trains only what is missing; the arrays
    do not depend on interruptions, on the number of workers or on where they run (on machines of
    one kind).

    Args:
        folder: where everything goes; must not exist yet, be empty, or hold this same experiment.
        train_fn: `train_fn(indices, seed)` trains one model on the given rows of the pool (sorted
            int64; 0 … n_train − 1 are `train`, then follows `test`) and returns an nn.Module, a
            fitted scikit-learn estimator, or its outputs (n, m) on all records of the pool; or a
            Recipe. Where the target is a language model it returns one, or the losses (n,) of all
            sequences in nats per token. Random states of torch, NumPy and Python are seeded before
            each call.
        train: the target's training records: (X, y), a map-style Dataset or a DataLoader; of a
            language model what `sequence_losses` takes.
        test: records the target has not seen, in the same form.
        model: the target; its arrays are recorded like those of the reference models. A language
            model must be given: records are sequences then, and the statistic is −loss.
        ids: unique ids of all records of the pool, or of those of `train`.
        task: "auto", "classification", "binary" or "regression".
        models: number r ≥ 1; the attacks need four. fraction: share of the pool each is trained on.
            seed: of the plan, see `plan`.
        pool: "all": records of train and test; "train": of train alone.
        design: "halves": random parts of the pool (`plan`); "folds": `models` disjoint folds of
            train, and a model trained on all of train but each fold (`fold_plan`), whose records of
            test are in none.
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
    require_arguments(train_fn, traces, workers, threads=threads, attempts=attempts, batch_size=batch_size, extra_models=extra_models)
    training = Training(train_fn, chosen_engine(train_fn, engine, stack), traces, extra, extra_models, settings)
    require_choice(output_scale, SCALES, "output_scale")
    reading = Reading(task, checked_queries(queries), keep_outputs, batch_size, device, output, output_scale)
    with disk(path, models):
        resumes = require_own_folder(path)
    if is_of_sequences(model):
        require_sequence_task(task, {"queries": reading.queries, "output": "" if output == "auto" else output})
        reading = replace(reading, task=LANGUAGE_MODEL, keep_outputs=False)
        records = sequence_pool(model, train, test, pool=pool, ids=ids)
    else:
        records = record_pool(train, test, pool=pool, ids=ids)
        require_one_statistic(records, reading)
    require_same_records(train_fn, records)
    drawing = checked_drawing(records, models, fraction, seed, pool, design)
    options = WorkerOptions(backend, workers, threads, address, attempts)
    target = None if model is None else _target(model, records, reading)
    job = training.job(records, reading, threads)
    with disk(path, drawing.models):
        opened = _opened(path, job, training, drawing, target, resumes=resumes)
    notes = _trained(path, opened, job, options, progress=progress)
    remove_unfinished(path)
    return with_notes(load_references(path), notes)


@dataclass(frozen=True, eq=False)
class _Target:
    """The target's arrays and what its file says of them, the digest of its weights, and notes."""

    arrays: dict[str, Array]
    told: dict[str, str]
    weights: str
    notes: tuple[str, ...]


def _target(model: object, records: Pool, reading: Reading) -> _Target:
    arrays, task, notes = record_arrays(model, records, replace(reading, keep_outputs=True))
    # As an audit takes it: where there are no weights to read, of the outputs on the training
    # records.
    kept_whole = arrays["loss"] if records.sequences else arrays["outputs"]
    raw = training_outputs(model, records, reading) if is_open(model) else kept_whole[: records.counts[0]]
    digest = weights_sha256(model, raw)
    kept = {name: array for name, array in arrays.items() if reading.keep_outputs or name != "outputs"}
    return _Target(kept, {"task": task} | told_votes(voting_parts(model)), digest, notes)


@dataclass(frozen=True, eq=False)
class _Opened:
    """A folder of reference models, new or resumed.

    It holds the manifest, the tasks of the models it lacks, and notes.
    """

    stored: dict[str, Any]
    tasks: list[ReferenceTask]
    notes: tuple[str, ...]


def _opened(path: Path, job: ReferenceJob, training: Training, drawing: Drawing, target: _Target | None, *, resumes: bool) -> _Opened:
    """The folder of this experiment: the one that is there when it is the same, else a new one."""
    weights, notes = (None, ()) if target is None else (target.weights, target.notes)
    manifest = job_manifest(
        job,
        plan=drawing.manifest(),
        pool=drawing.pool,
        engine=training.engine.manifest(),
        reason=training.engine.reason,
        settings=training.settings,
        weights=weights,
    )
    if resumes:
        stored, resumed = resumed_manifest(path, manifest)
        notes = resumed + notes
    else:
        columns = {"ids": job.pool.ids, "targets": job.pool.targets, "member": job.pool.member}
        stored = create_folder(path, manifest, drawing.drawn(), columns, None if target is None else (target.arrays, target.told))
    drawn, _ = stored_plan(path, stored)
    return _Opened(stored, _tasks(drawn, whole_models(path, stored), training.engine.stack), notes)


def _trained(path: Path, opened: _Opened, job: ReferenceJob, options: WorkerOptions, *, progress: bool) -> tuple[str, ...]:
    """Train and write what the folder lacks; notes on all that happened."""
    if not opened.tasks:
        return opened.notes
    with ready_workers(options, WORDING) as ready:
        stream = _outcomes(ready, job, opened.tasks, options.attempts)
        total = sum(len(task.wanted) for task in opened.tasks)
        read = write_outcomes(path, opened.stored, stream, total=total, workers=ready.workers, progress=progress)
        return tuple(dict.fromkeys((*opened.notes, *read, *ready.notes)))


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

"""Choose where tasks are carried out, always through joblib.

Tasks run in this process and its children (loky), on a Ray cluster or on a Dask cluster.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from joblib import Parallel, cpu_count, delayed, parallel_config
from joblib.externals.loky.process_executor import BrokenProcessPool

from noshadow.checks import InputError, advice, called, refuse, require_choice, said
from noshadow.workers.dask_workers import ready_dask_workers
from noshadow.workers.ray_workers import ready_ray_workers
from noshadow.workers.ready import (
    ReadyWorkers,
    Results,
    Wording,
    WorkerJob,
    WorkerOptions,
    WorkerTask,
    closed_quietly,
    first_line,
    numbered_result,
)

BACKENDS = ("loky", "ray", "dask")


@contextmanager
def ready_workers(options: WorkerOptions, wording: Wording) -> Iterator[ReadyWorkers]:
    """Start or find the workers of a backend.

    What was started for them is shut down afterwards, and nothing else. `wording` is what messages
    call things.
    """
    backend, address = options.backend, options.address
    workers, threads = options.workers, options.threads
    require_choice(backend, BACKENDS, "backend")
    if backend == "loky":
        if address is not None:
            refuse("address", "be None with the backend 'loky'", repr(address), f"Pass {advice('backend', 'ray')} or 'dask' for a cluster.")
        count = workers or max(cpu_count() // threads, 1)
        yield ReadyWorkers(count, lambda job, tasks: _on_loky(job, tasks, count, threads, wording), (BrokenProcessPool,))
    elif backend == "ray":
        with ready_ray_workers(workers, threads, address, options.attempts, wording) as ready:
            yield ready
    else:
        with ready_dask_workers(workers, threads, address, wording) as ready:
            yield ready


def surviving_results(ready: ReadyWorkers, job: WorkerJob, tasks: Sequence[WorkerTask], *, attempts: int, wording: Wording) -> Results:
    """Numbers of tasks and what each brought back, as they come.

    Tasks lost with a worker are given out again, until `attempts` rounds in a row bring nothing.

    Raises:
        InputError: workers keep dying; one sentence says how often and what is left.
    """
    left = {task.number: task for task in tasks}
    fruitless = 0
    while left:
        received, cause = 0, None
        try:
            with closing(ready.results(job, list(left.values()))) as stream:  # type: ignore[type-var]
                for number, result in stream:
                    received += 1
                    del left[number]
                    yield number, result
        except ready.deaths as error:
            cause = error
        # joblib may also end early without a word when a worker dies while another's result is
        # being taken.
        fruitless = 0 if received else fruitless + 1
        if left and fruitless >= attempts:
            raise InputError(_deaths(left, cause, fruitless, wording)) from cause
        # A cluster needs a moment to notice what it lost.
        time.sleep(fruitless)


def _deaths(left: Mapping[int, WorkerTask], cause: BaseException | None, rounds: int, wording: Wording) -> str:
    numbers = sorted(number for task in left.values() for number in task.wanted)
    reason = "no reason given" if cause is None else f"{type(cause).__name__}: {first_line(cause)}"
    kept = f": {wording.kept}" if wording.kept else ""
    return said(
        f"workers must stay alive; got {rounds} rounds in which workers died and no {wording.item} arrived ({reason}), "
        f"with {len(numbers)} {wording.item}s left (the first: {numbers[0]}). Is memory short? Run again with fewer workers{kept}."
    )


def _on_loky(job: WorkerJob, tasks: Sequence[WorkerTask], workers: int, threads: int, wording: Wording) -> Results:
    # Copy-on-write: mapped arrays can be written to by a job, as they could in this process, and
    # nobody else sees it.
    with parallel_config("loky", n_jobs=workers, inner_max_num_threads=threads, mmap_mode="c"):
        # Asked for here: joblib takes tasks out of the generator in threads of its own.
        name = called()
        stream = Parallel(return_as="generator_unordered", batch_size=1)(delayed(numbered_result)(job, task, name) for task in tasks)
    yield from closed_quietly(stream, wording)

"""Where models are trained: this process and its children (loky), a Ray cluster, a Dask cluster; all through joblib."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from joblib import Parallel, cpu_count, delayed, parallel_config
from joblib.externals.loky.process_executor import BrokenProcessPool

from noshadow.checks import InputError, refuse, require_choice
from noshadow.reference.crews import Crew, Outcomes, closed_quietly
from noshadow.reference.dask_workers import dask_crew
from noshadow.reference.ray_workers import ray_crew
from noshadow.reference.work import Job, Outcome, Task, task_outcomes

BACKENDS = ("loky", "ray", "dask")


@contextmanager
def crew(backend: str, *, workers: int | None, threads: int, address: str | None, attempts: int, owner: str) -> Iterator[Crew]:
    """Workers of a backend; what was started for them is shut down afterwards, and nothing else.

    Args:
        backend: "loky", "ray" or "dask".
        workers: how many; None for all cores, here or in the cluster, divided by `threads`. One with loky is this process.
        threads: of each worker's torch and BLAS.
        address: of a running Ray or Dask cluster; None for the one already connected to, or else a new one on this machine.
        attempts: how often Ray starts a lost worker again before it gives up.
        owner: the function named in error messages.
    """
    require_choice(backend, BACKENDS, owner, "backend")
    if backend == "loky":
        if address is not None:
            refuse(owner, "address", "be None with backend='loky'", repr(address), "Pass backend='ray' or 'dask' for a cluster.")
        count = workers or max(cpu_count() // threads, 1)
        yield Crew(count, lambda job, tasks: _on_loky(job, tasks, count, threads, owner), (BrokenProcessPool,))
    elif backend == "ray":
        with ray_crew(workers, threads, address, attempts, owner) as ready:
            yield ready
    else:
        with dask_crew(workers, threads, address, owner) as ready:
            yield ready


def surviving_outcomes(ready: Crew, job: Job, tasks: Sequence[Task], *, attempts: int, owner: str) -> Iterator[Outcome]:
    """Outcomes as they come; tasks lost with a worker are given out again, until `attempts` rounds in a row bring nothing.

    Raises:
        InputError: workers keep dying; one sentence says how often and what is left.
    """
    left = {task.numbers[0]: task for task in tasks}
    fruitless = 0
    while left:
        received, cause = 0, None
        try:
            with closing(ready.outcomes(job, list(left.values()))) as stream:  # type: ignore[type-var]
                for name, outcomes in stream:
                    received += 1
                    del left[name]
                    yield from outcomes
        except ready.deaths as error:
            cause = error
        # joblib may also end early without a word when a worker dies while another's result is being taken.
        fruitless = 0 if received else fruitless + 1
        if left and fruitless >= attempts:
            raise InputError(_deaths(left, cause, fruitless, owner)) from cause
        # A cluster needs a moment to notice what it lost.
        time.sleep(fruitless)


def _deaths(left: Mapping[int, Task], cause: BaseException | None, rounds: int, owner: str) -> str:
    numbers = sorted(number for task in left.values() for number in task.wanted)
    reason = (
        "no reason given"
        if cause is None
        else f"{type(cause).__name__}: {(str(cause).strip() or 'no message').splitlines()[0].rstrip('.')}"
    )
    return (
        f"{owner}: workers must stay alive; got {rounds} rounds in which workers died and no model arrived ({reason}), "
        f"with {len(numbers)} models left (the first: {numbers[0]}). Is memory short? Run again with fewer workers: what is done is kept."
    )


def _on_loky(job: Job, tasks: Sequence[Task], workers: int, threads: int, owner: str) -> Outcomes:
    # Copy-on-write: mapped arrays can be written to by train_fn, as they could in this process, and nobody else sees it.
    with parallel_config("loky", n_jobs=workers, inner_max_num_threads=threads, mmap_mode="c"):
        stream = Parallel(return_as="generator_unordered", batch_size=1)(delayed(task_outcomes)(job, task) for task in tasks)
    yield from closed_quietly(stream, owner)

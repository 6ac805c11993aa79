"""Tasks on a Dask cluster, through joblib's own backend for it; workers may die."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from joblib import Parallel, cpu_count, delayed, parallel_config
from joblib.parallel import get_active_backend

from noshadow.checks import called
from noshadow.workers.ready import (
    ReadyWorkers,
    Results,
    Wording,
    WorkerJob,
    WorkerTask,
    closed_quietly,
    imported,
    numbered_result,
    reached,
    require_listening,
    travelling,
)


@contextmanager
def ready_dask_workers(workers: int | None, threads: int, address: str | None, wording: Wording) -> Iterator[ReadyWorkers]:
    """Workers of a Dask cluster; arguments as in `backends.ready_workers`."""
    distributed = imported("distributed", "dask")
    client, owned = _dask_client(distributed, workers, threads, address)
    try:
        with reached(address, "Dask"):
            client.wait_for_workers(1, timeout=30)
        slots = client.nthreads()
        count = min(workers or len(slots), len(slots))
        notes = []
        if sum(slots.values()) == 1:
            notes.append(f"The Dask cluster offers one worker: joblib {wording.past} the {wording.item}s in this process instead.")
        if max(slots.values()) > 1:
            one = f"{wording.verb} one {wording.item} at a time"
            notes.append(f"Dask workers with several threads {one}: start them with --nthreads 1 to use all cores.")

        def results(job: WorkerJob, tasks: Sequence[WorkerTask]) -> Results:
            with travelling(wording):
                # A key of its own each time: one made from the content could still be on its way
                # out from an earlier round.
                held = client.scatter(job, hash=False)
            name = called()
            with parallel_config("dask", client=client):
                backend, _ = get_active_backend()
                backend.submit = _reporting_errors(backend.submit)
                # joblib takes the whole cluster; fewer workers are had by giving out fewer tasks at
                # a time.
                limit = "2*n_jobs" if workers is None else workers
                stream = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch=limit)(
                    delayed(_on_dask)(held, task, name) for task in tasks
                )
            yield from closed_quietly(stream, wording)

        # OSError: connections to workers that are gone; CancelledError: the job was only with them.
        deaths = (importlib.import_module("distributed.scheduler").KilledWorker, OSError, CancelledError)
        yield ReadyWorkers(count, results, deaths, tuple(notes))
    finally:
        for thing in owned:
            thing.close()


def _on_dask(held: Any, task: WorkerTask, name: str) -> tuple[int, Any]:
    """Carry out a task on a Dask worker, to which Dask has brought the job.

    In this process the job is still to be fetched.
    """
    return numbered_result(held if isinstance(held, WorkerJob) else held.result(), task, name)


def _dask_client(distributed: Any, workers: int | None, threads: int, address: str | None) -> tuple[Any, list[Any]]:
    """A client, and what is ours to close, in that order."""
    if address is not None:
        require_listening(address, "Dask")
        with reached(address, "Dask"):
            client = distributed.Client(address, set_as_default=False)
        return client, [client]
    try:
        return distributed.default_client(), []
    except ValueError:
        count = workers or max(cpu_count() // threads, 1)
        # Even without a dashboard Dask serves its figures: to this machine alone.
        served = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
        cluster = distributed.LocalCluster(n_workers=count, threads_per_worker=1, processes=True, **served)
        client = distributed.Client(cluster.scheduler_address, set_as_default=False)
        return client, [client, cluster]


def _reporting_errors(submit: Callable[..., Any]) -> Callable[..., Any]:
    """Make joblib's Dask backend pass on tasks that Dask itself gives up (KilledWorker).

    The backend tells its caller of results and of exceptions inside tasks, but would wait for ever
    for such a task.
    """

    def submitted(func: Any, callback: Callable[[Any], None]) -> Any:
        def tell(done: Any) -> None:
            if done.exception() is not None:
                callback(done.exception())

        future = submit(func, callback)
        future.add_done_callback(tell)
        return future

    return submitted

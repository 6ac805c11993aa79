"""Tasks on a Ray cluster, through ray.util.joblib; workers and nodes may die."""

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from joblib import Parallel, cpu_count, delayed, parallel_config

from noshadow.checks import called, refuse
from noshadow.workers.ready import (
    ReadyWorkers,
    Results,
    Wording,
    WorkerJob,
    WorkerTask,
    imported,
    numbered_result,
    reached,
    require_listening,
    travelling,
)

WAVES_AHEAD = 2  # tasks a worker gets in one wave: Ray through joblib gives results wave by wave


@contextmanager
def ready_ray_workers(workers: int | None, threads: int, address: str | None, attempts: int, wording: Wording) -> Iterator[ReadyWorkers]:
    """Workers of a Ray cluster; arguments as in `backends.ready_workers`."""
    # Nothing about an audit should be reported anywhere; Ray reads this when it starts.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = imported("ray", "ray")
    imported("ray.util.joblib", "ray").register_ray()
    started = not ray.is_initialized()
    if started:
        if address is not None:
            require_listening(address, "Ray")
        with reached(address, "Ray"):
            _start_ray(ray, address, workers or cpu_count())
    elif address is not None:
        connected = ray.get_runtime_context().gcs_address
        if address not in (connected, "auto"):
            refuse("address", "be that of the Ray cluster this process is connected to", repr(address), f"That is {connected!r}.")
    idle: dict[int, Any] = {}
    try:
        count = _ray_workers(ray, workers, threads)
        here = f"The Ray cluster offers one worker: joblib {wording.past} the {wording.item}s in this process instead."
        notes = () if count > 1 else (here,)
        # Actors are restarted where there is room, and tasks retried until they are: a node's death
        # is noticed only after a while, and a limited number of retries is used up before. They ask
        # for no cores, or a restart would wait for the lost node's, but for a byte of memory: of
        # actors that ask for nothing, each is placed by a node drawn at random, which counts nodes
        # from the first on by itself, so that they crowd; the others are all placed by this
        # process's node, one after the other.
        lasting = {"num_cpus": 0, "memory": 1, "scheduling_strategy": "SPREAD", "max_restarts": attempts, "max_task_retries": -1}

        def results(job: WorkerJob, tasks: Sequence[WorkerTask]) -> Results:
            with travelling(wording):
                reference = ray.put(job)
            now, name = _ray_workers(ray, workers, threads), called()
            # Workers of a job that ended well go on to the next one: starting them takes seconds.
            parallel = idle.pop(now, None) or _started_pool(now, lasting)
            with ExitStack() as cleanup:
                cleanup.callback(parallel.__exit__, None, None, None)
                for start in range(0, len(tasks), WAVES_AHEAD * now):
                    wave = tasks[start : start + WAVES_AHEAD * now]
                    yield from parallel(delayed(_on_ray)([reference], task, name) for task in wave)
                cleanup.pop_all()
                idle[now] = parallel

        yield ReadyWorkers(count, results, (ray.exceptions.RayError,), notes)
    finally:
        for parallel in idle.values():
            parallel.__exit__(None, None, None)
        if started:
            ray.shutdown()


def _started_pool(workers: int, options: dict[str, Any]) -> Any:
    with parallel_config("ray", n_jobs=workers, ray_remote_args=options):
        return Parallel(n_jobs=workers, batch_size=1).__enter__()


def _start_ray(ray: Any, address: str | None, cores: int) -> None:
    if address is not None:
        ray.init(address=address, log_to_driver=False)
        return
    # Without this switch, which Ray flips by itself on some systems only, a local cluster listens
    # to the whole network.
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        ray.init(address="local", num_cpus=cores, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _on_ray(held: list[Any], task: WorkerTask, name: str) -> tuple[int, Any]:
    """Carry out a task on a Ray worker.

    The job comes from the node's object store, where it was sent once.
    """
    return numbered_result(importlib.import_module("ray").get(held[0]), task, name)


def _ray_workers(ray: Any, workers: int | None, threads: int) -> int:
    cores = int(ray.cluster_resources().get("CPU", 0))
    if cores == 0:
        refuse("address", "be of a Ray cluster with CPUs", "one without")
    # A cluster may have lost nodes since; the workers asked for are a limit.
    return max(min(workers or max(cores // threads, 1), cores), 1)

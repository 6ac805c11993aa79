"""Where models are trained: this process and its children (loky), a Ray cluster, a Dask cluster; all through joblib."""

import importlib
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from joblib import Parallel, cpu_count, delayed, parallel_config
from joblib.externals.loky.process_executor import BrokenProcessPool
from joblib.parallel import get_active_backend

from noshadow.checks import InputError, refuse, require_choice
from noshadow.reference.work import Job, Outcome, Task, task_outcomes

BACKENDS = ("loky", "ray", "dask")
CONNECT_SECONDS = 10
WAVES_AHEAD = 2  # Ray through joblib gives results wave by wave: tasks a worker gets in one wave
TravelledOutcomes = Iterator[tuple[int, list[Outcome]]]


@dataclass(frozen=True)
class Crew:
    """Workers that are ready: how many, how to give them tasks, and what is raised when one of them dies."""

    workers: int
    outcomes: Callable[[Job, Sequence[Task]], TravelledOutcomes]
    deaths: tuple[type[BaseException], ...]
    notes: tuple[str, ...] = ()


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
        with _ray_crew(workers, threads, address, attempts, owner) as ready:
            yield ready
    else:
        with _dask_crew(workers, threads, address, owner) as ready:
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


def _on_loky(job: Job, tasks: Sequence[Task], workers: int, threads: int, owner: str) -> TravelledOutcomes:
    # Copy-on-write: mapped arrays can be written to by train_fn, as they could in this process, and nobody else sees it.
    with parallel_config("loky", n_jobs=workers, inner_max_num_threads=threads, mmap_mode="c"):
        stream = Parallel(return_as="generator_unordered", batch_size=1)(delayed(task_outcomes)(job, task) for task in tasks)
    yield from _closing(stream, owner)


@contextmanager
def _ray_crew(workers: int | None, threads: int, address: str | None, attempts: int, owner: str) -> Iterator[Crew]:
    # Nothing about an audit should be reported anywhere; Ray reads this when it starts.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = _imported("ray", "ray", owner)
    _imported("ray.util.joblib", "ray", owner).register_ray()
    started = not ray.is_initialized()
    if started:
        if address is not None:
            _require_listening(address, "Ray", owner)
        with _reached(address, "Ray", owner):
            _start_ray(ray, address, workers or cpu_count())
    elif address is not None:
        connected = ray.get_runtime_context().gcs_address
        if connected != address:
            refuse(owner, "address", "be that of the Ray cluster this process is connected to", repr(address), f"That is {connected!r}.")
    try:
        count = _ray_workers(ray, workers, threads, owner)
        notes = () if count > 1 else ("The Ray cluster offers one worker: joblib trained the models in this process instead.",)
        # Actors are restarted where there is room, and tasks retried until they are: a node's death is noticed only after a while,
        # and a limited number of retries is used up before. They ask for no cores, or a restart would wait for the lost node's.
        lasting = {"num_cpus": 0, "scheduling_strategy": "SPREAD", "max_restarts": attempts, "max_task_retries": -1}

        def outcomes(job: Job, tasks: Sequence[Task]) -> TravelledOutcomes:
            with _travelling(owner):
                reference = ray.put(job)
            now = _ray_workers(ray, workers, threads, owner)
            with parallel_config("ray", n_jobs=now, ray_remote_args=lasting):
                parallel = Parallel(n_jobs=now, batch_size=1)
            with parallel:
                for start in range(0, len(tasks), WAVES_AHEAD * now):
                    wave = tasks[start : start + WAVES_AHEAD * now]
                    yield from parallel(delayed(_on_ray)([reference], task) for task in wave)

        yield Crew(count, outcomes, (ray.exceptions.RayError,), notes)
    finally:
        if started:
            ray.shutdown()


def _start_ray(ray: Any, address: str | None, cores: int) -> None:
    if address is not None:
        ray.init(address=address, log_to_driver=False)
        return
    # Without this switch, which Ray flips by itself on some systems only, a local cluster listens to the whole network.
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        ray.init(address="local", num_cpus=cores, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _on_ray(held: list[Any], task: Task) -> tuple[int, list[Outcome]]:
    """A task on a Ray worker: the job comes from the node's object store, where it was sent once."""
    return task_outcomes(importlib.import_module("ray").get(held[0]), task)


def _ray_workers(ray: Any, workers: int | None, threads: int, owner: str) -> int:
    cores = int(ray.cluster_resources().get("CPU", 0))
    if cores == 0:
        refuse(owner, "address", "be of a Ray cluster with CPUs", "one without")
    # A cluster may have lost nodes since; the workers asked for are a limit.
    return max(min(workers or max(cores // threads, 1), cores), 1)


@contextmanager
def _dask_crew(workers: int | None, threads: int, address: str | None, owner: str) -> Iterator[Crew]:
    distributed = _imported("distributed", "dask", owner)
    client, owned = _dask_client(distributed, workers, threads, address, owner)
    try:
        with _reached(address, "Dask", owner):
            client.wait_for_workers(1, timeout=30)
        slots = client.nthreads()
        count = min(workers or len(slots), len(slots))
        notes = (
            ["The Dask cluster offers one worker: joblib trained the models in this process instead."] if sum(slots.values()) == 1 else []
        )
        if max(slots.values()) > 1:
            notes.append("Dask workers with several threads train one model at a time: start them with --nthreads 1 to use all cores.")

        def outcomes(job: Job, tasks: Sequence[Task]) -> TravelledOutcomes:
            with _travelling(owner):
                # A key of its own each time: one made from the content could still be on its way out from an earlier round.
                held = client.scatter(job, hash=False)
            with parallel_config("dask", client=client):
                backend, _ = get_active_backend()
                backend.submit = _reporting_errors(backend.submit)
                # joblib takes the whole cluster; fewer workers are had by giving out fewer tasks at a time.
                limit = "2*n_jobs" if workers is None else workers
                stream = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch=limit)(
                    delayed(_on_dask)(held, task) for task in tasks
                )
            yield from _closing(stream, owner)

        # OSError: connections to workers that are gone; CancelledError: the job was only with them.
        deaths = (importlib.import_module("distributed.scheduler").KilledWorker, OSError, CancelledError)
        yield Crew(count, outcomes, deaths, tuple(notes))
    finally:
        for thing in owned:
            thing.close()


def _on_dask(held: Any, task: Task) -> tuple[int, list[Outcome]]:
    """A task on a Dask worker, to which Dask has brought the job; in this process it is still to be fetched."""
    return task_outcomes(held if isinstance(held, Job) else held.result(), task)


def _dask_client(distributed: Any, workers: int | None, threads: int, address: str | None, owner: str) -> tuple[Any, list[Any]]:
    """A client, and what is ours to close, in that order."""
    if address is not None:
        _require_listening(address, "Dask", owner)
        with _reached(address, "Dask", owner):
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
    """joblib's Dask backend tells its caller of results and of exceptions inside tasks, but waits for ever for a task that Dask
    itself gives up (KilledWorker): this passes those on as well.
    """

    def submitted(func: Any, callback: Callable[[Any], None]) -> Any:
        def tell(done: Any) -> None:
            if done.exception() is not None:
                callback(done.exception())

        future = submit(func, callback)
        future.add_done_callback(tell)
        return future

    return submitted


def _closing(stream: Any, owner: str) -> TravelledOutcomes:
    """The stream, closed without joblib's warning that results are thrown away: they are trained again."""
    try:
        with _travelling(owner):
            yield from stream
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            stream.close()


@contextmanager
def _travelling(owner: str) -> Iterator[None]:
    """Say what cannot travel to a worker process."""
    try:
        yield
    except Exception as error:
        if not _unsendable(error):
            raise
        raise InputError(
            f"{owner}: train_fn, extra, queries and data must be able to travel to worker processes; "
            f"got {type(error).__name__} ({_first_line(error)}). Pass workers=1 to train in this process."
        ) from error


def _unsendable(error: BaseException) -> bool:
    text = str(error).lower()
    return type(error).__name__ == "PicklingError" or (isinstance(error, TypeError) and ("serialize" in text or "cannot pick" in text))


def _require_listening(address: str, name: str, owner: str) -> None:
    """Refuse an address nobody listens at before the cluster's own client tries it for minutes; other forms are left to it."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if host and port.isdigit():
        with _reached(address, name, owner):
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


@contextmanager
def _reached(address: str | None, name: str, owner: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ConnectionError, TimeoutError, ValueError, RuntimeError) as error:
        raise InputError(f"{owner}: address must be that of a running {name} cluster; got {address!r} ({_first_line(error)}).") from error


def _imported(module: str, extra: str, owner: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{owner}: backend='{extra}' must be installed; got {error}. Run pip install noshadow[{extra}].") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").splitlines()[0].rstrip(".")

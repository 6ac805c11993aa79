"""Hold what all backends share.

That is jobs and numbered tasks, workers that are ready, and one sentence for what cannot travel or
be reached.
"""

import importlib
import socket
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from noshadow.checks import InputError, advice, said, speaking_for

CONNECT_SECONDS = 10
Results = Iterator[tuple[int, Any]]
# A worker process may run tasks in several threads (Dask); torch's and NumPy's random states and
# thread counts are the process's.
_ONE_AT_A_TIME = threading.RLock()


class WorkerTask(Protocol):
    """One task, which goes by its number."""

    @property
    def number(self) -> int:
        """A number that no other task of the job has."""

    @property
    def wanted(self) -> Collection[int]:
        """Numbers of what the task brings back, for messages."""


@runtime_checkable
class WorkerJob(Protocol):
    """All that a worker needs beside the task: it is pickled, and travels once."""

    def carried_out(self, task: Any) -> Any:
        """Carry out a task and return what a worker brings back from it.

        What goes wrong there is to be part of the result, not raised.
        """


@dataclass(frozen=True)
class WorkerOptions:
    """Where tasks are carried out.

    Attributes:
        backend: "loky", "ray" or "dask".
        workers: how many; None for all cores, here or in the cluster, divided by `threads`. One
            with loky is this process.
        threads: of each worker's torch and BLAS.
        address: of a running Ray or Dask cluster; None for the one already connected to, or else a
            new one on this machine.
        attempts: how often Ray starts a lost worker again before it gives up.
    """

    backend: str
    workers: int | None
    threads: int
    address: str | None
    attempts: int


@dataclass(frozen=True)
class Wording:
    """What messages call things.

    Messages name what travels, and what is done to what.

    Attributes:
        cargo: "train_fn and data". verb, past: "train", "trained". item: "model".
        kept: what becomes of results that have arrived when the run gives up.
    """

    cargo: str
    verb: str
    past: str
    item: str
    kept: str = ""


@dataclass(frozen=True)
class ReadyWorkers:
    """Workers that are ready.

    They say how many they are, how to give them tasks, and what is raised when one of them dies.
    """

    workers: int
    results: Callable[[WorkerJob, Sequence[WorkerTask]], Results]
    deaths: tuple[type[BaseException], ...]
    notes: tuple[str, ...] = ()


def numbered_result(job: WorkerJob, task: WorkerTask, name: str) -> tuple[int, Any]:
    """Carry out a task; return its number and what it brought back.

    `name` is the function that the user called: a worker does not know it by itself.
    """
    with speaking_for(name):
        return task.number, job.carried_out(task)


def closed_quietly(stream: Any, wording: Wording) -> Results:
    """Yield the stream, closed without joblib's warning that results are thrown away.

    The results are asked for again.
    """
    try:
        with travelling(wording):
            yield from stream
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            stream.close()


@contextmanager
def travelling(wording: Wording) -> Iterator[None]:
    """Say what cannot travel to a worker process."""
    try:
        yield
    except Exception as error:
        if not _unsendable(error):
            raise
        raise InputError(
            said(
                f"{wording.cargo} must be able to travel to worker processes; "
                f"got {type(error).__name__} ({first_line(error)}). Pass {advice('workers', 1)} to {wording.verb} in this process."
            )
        ) from error


def _unsendable(error: BaseException) -> bool:
    text = str(error).lower()
    return type(error).__name__ == "PicklingError" or (isinstance(error, TypeError) and ("serialize" in text or "cannot pick" in text))


def require_listening(address: str, name: str) -> None:
    """Refuse an address nobody listens at, before the cluster's own client tries it for minutes.

    Other forms of addresses are left to that client.
    """
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if host and port.isdigit():
        with reached(address, name):
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


@contextmanager
def reached(address: str | None, name: str) -> Iterator[None]:
    """Say which cluster did not answer."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(said(f"address must be that of a running {name} cluster; got {address!r} ({first_line(error)}).")) from error


def imported(module: str, extra: str) -> Any:
    """An optional module, or one sentence that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(said(f"{advice('backend', extra)} must be installed; got {error}. Run pip install noshadow[{extra}].")) from error


def first_line(error: BaseException) -> str:
    """Say in one line what an error says."""
    return (str(error).strip() or "no message").splitlines()[0].rstrip(".")


@contextmanager
def alone_in_process(threads: int) -> Iterator[None]:
    """Run alone in this process, with this many threads for torch and BLAS.

    No other task runs meanwhile, and threads are as before afterwards.
    """
    with _ONE_AT_A_TIME, threadpool_limits(limits=threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

"""What all backends share: workers that are ready, and one sentence for what cannot travel or be reached."""

import importlib
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from noshadow.checks import InputError
from noshadow.reference.work import Job, Outcome, Task

CONNECT_SECONDS = 10
Outcomes = Iterator[tuple[int, list[Outcome]]]


@dataclass(frozen=True)
class Crew:
    """Workers that are ready: how many, how to give them tasks, and what is raised when one of them dies."""

    workers: int
    outcomes: Callable[[Job, Sequence[Task]], Outcomes]
    deaths: tuple[type[BaseException], ...]
    notes: tuple[str, ...] = ()


def closed_quietly(stream: Any, owner: str) -> Outcomes:
    """The stream, closed without joblib's warning that results are thrown away: they are trained again."""
    try:
        with travelling(owner):
            yield from stream
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            stream.close()


@contextmanager
def travelling(owner: str) -> Iterator[None]:
    """Say what cannot travel to a worker process."""
    try:
        yield
    except Exception as error:
        if not _unsendable(error):
            raise
        raise InputError(
            f"{owner}: train_fn, extra, queries and data must be able to travel to worker processes; "
            f"got {type(error).__name__} ({first_line(error)}). Pass workers=1 to train in this process."
        ) from error


def _unsendable(error: BaseException) -> bool:
    text = str(error).lower()
    return type(error).__name__ == "PicklingError" or (isinstance(error, TypeError) and ("serialize" in text or "cannot pick" in text))


def require_listening(address: str, name: str, owner: str) -> None:
    """Refuse an address nobody listens at before the cluster's own client tries it for minutes; other forms are left to it."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if host and port.isdigit():
        with reached(address, name, owner):
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


@contextmanager
def reached(address: str | None, name: str, owner: str) -> Iterator[None]:
    """Say which cluster did not answer."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{owner}: address must be that of a running {name} cluster; got {address!r} ({first_line(error)}).") from error


def imported(module: str, extra: str, owner: str) -> Any:
    """An optional module, or one sentence that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{owner}: backend='{extra}' must be installed; got {error}. Run pip install noshadow[{extra}].") from error


def first_line(error: BaseException) -> str:
    """What an error says, in a line."""
    return (str(error).strip() or "no message").splitlines()[0].rstrip(".")

"""One progress bar for the house: shown to people, silent in pipes."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


def tracked(items: Sequence[T] | Iterable[T], description: str, *, total: int | None = None, show: bool = True) -> Iterator[T]:
    """Yield the items, drawing a bar with the remaining time on stderr when it is a terminal."""
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal)) as bar:
        yield from bar.track(items, description=description, total=total)

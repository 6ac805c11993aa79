"""Draw one progress bar for the house.

It is shown to people once something takes longer than they like to wait, and is silent in pipes.
"""

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")
PATIENCE = 2.0


def tracked(items: Sequence[T] | Iterable[T], description: str, *, total: int | None = None, show: bool = True) -> Iterator[T]:
    """Yield the items, drawing a bar with the remaining time on stderr.

    The bar is drawn when stderr is a terminal and two seconds have passed.
    """
    console = Console(file=sys.stderr)
    if not (show and console.is_terminal):
        yield from items
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    # A timer, not a look at the clock between items: the first item may be the long one.
    later = threading.Timer(PATIENCE, bar.start)
    later.daemon = True
    later.start()
    try:
        yield from bar.track(items, description=description, total=total)
    finally:
        later.cancel()
        later.join()
        if bar.live.is_started:
            bar.stop()

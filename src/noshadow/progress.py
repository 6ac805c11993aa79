"""Draw one progress bar for the house.

It is shown to people once something takes longer than they like to wait, in a terminal or in a
notebook, and is silent in pipes.
"""

import contextvars
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")
PATIENCE = 2.0
_REDRAW = 0.2  # seconds between two lines of a notebook's bar
_BAR = 24


def tracked(items: Sequence[T] | Iterable[T], description: str, *, total: int | None = None, show: bool = True) -> Iterator[T]:
    """Yield the items, drawing a bar with the remaining time.

    The bar is drawn once two seconds have passed, on stderr when that is a terminal, and as one
    line of output that changes in place in a notebook. A terminal's bar goes away in the end; a
    notebook keeps its line, which then says how long it took.
    """
    display = notebook_display() if show else None
    if display is not None:
        yield from _in_notebook(items, description, total, display)
        return
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


def notebook_display() -> Callable[..., Any] | None:
    """The `display` of the notebook that this runs in; None elsewhere.

    IPython is asked only where it runs already, and only a kernel has outputs that change: its
    terminal is a terminal.
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return None if getattr(shell, "kernel", None) is None else ipython.display.display  # type: ignore[union-attr]


def _in_notebook(items: Iterable[T], description: str, total: int | None, display: Callable[..., Any]) -> Iterator[T]:
    """Yield the items beside one line that is displayed late and then changed in place."""
    line = _NotebookLine(description, len(items) if total is None and isinstance(items, Sequence) else total, display)
    # The kernel finds the cell that an output belongs to by the context of the thread.
    later = threading.Timer(PATIENCE, contextvars.copy_context().run, (line.draw,))
    later.daemon = True
    later.start()
    ended = "ended"
    try:
        for item in items:
            yield item
            line.advance()
        ended = "done"
    finally:
        later.cancel()
        later.join()
        line.finish(ended)


class _NotebookLine:
    """One line of a notebook's output: what is done, what is left, and for how long."""

    def __init__(self, description: str, total: int | None, display: Callable[..., Any]) -> None:
        self.description, self.total, self.display = description, total, display
        self.done, self.started, self.drawn_at = 0, time.monotonic(), 0.0
        self.handle: Any = None

    def advance(self) -> None:
        """One item more; redrawn where there is a line, and not too often."""
        self.done += 1
        if self.handle is not None and time.monotonic() - self.drawn_at >= _REDRAW:
            self.draw()

    def draw(self, ended: str = "") -> None:
        """Display the line, or change it."""
        self.drawn_at = time.monotonic()
        content = {"text/plain": self.text(ended)}
        if self.handle is None:
            self.handle = self.display(content, raw=True, display_id=True)
        else:
            self.handle.update(content, raw=True)

    def finish(self, ended: str) -> None:
        """Say how it ended, where anything was displayed."""
        if self.handle is not None:
            self.draw(ended)

    def text(self, ended: str = "") -> str:
        """The line as it stands."""
        seconds = time.monotonic() - self.started
        if ended:
            return f"{self.description}: {ended} after {self.done:,} in {_clock(seconds)}"
        if not self.total:
            return f"{self.description}: {self.done:,}, {_clock(seconds)} so far"
        filled = min(_BAR, _BAR * self.done // self.total)
        left = f", about {_clock(seconds / self.done * max(self.total - self.done, 0))} left" if self.done else ""
        return f"{self.description} {'━' * filled}{'╌' * (_BAR - filled)} {self.done:,}/{self.total:,}{left}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"

"""The progress bar: late enough not to flicker, silent in pipes, one line in a notebook, gone at the end."""

import contextvars
import gc
import io
import re
import sys
import threading
import time
import types

import pytest

from noshadow import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def drawn(monkeypatch):
    """What is drawn on a terminal while items are tracked; the wait is shortened."""
    monkeypatch.setattr(progress, "PATIENCE", 0.2)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def draw(items, wait, screen=None, **options):
        screen = Terminal() if screen is None else screen
        monkeypatch.setattr(sys, "stderr", screen)
        got = []
        for item in progress.tracked(items, "records", **options):
            time.sleep(wait)
            got.append(item)
        return got, screen.getvalue()

    return draw


def test_short_work_draws_nothing(drawn):
    assert drawn([1, 2, 3], 0.0) == ([1, 2, 3], "")


def test_long_work_draws_a_bar_even_while_its_first_item_lasts(drawn):
    got, text = drawn([7], 0.8)
    assert got == [7] and "records" in text


def test_a_pipe_or_a_quiet_run_stays_silent(drawn):
    assert drawn([1, 2], 0.3, screen=io.StringIO()) == ([1, 2], "")
    assert drawn([1, 2], 0.3, show=False) == ([1, 2], "")


def test_an_error_inside_leaves_no_bar_behind(drawn):
    def failing():
        yield 1
        time.sleep(0.5)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drawn(failing(), 0.0)


class Handle:
    """What IPython's `display` returns with display_id=True."""

    def __init__(self, shown):
        self.shown = shown

    def update(self, content, *, raw):
        assert raw
        self.shown.append(("update", content["text/plain"], threading.current_thread()))


class Kernel:
    """As much of IPython inside a kernel as is asked for."""

    def __init__(self, *, kernel=True):
        self.shown = []
        self.shell = types.SimpleNamespace(kernel=object()) if kernel else types.SimpleNamespace()
        self.display = types.SimpleNamespace(display=self.displayed)

    def get_ipython(self):
        return self.shell

    def displayed(self, content, *, raw, display_id):
        assert raw and display_id is True and set(content) == {"text/plain"}
        self.shown.append(("display", content["text/plain"], threading.current_thread()))
        return Handle(self.shown)


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.1)
    monkeypatch.setattr(progress, "_REDRAW", 0.0)
    found = Kernel()
    monkeypatch.setitem(sys.modules, "IPython", found)
    return found


def test_a_notebook_shows_one_line_that_changes_in_place(kernel, capsys):
    for _ in progress.tracked(range(4), "records"):
        time.sleep(0.08)
    kinds, lines, _ = zip(*kernel.shown, strict=True)
    assert kinds == ("display", *["update"] * (len(kinds) - 1)) and len(kinds) >= 3
    assert all(line.startswith("records ━") and "left" in line for line in lines[1:-1]) and "4/4" in lines[-2]
    assert lines[-1] == "records: done after 4 in 0:00"
    assert capsys.readouterr() == ("", "")


def test_a_notebook_shows_nothing_of_short_or_quiet_work(kernel):
    assert list(progress.tracked([1, 2], "records")) == [1, 2]
    for _ in progress.tracked([1], "records", show=False):
        time.sleep(0.2)
    assert kernel.shown == []


def test_a_notebook_shows_a_line_while_the_first_item_lasts_in_the_context_of_its_cell(kernel):
    cell = contextvars.ContextVar("cell")
    cell.set("this one")
    seen = []
    kernel.display.display = lambda *args, **options: (seen.append(cell.get("another")), kernel.displayed(*args, **options))[1]
    for _ in progress.tracked(iter([1]), "reading"):
        time.sleep(0.3)
    (_, first, thread), *_ = kernel.shown
    assert first == "reading: 0, 0:00 so far" and thread is not threading.main_thread() and seen == ["this one"]


def test_a_notebooks_line_says_that_an_error_ended_it(kernel):
    def run():
        for number in progress.tracked(range(9), "records"):
            time.sleep(0.1)
            if number == 3:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    gc.collect()
    # Four tenths of a second, and more where the machine is busy.
    assert re.fullmatch(r"records: ended after 3 in 0:0\d", kernel.shown[-1][1])


def test_ipython_in_a_terminal_is_a_terminal(monkeypatch, drawn):
    terminal = Kernel(kernel=False)
    monkeypatch.setitem(sys.modules, "IPython", terminal)
    assert progress.notebook_display() is None
    got, text = drawn([7], 0.8)
    assert got == [7] and "records" in text and terminal.shown == []


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0:00"), (61, "1:01"), (3599.6, "1:00:00"), (7325, "2:02:05")])
def test_times_are_read_off_a_clock(seconds, words):
    assert progress._clock(seconds) == words

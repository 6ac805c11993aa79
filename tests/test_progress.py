"""The progress bar: late enough not to flicker, silent in pipes, gone at the end."""

import io
import sys
import time

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

"""Sequences longer than a model's context, in windows; windows in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from noshadow.views.token_sequences import TokenSequences

LOGITS_AT_ONCE = 2**27  # half a gigabyte of float32 in one forward pass


@dataclass(frozen=True)
class Window:
    """Tokens start … stop − 1 of a sequence, of which those from `first` on are scored."""

    sequence: int
    start: int
    first: int
    stop: int


def token_windows(sequences: TokenSequences, length: int | None, step: int | None) -> list[Window]:
    """Windows of at most `length` tokens, each starting `step` after the one before.

    Every token is scored once, in the first window that holds it. Windows without a scored token
    are left out.
    """
    found: list[Window] = []
    for number, tokens in enumerate(sequences.tokens):
        n = len(tokens)
        if length is None or step is None or n <= length:
            found.append(Window(number, 0, 1, n))
            continue
        done = 1
        for start in [*range(0, n - length, step), n - length]:
            found.append(Window(number, start, done, start + length))
            done = start + length
    return [window for window in found if sequences.counts[window.sequence][window.first : window.stop].any()]


def window_batches(windows: Sequence[Window], batch_size: int, vocabulary: int) -> Iterator[list[Window]]:
    """Group windows of like length into batches, the longest first.

    So little is padded, and memory peaks at once.
    """
    ordered = sorted(windows, key=lambda window: window.start - window.stop)
    place = 0
    while place < len(ordered):
        longest = ordered[place].stop - ordered[place].start
        size = max(min(batch_size, LOGITS_AT_ONCE // (longest * vocabulary)), 1)
        yield ordered[place : place + size]
        place += size

"""Why a file could not be read, in one clause."""

from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 200


def reason_of(error: BaseException) -> str:
    """Return the first line of an error's message, cut where it quotes the file at length.

    It is the kind of error when there is no message.
    """
    text = str(error).strip()
    line = text.splitlines()[0].strip().rstrip(".") if text else type(error).__name__
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


@contextmanager
def one_kind_of_error() -> Iterator[None]:
    """Turn whatever a parser of others trips over into ValueError.

    What the system refuses stays OSError.

    Parsers of untrusted bytes fail in open-ended ways (struct.error, RuntimeError, MemoryError, …),
    and all of them mean one thing.
    """
    try:
        yield
    except (OSError, ValueError):
        raise
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {reason_of(error)}") from error

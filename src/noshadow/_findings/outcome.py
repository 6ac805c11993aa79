"""What one check hands back, before it becomes a Finding."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array
from noshadow.visible import visible

Limits = Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Outcome:
    """Status, figure and sentence of one check.

    `rows` are the record-table rows it speaks of, None when it is not about records.
    """

    status: str
    sentence: str
    figure: float | None = None
    rows: Array | None = None
    examples: tuple[str, ...] = ()
    next_step: str | None = None


def judged(is_found: bool, figure: float, sentence: str, rows: Array | None = None) -> Outcome:
    """Return an outcome, found or passed, with the figure that decided.

    Only what was found names records.
    """
    named = rows if is_found or rows is None else np.empty(0, dtype=np.int64)
    return Outcome("found" if is_found else "passed", sentence, float(figure), named)


def not_applicable(reason: str) -> Outcome:
    """Return the outcome of a question that does not arise."""
    return Outcome("not applicable", f"Not applicable, because {reason}.")


def skipped(reason: str, next_step: str) -> Outcome:
    """Return the outcome of a question for whose answer the audit does not hold what is needed."""
    return Outcome("skipped", f"Skipped, because {reason}.", next_step=next_step)


def shortened(name: object, most: int = 60) -> str:
    """Put a name of the user's in quotes, and cut it where it would swamp a sentence."""
    text = visible(name)
    return f"'{text if len(text) <= most else text[: most - 1] + '…'}'"

"""Rules for loss samples and levels, shared by everything that reads them."""

import numpy as np

from noshadow.checks import Array, numeric_array, refuse, require_number
from noshadow.metrics import error_budget

SMALLEST_AUTO_LEVEL = 1e-3
LARGEST_MARGIN = 36.0  # where 1 − p_y is the rounding error of float64
LARGEST_LOSS = 1e100  # squares and sums of losses stay finite below it


def sorted_losses(value: object, argument: str, owner: str) -> tuple[Array, Array]:
    """The losses ascending, and as given; (n,) float64, finite, ≥ 0, at least two."""
    losses = numeric_array(value, owner, argument, ndim=1).astype(np.float64)
    if len(losses) < 2:
        refuse(owner, argument, "hold at least two losses", str(len(losses)))
    largest = int(losses.argmax())
    if losses[largest] > LARGEST_LOSS:
        refuse(owner, argument, f"stay below {LARGEST_LOSS:g}", f"{losses[largest]:g} at index {largest}")
    negative = losses < 0
    if negative.any():
        first = int(negative.argmax())
        got = f"{int(negative.sum())} negative, the first {losses[first]:g} at index {first}"
        hint = "Cross-entropies and squared errors are not; of log-densities subtract the smallest of both splits."
        refuse(owner, argument, "hold losses ≥ 0", got, hint)
    return np.sort(losses), losses


def resolved_level(fpr: float | str, smaller: int, owner: str) -> float:
    """The level asked for, or max(1e-3, 1/n) of the smaller split."""
    if isinstance(fpr, str):
        if fpr != "auto":
            refuse(owner, "fpr", "be 'auto' or a number", repr(fpr))
        return max(SMALLEST_AUTO_LEVEL, 1 / smaller)
    asked = require_number(fpr, owner, "fpr", low=0, high=1, low_open=True)
    if error_budget(asked, smaller) == 0:
        rule = f"be at least {1 / smaller}, the smallest level that {smaller} records of the smaller split resolve"
        refuse(owner, "fpr", rule, f"{asked:g}", "Raise fpr, give more losses, or see extrapolated_tnr.")
    return asked


def tied_share(losses: Array) -> float:
    """Share of sorted losses whose margin is not known: tied at the smallest loss, or too small for float64 to tell from 0.

    Losses clipped or rounded from below are of this kind; a single smallest loss is not.
    """
    unknown = int((margins_of_losses(losses) >= LARGEST_MARGIN).sum())
    smallest = int(np.searchsorted(losses, losses[0], side="right"))
    return max(unknown, smallest if smallest > 1 else 0) / len(losses)


def margins_of_losses(losses: Array) -> Array:
    """φ = −log(e^loss − 1), the margin log p_y − log(1 − p_y) of a cross-entropy; at most 36."""
    # Large losses: e^loss − 1 overflows where φ is −loss to the last digit.
    small = np.minimum(losses, 50.0)
    with np.errstate(divide="ignore"):
        margins: Array = np.where(losses > 50.0, -losses, np.minimum(-np.log(np.expm1(small)), LARGEST_MARGIN))
    return margins

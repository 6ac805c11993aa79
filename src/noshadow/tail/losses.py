"""Rules for loss samples, their margins and levels, shared by everything that reads them."""

import math

import numpy as np

from noshadow.checks import Array, numeric_array, refuse, require_number, require_same_length
from noshadow.metrics import error_budget

SMALLEST_AUTO_LEVEL = 1e-3
LARGEST_MARGIN = 36.0  # where 1 − p_y is the rounding error of float64
LARGEST_LOSS = 1e100  # squares and sums of losses stay finite below it
MOST_TIED = 0.1
OF_ITS_LOSS = (1e-4, 1e-5)  # relative and absolute: losses may have been rounded to float32
Pair = tuple[Array, Array]


def sorted_losses(value: object, argument: str) -> tuple[Array, Array]:
    """The losses ascending, and as given; (n,) float64, finite, ≥ 0, at least two."""
    losses = numeric_array(value, argument, ndim=1).astype(np.float64)
    if len(losses) < 2:
        refuse(argument, "hold at least two losses", str(len(losses)))
    largest = int(losses.argmax())
    if losses[largest] > LARGEST_LOSS:
        refuse(argument, f"stay below {LARGEST_LOSS:g}", f"{losses[largest]:g} at index {largest}")
    negative = losses < 0
    if negative.any():
        first = int(negative.argmax())
        got = f"{int(negative.sum())} negative, the first {losses[first]:g} at index {first}"
        hint = "Cross-entropies and squared errors are not; of log-densities subtract the smallest of both splits."
        refuse(argument, "hold losses ≥ 0", got, hint)
    return np.sort(losses), losses


def resolved_level(fpr: float | str, smaller: int) -> float:
    """The level asked for, or max(1e-3, 1/n) of the smaller split."""
    if isinstance(fpr, str):
        if fpr != "auto":
            refuse("fpr", "be 'auto' or a number", repr(fpr))
        return max(SMALLEST_AUTO_LEVEL, 1 / smaller)
    asked = require_number(fpr, "fpr", low=0, high=1, low_open=True)
    if error_budget(asked, smaller) == 0:
        rule = f"be at least {1 / smaller}, the smallest level that {smaller} records of the smaller split resolve"
        refuse("fpr", rule, f"{asked:g}", "Raise fpr, give more losses, or see extrapolated_tnr.")
    return asked


def given_margins(margins: tuple[object, object], losses: Pair) -> Pair | None:
    """The margins of both samples in ascending order, or None when neither is given.

    Each record's margin must be that of its loss.

    Args:
        margins: members' and non-members' margins φ, loss = log(1 + e^{−φ}). losses: theirs, in the
            same order.
    """
    if margins[0] is None and margins[1] is None:
        return None
    found = []
    for name, value, own in zip(("member", "nonmember"), margins, losses, strict=True):
        argument = f"{name}_margins"
        if value is None:
            refuse(argument, "be given together with its counterpart", "None", "Pass both, or neither.")
        given: Array = numeric_array(value, argument, ndim=1).astype(np.float64)
        require_same_length(**{f"{name}_losses": own, argument: given})
        off = ~np.isclose(np.logaddexp(0.0, -given), own, *OF_ITS_LOSS)
        if off.any():
            first = int(off.argmax())
            got = f"{int(off.sum())} that are not, the first {given[first]:g} beside the loss {own[first]:g} at index {first}"
            refuse(argument, "be the margins φ of the losses, loss = log(1 + exp(−φ)), in their order", got)
        found.append(np.sort(given))
    return found[0], found[1]


def blurred_margins(losses: Array, margins: Array | None) -> str | None:
    """Why the margins of sorted member losses cannot be read, in a sentence; None when they can.

    Given margins are known, however small the losses; only those tied at the largest of them are
    not (clipped outputs). Margins from losses are not known where losses are tied at the smallest,
    or too small for float64 to tell from 0.
    """
    if margins is not None:
        share = _share_tied(-margins[::-1])
        if share <= MOST_TIED:
            return None
        return (
            f"{100 * share:.0f} % of the members' margins are tied at the largest one, so what lies behind them is not known: clipped or "
            "rounded outputs look like this. The calibration has no such set-ups."
        )
    unknown = int((margins_of_losses(losses) >= LARGEST_MARGIN).sum()) / len(losses)
    share = max(unknown, _share_tied(losses))
    if share <= MOST_TIED:
        return None
    return (
        f"{100 * share:.0f} % of the member losses are tied at their smallest value or below {math.exp(-LARGEST_MARGIN):.0e}, so the "
        "margins behind them are not known: clipped or rounded losses look like this, and so do models that were fitted until "
        "nothing of the loss was left. Give the margins beside the losses (member_margins, nonmember_margins), if logits are at hand."
    )


def _share_tied(ascending: Array) -> float:
    """Share of values equal to the smallest; a single smallest one is not tied."""
    smallest = int(np.searchsorted(ascending, ascending[0], side="right"))
    return smallest / len(ascending) if smallest > 1 else 0.0


def margins_of_losses(losses: Array) -> Array:
    """φ = −log(e^loss − 1), the margin log p_y − log(1 − p_y) of a cross-entropy; at most 36."""
    # Large losses: e^loss − 1 overflows where φ is −loss to the last digit.
    small = np.minimum(losses, 50.0)
    with np.errstate(divide="ignore"):
        margins: Array = np.where(losses > 50.0, -losses, np.minimum(-np.log(np.expm1(small)), LARGEST_MARGIN))
    return margins

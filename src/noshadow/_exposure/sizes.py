"""Whether sizes are identified, and whether left-out references agree with them."""

from dataclasses import dataclass

import numpy as np

from noshadow._exposure.held_out import Tail
from noshadow._exposure.inputs import Given
from noshadow.checks import Array
from noshadow.sizing import FITTED_RECORDS, MANY_MARGINS, SIZED_RECORDS, would_identify

# Share of margins that lie at one end, tied, from which they have no spread that a rate could be
# read from: shares of votes of exactly 1, clipped, stand ten standard deviations from all others.
TIED = 0.01


@dataclass(frozen=True)
class Sizes:
    """Whether sizes are identified, and the sentence that says what is missing."""

    order_only: bool
    reason: str


def sizes_of(arguments: Given) -> Sizes:
    """Whether sizes are identified: each side needs records with two margins on it.

    The audited model does not count.
    """
    seen = ~np.isnan(arguments.references)
    lacking = []
    for words, chosen in (("without", ~arguments.membership), ("with", arguments.membership)):
        margins = (seen & chosen).sum(0)
        twice, often = int((margins >= 2).sum()), int((margins >= MANY_MARGINS).sum())
        if twice < SIZED_RECORDS and often < FITTED_RECORDS:
            lacking.append(f"{twice} records have margins of two models trained {words} them")
    tied = _tied_at_an_end(arguments.references)
    if not lacking and tied > TIED:
        reason = (
            f"a share of {tied:.2g} of the margins is tied at the largest or smallest one, as clipped probabilities of exactly 0 or 1 are"
        )
        return Sizes(True, f"{reason}: such margins have no spread. Models whose outputs are logits would identify sizes.")
    if not lacking:
        return Sizes(False, "")
    return Sizes(True, f"{' and '.join(lacking)}, and {SIZED_RECORDS} are needed. {would_identify(seen.shape[1])}")


def held_against(tail: Tail | None) -> Sizes:
    """No sizes where left-out references contradict the spreads; None where none could be asked."""
    if tail is None or not tail.refused:
        return Sizes(False, "")
    reach = f"margins of left-out reference models without a record reach {tail.ratio:.2g} times as far as their spread says"
    why = "rates would be off (a network that is sure of its mistakes has such margins at two ends)"
    return Sizes(True, f"{reach}, so that {why}. Attacks measured with many reference models would tell rates.")


def _tied_at_an_end(references: Array) -> float:
    """Share of the margins that equal the largest or the smallest of all, whichever is more."""
    held = references[np.isfinite(references)]
    ends = (held.min(), held.max())
    return max(float(np.mean(np.isclose(held, end, rtol=1e-9, atol=0))) for end in ends)

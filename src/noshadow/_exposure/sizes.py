"""Whether sizes are identified, and whether left-out references agree with them."""

from dataclasses import dataclass, replace

import numpy as np

from noshadow._exposure.design import noise_between
from noshadow._exposure.held_out import Tail
from noshadow.checks import Array
from noshadow.sizing import FITTED_RECORDS, MANY_MARGINS, SIZED_RECORDS, would_identify

# Share of margins that lie at one end, tied, from which they have no spread that a rate could be
# read from: shares of votes of exactly 1, clipped, stand ten standard deviations from all others.
TIED = 0.01
# Noise through other records beyond which sizes are withheld: 2 for pairs of complements, 1.2 and
# less for eight and more models of plans that are balanced over both halves of the models.
COMPLEMENTS = 1.5
OTHERS_SAY_NOTHING = (
    "sizes are read from reference models alone, because what sets a base or folds apart from the audited training would pass for the "
    "spread from model to model"
)


@dataclass(frozen=True)
class Sizes:
    """Whether sizes are identified, and the sentence that says what is missing."""

    order_only: bool
    reason: str


def sizes_of(references: Array, membership: Array, counted: Array | None = None) -> Sizes:
    """Whether sizes are identified: each side needs records with two margins on it.

    The audited model does not count.

    Args:
        references: (K, n) margins. membership: (K, n). counted: (K,) which are margins of reference
            models; None: all. Others say nothing of spreads.
    """
    if counted is not None and not counted.all():
        return _of_references_alone(references[counted], membership[counted])
    seen = ~np.isnan(references)
    lacking = []
    for words, chosen in (("without", ~membership), ("with", membership)):
        margins = (seen & chosen).sum(0)
        twice, often = int((margins >= 2).sum()), int((margins >= MANY_MARGINS).sum())
        if twice < SIZED_RECORDS and often < FITTED_RECORDS:
            lacking.append(f"{twice} records have margins of two models trained {words} them")
    tied = _tied_at_an_end(references)
    if not lacking and tied > TIED:
        reason = (
            f"a share of {tied:.2g} of the margins is tied at the largest or smallest one, as clipped probabilities of exactly 0 or 1 are"
        )
        return Sizes(True, f"{reason}: such margins have no spread. Models whose outputs are logits would identify sizes.")
    if not lacking:
        return _of_the_design(noise_between(membership, seen))
    return Sizes(True, f"{' and '.join(lacking)}, and {SIZED_RECORDS} are needed. {would_identify(seen.shape[1])}")


def _of_the_design(ratio: float) -> Sizes:
    """No sizes where reference models share their records as complements do."""
    if ratio <= COMPLEMENTS:
        return Sizes(False, "")
    reason = (
        f"reference models share their records as pairs of complements do: what other records do to a margin differs between models with "
        f"and without the record by {ratio:.2g} times the variance that either side shows, and would pass for the record's own"
    )
    return Sizes(True, f"{reason}. Models that have every record in half of them, chosen at random, would identify sizes.")


def _of_references_alone(references: Array, membership: Array) -> Sizes:
    """Whether reference models identify sizes beside others, which do not count."""
    if not len(references):
        return Sizes(True, f"{OTHERS_SAY_NOTHING}, and there is none. {would_identify(references.shape[1])}")
    found = sizes_of(references, membership)
    return replace(found, reason=f"{OTHERS_SAY_NOTHING}, and of these {found.reason}") if found.order_only else found


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

"""Numbers that are no margins of other models.

They are refused where the answer would be wrong, and noted where they are odd.
"""

import numpy as np

from noshadow.checks import Array, refuse
from noshadow.metrics import spearman

OPPOSITE = -0.2  # Spearman correlation below which references are losses, not margins
# Standard errors, 1/√(n − 1) without any relation, below 0 from which it is no chance. With twenty
# records two honest models may well have −0.3.
FAR_BELOW_CHANCE = 4.0
ROUNDING = 1e-5  # share of the margins by which single precision may set the same model apart
# Different margins from which a line through all records is no accident: votes of few parts may lie
# on one.
TELLING = 20
# Times as widely as probabilities that margins spread: p moves at most a quarter as fast as
# log p/(1 − p).
PROBABILITIES_NARROWER = 2.5
# Standard errors below 0 from which members' numbers are smaller, not larger.
FAR_BELOW = 6.0
FEW_OUT = 0.4  # share of the records: one reference on a random half leaves half of them out


def require_other_margins(row: Array, own: Array, model: int, direction: str) -> None:
    """Refuse a reference that is the audited model itself, says nothing, or falls where it rises.

    Args:
        row: (n,) of the reference, NaN where unknown. own: (n,) of the audited model. model: its
            number. direction: of `exposure`.
    """
    seen = ~np.isnan(row)
    theirs, mine = row[seen], own[seen]
    if _within_rounding(theirs - mine, mine) or _on_a_line(theirs, mine):
        refuse("references", "be other models", f"the audited model itself as number {model}", "Leave it out.")
    if len(theirs) < TELLING or mine.min() == mine.max():
        return
    if theirs.min() == theirs.max():
        refuse("references", "differ between records", f"{theirs[0]:.6g} for every record of model {model}", "Leave it out.")
    if direction == "larger" and contradicts(spearman(mine, theirs), len(mine)):
        got = f"model {model}, whose numbers fall where the audited model's rise"
        refuse("references", "be margins, larger where a record is known better", got, "Are these losses? Pass margins.")


def contradicts(correlation: float, records: int) -> bool:
    """Whether a rank correlation is negative far beyond chance."""
    return correlation < OPPOSITE and correlation * np.sqrt(records - 1) < -FAR_BELOW_CHANCE


def require_margins(rows: Array, inside: Array, own: Array, direction: str) -> tuple[str, ...]:
    """Refuse what a caller may take for margins; notes on what is odd about who was left out.

    An audit computes the margins of its models itself, and judges what they say by other means.

    Args:
        rows, inside: (K, n). own: (n,) of the audited model. direction: of `exposure`.
    """
    if direction == "larger":
        for model, row in enumerate(rows):
            if _probable(row, own):
                got = f"probabilities, all in [0, 1], of model {model} beside margins that are not"
                refuse("references", "be margins as the audited model's are", got, "Pass log p − log(1 − p) of both.")
        if _falls_with_membership(rows, inside):
            got = "models that give smaller numbers to the records that they were trained on"
            refuse(
                "references",
                "be margins, larger where a model was trained on a record",
                got,
                "Are these losses, or is membership inverted?",
            )
    share = float((~inside & ~np.isnan(rows)).any(0).mean())
    if share >= FEW_OUT:
        return ()
    return (
        f"{share:.0%} of the records were left out of some model: what is said of the others without them comes from records like these.",
    )


def _within_rounding(difference: Array, of: Array) -> bool:
    return bool(np.abs(difference).max() <= ROUNDING * max(float(np.std(of)), float(np.abs(of).max())))


def _on_a_line(theirs: Array, mine: Array) -> bool:
    """Whether a reference is the audited model's margins on another scale."""
    if len(mine) < TELLING or len(np.unique(mine)) < TELLING:
        return False
    centred = mine - mine.mean()
    slope = float(centred @ theirs) / float(centred @ centred)
    return slope > 0 and _within_rounding(theirs - theirs.mean() - slope * centred, theirs - theirs.mean())


def _probable(row: Array, own: Array) -> bool:
    """Whether a row holds probabilities beside margins, by its range and how little it spreads."""
    theirs = row[~np.isnan(row)]
    if theirs.min() < 0 or theirs.max() > 1 or (own.min() >= 0 and own.max() <= 1):
        return False
    return float(np.std(own)) > PROBABILITIES_NARROWER * float(np.std(theirs))


def _falls_with_membership(rows: Array, inside: Array) -> bool:
    """Whether models give smaller numbers to their own records, far beyond chance.

    Records' and models' own levels are taken out first (a model of fewer records knows all of them
    less well), over the records that every model has seen. Each record's part of the slope in
    membership is then one draw.
    """
    seen = ~np.isnan(rows).any(0)
    if seen.sum() < TELLING:
        return False
    values, member = (part - part.mean(0) - part.mean(1, keepdims=True) + part.mean() for part in (rows[:, seen], inside[:, seen] * 1.0))
    parts = (values * member).sum(0)
    return bool(parts.sum() < -FAR_BELOW * np.sqrt((parts**2).sum()))

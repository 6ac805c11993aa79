"""What LiRA with four reference models finds on the target.

Its rate with 64 is predicted from that.
"""

import numpy as np

from noshadow.attacks import lira_scores
from noshadow.checks import Array, InputError, NumericalError, unnamed
from noshadow.metrics import tpr_at_fpr
from noshadow.outcomes import Absent, not_applicable
from noshadow.reference.store import References

# Of a record: two trained on it and two not, as in the setups of the calibration.
ON_A_SIDE = 2
# The rate at 0.001 rests on a record or two; that at 0.01 tells more of what 64 models find.
FPR = 0.01
BLOCK = 1 << 13  # records whose models are sorted at once
NO_TARGET = not_applicable("the set was trained without the audited model, so that LiRA cannot attack it")
NO_TEST = not_applicable("the set says nothing about this audit's test records, among which LiRA's errors are counted")


def rate_with_four(references: References, rows: Array, unseen: Array) -> dict[str, float | int] | Absent:
    """LiRA's TPR at FPR 0.01 on the target, with four reference models for each record.

    The spread is one for all records. Each record has two models that were trained on it and two
    that were not, as in the setups of the calibration. Where a set holds more, disjoint fours are
    taken, every one attacks, and the rate is their mean.

    Args:
        references: a set for the audited model. rows: of the pool, the audit's training records.
        unseen: of the pool, its test records; none where the set says nothing of them.

    Returns:
        fpr, models (four), fours (how many of them attacked) and tpr; or why it does not exist.

    Cost: O(K(n + t)); memory three bytes per model and record beside four margins of each record.
    """
    if references.target is None:
        return NO_TARGET
    if not len(unseen):
        return NO_TEST
    if len(unseen) * FPR < 1:
        return not_applicable(f"{len(unseen)} test records do not resolve a false-positive rate of {FPR:g}")
    chosen = np.concatenate([rows, unseen])
    membership = np.asarray(references.membership)[:, chosen]
    inside = membership.sum(0)
    fours = int(np.minimum(inside, len(membership) - inside).min()) // ON_A_SIDE
    if not fours:
        needed = f"LiRA with four reference models needs {ON_A_SIDE} trained on each record and {ON_A_SIDE} that were not"
        return not_applicable(
            f"{needed}; of these {len(membership)} some record has fewer. Four or more on halves, drawn together, have them"
        )
    try:
        rates = _rates(references, chosen, _models_by_four(membership, fours), len(rows))
    except (InputError, NumericalError) as error:  # no spread between the models
        return not_applicable(unnamed(error))
    return {"fpr": FPR, "models": 2 * ON_A_SIDE, "fours": fours, "tpr": float(np.mean(rates))}


def _models_by_four(membership: Array, fours: int) -> Array:
    """Numbers (fours, 4, records) of the models of each four.

    The first two of a record had it, the others had not.
    """
    found = np.empty((fours, 2, ON_A_SIDE, membership.shape[1]), dtype=np.int16)
    for start in range(0, membership.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        for side, inside in enumerate((membership[:, part], ~membership[:, part])):
            first = np.argsort(~inside, axis=0, kind="stable")[: fours * ON_A_SIDE]
            found[:, side, :, part] = first.reshape(fours, ON_A_SIDE, -1)
    return found.reshape(fours, 2 * ON_A_SIDE, -1)


def _rates(references: References, chosen: Array, models: Array, members: int) -> list[float]:
    """The rate of each four; the first `members` of the chosen records are the training records."""
    assert references.target is not None
    own, others = np.asarray(references.target.statistic), references.statistic
    if own.ndim == 2:
        own, others = own[:, 0], others[:, :, 0]
    side = np.zeros((2 * ON_A_SIDE, len(chosen)), dtype=bool)
    side[:ON_A_SIDE] = True
    rates = []
    for four in models:
        scores = lira_scores(own[chosen], np.asarray(others[four, chosen]), side, variance="global")
        rates.append(tpr_at_fpr(scores[:members], scores[members:], FPR))
    return rates

"""Why sizes that could be told are not told: what the other models say contradicts itself."""

from collections.abc import Sequence

import numpy as np

from noshadow._exposure import Exposure
from noshadow._known import per_thousand, per_thousand_between
from noshadow.results import Evidence

# What a source's stamp says of its models: whether they know their own records better than others.
OWN_RECORDS = "own_records"


def why_withheld(found: Exposure, evidence: Sequence[Evidence], fpr: float) -> str | None:
    """The reason why these sizes are not told; None where they are, or where there are none.

    Args:
        found: of all sources. evidence: of the sources whose margins it rests on. fpr: of the rate.
    """
    if found.order_only:
        return None
    return _heedless(evidence) or _below_a_guess(found, fpr)


def _heedless(evidence: Sequence[Evidence]) -> str | None:
    unmoved = [entry.source for entry in evidence if (entry.stamp.get(OWN_RECORDS) or {}).get("unmoved")]
    if not unmoved:
        return None
    return (
        f"models of {' and '.join(unmoved)} know the records that they were trained on no better than others, and the audited model does "
        "(NS033). Check that train_fn trains on the rows it is given, and that train and test records are of one kind"
    )


def _below_a_guess(found: Exposure, fpr: float) -> str | None:
    """Whether the mean rate's interval ends below a guess: a contradiction, not safety.

    At this false-positive rate a guess is what models without a record reach; models with it would
    pass the bar less often than these. The interval is the mean of the records' interval ends, wide
    on purpose: on 186 simulated sets of 2, 4 and 16 references of records that do not leak, its
    upper end came no nearer to the guess than to less than half of its distance from the rate
    (normal quantiles, at 0.05 and 0.001; CHANGELOG.md). Beyond the guess it is far from chance.
    """
    high = float(np.mean(found.tpr_interval(fpr)[:, 1]))
    if high >= fpr:
        return None
    ends = (float(np.mean(found.tpr_interval(fpr)[:, 0])), high)
    rate = float(np.mean(found.tpr(fpr)))
    return (
        f"an attack would recognise {per_thousand(rate)} records in the mean ({100 * found.level:g} % interval "
        f"{per_thousand_between(ends)}) and a guess {per_thousand(fpr)}, so that models trained without a record reach the attack's bar "
        "more often than models trained with it. This contradicts itself and is no sign of safety. Check that train_fn trains on the rows "
        "it is given as the audited model was trained, and that references, base and data are the audited model's"
    )

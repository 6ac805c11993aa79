"""Whether the base of a fine-tuned language model can stand for "never saw it"."""

import math
from collections.abc import Mapping
from typing import Any

from noshadow._known.audited import Audited
from noshadow.limits import BASE_DISTANCE, BASE_NATS

_SOURCE = "base model"
# The findings that say the same.
TELLS_APART, WORSE_THAN_A_GUESS = "NS031", "NS032"


def base_stamp(audit: Audited) -> Mapping[str, Any] | None:
    """What a language model's audit holds about the base; None where none was read."""
    entry = next((entry for entry in audit.evidence if entry.source == _SOURCE), None)
    return entry.stamp if entry is not None and audit.task == "language-model" and entry.columns else None


def tells_splits_apart(stamp: Mapping[str, Any], distance: float = BASE_DISTANCE) -> bool:
    """Whether the base knows one split better: its loss AUC, with its interval, is far from 0.5."""
    if stamp.get("auc") is None or stamp.get("auc_interval") is None:
        return False
    value, (low, high) = float(stamp["auc"]), (float(end) for end in stamp["auc_interval"])
    return abs(value - 0.5) > distance and not low <= 0.5 <= high


def nats_above_a_guess(stamp: Mapping[str, Any]) -> float | None:
    """The base's mean loss on test texts beyond that of a guess among its tokens, in nats."""
    loss, size = stamp.get("test_loss"), stamp.get("vocabulary")
    return None if loss is None or size is None else float(loss) - math.log(float(size))


def splits_differ(audit: Audited) -> str | None:
    """Why no comparison of the two splits counts (NS031); None where one does."""
    stamp = base_stamp(audit)
    if stamp is None or not tells_splits_apart(stamp):
        return None
    return (
        f"the base, which was trained on neither split, tells training from test texts with an AUC of {float(stamp['auc']):.3f}: every "
        f"comparison of the two measures that as well ({TELLS_APART})"
    )


def base_left_out(audit: Audited) -> str | None:
    """Why the comparison with the base does not count (NS031, NS032); None where it does."""
    stamp, apart = base_stamp(audit), splits_differ(audit)
    if stamp is None or apart is not None:
        return apart
    above = nats_above_a_guess(stamp)
    if above is None or above <= BASE_NATS:
        return None
    return f"the comparison with the base does not count, since the base is worse than a guess at these texts ({WORSE_THAN_A_GUESS})"

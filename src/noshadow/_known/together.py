"""What an audit holds about all of its records together."""

from typing import Any

from noshadow._known.audited import Audited
from noshadow.figures import LargestRate, Retraining
from noshadow.outcomes import Absent, not_applicable

EXPOSURE = "exposure"
OLDER = Absent("not available", "the version that wrote this audit did not draw it; audit again with this version")
NO_SIZES = "one training does not show how trainings differ, and no reference models were trained"


def largest_rate(audit: Audited) -> LargestRate | Absent:
    """The posterior of the largest of all records' true rates, or why there is none."""
    found = _drawn(audit, "largest_rate")
    return found if isinstance(found, Absent) else LargestRate.from_dict(found)


def retraining(audit: Audited) -> Retraining | Absent:
    """What becomes of records' flags in a fresh training, or why it is not known."""
    found = _drawn(audit, "retraining")
    return found if isinstance(found, Absent) else Retraining.from_dict(found)


def _drawn(audit: Audited, name: str) -> dict[str, Any] | Absent:
    """A figure of the exposure's stamp, which rests on trained models."""
    entry = next((entry for entry in audit.evidence if entry.source == EXPOSURE), None)
    if entry is None:
        return not_applicable(NO_SIZES)
    if "attack_rate" not in entry.columns:
        return Absent.of(entry.absent.get("attack_rate", NO_SIZES))
    held: dict[str, Any] | None = entry.stamp.get(name)
    return OLDER if held is None else held

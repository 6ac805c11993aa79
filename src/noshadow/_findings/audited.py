"""What several rules ask of an audit."""

from noshadow._known.audited import Audited
from noshadow.outcomes import Absent


def why_unscored(audit: Audited) -> Absent:
    """Why nothing better than the loss orders the records."""
    first = ("rank", "influence") if audit.task == "language-model" else ("rank", "shift")
    reasons = (audit.not_applicable.get(name) for name in first)
    return Absent.of(next((reason for reason in reasons if reason), "the audit holds no record scores"))

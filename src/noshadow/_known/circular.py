"""Whether what an audit says of its records rests on the models that its ground truth is from."""

from collections.abc import Mapping

from noshadow._known.audited import Audited
from noshadow.figures import EvidenceEntry

EXPOSURE = "exposure"


def exposure_rests_on(audit: Audited, plan: str) -> bool:
    """Whether the audit's exposure was weighed from the reference models of this plan."""
    weighed = next((entry for entry in audit.evidence if entry.source == EXPOSURE), None)
    sources = {} if weighed is None else weighed.stamp.get("trainings", {})
    return any(entry.source in sources and _plan_of(entry) == plan for entry in audit.evidence)


def circular_columns(audit: Audited) -> tuple[str, ...]:
    """Columns that would be compared with themselves if they were compared with the ground truth.

    Those of an exposure that was weighed from the very models whose attacks are the ground truth.
    """
    plan = None if audit.ground_truth is None else audit.ground_truth.provenance.get("plan_digest")
    if plan is None or not exposure_rests_on(audit, str(plan)):
        return ()
    return next(entry.columns for entry in audit.evidence if entry.source == EXPOSURE)


def _plan_of(entry: EvidenceEntry) -> str | None:
    """The digest of the plan behind a source: of its own, or among other facts about its set."""
    plan = entry.stamp.get("plan")
    found = plan.get("plan_digest") if isinstance(plan, Mapping) else plan
    return None if found is None else str(found)

"""One thing to do next, with a command that exists."""

from dataclasses import dataclass
from typing import Any

from noshadow._answer.verdict import LANGUAGE_MODEL, Verdict, in_doubt, verdict
from noshadow._findings import finding_of
from noshadow._known import TELLS_APART, splits_differ, trained_models
from noshadow._known.audited import Audited

AUDIT_AGAIN = "noshadow audit package.module:function --out new-audit"
COMPARE = "noshadow compare this-audit new-audit"
GATE = "noshadow gate this-audit --max-tpr {limit:g}"
FEW_REFERENCES = "noshadow audit package.module:function --out new-audit --reference-models 4"
ALL_REFERENCES = (
    "noshadow reference train package.module:function --out references && noshadow reference score references --audit this-audit"
)
WITH_BASE = "noshadow audit package.module:function --base FOLDER --out new-audit"


@dataclass(frozen=True)
class NextAction:
    """One thing to do next.

    Attributes:
        sentence: what to do and what it is for. command: how, in a shell; names in it stand for the
            reader's own: this-audit, new-audit, references, package.module:function.
    """

    sentence: str
    command: str

    def to_dict(self) -> dict[str, Any]:
        """The action in plain JSON types."""
        return {"sentence": self.sentence, "command": self.command}


def next_action(audit: Audited) -> NextAction:
    """Choose what helps most: mend the audit, make the answer certain, or lower the leakage.

    Args:
        audit: an Audit, or whatever has its fields.

    Cost: O(n) in the number of records.
    """
    doubt, found = in_doubt(audit), verdict(audit)
    if doubt is not None:
        return NextAction(doubt.next_step, AUDIT_AGAIN)
    if found.known.rate is None:
        if splits_differ(audit) is not None:
            return NextAction(finding_of(audit, TELLS_APART).next_step, AUDIT_AGAIN)
        return NextAction("Audit again with test records that the model has not seen.", AUDIT_AGAIN)
    if found.level == "strong":
        sentence = "Regularise, stop earlier, remove duplicates or train with differential privacy; audit the new model and compare."
        return NextAction(sentence, COMPARE)
    if found.known.source in ("measured", "compared"):
        return _after_measuring(found)
    return _measuring(audit, found)


def _after_measuring(found: Verdict) -> NextAction:
    if found.level == "none":
        limit = max(0.01, 10 * found.known.fpr)
        return NextAction("Keep this audit with the model, and let a gate hold the next one to it.", GATE.format(limit=limit))
    if found.level == "some":
        return NextAction("Look at the most exposed records first; then regularise or stop earlier, audit and compare.", COMPARE)
    return NextAction("Give more test records: with those that there are the measured rate is too uncertain.", AUDIT_AGAIN)


def _measuring(audit: Audited, found: Verdict) -> NextAction:
    if audit.task == LANGUAGE_MODEL:
        sentence = "Give the model that this one was fine-tuned from: comparing the two measures an attack."
        return NextAction(sentence, WITH_BASE)
    if found.known.source == "exposure" or trained_models(audit):
        return NextAction("Measure what the real attacks find on this model, with 64 reference models.", ALL_REFERENCES)
    sentence = "Train four models like this one on halves of the records: each record then has a rate of its own, with an interval."
    return NextAction(sentence, FEW_REFERENCES)

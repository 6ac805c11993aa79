"""One thing to do next, with a command that exists."""

import math
from dataclasses import dataclass
from typing import Any

from noshadow._answer.verdict import LANGUAGE_MODEL, Verdict, verdict
from noshadow._findings import finding_of
from noshadow._known import TELLS_APART, models_on_halves, needed_references, splits_differ
from noshadow._known.audited import Audited
from noshadow.outcomes import ARRAYS, FILES, OBJECTS

AUDIT_AGAIN = "noshadow audit package.module:function --out new-audit"
ARRAYS_AGAIN = "noshadow audit signals.npz --out new-audit"
FILES_AGAIN = "noshadow audit --model FILE --train FILE --test FILE --out new-audit"
COMPARE = "noshadow compare this-audit new-audit"
GATE = "noshadow gate this-audit --max-tpr {limit:g}"
FEW_REFERENCES = "noshadow audit package.module:function --out new-audit --reference-models {models}"
ALL_REFERENCES = (
    "noshadow reference train package.module:function --out references && noshadow reference score references --audit this-audit"
)
WITH_BASE = "noshadow audit package.module:function --base FOLDER --out new-audit"
WITH_BASE_FOLDER = "noshadow audit --model FOLDER --train FILE --test FILE --base FOLDER --out new-audit"
# Where an audit had its model from, if not from a function that says how to train another.
_CANNOT_TRAIN = {FILES: "A file cannot be trained again. ", ARRAYS: "Arrays cannot be trained again. ", OBJECTS: ""}
_A_FUNCTION = (
    "Let a function return ns.Target(model, train, test, train_fn=f), where f(indices, seed) trains a model on those rows of train "
    "followed by test. "
)
USUAL = 4
_WORDS = {4: "four", 16: "sixteen"}


@dataclass(frozen=True)
class NextAction:
    """One thing to do next.

    Attributes:
        sentence: what to do and what it is for. command: how, in a shell; names in it stand for the
            reader's own: this-audit, new-audit, references, package.module:function, FILE.
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
    found = verdict(audit)
    if found.remedy:
        return NextAction(found.remedy, _again(audit))
    if found.known.rate is None:
        if splits_differ(audit) is not None:
            return NextAction(finding_of(audit, TELLS_APART).next_step, _again(audit))
        return NextAction("Audit again with test records that the model has not seen.", _again(audit))
    if found.level == "strong":
        sentence = "Regularise, stop earlier, remove duplicates or train with differential privacy; audit the new model and compare."
        return NextAction(sentence, COMPARE)
    if found.known.source in ("measured", "compared"):
        return _after_measuring(audit, found)
    return _measuring(audit, found)


def _source(audit: Audited) -> str | None:
    """Where the model came from; None in folders of versions that did not say."""
    held = audit.provenance.get("source")
    return None if held is None else str(held)


def _again(audit: Audited) -> str:
    """The command that made such an audit."""
    return {FILES: FILES_AGAIN, ARRAYS: ARRAYS_AGAIN}.get(_source(audit) or "", AUDIT_AGAIN)


def _limit(found: Verdict) -> float:
    """A limit for the next model: above the end of the interval, in two digits."""
    end = 0.0 if found.known.interval is None else found.known.interval[1]
    least = max(0.01, 10 * found.known.fpr, end)
    digits = 10.0 ** (math.floor(math.log10(least)) - 1)
    return min(math.ceil(least / digits - 1e-9) * digits, 1.0)


def _after_measuring(audit: Audited, found: Verdict) -> NextAction:
    if found.level == "none":
        limit = _limit(found)
        return NextAction("Keep this audit with the model, and let a gate hold the next one to it.", GATE.format(limit=limit))
    if found.level == "some":
        return NextAction("Look at the most exposed records first; then regularise or stop earlier, audit and compare.", COMPARE)
    return NextAction("Give more test records: with those that there are the measured rate is too uncertain.", _again(audit))


def _measuring(audit: Audited, found: Verdict) -> NextAction:
    if audit.task == LANGUAGE_MODEL:
        sentence = "Give the model that this one was fine-tuned from: comparing the two measures an attack."
        return NextAction(sentence, WITH_BASE_FOLDER if _source(audit) == FILES else WITH_BASE)
    how = _CANNOT_TRAIN[source] + _A_FUNCTION if (source := _source(audit)) in _CANNOT_TRAIN else ""
    models = _models_for_sizes(audit)
    if found.known.source == "exposure" or models is None:
        return NextAction(f"{how}Measure what the real attacks find on this model, with 64 reference models.", ALL_REFERENCES)
    train = f"Train {_WORDS.get(models, models)} models like this one on halves of the records"
    sentence = f"{how}{train}: each record then has a rate of its own, with an interval."
    return NextAction(sentence, FEW_REFERENCES.format(models=models))


def _models_for_sizes(audit: Audited) -> int | None:
    """How many reference models to train for rates of records; None where attacks are better.

    Four where two would do, since LiRA's own rate is predicted from four. Who has trained some
    already, and would have to train many more, is near the price of the attacks.
    """
    needed, had = needed_references(audit).models, models_on_halves(audit)
    if needed is None or had >= needed or (had and needed > USUAL):
        return None
    return max(needed, USUAL)

"""Whether an audit's rate is predicted from what LiRA with four of its reference models finds."""

from dataclasses import replace

from noshadow._audit.exposing import Known
from noshadow.checks import Array
from noshadow.outcomes import Absent, not_applicable
from noshadow.reference import References
from noshadow.reference.four_models import rate_with_four
from noshadow.tail.prediction import FOUR_REFERENCES, calibration_for

# The entry of an audit's `not_applicable` that says why they are not used.
NAME = "predicted_tpr from reference models"
OF_CLASSIFIERS = not_applicable("the calibration from four reference models was made from classifiers")

HEEDLESS = not_applicable("these reference models know their own records no better than others, and the audited model does (NS033)")


def with_attack(known: Known, references: References, rows: Array, unseen: Array, task: str) -> Known:
    """The source with LiRA's rate in its stamp, or with the reason why there is none.

    Args:
        known: what the set says. references, rows, unseen: as `rate_with_four`. task: of the audit.

    Cost: O(K(n + t)).
    """
    found = OF_CLASSIFIERS if task in ("regression", "language-model") else rate_with_four(references, rows, unseen)
    if isinstance(found, Absent):
        return not_predicting(known, found)
    evidence = replace(known.evidence, stamp=dict(known.evidence.stamp) | {"lira": found})
    return replace(known, evidence=evidence, reference_tpr=float(found["tpr"]))


def not_predicting(known: Known, why: Absent) -> Known:
    """The source, and why no prediction is made from LiRA's rate with four of its models."""
    return replace(known, evidence=replace(known.evidence, absent=dict(known.evidence.absent) | {NAME: why}))


def calibrated(known: list[Known], family: str) -> tuple[list[Known], float | None]:
    """The sources, and LiRA's rate with four of their models, None where it is not known.

    Nor is it read where no calibration from it is of the family; the sources then say so.
    """
    made = calibration_for(family, kind="references")
    if made is None or FOUR_REFERENCES not in made.predictors:
        why = not_applicable(
            f"the calibration from four reference models was made from linear models and networks; this model is another ({family})"
        )
        return [entry if entry.reference_tpr is None else not_predicting(entry, why) for entry in known], None
    return known, next((entry.reference_tpr for entry in known if entry.reference_tpr is not None), None)

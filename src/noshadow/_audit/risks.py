"""Risk of the model as a whole, and of each class and group of its records."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from noshadow.checks import Array, refuse
from noshadow.limits import NONLINEAR_HEAD
from noshadow.losses import correct_predictions, hard_labels, record_losses, record_margins, task_targets
from noshadow.outcomes import Absent, not_applicable, uncoded
from noshadow.results import GroupRisk, ModelRisk
from noshadow.scores.last_layer.damping import linear_residual
from noshadow.scores.result import RecordScores
from noshadow.signals import Signals
from noshadow.tail import group_risk, model_risk
from noshadow.tail.prediction import UNKNOWN
from noshadow.tail.record_rates import record_rates
from noshadow.views import View
from noshadow.views.reader import LINEAR

REGRESSION = (
    "The shipped calibration was made from classifiers; for a regression the TNR and AUC are measured, and the rate of a "
    "reference-model attack is not predicted."
)
RECORD_RATES = "Each record has a rate of its own, predicted_tpr."
SOFT = (
    "Losses of soft targets (label smoothing, rows of probabilities) have a floor of their own, which the calibration on hard "
    "labels does not know: the rate of a reference-model attack is not predicted."
)
EMPTY = not_applicable("the test split is empty, so there are no non-member losses to compare with")
ONE = not_applicable("one test record is too few to compare losses")
# Features that span nearly all records explain any outputs.
MOST_SPANNED = 0.99
Pair = tuple[Array, Array]
Names = tuple[list[str] | None, list[str] | None]


def nonmember_losses(test: Signals, task: str) -> Pair:
    """Losses (n_test,) of the test records and their targets, in the form the losses take."""
    if len(test) == 0:
        return np.empty(0), np.empty(0)
    targets = task_targets(test.outputs, test.targets, task)
    return record_losses(test.outputs, targets, task), targets


def correct_of(train: Signals, targets: Array, test: Signals, test_targets: Array, task: str) -> tuple[Array, Array] | None:
    """Tell which records of both splits are classified right.

    The result is None in a regression or without a test split.
    """
    if task == "regression" or len(test) == 0:
        return None
    return correct_predictions(train.outputs, targets, task), correct_predictions(test.outputs, test_targets, task)


def margins_of(train: Signals, targets: Array, test: Signals, test_targets: Array, task: str, *, soft: bool) -> Pair | None:
    """Compute margins of both splits from their logits; None where the calibration reads none.

    Logits give the margins however small the losses are.
    """
    if task == "regression" or soft or len(test) == 0:
        return None
    return record_margins(train.outputs, targets, task), record_margins(test.outputs, test_targets, task)


def has_soft_targets(targets: Array, task: str) -> bool:
    """Whether any target is a probability strictly between 0 and 1."""
    return task != "regression" and targets.dtype.kind == "f" and not bool(np.isin(targets, (0.0, 1.0)).all())


def have_soft_targets(train: Array, test: Array, task: str) -> bool:
    """Whether the targets of both splits are soft.

    Raises:
        InputError: those of one split are and those of the other are not: the loss of a soft target
            has a floor above 0, so that a comparison of the two says how the targets were made, not
            who was trained on.
    """
    soft = {"train": has_soft_targets(train, task), "test": has_soft_targets(test, task)}
    if len(test) and soft["train"] != soft["test"]:
        which, other = ("train", "test") if soft["train"] else ("test", "train")
        got = f"soft ones in {which} beside hard labels in {other}"
        hint = "Losses of soft targets have a floor of their own: give hard labels for both, or soften both alike."
        refuse("train and test", "have targets of one kind", got, hint)
    return soft["train"]


def shown_family(seen: View, scores: RecordScores | None, task: str) -> str:
    """Return the model's family as given, else what the records' own features show.

    The features show a linear head, or nothing.
    """
    given: str | None = seen.inputs.get("family")
    if given is not None:
        return given
    if scores is not None:
        residual, rank = scores.head_residual, scores.rank
    # a head whose scores do not fit is still seen
    elif seen.not_applicable is None and seen.train.features is not None:
        residual, rank = linear_residual(seen.train.features, seen.train.outputs, fit_intercept=seen.fit_intercept, task=task)
    else:
        return UNKNOWN
    return LINEAR if residual is not None and residual <= NONLINEAR_HEAD and rank <= MOST_SPANNED * len(seen.train) else UNKNOWN


def without_findings(risk: ModelRisk) -> ModelRisk:
    """The risk for an audit, which states some of its notes as findings."""
    return replace(risk, notes=uncoded(risk.notes))


def measured_risk(
    losses: Pair,
    correct: Pair | None,
    task: str,
    scores: RecordScores | None,
    how: Mapping[str, Any],
    *,
    margins: Pair | None = None,
    family: str | None = None,
    soft: bool = False,
    reference_tpr: float | None = None,
) -> tuple[ModelRisk | None, dict[str, str]]:
    """Measure model risk from the losses and margins of members and non-members.

    What is not applicable is returned with the reason. `soft` says whether targets are soft, and
    `family` is that of the model. `reference_tpr` is what LiRA with four reference models finds.
    """
    if len(losses[1]) < 2:
        return None, {"model_risk": EMPTY if len(losses[1]) == 0 else ONE}
    risk = model_risk(
        *losses,
        scores=scores,
        member_correct=None if correct is None else correct[0],
        nonmember_correct=None if correct is None else correct[1],
        member_margins=None if margins is None else margins[0],
        nonmember_margins=None if margins is None else margins[1],
        family=family,
        not_predicted=REGRESSION if task == "regression" else SOFT if soft else None,
        reference_tpr=reference_tpr,
        **how,
    )
    risk = without_findings(risk)
    return risk, {"predicted_tpr of the model": Absent("not available", risk.reason)} if risk.predicted_tpr is None else {}


def naming_record_rates(risk: ModelRisk | None, absent: Mapping[str, str]) -> tuple[ModelRisk | None, dict[str, str]]:
    """Say that the records of a regression have the rate which the model has not.

    This is added to the risk and to what is not applicable.
    """
    if risk is None:
        return None, dict(absent)
    told = replace(risk, reason=f"{risk.reason} {RECORD_RATES}")
    return told, {**absent, "predicted_tpr of the model": Absent("not available", told.reason)}


def classified_rates(scores: RecordScores, risk: ModelRisk | None, layers: str | int) -> tuple[dict[str, Array], dict[str, str]]:
    """Predict the TPR of each record of a classifier, with its interval.

    The model's predicted rate is dealt out over the records by rank of `shift`.
    """
    if layers != "last":
        why = "the curve that deals the model's rate out over records was made from ranks by the last layer"
    elif risk is None or risk.predicted_tpr is None:
        why = "no attack rate is predicted for the model" + ("" if risk is None else f" ({risk.reason.rstrip('.')})")
    elif not risk.in_calibration_domain:
        why = risk.reason.rstrip(".")
    elif scores.shift is None or not np.isfinite(scores.shift).all():
        why = "the records have no finite shift to be ranked by"
    else:
        found = record_rates(scores.shift, risk.predicted_tpr, risk.fpr)
        if found is not None:
            return dict(zip(("predicted_tpr", "predicted_tpr_low", "predicted_tpr_high"), found, strict=True)), {}
        why = f"the curve was not made for a false-positive rate of {risk.fpr:g}"
    return {}, {"predicted_tpr": Absent("not calibrated here", why)}


def class_names(targets: Array, test_targets: Array, names: Any, task: str) -> Names:
    """Class of each record of both splits; (None, None) where there are no classes."""
    if task == "regression" or len(test_targets) == 0:
        return None, None
    sides = []
    for side in (targets, test_targets):
        if task == "binary" and not np.isin(side, (0, 1)).all():
            return None, None
        labels = hard_labels(side).astype(np.int64).tolist()
        sides.append([str(label) if names is None else str(names[label]) for label in labels])
    return sides[0], sides[1]


def risks_by_group(
    losses: Pair, groups: Mapping[str, Names], how: Mapping[str, Any]
) -> tuple[dict[str, tuple[GroupRisk, ...]], dict[str, str]]:
    """Risk by class and by group, and the reasons where there is none."""
    found: dict[str, tuple[GroupRisk, ...]] = {}
    absent: dict[str, str] = {}
    for field, (own, other) in groups.items():
        what = "classes" if field == "class_risk" else "groups"
        if len(losses[1]) < 2:
            absent[field] = EMPTY if len(losses[1]) == 0 else ONE
        elif own is None and other is None:
            how_to = "" if field == "class_risk" else " (groups=, test_groups=)"
            absent[field] = not_applicable(f"the records have no {what}{how_to}")
        elif own is None or other is None:
            given, missing = ("groups=", "test_groups=") if other is None else ("test_groups=", "groups=")
            compares = "the risk of a group compares its members with its non-members"
            absent[field] = not_applicable(f"{compares}; pass {missing} beside {given}")
        elif len({*own, *other}) < 2:
            absent[field] = not_applicable(f"all records are of one of the {what}")
        else:
            found[field] = group_risk(*losses, own, other, **how)
    return found, absent

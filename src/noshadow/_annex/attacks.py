"""Which attacks were run, which were estimated or predicted only, which were not, and why."""

from typing import Any

from noshadow._known import per_thousand
from noshadow.outcomes import Absent
from noshadow.results import Audit, GroundTruth, MeasuredAttack

# The words that a row may say about an attack.
RUN, ON_REFERENCES, ESTIMATED, PREDICTED, NOT_RUN = "run", "run on reference models only", "estimated", "predicted", "not run"
STATUSES = (RUN, ON_REFERENCES, ESTIMATED, PREDICTED, NOT_RUN)
MEMBERSHIP = "membership inference"
# EDPB Opinion 28/2024 names these families where it speaks of testing (paragraph 55).
_TESTING = "55 (i)"
_NO_TEST = "there is no such test in noshadow; this file is no evidence of resistance to it"
_MEASURE = "noshadow reference train for the model, then noshadow reference score --audit, would run it"
_REFERENCE_ATTACKS = {
    "LiRA": "compares the model's confidence in a record with that of reference models with and without it, record by record",
    "RMIA": "compares the record's likelihood ratio with those of other records of the population",
    "Shokri": "trains a classifier on the outputs of reference models to tell members from non-members",
}
# What is never run here: name, family, paragraph of the opinion, what it would show.
_NEVER = (
    ("Attribute inference", "attribute inference", _TESTING, "a hidden value of a known person, from the rest of the record"),
    ("Exfiltration", "exfiltration", "55 (ii)", "whether the model or its training data can be taken out of the system that holds it"),
    ("Model inversion", "model inversion", "55 (iv)", "typical inputs of a class or person, from the model's outputs or gradients"),
    ("Reconstruction", "reconstruction", "55 (v)", "whole training records, from weights, gradients or outputs"),
    ("Property inference", "property inference", "", "facts about the training data as a whole, such as the share of a group"),
    (
        "Membership inference by other means",
        MEMBERSHIP,
        _TESTING,
        "label-only and adaptive queries, poisoned training data, several releases of one model, gradients of a shared training",
    ),
)


def attack_rows(audit: Audit) -> list[dict[str, Any]]:
    """One row an attack: its status, what it does, and what it gave or why it was not run."""
    reference = [_with_references(audit, name, does) for name, does in _REFERENCE_ATTACKS.items()]
    return [_loss_threshold(audit), *reference, _exposure(audit), _distinguishability(audit), _regurgitation(audit), *map(_never, _NEVER)]


def _row(name: str, family: str, status: str, does: str, why: str, paragraph: str = _TESTING) -> dict[str, Any]:
    return {"name": name, "family": family, "status": status, "does": does, "why": why, "edpb_paragraph": paragraph}


def _loss_threshold(audit: Audit) -> dict[str, Any]:
    does = "accuses whoever's record has a small loss under the model"
    risk = audit.model_risk
    if risk is None:
        reason = Absent.of(audit.not_applicable.get("model_risk", "the audit holds no model-level risk")).reason
        return _row("Loss threshold", MEMBERSHIP, NOT_RUN, does, reason)
    why = f"on the losses of {risk.n_members} training and {risk.n_nonmembers} test records under the model itself"
    return _row("Loss threshold", MEMBERSHIP, RUN, does, why)


def _with_references(audit: Audit, name: str, does: str) -> dict[str, Any]:
    truth = audit.ground_truth
    rows = [] if truth is None else [row for row in truth.attacks if row.attack == name]
    own = [row for row in rows if row.attacked == "target"]
    if truth is not None and rows:
        status = RUN if own else ON_REFERENCES
        return _row(name, MEMBERSHIP, status, does, _measured(truth, (own or rows)[0]))
    if name == "LiRA" and audit.model_risk is not None and audit.model_risk.predicted_tpr is not None:
        within = (
            "the model resembles its setups" if audit.model_risk.in_calibration_domain else "the model is unlike its setups: a hint only"
        )
        read = "" if audit.model_risk.predicted_from is None else f" from {audit.model_risk.predicted_from}"
        return _row(name, MEMBERSHIP, PREDICTED, does, f"not run on this model, but predicted{read} by a calibration; {within}; {_MEASURE}")
    return _row(name, MEMBERSHIP, NOT_RUN, does, _why_not(audit, name))


def _measured(truth: GroundTruth, row: MeasuredAttack) -> str:
    on = (
        "on the audited model"
        if row.attacked == "target"
        else f"on {row.models} reference models in turn; the audited model was not attacked"
    )
    found = "; ".join(f"{per_thousand(rate.tpr)} members at a false-positive rate of {rate.fpr:.3g}" for rate in row.rates)
    return f"with {truth.models} reference models, {on}" + (f": {found}" if found else "")


def _why_not(audit: Audit, name: str) -> str:
    truth = audit.ground_truth
    if truth is not None:
        return Absent.of(truth.not_applicable.get(name, "the reference models were scored without it")).reason
    if audit.task == "language-model":
        return "no attack with reference models is built for sequences"
    return f"no reference models were trained and scored for this audit; {_MEASURE}"


def _exposure(audit: Audit) -> dict[str, Any]:
    does = "weighs all evidence about each record: how often an attacker who knows the statistic's law would recognise it"
    entry = next((entry for entry in audit.evidence if entry.source == "exposure"), None)
    if entry is not None and "attack_rate" in audit.records:
        named = ", ".join(entry.stamp.get("trainings", {})) or "further evidence"
        return _row("Exposure of each record", MEMBERSHIP, ESTIMATED, does, f"from {named}; an estimate, since no attack is carried out")
    if entry is not None:
        return _row("Exposure of each record", MEMBERSHIP, NOT_RUN, does, Absent.of(audit.not_applicable.get("attack_rate", "")).reason)
    why = "nothing beyond the final weights is known about these records"
    if audit.task == "language-model" or "target_1" in audit.records:
        why = "it is not defined for sequences and for records with several outputs"
    return _row("Exposure of each record", MEMBERSHIP, NOT_RUN, does, why)


def _distinguishability(audit: Audit) -> dict[str, Any]:
    does = "bounds, before any training, what the best attack could tell about each record under a network prior"
    if "lood_auc" in audit.records:
        return _row("Leave-one-out distinguishability", MEMBERSHIP, ESTIMATED, does, "added by noshadow lood")
    return _row("Leave-one-out distinguishability", MEMBERSHIP, NOT_RUN, does, "not asked for; noshadow lood --audit would add it")


def _regurgitation(audit: Audit) -> dict[str, Any]:
    does = "whether the model can be led to repeat training data word for word"
    generates = audit.task == "language-model"
    why = _NO_TEST if generates else f"{_NO_TEST}; the model gives {_gives(audit.task)} and no texts or images"
    return _row("Regurgitation", "regurgitation of training data", NOT_RUN, does, why, "55 (iii)")


def _gives(task: str) -> str:
    return "numbers" if task == "regression" else "probabilities of classes"


def _never(entry: tuple[str, str, str, str]) -> dict[str, Any]:
    name, family, paragraph, does = entry
    return _row(name, family, NOT_RUN, does, _NO_TEST, paragraph)

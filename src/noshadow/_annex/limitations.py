"""What an audit cannot show: in general, and this one in particular."""

from collections.abc import Callable

from noshadow._findings import casts_doubt, findings, most_severe
from noshadow._known import best_known, worst_record
from noshadow.limits import FEW_MEMBERS
from noshadow.metrics import error_budget
from noshadow.results import Audit


def limitations(audit: Audit) -> list[dict[str, str]]:
    """Sentences by topic; those that this audit itself gives rise to come first."""
    own = [{"topic": topic, "sentence": sentence, "of": "this audit"} for topic, told in _OWN for sentence in told(audit)]
    return own + [{"topic": topic, "sentence": sentence, "of": "every audit"} for topic, sentence in _GENERAL]


def _in_doubt(audit: Audit) -> list[str]:
    drawn = findings(audit) if audit.findings is None else audit.findings
    return [
        f"Finding {finding.code} puts every figure in doubt: {finding.sentence}" for finding in most_severe(drawn) if casts_doubt(finding)
    ]


def _not_measured(audit: Audit) -> list[str]:
    known = best_known(audit)
    if known.source == "measured" and known.attacked == "target":
        return []
    if known.source == "measured":
        return ["The reference models were attacked, not the audited model: the rate is a mean over models like it."]
    return ["No attack with reference models was run on this model: the strongest known attacks may find more than this file says."]


def _calibration(audit: Audit) -> list[str]:
    risk = audit.model_risk
    if risk is None or risk.predicted_tpr is None:
        return ["No attack's rate is predicted: " + ("there are no test records." if risk is None else risk.reason)]
    if not risk.in_calibration_domain:
        return [f"The predicted rate is a hint: the model is unlike the setups of the calibration. {risk.reason}"]
    return ["The predicted rate holds for models like the setups of the calibration, and for the attack that these were attacked with."]


def _rates_of_records(audit: Audit) -> list[str]:
    worst = worst_record(audit)
    if worst is None:
        return ["No record has a rate of its own: the order of the records is known, not how often anyone of them is recognised."]
    told = ["The largest of many estimated rates is somewhat too large, and each interval is about its own record, not about all at once."]
    entry = next((entry for entry in audit.evidence if entry.source == "exposure"), None)
    if entry is not None and entry.stamp.get("order_only"):
        told.append("The evidence beyond the final weights gives the order of the records only.")
    return told


def _resolution(audit: Audit) -> list[str]:
    risk = audit.model_risk
    if risk is None:
        return []
    allowed = error_budget(risk.fpr, risk.n_members)
    if allowed >= FEW_MEMBERS:
        return []
    return [
        f"At a level of {risk.fpr:.3g} the loss attack's threshold rests on {allowed} of {risk.n_members} members: its interval is rough."
    ]


def _parity(audit: Audit) -> list[str]:
    truth = audit.ground_truth
    if truth is None or truth.parity is None or not truth.parity["outlying"]:
        return []
    return [f"The audited model is unlike its reference models, and measured rates may be too small: {truth.parity['sentence']}"]


def _damping(audit: Audit) -> list[str]:
    kind = (audit.provenance.get("scores") or {}).get("damping_kind")
    return ["The λ of the training is not known: scores of records used a stand-in."] if kind in ("automatic", "substitute") else []


def _groups(audit: Audit) -> list[str]:
    if audit.group_risk:
        return []
    return ["Groups of people were not given: an exposed minority may be hidden by the others."]


_OWN: tuple[tuple[str, Callable[[Audit], list[str]]], ...] = (
    ("trust in the figures", _in_doubt),
    ("attacks", _not_measured),
    ("calibration", _calibration),
    ("single records", _rates_of_records),
    ("resolution", _resolution),
    ("reference models", _parity),
    ("damping", _damping),
    ("groups", _groups),
)
_GENERAL = (
    ("other harms", "Membership alone is looked at: attribute inference, inversion, reconstruction and extraction are not, in any form."),
    (
        "other attackers",
        "Passing the attacks that were run is evidence against these attacks only. Stronger ones may exist or be found later.",
    ),
    (
        "retraining",
        "The figures are about one trained model. Another training on the same data, with another seed, exposes other records to "
        "other degrees.",
    ),
    (
        "outsiders",
        "Test records must come from the same source as the training records. If they differ, an attack's rate partly measures that "
        "difference.",
    ),
    ("no guarantee", "Nothing here is a bound that holds for every attacker, as differential privacy would give."),
    ("honesty", "Digests show that files are unchanged, not that they were made honestly: whoever runs an audit can choose what goes in."),
)

"""What an attacker is assumed to want, know, ask and have, as far as the audit itself shows it."""

from typing import Any

from noshadow._known import best_known, own_fpr, per_thousand
from noshadow.results import Audit, GroundTruth

_OUTPUTS = {
    "regression": "the model's prediction for the record",
    "classification": "the model's probability of every class for the record",
    "binary": "the model's probability of both classes for the record",
    "language-model": "the model's likelihood of every token of the sequence",
}


def threat_model(audit: Audit) -> list[dict[str, str]]:
    """Rows of (aspect, what is assumed, what in the audit it follows from)."""
    rows = (
        ("goal", "to tell whether a given person's record was in the training data", "every attack of this file is membership inference"),
        ("knows", _knows(audit), "the losses were computed from record and target"),
        ("asks", _asks(audit), _asked_from(audit.ground_truth)),
        ("has", _has(audit), _has_from(audit)),
        ("accepts", _accepts(audit), "the audit's false-positive rate"),
        ("does not have", _has_not(audit), "no attack of this file used it"),
        ("prior", "none: rates are about members and outsiders each; how often an accusation is right depends on how many are members", ""),
        ("auditor", _auditor(audit), "what was read for the scores of records"),
    )
    return [{"aspect": aspect, "assumed": assumed, "follows_from": source} for aspect, assumed, source in rows]


def _knows(audit: Audit) -> str:
    target = {"regression": "its true value", "language-model": "every token of it"}.get(audit.task, "its true class")
    return f"the whole record as the model was trained on it, with {target}"


def _asks(audit: Audit) -> str:
    truth = audit.ground_truth
    queries = "plain" if truth is None else str(_variant(truth, "LiRA").get("queries", "plain"))
    often = "once a record" if queries == "plain" else f"for several views of each record ({queries})"
    return f"{_OUTPUTS[audit.task]}, {often}, at full precision"


def _asked_from(truth: GroundTruth | None) -> str:
    return "the audited outputs" if truth is None else "the queries of the reference models"


def _has(audit: Audit) -> str:
    truth, known = audit.ground_truth, best_known(audit)
    if truth is not None:
        variant = _variant(truth, "LiRA").get("variant", "online")
        with_it = ", with the record in half of them," if variant == "online" else ", none of them with the record,"
        return (
            f"{truth.models} models of the same kind{with_it} trained by the same procedure on a share of {truth.fraction:g} of "
            f"{truth.records} records of the same source"
        )
    if known.source == "exposure":
        trained = f"{known.trainings} models" if known.trainings else "models"
        return f"the law of each record's statistic with and without it, as {trained} trained for this audit show it"
    if known.source == "compared":
        return (
            "the base model that this one was fine-tuned from, and some texts that were in the training of neither, to set a threshold by"
        )
    if known.source == "predicted" and audit.model_risk is not None and audit.model_risk.reference_models is not None:
        many = audit.model_risk.reference_models
        return f"{many} models of the same kind, trained on halves of records of the same source (predicted, not run)"
    return "the losses of some records that were not in the training data, to set a threshold by"


def _has_from(audit: Audit) -> str:
    words = {
        "measured": "attacks with reference models",
        "exposure": "evidence on each record",
        "compared": "the comparison with the base model",
        "predicted": "the calibration",
    }
    return words.get(best_known(audit).source, "the loss attack, the strongest that was run")


def _accepts(audit: Audit) -> str:
    return f"to accuse {per_thousand(own_fpr(audit))} people wrongly who were not in the training data"


def _has_not(audit: Audit) -> str:
    missing = ["weights or gradients of the model", "a say in the training data", "earlier or later versions of the model"]
    if best_known(audit).source in ("losses", "unknown"):
        missing.insert(0, "models of its own, trained to compare with (attacks that have them are stronger)")
    return "; ".join(missing)


def _auditor(audit: Audit) -> str:
    read = str(audit.provenance.get("head", "not recorded"))
    by = "no score ranks the records" if audit.ranked_by is None else f"records are ranked by {audit.ranked_by}"
    return f"the audit itself knew more than this attacker: who was a member, and the model's inside where it was read ({read}); {by}"


def _variant(truth: GroundTruth, attack: str) -> dict[str, Any]:
    found = truth.variants.get(attack)
    return found if isinstance(found, dict) else {}

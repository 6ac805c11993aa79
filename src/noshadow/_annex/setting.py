"""Data, dates and parameters of an audit, without anything that a record holds."""

from collections.abc import Mapping
from typing import Any

from noshadow._known import own_fpr
from noshadow.results import Audit
from noshadow.storage.digests import sha256

LONGEST_TEXT = 200
MOST_ENTRIES = 20
# Facts of a stamp that are told. Others may hold what a training function was called with.
_STAMPED = (
    "models",
    "trainings",
    "seed",
    "method",
    "layers",
    "recordings",
    "parts",
    "fpr",
    "level",
    "order_only",
    "rule",
    "matched_by",
    "lira",
)


def data_and_dates(audit: Audit) -> dict[str, Any]:
    """Counts and dates: who was audited, beside whom, and when."""
    risk, truth, splits = audit.model_risk, audit.ground_truth, audit.provenance.get("splits") or {}
    copies = splits.get("copies") or {}
    return {
        "task": audit.task,
        "model_family": audit.provenance.get("inputs", {}).get("family"),
        "model_part_read": audit.provenance.get("head"),
        "training_records": len(audit.records),
        "test_records": len(audit.nonmember_losses),
        "classes": len(audit.class_risk) or None,
        "groups": int(audit.records["group"].nunique()) if "group" in audit.records else None,
        "records_shared_with_test": splits.get("shared_with_test"),
        "records_with_a_copy": copies.get("records"),
        "audited_at": audit.timings.get("created"),
        "seconds": {name: value for name, value in sorted(audit.timings.items()) if isinstance(value, (int, float))},
        "reference_models": None if truth is None else truth.models,
        "reference_records": None if truth is None else truth.records,
        "reference_fraction": None if truth is None else truth.fraction,
        "losses_compared": None if risk is None else {"members": risk.n_members, "nonmembers": risk.n_nonmembers},
    }


def parameters(audit: Audit) -> dict[str, Any]:
    """Every argument, the false-positive rate, seeds, λ, reference models and evidence."""
    risk, scores = audit.model_risk, audit.provenance.get("scores") or {}
    return {
        "arguments": without_contents(audit.provenance.get("arguments", {})),
        "fpr": own_fpr(audit),
        "ranked_by": audit.ranked_by,
        "intervals": None
        if risk is None
        else {"level": risk.interval_level, "resamples": risk.resamples, "seed": risk.seed, "method": "percentile bootstrap over records"},
        "damping": {
            "value": scores.get("damping_used"),
            "kind": scores.get("damping_kind"),
            "source": scores.get("damping_source", "no score of this audit has a damping"),
        },
        "score_method": scores.get("method"),
        "layers": scores.get("layers"),
        "precision": scores.get("precision"),
        "calibration": None
        if risk is None
        else {
            "name": risk.calibration,
            "reads": risk.predicted_from,
            "attack": risk.predicted_attack,
            "reference_models": risk.reference_models,
            "model_resembles_its_setups": risk.in_calibration_domain,
        },
        "reference_models": _references(audit),
        "evidence": [
            {
                "source": entry.source,
                "columns": list(entry.columns),
                "facts": without_contents({name: entry.stamp[name] for name in _STAMPED if name in entry.stamp}),
                "sha256": entry.digest,
            }
            for entry in audit.evidence
        ],
    }


def _references(audit: Audit) -> dict[str, Any] | None:
    """The experiment behind measured attacks; the training function by its name alone.

    What the function was called with may hold the training data.
    """
    truth = audit.ground_truth
    if truth is None:
        return None
    plan, train = (truth.provenance.get(name) or {} for name in ("plan", "train"))
    called = str(train.get("function", "not recorded"))
    return {
        "models": truth.models,
        "records": truth.records,
        "fraction": truth.fraction,
        "seed": plan.get("seed"),
        "pool": truth.provenance.get("pool"),
        "training_function": without_contents(called.partition("(")[0]),
        "engine": train.get("engine"),
        "variants": without_contents(truth.variants),
        "plan_sha256": truth.provenance.get("plan_digest"),
    }


def without_contents(value: Any) -> Any:
    """A value of an argument, with long texts and long lists replaced by their size and digest.

    Arguments are small; whatever is not may be data that were handed over.
    """
    if isinstance(value, Mapping):
        return {str(name): without_contents(inner) for name, inner in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        short = len(value) <= MOST_ENTRIES
        return [without_contents(inner) for inner in value] if short else f"{len(value)} values, not shown"
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"a text of {len(value)} characters, not shown, with SHA-256 {sha256(value.encode('utf-8', 'backslashreplace'))}"
    return value

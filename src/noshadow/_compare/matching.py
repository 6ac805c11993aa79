"""Which records two audits share, and what else about them differs."""

from dataclasses import dataclass
from typing import Any

from noshadow.checks import Array
from noshadow.joins import MOST_RELABELLED, held_by, join
from noshadow.results import Audit


@dataclass(frozen=True, eq=False)
class Matched:
    """Rows of two audits that speak of the same records.

    Attributes:
        first, second: (shared,) rows in each audit, in the first one's order; empty when the ids
            cannot be trusted.
        shared_ids: ids that occur in both. relabelled: how many of those have another target.
        same_tests: whether the non-member losses belong to the same records in the same order.
        reason: why shared ids are not taken for the same records, None when they are.
    """

    first: Array
    second: Array
    shared_ids: int
    relabelled: int
    same_tests: bool
    reason: str | None


def matched(first: Audit, second: Audit) -> Matched:
    """Training records by id and target, test records by the digests of their ids and targets.

    Ids alone are no proof, since they are row numbers unless somebody named the records: where more
    than one in a hundred shared ids has another target, the records are taken for different ones.
    """
    found = join(held_by(first.records), held_by(second.records))
    shared, relabelled = len(found), 0 if found.relabelled is None else len(found.relabelled)
    reason = None
    if not shared:
        reason = "the audits have no record id in common"
    elif found.relabelled is None:
        reason = "their targets have different forms"
    elif relabelled > MOST_RELABELLED * shared:
        first_id = found.names[found.relabelled[0]]
        reason = f"{relabelled} of the {shared} ids in common have another target, so they name other records (the first: '{first_id}')"
    kept = slice(0, 0) if reason else slice(None)
    return Matched(found.first[kept], found.second[kept], shared, relabelled, reason is None and _same_tests(first, second), reason)


def _same_tests(first: Audit, second: Audit) -> bool:
    hashes = [audit.provenance.get("hashes", {}).get("test", {}) for audit in (first, second)]
    stamped = all("targets" in entry and "row_order" in entry for entry in hashes)
    alike = stamped and all(hashes[0][name] == hashes[1][name] for name in ("targets", "row_order"))
    return alike and len(first.nonmember_losses) == len(second.nonmember_losses) > 0


def differences(first: Audit, second: Audit, found: Matched) -> dict[str, list[Any]]:
    """What differs between two audits: name → [first, second], as text or numbers (JSON-ready)."""
    pairs = {name: [_stamps(audit).get(name) for audit in (first, second)] for name in _stamps(first) | _stamps(second)}
    apart = {name: values for name, values in pairs.items() if values[0] != values[1]}
    only = [len(audit.records) - found.shared_ids for audit in (first, second)]
    return apart | ({"records without a counterpart": only} if any(only) else {})


def _stamps(audit: Audit) -> dict[str, Any]:
    hashes, arguments = audit.provenance.get("hashes", {}), audit.provenance.get("arguments", {})
    scores, risk = audit.provenance.get("scores") or {}, audit.model_risk
    return {
        "task": audit.task,
        "level α": None if risk is None else risk.fpr,
        "training records": len(audit.records),
        "test records": len(audit.nonmember_losses),
        "training ids (SHA-256)": hashes.get("train", {}).get("row_order"),
        "training targets (SHA-256)": hashes.get("train", {}).get("targets"),
        "training signals (SHA-256)": hashes.get("train", {}).get("data"),
        "test ids (SHA-256)": hashes.get("test", {}).get("row_order"),
        "test targets (SHA-256)": hashes.get("test", {}).get("targets"),
        "test signals (SHA-256)": hashes.get("test", {}).get("data"),
        "weights (SHA-256)": hashes.get("weights"),
        "head": audit.provenance.get("head"),
        "layers": arguments.get("layers"),
        "ranked by": audit.ranked_by,
        "damping λ": scores.get("damping_used"),
        "noshadow": audit.provenance.get("versions", {}).get("noshadow"),
    }

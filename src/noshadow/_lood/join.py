"""Join an audit of a trained model with the leave-one-out distinguishability of its data.

Records are matched by their ids.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from noshadow.checks import Array, named_in_errors, refuse
from noshadow.joins import MOST_RELABELLED, Join, held_by, join, require_agreement
from noshadow.metrics import agreement_table
from noshadow.results import Audit, Evidence, LoodAudit, require_audit

PREFIX = "audit_"
OURS = "lood_"
SAME_IDS = "Give both the same ids."
_COMPARED = ("kl", "mean_distance", "auc")
_FEWEST = 3


def joined_with(found: LoodAudit, audit: Audit) -> LoodAudit:
    """The same records with an audit's rank and score columns, and how far the two rankings agree.

    Ids are compared as text. Records without a partner keep missing values and are counted.
    Spearman correlations of kl, mean_distance and auc with every score of the audit come with a 95
    % percentile interval over resampled records.

    Raises:
        InputError: not an Audit, no id in common, or another target for more than one in a hundred
            of the records in common.

    Cost: O(500 · n) a score.
    """
    require_audit(audit)
    found = _unjoined(found)
    theirs = audit.records.set_index(audit.records["id"].astype(str))
    ids = found.records["id"].astype(str)
    paired = join(held_by(found.records), held_by(audit.records))
    if not len(paired):
        got = f"'{ids.iloc[0]}', … beside '{theirs.index[0]}', …"
        refuse("audit", "share record ids with the data", got, SAME_IDS)
    differing = _differing_targets(paired)
    rows = theirs.reindex(ids)
    columns = _score_columns(audit, rows)
    rank = {f"{PREFIX}rank": pd.array(rows["rank"], dtype="Int64")} if "rank" in theirs else {}
    table = found.records.assign(**rank, **columns)
    record = {
        "ranked_by": audit.ranked_by,
        "score": f"{PREFIX}{audit.ranked_by or 'loss'}",
        "matched": len(paired),
        "unmatched": len(ids) - len(paired),
        "unmatched_in_audit": len(theirs) - len(paired),
        "differing_targets": differing,
        "agreement": _agreement(table, list(columns)),
        "hashes": audit.provenance.get("hashes", {}),
    }
    return replace(found, records=table, joined=record, notes=found.notes + _notes(record, found))


@named_in_errors
def with_lood(audit: Audit, found: LoodAudit) -> Audit:
    """Add what `lood_audit` found to an audit.

    The record table gets the columns lood_kl, lood_mean_distance and lood_auc, and the comparison
    stands beside it.

    Records that the data do not hold have missing values there. What an earlier call added is
    replaced. The audit's report then has a section on what the architecture would leak before
    training.

    Args:
        audit: of a model trained on these records. found: what `lood_audit` found for the data,
            joined with this audit or not.

    Returns:
        A new Audit; the comparison, the kernel, the noise and the hashes of the data are in
        `provenance["lood"]`, and the findings are drawn anew.

    Raises:
        InputError: not an Audit, not a LoodAudit, no id in common, or other targets under the same
            ids.

    Cost: that of the comparison, O(500 · n) a score, unless `found` was joined with this audit.
    """
    if not isinstance(found, LoodAudit):
        refuse("found", "be a LoodAudit", type(found).__name__, "Read a folder with noshadow.load_lood first.")
    joined = found if _is_joined_with(found, audit) else joined_with(found, audit)
    assert joined.joined is not None
    ours = found.records.set_index(found.records["id"].astype(str)).reindex(audit.records["id"].astype(str))
    counts = {name: joined.joined[name] for name in ("matched", "unmatched", "unmatched_in_audit", "differing_targets")}
    compared = [row | {"score": row["score"].removeprefix(PREFIX)} for row in joined.joined["agreement"]]
    record = counts | {
        "kernel": joined.kernel,
        "noise": joined.noise,
        "agreement": compared,
        "notes": list(joined.notes),
        "hashes": joined.provenance["hashes"],
        "normalization": joined.provenance["inputs"]["normalization"],
    }
    columns = {f"{OURS}{name}": ours[name].to_numpy(dtype=np.float64) for name in _COMPARED}
    stamp = {name: record[name] for name in ("kernel", "noise", "hashes", "normalization")}
    evidence = Evidence("lood", columns, stamp=stamp)
    return replace(audit, provenance=audit.provenance | {"lood": record}).with_evidence(evidence)


def _is_joined_with(found: LoodAudit, audit: object) -> bool:
    """Whether the audit's own columns are those that were joined.

    Ids and hashes alone would not tell two ways of scoring apart.
    """
    if found.joined is None or not isinstance(audit, Audit) or found.joined["ranked_by"] != audit.ranked_by:
        return False
    rows = audit.records.set_index(audit.records["id"].astype(str)).reindex(found.records["id"].astype(str))
    columns = _score_columns(audit, rows)
    held = {name for name in found.records.columns if name.startswith(PREFIX)} - {f"{PREFIX}rank"}
    same_rows = found.joined["unmatched_in_audit"] == len(audit.records) - found.joined["matched"]
    return same_rows and held == set(columns) and all(np.array_equal(found.records[n], columns[n], equal_nan=True) for n in columns)


def _unjoined(found: LoodAudit) -> LoodAudit:
    """The same without what an earlier join added."""
    if found.joined is None:
        return found
    added = [name for name in found.records.columns if name.startswith(PREFIX)]
    kept = tuple(note for note in found.notes if note not in _notes(found.joined, found))
    return replace(found, records=found.records.drop(columns=added), joined=None, notes=kept)


def _score_columns(audit: Audit, rows: pd.DataFrame) -> dict[str, Array]:
    """An audit's scores in the order of `rows`, under their names here.

    Targets and the columns that `with_lood` added are not scores.
    """
    table = audit.records
    names = [name for name in table.columns if table[name].dtype.kind == "f" and not str(name).startswith(("target", OURS))]
    return {f"{PREFIX}{name}": rows[name].to_numpy() for name in names}


def _differing_targets(paired: Join) -> int | None:
    """Number of joined records whose targets differ; more than a few are refused.

    The number is None where the two sides give targets in different forms.
    """
    if paired.relabelled is not None and len(paired.relabelled) > MOST_RELABELLED * len(paired):
        require_agreement(paired, "audit", "the data under the same ids", SAME_IDS)
    return None if paired.relabelled is None else len(paired.relabelled)


def _agreement(table: pd.DataFrame, names: list[str]) -> list[dict[str, Any]]:
    """Rows of every score; scores that the same records have are compared together."""
    together: dict[bytes, list[str]] = {}
    for name in names:
        together.setdefault(table[name].notna().to_numpy().tobytes(), []).append(name)
    rows: list[dict[str, Any]] = []
    for group in together.values():
        held = table[table[group[0]].notna()]
        if len(held) < _FEWEST:
            note = f"{len(held)} records have it, too few to rank"
            blank: dict[str, Any] = {"spearman": None, "low": None, "high": None, "records": len(held), "note": note}
            rows += [{"score": name, "compared": ours} | blank for name in group for ours in _COMPARED]
            continue
        found = agreement_table([{name: held[name] for name in group}], [{ours: held[ours] for ours in _COMPARED}], recalls=[])
        kept = ("low", "high", "records", "note")
        rows += [
            {"score": row["attack"], "compared": row["score"], "spearman": row["value"]} | {name: row[name] for name in kept}
            for row in found.to_dict("records")
        ]
    return rows


def _notes(record: dict[str, Any], found: LoodAudit) -> tuple[str, ...]:
    notes = []
    if record["unmatched"] or record["unmatched_in_audit"]:
        notes.append(
            f"{record['unmatched']} of {len(found.records)} records have no partner in the audit, and {record['unmatched_in_audit']} "
            f"of the audit's have none here; the comparison is over the {record['matched']} that both name"
        )
    if not found.provenance["ids_given"]:
        notes.append("the data came without ids, so that the audit was matched by row number: are they the same records in the same order?")
    if record["differing_targets"]:
        notes.append(
            f"{record['differing_targets']} of the {record['matched']} matched records have another target in the audit: "
            "are they the same records?"
        )
    if record["differing_targets"] is None:
        notes.append("the targets of the audit have another form than those of the data, so that they could not be compared")
    return tuple(notes)

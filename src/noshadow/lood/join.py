"""An audit of a trained model beside the leave-one-out distinguishability of its data, matched by record id."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from noshadow.checks import refuse
from noshadow.metrics import agreement_table
from noshadow.results import Audit, LoodAudit

PREFIX = "audit_"
_COMPARED = ("kl", "mean_distance", "auc")
_FEWEST = 3


def joined_with(found: LoodAudit, audit: Audit) -> LoodAudit:
    """The same records with an audit's rank and score columns, and how far the two rankings agree.

    Ids are compared as text. Records without a partner keep missing values and are counted. Spearman correlations of kl,
    mean_distance and auc with every score of the audit come with a 95 % percentile interval over resampled records.

    Raises:
        InputError: not an Audit, one joined already, or no id in common.

    Cost: O(500 · n) a score.
    """
    owner = "lood_audit"
    if not isinstance(audit, Audit):
        refuse(owner, "audit", "be an Audit", type(audit).__name__, "Read a folder with noshadow.load first.")
    theirs = audit.records.set_index(audit.records["id"].astype(str))
    ids = found.records["id"].astype(str)
    matched = ids.isin(theirs.index).to_numpy()
    if not matched.any():
        got = f"'{ids.iloc[0]}', … beside '{theirs.index[0]}', …"
        refuse(owner, "audit", "share record ids with the data", got, "Give both the same ids.")
    names = [name for name in theirs.columns if theirs[name].dtype.kind == "f" and not str(name).startswith("target")]
    rows = theirs.reindex(ids)
    columns: dict[str, Any] = {f"{PREFIX}{name}": rows[name].to_numpy() for name in names}
    if "rank" in theirs:
        columns = {f"{PREFIX}rank": pd.array(rows["rank"], dtype="Int64")} | columns
    table = found.records.assign(**columns)
    differing = _differing_targets(table[matched], rows[matched])
    record = {
        "ranked_by": audit.ranked_by,
        "score": f"{PREFIX}{audit.ranked_by or 'loss'}",
        "matched": int(matched.sum()),
        "unmatched": int((~matched).sum()),
        "unmatched_in_audit": len(theirs) - int(matched.sum()),
        "differing_targets": differing,
        "agreement": _agreement(table, [f"{PREFIX}{name}" for name in names]),
        "hashes": audit.provenance.get("hashes", {}),
    }
    return replace(found, records=table, joined=record, notes=found.notes + _notes(record, found))


def _differing_targets(ours: pd.DataFrame, theirs: pd.DataFrame) -> int | None:
    """Matched records whose targets are not equal; None where either side has no single target column."""
    if "target" not in ours or "target" not in theirs:
        return None
    return int((~np.isclose(ours["target"].to_numpy(dtype=float), theirs["target"].to_numpy(dtype=float))).sum())


def _agreement(table: pd.DataFrame, names: list[str]) -> list[dict[str, Any]]:
    """Rows of every score, those that the same records have compared in one go."""
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
    return tuple(notes)

"""Risk within classes and groups as rows with a small drawing each."""

from collections.abc import Sequence
from typing import Any

from noshadow.report.formats import figure, interval, number, people_in_table, sentence
from noshadow.results import Audit, GroupRisk

ROWS = 20
_WIDTH = 200.0


def groups_section(audit: Audit) -> list[dict[str, Any]]:
    """One table for classes, one for groups: those the audit holds, or the reason why not."""
    tables = (("label", "class", "classes", audit.class_risk, "class_risk"), ("group", "group", "groups", audit.group_risk, "group_risk"))
    overall = None if audit.model_risk is None else audit.model_risk.auc
    return [_table(kind, one, many, rows, audit.not_applicable.get(field), overall) for kind, one, many, rows, field in tables]


def _table(kind: str, one: str, many: str, rows: Sequence[GroupRisk], absent: str | None, overall: float | None) -> dict[str, Any]:
    rates = [row.fnr for row in rows if row.fnr is not None]
    made = [_row(row) for row in rows]
    return {
        "kind": kind,
        "one": one,
        "many": many,
        "rows": made[:ROWS],
        "rest": made[ROWS:],
        "flagged": number(sum(row.riskier for row in rows)),
        "total": number(len(rows)),
        "level": people_in_table(rates[0])["text"] if rates else None,
        "overall": None if overall is None else {"x": _place(overall), "text": number(overall)},
        "coin": _place(0.5),
        "absent": sentence(absent or f"The audit holds no risk by {one}"),
    }


def _row(row: GroupRisk) -> dict[str, Any]:
    ends = row.auc_interval
    drawn = row.auc is not None and ends is not None
    return {
        "name": str(row.group),
        "members": number(row.n_members),
        "nonmembers": number(row.n_nonmembers),
        "riskier": row.riskier,
        "auc": None if row.auc is None else figure(row.auc) | {"interval": "" if ends is None else interval(ends)},
        "tnr": None if row.tnr is None else people_in_table(row.tnr, row.tnr_interval),
        "p": _smallest(row.auc_p, row.tnr_p),
        "bar": {"at": _place(row.auc), "low": _place(ends[0]), "high": _place(ends[1])} if drawn and row.auc is not None and ends else None,
        "reason": None if row.reason is None else sentence(row.reason),
    }


def _smallest(*values: float | None) -> str:
    given = [value for value in values if value is not None]
    return number(min(given)) if given else "none"


def _place(share: float) -> float:
    return round(min(max(share, 0.0), 1.0) * _WIDTH, 2)

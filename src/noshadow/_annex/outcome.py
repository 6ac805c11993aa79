"""Results of an audit with their intervals and sources, without ids unless they are asked for."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from noshadow._annex.figures import named_figures
from noshadow._answer import best_known, next_action, verdict, worst_record
from noshadow._findings import findings, most_severe
from noshadow._known import own_fpr
from noshadow._known.worst import LEVEL_OF_LIRA_RATES, RATE_COLUMNS
from noshadow.limits import STRONG_TIMES
from noshadow.results import Audit, Finding, GroupRisk

# Research environments commonly hold back tables with counts below ten.
SMALL_COUNT = 10
_QUANTILES = {"median": 0.5, "ninety_per_cent": 0.9, "ninety_nine_per_cent": 0.99}
_RATES = {source: column for column, _, source in RATE_COLUMNS}


def outcome(audit: Audit, show_ids: bool) -> dict[str, Any]:
    """Everything that came out, the best known first.

    Cost: O(n log n) in the number of records.
    """
    drawn = findings(audit) if audit.findings is None else audit.findings
    counted = {status: sum(finding.status == status for finding in drawn) for status in ("found", "passed", "not applicable", "skipped")}
    return {
        "verdict": verdict(audit).to_dict(),
        "best_known": best_known(audit).to_dict(),
        "worst_record": _worst(audit, show_ids),
        "records": _spread(audit),
        "measured_attacks": _measured(audit),
        "figures": named_figures(audit),
        "findings": {
            "counts": {status.replace(" ", "_"): count for status, count in counted.items()},
            "found": [_found(finding, show_ids) for finding in most_severe(drawn)],
            "others": [
                {"code": other.code, "name": other.name, "status": other.status, "sentence": other.sentence}
                for other in drawn
                if other.status != "found"
            ],
        },
        "classes": _groups(audit, audit.class_risk, "class_risk"),
        "groups": _groups(audit, audit.group_risk, "group_risk"),
        "next_action": next_action(audit).to_dict(),
        "notes": list(audit.notes),
    }


def _worst(audit: Audit, show_ids: bool) -> dict[str, Any] | None:
    worst = worst_record(audit)
    if worst is None:
        return None
    ends = None if worst.interval is None else list(worst.interval)
    row = audit.records["id"].astype(str) == worst.id
    rank = int(audit.records.loc[row, "rank"].iloc[0]) if "rank" in audit.records else None
    told = {"rate": worst.rate, "interval": ends, "source": worst.source, "rank": rank, "fpr": _level_of_rates(audit, worst.source)}
    return told | ({"id": worst.id} if show_ids else {})


def _level_of_rates(audit: Audit, source: str) -> float:
    """The false-positive rate that the records' own rates are read at."""
    return LEVEL_OF_LIRA_RATES if source == "measured" else own_fpr(audit)


def _spread(audit: Audit) -> dict[str, Any] | None:
    """How the records' own rates are spread: an average does not speak for any one person."""
    worst = worst_record(audit)
    if worst is None:
        return None
    column, guess = _RATES[worst.source], _level_of_rates(audit, worst.source)
    rates = audit.records[column].to_numpy(np.float64)
    rates = rates[np.isfinite(rates)]
    return {
        "column": column,
        "source": worst.source,
        "rated": len(rates),
        "guess": guess,
        "above_ten_guesses": int((rates > STRONG_TIMES * guess).sum()),
        "mean": float(rates.mean()),
        "quantiles": {name: float(np.quantile(rates, share)) for name, share in _QUANTILES.items()},
        "largest": float(rates.max()),
    }


def _measured(audit: Audit) -> list[dict[str, Any]]:
    attacks = () if audit.ground_truth is None else audit.ground_truth.attacks
    return [
        {
            "attack": row.attack,
            "attacked": row.attacked,
            "models": row.models,
            "auc": row.auc,
            "auc_interval": list(row.auc_interval),
            "rates": [{"fpr": rate.fpr, "tpr": rate.tpr, "interval": [rate.low, rate.high]} for rate in row.rates],
        }
        for row in attacks
    ]


def _found(finding: Finding, show_ids: bool) -> dict[str, Any]:
    told = {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "sentence": finding.sentence,
        "rule": finding.rule,
        "figure": finding.figure,
        "next_step": finding.next_step,
        "records": finding.count,
    }
    return told | ({"ids": list(finding.records)} if show_ids else {})


def _groups(audit: Audit, rows: Sequence[GroupRisk], name: str) -> dict[str, Any]:
    """Risk within each class or group, riskiest first, and how many of them are small."""
    kept = ("group", "n_members", "n_nonmembers", "auc", "auc_interval", "tnr", "tnr_interval", "riskier", "reason")
    return {
        "rows": [{field: row.to_dict()[field] for field in kept} for row in rows],
        "small": sum(row.n_members < SMALL_COUNT for row in rows),
        "riskier": sum(row.riskier for row in rows),
        "absent": None if rows else audit.not_applicable.get(name, "the audit holds none"),
    }

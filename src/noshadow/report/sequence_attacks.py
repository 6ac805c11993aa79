"""What each column of sequences finds as an attack, as text and numbers for the page."""

from typing import Any

from noshadow._known import base_left_out, declared_attack
from noshadow.columns import column, meaning
from noshadow.report.formats import figure, interval, number, people, people_between, sentence
from noshadow.results import Audit, MeasuredAttack


def sequence_attacks_section(audit: Audit) -> dict[str, Any] | None:
    """The table of attacks on sequences, the declared one first; None where there is none."""
    if not audit.sequence_attacks:
        return None
    unfit = base_left_out(audit)
    counts = declared_attack(audit.sequence_attacks) if unfit is None else None
    rows = sorted(audit.sequence_attacks, key=lambda row: (row is not counts, -row.auc))
    levels = sorted({rate.fpr for row in rows for rate in row.rates}, reverse=True)
    return {
        "rows": [_row(row, audit.task, row is counts) for row in rows],
        "levels": [{"fpr": level, "text": number(level), "people": people(level)["text"]} for level in levels],
        "declared": counts is not None,
        "unfit": unfit,
        "title": "" if counts is None else _title(counts.attack),
    }


def _row(measured: MeasuredAttack, task: str, declared: bool) -> dict[str, Any]:
    words = meaning(measured.attack, task)
    return {
        "name": _title(measured.attack),
        "column": measured.attack,
        "meaning": "" if words is None else sentence(words[:1].upper() + words[1:]),
        "declared": declared,
        "auc": figure(measured.auc) | {"interval": interval(measured.auc_interval)},
        "rates": {rate.fpr: people(rate.tpr) | {"interval": people_between((rate.low, rate.high))} for rate in measured.rates},
    }


def _title(name: str) -> str:
    found = column(name)
    return name if found is None else found.title

"""An audit in a few lines, for people and for machines."""

from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from noshadow._answer import (
    WorstRecord,
    accusations,
    best_known,
    next_action,
    per_thousand,
    per_thousand_between,
    retraining,
    verdict,
    worst_record,
)
from noshadow._findings import findings, most_severe
from noshadow.outcomes import Absent
from noshadow.results import Audit, Finding, Interval, evidence_changes, offers
from noshadow.visible import visible

_TOP_FINDINGS = 5
_TOP_RECORDS = 5
_COLOURS = {"high": "bold red", "medium": "yellow", "low": "cyan"}
_LEVEL_COLOURS = {"strong": "bold red", "some": "bold yellow", "none": "bold green", "unknown": "bold"}
_RATE_ENDS = ("attack_rate_low", "attack_rate_high")


def summary(audited: Audit, page: Path) -> dict[str, Any]:
    """What `--json` prints of an audit."""
    manifest = audited.manifest()
    kept = ("task", "ranked_by", "records", "model_risk", "not_applicable", "notes")
    shown = [] if audited.ranked_by is None else audited.records.nsmallest(_TOP_RECORDS, "rank")[["rank", "id"]].to_dict("records")
    return (
        answer(audited)
        | {name: manifest[name] for name in kept}
        | {
            "findings": [finding.to_dict() for finding in _drawn(audited)],
            "most_exposed": [{"rank": int(row["rank"]), "id": str(row["id"])} for row in shown],
            "scores": audited.provenance.get("scores"),
            "folder": str(page.parent),
            "report": str(page),
        }
    )


def answer(audited: Audit) -> dict[str, Any]:
    """The verdict, what it rests on, the most exposed record and what to do next, for `--json`.

    Beside them stand how often an accusation is right, and what a retraining would flag again.
    """
    known, worst, again = best_known(audited), worst_record(audited), retraining(audited)
    return {
        "verdict": verdict(audited).to_dict(),
        "best_known": known.to_dict(),
        "accusations": [one.to_dict() for one in accusations(known)],
        "worst_record": None if worst is None else worst.to_dict(),
        "retraining": {"absent": str(again)} if isinstance(again, Absent) else again.to_dict(),
        "next_action": next_action(audited).to_dict(),
    }


def verdict_lines(audited: Audit) -> list[str]:
    """The answer in five lines: verdict, people in a thousand, how it is known, who, what next."""
    found, worst, action = verdict(audited), worst_record(audited), next_action(audited)
    colour = _LEVEL_COLOURS[found.level]
    who = "Most exposed record: no record has a rate of its own yet" if worst is None else _worst_line(worst)
    return [
        f"[{colour}]{harmless(found.title)}[/{colour}]",
        harmless(found.sentence),
        f"Known by: {harmless(found.known.reason)}",
        who,
        f"Next: {harmless(action.sentence)} {harmless(action.command)}",
    ]


def _worst_line(worst: WorstRecord) -> str:
    """Who is most exposed, and how far: the largest true rate, or an estimate that says so."""
    ends = "" if worst.interval is None else f", interval {per_thousand_between(worst.interval)}"
    if not worst.drawn:
        told = f"{harmless(worst.id)}, recognised by {per_thousand(worst.rate)} attacks{ends} ({worst.source}; the largest of"
        return f"Most exposed record: {told} {worst.records:,} estimates, not corrected for that)"
    largest = f"the largest rate of any record is {per_thousand(worst.rate)}{ends}"
    return f"Most exposed record: probably {harmless(worst.id)}, own rate {per_thousand(worst.own_rate)}; {largest} ({worst.source})"


def print_audit(audited: Audit, page: Path, seconds: float, console: Console | None = None) -> None:
    """The answer, what was found, the most exposed records, the notes and where the report is.

    A terminal gets a panel and a table, and a pipe gets plain lines.
    """
    screen = console or Console(highlight=False, soft_wrap=True)
    lines = [*verdict_lines(audited), *_risk_lines(audited), *_finding_lines(audited)]
    if screen.is_terminal:
        screen.print(Panel("\n".join(lines), title="Membership audit", title_align="left", expand=False), soft_wrap=False)
    else:
        for line in lines:
            screen.print(line)
    _print_records(audited, screen)
    for note in audited.notes:
        screen.print(f"Note: {sentence(harmless(note))}")
    for line in _evidence_lines(audited):
        screen.print(line)
    screen.print(f"Report: {harmless(page)}  ({seconds:.1f} s)")


def _evidence_lines(audited: Audit) -> list[str]:
    """What each source beyond the final weights changed, and what the next would buy."""
    told = [f"Evidence: {harmless(line)}" for line in evidence_changes(audited)]
    return told + [f"More evidence: {harmless(offer.sentence)}" for offer in offers(audited)]


def _risk_lines(audited: Audit) -> list[str]:
    risk = audited.model_risk
    if risk is None:
        return [f"Model risk: {harmless(audited.not_applicable['model_risk'])}"]

    def line(words: str, value: float, ends: Interval | None, level: float = risk.interval_level) -> str:
        around = "" if ends is None else f"  ({100 * level:g} % interval {per_thousand_between(ends)})"
        return f"{words}: {per_thousand(value)}{around}"

    low, high = risk.auc_interval
    told = [
        line(f"Loss-tail TNR at level {risk.fpr:.3g}", risk.tnr, risk.tnr_interval),
        f"Loss AUC: {risk.auc:.3f}  ({100 * risk.interval_level:g} % interval {low:.3f}–{high:.3f})",
    ]
    # What was measured goes before a prediction, and the verdict has said it.
    if risk.predicted_tpr is not None and best_known(audited).source != "measured":
        level = risk.prediction_level or risk.interval_level
        named = "" if risk.predicted_attack is None else f" ({harmless(risk.predicted_attack)})"
        told.insert(0, line(f"Predicted attack TPR at FPR {risk.fpr:.3g}{named}", risk.predicted_tpr, risk.predicted_tpr_interval, level))
    return told


def _drawn(audited: Audit) -> tuple[Finding, ...]:
    return findings(audited) if audited.findings is None else audited.findings


def _finding_lines(audited: Audit) -> list[str]:
    drawn = _drawn(audited)
    found = most_severe(drawn)
    counts = [f"{sum(finding.status == status for finding in drawn)} {status}" for status in ("passed", "not applicable", "skipped")]
    told = [f"Findings: {len(found)} found, {', '.join(counts)}"]
    for finding in found[:_TOP_FINDINGS]:
        colour = _COLOURS[finding.severity]
        told.append(
            f"  [{colour}]{harmless(finding.code)} {finding.severity}[/{colour}]  {harmless(finding.name)}: {harmless(finding.sentence)}"
        )
    return told + ([f"  … and {len(found) - _TOP_FINDINGS} more in the report"] if len(found) > _TOP_FINDINGS else [])


def _print_records(audited: Audit, screen: Console) -> None:
    if audited.ranked_by is None:
        screen.print(f"Record scores: {harmless(audited.not_applicable['rank'])}")
        return
    title = f"Most exposed records, by {harmless(audited.ranked_by)}"
    named = "label" if "label" in audited.records else "target"
    sized = "attack_rate" in audited.records
    figures = ("exposure", "attack_rate") if sized else ("leverage", audited.ranked_by)
    shown = [c for c in dict.fromkeys(("rank", "id", named, "loss", *figures)) if c in audited.records]
    rows = _rows(audited.records.nsmallest(_TOP_RECORDS, "rank"), shown)
    if not screen.is_terminal:
        screen.print(f"{title}:")
        for row in rows:
            screen.print("  " + ", ".join(f"{name} {value}" for name, value in zip(shown, row, strict=True)))
        return
    table = Table(title=title, title_justify="left")
    for name in shown:
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    screen.print(table, soft_wrap=False)


def _rows(records: pd.DataFrame, shown: list[str]) -> list[list[str]]:
    """Cells of the columns shown; a rate in people per thousand, with its interval."""
    told = [
        [f"{value:.4g}" if isinstance(value, float) else harmless(value) for value in row] for row in records[shown].itertuples(index=False)
    ]
    if "attack_rate" in shown:
        ends = records[list(_RATE_ENDS)].itertuples(index=False)
        for row, rate, (low, high) in zip(told, records["attack_rate"], ends, strict=True):
            row[shown.index("attack_rate")] = f"{per_thousand(float(rate))} ({per_thousand_between((float(low), float(high)))})"
    return told


def harmless(value: object) -> str:
    """Make text of others harmless for rich to print.

    It holds no markup, and nothing that steers a terminal or is not seen.
    """
    return escape(visible(value))


def sentence(text: str) -> str:
    """The text with one full stop at its end, unless it ends in another mark."""
    return text if text.endswith(("?", "!")) else f"{text.removesuffix('.')}."

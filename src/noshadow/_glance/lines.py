"""An audit in lines of plain text: the same words in terminals, pipes and strings."""

import textwrap
from dataclasses import dataclass

from noshadow._answer import (
    Verdict,
    WorstRecord,
    best_known,
    declared_attack,
    evidence_changes,
    next_action,
    offers,
    per_thousand,
    per_thousand_between,
    verdict,
    why_no_sizes,
    worst_record,
)
from noshadow._findings import findings, most_severe
from noshadow._glance.records import record_cells
from noshadow._glance.told import Told
from noshadow._known import base_left_out
from noshadow._known.rate import DECLARED, INTERVAL_OF_MEASURED
from noshadow.figures import Finding, Interval, MeasuredAttack, ModelRisk
from noshadow.formats import number
from noshadow.visible import visible

TOP_FINDINGS = 5
TOP_RECORDS = 5
BRIEF_LINES = 20
_BRIEF_WIDTH = 88
_BRIEF_FINDINGS = 8
_UNIT = " in 1,000"


@dataclass(frozen=True)
class Line:
    """One line of text, without anything that steers a terminal.

    Attributes:
        text: the line. tone: the level or severity that its first `marked` characters may be
            coloured by; "" for none.
    """

    text: str
    tone: str = ""
    marked: int = 0

    def __str__(self) -> str:
        return self.text


def verdict_lines(audit: Told, *, show_ids: bool) -> list[Line]:
    """The answer in five lines: verdict, people in a thousand, how it is known, who, what next."""
    found, worst, action = verdict(audit), worst_record(audit), next_action(audit)
    who = "no record has a rate of its own yet" if worst is None else _most_exposed(worst, show_ids=show_ids)
    who = f"Most exposed record: {who}"
    told = (found.sentence, known_by(found), who, f"Next: {action.sentence} {action.command}")
    return [Line(visible(found.title), found.level, len(visible(found.title))), *(Line(visible(text)) for text in told)]


def _most_exposed(worst: WorstRecord, *, show_ids: bool) -> str:
    """Who is most exposed, and how far: the largest true rate, or an estimate that says so."""
    ends = _interval(worst.interval)
    if worst.drawn:
        named = f"probably {worst.first_id}, " if show_ids else ""
        largest = f"the largest rate of any record is {per_thousand(worst.rate)}{ends}"
        return f"{named}own rate {per_thousand(worst.first_rate)}; {largest} ({worst.source})"
    named = f"{worst.first_id}, " if show_ids else ""
    told = f"{named}recognised by {per_thousand(worst.first_rate)} attacks{_interval(worst.first_interval)} ({worst.source}; "
    if worst.first_rate == worst.rate:
        return f"{told}the largest of {worst.records:,} estimates, not corrected for that)"
    whose = f" of {worst.id}" if show_ids else ""
    return (
        f"{told}the first by rank; the largest of {worst.records:,} estimates is {per_thousand(worst.rate)}{whose}, not corrected for that)"
    )


def _interval(ends: Interval | None) -> str:
    return "" if ends is None else f", interval {per_thousand_between(ends)}"


def known_by(found: Verdict) -> str:
    """Where the verdict comes from; its sentence has said it where nothing is known."""
    return "Known by: nothing yet" if found.known.reason == found.sentence else f"Known by: {found.known.reason}"


def figure_lines(audit: Told) -> list[Line]:
    """What the losses show, what is predicted where nothing was measured, and what was found."""
    return [*_risk_lines(audit), *_finding_lines(audit)]


def record_lines(audit: Told, *, show_ids: bool) -> list[Line]:
    """The most exposed records, a line each, or why records are not ranked."""
    if audit.ranked_by is None:
        return [Line(records_title(audit))]
    names, rows = record_cells(audit, TOP_RECORDS, show_ids=show_ids)
    told = (", ".join(f"{name} {cell}" for name, cell in zip(names, row, strict=True)) for row in rows)
    return [Line(f"{records_title(audit)}:"), *(Line(f"  {text}") for text in told)]


def records_title(audit: Told) -> str:
    """What the most exposed records are ranked by, or why they are not."""
    if audit.ranked_by is None:
        return f"Record scores: {visible(audit.not_applicable.get('rank', 'the audit holds no record scores'))}"
    return f"Most exposed records, by {visible(audit.ranked_by)}"


def note_lines(audit: Told) -> list[Line]:
    """The notes, what each source changed, why no record has a rate, what the next would buy."""
    told = [f"Note: {ended(note)}" for note in audit.notes]
    told += [f"Evidence: {change}" for change in evidence_changes(audit)]
    told += [line] if (line := no_rates(audit)) else []
    told += [f"More evidence: {offer.sentence}" for offer in offers(audit)]
    return [Line(visible(text)) for text in told]


def no_rates(audit: Told) -> str:
    """Why no record has a rate although evidence was weighed; "" where records have one."""
    why = why_no_sizes(audit)
    return "" if why is None else f"No rates of records: {ended(why)}"


def summary_text(audit: Told, *, show_ids: bool) -> str:
    """Everything that the command prints of an audit, in plain text."""
    lines = (
        *verdict_lines(audit, show_ids=show_ids),
        *figure_lines(audit),
        *record_lines(audit, show_ids=show_ids),
        *note_lines(audit),
    )
    return "\n".join(map(str, lines))


def brief_text(audit: Told, go_on: str) -> str:
    """The audit in at most twenty lines, without ids.

    Args:
        audit: what to tell. go_on: the last line, how to see more.
    """
    found, action = verdict(audit), next_action(audit)
    ranked = "records are not ranked" if audit.ranked_by is None else f"ranked by {audit.ranked_by}"
    told = [
        f"Audit: {found.title}",
        found.sentence,
        known_by(found),
        f"Records: {number(len(audit.records))} training, {number(len(audit.nonmember_losses))} test; {audit.task}; {ranked}",
        f"Found: {_codes(drawn(audit))}",
        f"Next: {action.sentence} {action.command}",
        go_on,
    ]
    lines = [visible(text) for text in told]
    wrapped = [part for line in lines for part in _wrapped(line)]
    # Nothing is cut: a reason that would take too many lines stays on its own.
    return "\n".join(wrapped if len(wrapped) <= BRIEF_LINES else lines)


def _wrapped(line: str) -> list[str]:
    """A line in lines of a page's width; a rate stays with its unit."""
    whole = line.replace(_UNIT, _UNIT.replace(" ", "\xa0"))
    parts = textwrap.wrap(whole, _BRIEF_WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return [part.replace("\xa0", " ") for part in parts]


def drawn(audit: Told) -> tuple[Finding, ...]:
    """The audit's findings, drawn now where a folder of an older version holds none."""
    return findings(audit) if audit.findings is None else audit.findings


def ended(text: str) -> str:
    """The text with one full stop at its end, unless it ends in another mark."""
    return text if text.endswith(("?", "!")) else f"{text.removesuffix('.')}."


def _risk_lines(audit: Told) -> list[Line]:
    risk = audit.model_risk
    if risk is None:
        return [Line(f"Model risk: {visible(audit.not_applicable.get('model_risk', 'the audit holds none'))}")]
    told = [
        _rate(f"Loss-tail TNR at level {number(risk.fpr)}", risk.tnr, risk.tnr_interval, risk.interval_level),
        f"Loss AUC: {number(risk.auc, padded=True)}  ({_level(risk.interval_level)} interval {_between(risk.auc_interval)})",
    ]
    counts = declared_attack(audit.sequence_attacks)
    told += [] if counts is None or base_left_out(audit) is not None else [_of_sequences(counts)]
    # What was measured goes before a prediction, and the verdict has said it.
    if risk.predicted_tpr is not None and best_known(audit).source != "measured":
        told.insert(0, _predicted(risk, risk.predicted_tpr))
    return [Line(visible(text)) for text in told]


def _of_sequences(row: MeasuredAttack) -> str:
    """What the declared comparison of a language model with its base finds."""
    rates = [f"{per_thousand(rate.tpr)} at FPR {number(rate.fpr)} ({per_thousand_between((rate.low, rate.high))})" for rate in row.rates]
    around = f"({_level(INTERVAL_OF_MEASURED)} interval {_between(row.auc_interval)})"
    return f"{DECLARED[row.attack][1]}: AUC {number(row.auc, padded=True)}  {around}, {', '.join(rates) or 'no rate resolved'}"


def _predicted(risk: ModelRisk, rate: float) -> str:
    told = [risk.predicted_attack, None if risk.predicted_from is None else f"from {risk.predicted_from}"]
    named = f" ({', '.join(word for word in told if word)})" if any(told) else ""
    level = risk.prediction_level or risk.interval_level  # older folders have one level for all
    # What is known does not rest on the prediction of a model outside the calibration's domain.
    title = "Predicted attack TPR" if risk.in_calibration_domain else "Hint, no answer: predicted attack TPR"
    return _rate(f"{title} at FPR {number(risk.fpr)}{named}", rate, risk.predicted_tpr_interval, level)


def _rate(words: str, rate: float, ends: Interval | None, level: float) -> str:
    around = "" if ends is None else f"  ({_level(level)} interval {per_thousand_between(ends)})"
    return f"{words}: {per_thousand(rate)}{around}"


def _level(level: float) -> str:
    return f"{100 * level:g} %"


def _between(ends: Interval) -> str:
    return f"{number(ends[0], padded=True)} to {number(ends[1], padded=True)}"


def _finding_lines(audit: Told) -> list[Line]:
    everything = drawn(audit)
    found = most_severe(everything)
    counts = [f"{sum(finding.status == status for finding in everything)} {status}" for status in ("passed", "not applicable", "skipped")]
    told = [Line(f"Findings: {len(found)} found, {', '.join(counts)}")]
    for finding in found[:TOP_FINDINGS]:
        mark = visible(f"  {finding.code} {finding.severity}")
        told.append(Line(visible(f"{mark}  {finding.name}: {finding.sentence}"), finding.severity, len(mark)))
    return told + ([Line(f"  … and {len(found) - TOP_FINDINGS} more")] if len(found) > TOP_FINDINGS else [])


def _codes(everything: tuple[Finding, ...]) -> str:
    """Codes and names of what was found, the most severe first."""
    found = most_severe(everything)
    named = [f"{finding.code} {finding.name} ({finding.severity})" for finding in found[:_BRIEF_FINDINGS]]
    more = [f"and {len(found) - _BRIEF_FINDINGS} more"] if len(found) > _BRIEF_FINDINGS else []
    return ", ".join([*named, *more]) or "nothing"

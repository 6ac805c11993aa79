"""Findings as text for a page."""

from collections.abc import Iterable
from typing import Any

from noshadow._findings import casts_doubt, findings, most_severe
from noshadow.report.formats import number, sentence
from noshadow.results import Audit, Finding

_OTHERS = ("passed", "not applicable", "skipped")


def findings_section(audit: Audit) -> dict[str, Any]:
    """What was found, the most severe first, and every other rule by how it ended.

    The statements of the folder are shown; a folder of a version without them gets those of this
    version's rules.
    """
    drawn = findings(audit) if audit.findings is None else audit.findings
    others = {status: [finding_row(finding) for finding in drawn if finding.status == status] for status in _OTHERS}
    severe = most_severe(drawn)
    found = [finding_row(finding) for finding in severe]
    return {
        "found": found,
        "undermining": [row for row, finding in zip(found, severe, strict=True) if casts_doubt(finding)],
        "others": [{"status": status, "rows": rows} for status, rows in others.items() if rows],
        "total": number(len(drawn)),
        "drawn_anew": audit.findings is None,
    }


def finding_row(finding: Finding) -> dict[str, Any]:
    """One finding as text."""
    return {
        "code": finding.code,
        "name": finding.name.replace("-", " "),
        "severity": finding.severity,
        "sentence": sentence(finding.sentence),
        "rule": finding.rule,
        "next_step": finding.next_step,
        "anchor": finding.anchor,
        "records": list(finding.records),
        "more": None if finding.count is None else max(finding.count - len(finding.records), 0),
    }


def finding_rows(drawn: Iterable[Finding]) -> list[dict[str, Any]]:
    """Several findings as text, the most severe first."""
    return [finding_row(finding) for finding in most_severe(drawn)]

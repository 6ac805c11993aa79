"""Coded statements drawn from an Audit (NS001 …), with their thresholds."""

from noshadow._findings.draw import casts_doubt, finding_of, findings, flagged_records, most_severe, undermining_findings
from noshadow._findings.registry import RULES, UNDERMINING
from noshadow._findings.rule import Rule

__all__ = [
    "RULES",
    "UNDERMINING",
    "Rule",
    "casts_doubt",
    "finding_of",
    "findings",
    "flagged_records",
    "most_severe",
    "undermining_findings",
]

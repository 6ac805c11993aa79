"""The answer at one glance: what is known, a verdict, the most exposed record, what to do next."""

from noshadow._answer.next_action import NextAction, next_action
from noshadow._answer.verdict import LEVELS, Verdict, verdict
from noshadow._known import DECLARED, KnownRate, WorstRecord, best_known, per_thousand, per_thousand_between, worst_record

__all__ = [
    "DECLARED",
    "LEVELS",
    "KnownRate",
    "NextAction",
    "Verdict",
    "WorstRecord",
    "best_known",
    "next_action",
    "per_thousand",
    "per_thousand_between",
    "verdict",
    "worst_record",
]

"""The answer at one glance: what is known, a verdict, the most exposed record, what to do next."""

from noshadow._answer.next_action import NextAction, next_action
from noshadow._answer.offers import Offer, evidence_changes, offers, why_no_sizes
from noshadow._answer.verdict import FEWEST_RECORDS, LEVELS, Verdict, in_doubt, verdict
from noshadow._known import (
    Accusation,
    KnownRate,
    WorstRecord,
    accusations,
    best_known,
    declared_attack,
    largest_rate,
    per_thousand,
    per_thousand_between,
    retraining,
    worst_record,
)

__all__ = [
    "FEWEST_RECORDS",
    "LEVELS",
    "Accusation",
    "KnownRate",
    "NextAction",
    "Offer",
    "Verdict",
    "WorstRecord",
    "accusations",
    "best_known",
    "declared_attack",
    "evidence_changes",
    "in_doubt",
    "largest_rate",
    "next_action",
    "offers",
    "per_thousand",
    "per_thousand_between",
    "retraining",
    "verdict",
    "why_no_sizes",
    "worst_record",
]

"""The answer at one glance: what is known, a verdict, the most exposed record, what to do next."""

from noshadow._answer.next_action import NextAction, next_action
from noshadow._answer.offers import Offer, evidence_changes, offers
from noshadow._answer.verdict import LEVELS, Verdict, verdict
from noshadow._known import DECLARED, KnownRate, WorstRecord, best_known, per_thousand, per_thousand_between, worst_record

__all__ = [
    "DECLARED",
    "LEVELS",
    "KnownRate",
    "NextAction",
    "Offer",
    "Verdict",
    "WorstRecord",
    "best_known",
    "evidence_changes",
    "next_action",
    "offers",
    "per_thousand",
    "per_thousand_between",
    "verdict",
    "worst_record",
]

"""The Gaussian linear model of membership.

It gives expected gaps, trade-off curves, per-record detection rates and (ε, δ) lower bounds.
"""

from noshadow.theory.closed_forms import (
    asymptotic_gap,
    expected_gap,
    fixed_design_statistic,
    fixed_design_tradeoff,
    predicted_tpr,
    privacy_curve,
    tradeoff,
)
from noshadow.theory.margins import margin_tpr

__all__ = [
    "asymptotic_gap",
    "expected_gap",
    "fixed_design_statistic",
    "fixed_design_tradeoff",
    "margin_tpr",
    "predicted_tpr",
    "privacy_curve",
    "tradeoff",
]

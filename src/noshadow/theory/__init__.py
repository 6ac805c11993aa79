"""The Gaussian linear model: expected gaps, trade-off curves, per-record detection rates and (ε, δ) lower bounds."""

from noshadow.theory.closed_forms import (
    asymptotic_gap,
    expected_gap,
    fixed_design_statistic,
    fixed_design_tradeoff,
    predicted_tpr,
    privacy_curve,
    tradeoff,
)

__all__ = [
    "asymptotic_gap",
    "expected_gap",
    "fixed_design_statistic",
    "fixed_design_tradeoff",
    "predicted_tpr",
    "privacy_curve",
    "tradeoff",
]

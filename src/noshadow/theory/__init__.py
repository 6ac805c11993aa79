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
from noshadow.theory.joint_law import JointLaw, joint_law
from noshadow.theory.margins import margin_tpr
from noshadow.theory.optimal import optimal_tradeoff

__all__ = [
    "JointLaw",
    "asymptotic_gap",
    "expected_gap",
    "fixed_design_statistic",
    "fixed_design_tradeoff",
    "joint_law",
    "margin_tpr",
    "optimal_tradeoff",
    "predicted_tpr",
    "privacy_curve",
    "tradeoff",
]

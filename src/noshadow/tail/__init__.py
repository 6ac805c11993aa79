"""Model-level risk from two loss samples, and what it says about the strongest attack."""

from noshadow.tail.calibration import fit_calibration
from noshadow.tail.groups import group_risk
from noshadow.tail.pareto import TailRate, extrapolated_tnr, extrapolated_tpr
from noshadow.tail.predictors import risk_predictors
from noshadow.tail.risk import model_risk

__all__ = ["TailRate", "extrapolated_tnr", "extrapolated_tpr", "fit_calibration", "group_risk", "model_risk", "risk_predictors"]

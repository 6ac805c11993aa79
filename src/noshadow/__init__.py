"""noshadow: how exposed are the people in the training data of the model you just trained?"""

from noshadow import attacks, metrics, reference, theory
from noshadow.attacks import AttackSuccess
from noshadow.audit import Target, audit, audit_signals
from noshadow.checks import InputError, NotApplicable, NumericalError
from noshadow.compare import Comparison, compare
from noshadow.findings import findings
from noshadow.lood import (
    LoodResult,
    LoodScores,
    QueryResult,
    laplace_kernel,
    lood,
    lood_audit,
    lood_scores,
    nngp_kernel,
    optimal_query,
    rbf_kernel,
)
from noshadow.report import write_comparison, write_lood_report, write_report
from noshadow.results import Audit, Calibration, Finding, GroundTruth, GroupRisk, LoodAudit, ModelRisk, load, load_lood
from noshadow.scores.generalized_leverage import NetworkInfluence, generalized_leverage, network_influence
from noshadow.scores.last_layer import record_scores
from noshadow.scores.leverage_matrices import GeneralizedLeverage, leverage_matrices
from noshadow.scores.network import damping_sweep, network_scores
from noshadow.scores.result import RecordScores
from noshadow.scores.sharded import sharded_record_scores
from noshadow.signals import Signals, load_splits, save_splits
from noshadow.tail import TailRate, extrapolated_tnr, extrapolated_tpr, fit_calibration, group_risk, model_risk, risk_predictors
from noshadow.traces import LossTraces
from noshadow.views import SequenceLosses, collect_signals, sequence_losses

__version__ = "0.1.0"

__all__ = [
    "AttackSuccess",
    "Audit",
    "Calibration",
    "Comparison",
    "Finding",
    "GeneralizedLeverage",
    "GroundTruth",
    "GroupRisk",
    "InputError",
    "LoodAudit",
    "LoodResult",
    "LoodScores",
    "LossTraces",
    "ModelRisk",
    "NetworkInfluence",
    "NotApplicable",
    "NumericalError",
    "QueryResult",
    "RecordScores",
    "SequenceLosses",
    "Signals",
    "TailRate",
    "Target",
    "attacks",
    "audit",
    "audit_signals",
    "collect_signals",
    "compare",
    "damping_sweep",
    "extrapolated_tnr",
    "extrapolated_tpr",
    "findings",
    "fit_calibration",
    "generalized_leverage",
    "group_risk",
    "laplace_kernel",
    "leverage_matrices",
    "load",
    "load_lood",
    "load_splits",
    "lood",
    "lood_audit",
    "lood_scores",
    "metrics",
    "model_risk",
    "network_influence",
    "network_scores",
    "nngp_kernel",
    "optimal_query",
    "rbf_kernel",
    "record_scores",
    "reference",
    "risk_predictors",
    "save_splits",
    "sequence_losses",
    "sharded_record_scores",
    "theory",
    "write_comparison",
    "write_lood_report",
    "write_report",
]

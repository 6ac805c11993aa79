"""noshadow: how exposed are the people in the training data of the model you just trained?"""

from noshadow import attacks, metrics, reference, theory
from noshadow.attacks import AttackSuccess
from noshadow.audit import Target, audit, audit_signals
from noshadow.checks import InputError, NotApplicable, NumericalError
from noshadow.lood import (
    LoodResult,
    LoodScores,
    QueryResult,
    laplace_kernel,
    lood,
    lood_scores,
    nngp_kernel,
    optimal_query,
    rbf_kernel,
)
from noshadow.report import write_report
from noshadow.results import Audit, GroundTruth, ModelRisk, load
from noshadow.scores.generalized_leverage import NetworkInfluence, generalized_leverage, network_influence
from noshadow.scores.last_layer import record_scores
from noshadow.scores.leverage_matrices import GeneralizedLeverage, leverage_matrices
from noshadow.scores.network import damping_sweep, network_scores
from noshadow.scores.result import RecordScores
from noshadow.scores.sharded import sharded_record_scores
from noshadow.signals import Signals, load_splits, save_splits
from noshadow.tail import model_risk
from noshadow.traces import LossTraces
from noshadow.views import collect_signals

__version__ = "0.1.0"

__all__ = [
    "AttackSuccess",
    "Audit",
    "GeneralizedLeverage",
    "GroundTruth",
    "InputError",
    "LoodResult",
    "LoodScores",
    "LossTraces",
    "ModelRisk",
    "NetworkInfluence",
    "NotApplicable",
    "NumericalError",
    "QueryResult",
    "RecordScores",
    "Signals",
    "Target",
    "attacks",
    "audit",
    "audit_signals",
    "collect_signals",
    "damping_sweep",
    "generalized_leverage",
    "laplace_kernel",
    "leverage_matrices",
    "load",
    "load_splits",
    "lood",
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
    "save_splits",
    "sharded_record_scores",
    "theory",
    "write_report",
]

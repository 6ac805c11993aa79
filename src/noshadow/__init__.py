"""noshadow: how exposed are the people in the training data of the model you just trained?"""

import importlib
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noshadow import attacks, canaries, metrics, reference, theory
    from noshadow._audit import Target, audit, audit_signals, token_gains
    from noshadow._compare import Comparison, compare
    from noshadow._exposure import Exposure, exposure
    from noshadow._findings import findings
    from noshadow._lood import (
        LoodBounds,
        LoodResult,
        LoodScores,
        QueryResult,
        critical_weights,
        laplace_kernel,
        lood,
        lood_audit,
        lood_bounds,
        lood_scores,
        nngp_kernel,
        optimal_query,
        rbf_kernel,
        with_lood,
    )
    from noshadow.attacks import AttackSuccess
    from noshadow.errors import InputError, NotApplicable, NumericalError
    from noshadow.model_files import load_model
    from noshadow.record_files import write_records
    from noshadow.report import write_annex, write_comparison, write_lood_report, write_report
    from noshadow.results import (
        Audit,
        Calibration,
        Evidence,
        Finding,
        GroundTruth,
        GroupRisk,
        LoodAudit,
        ModelRisk,
        TokenGains,
        load,
        load_lood,
    )
    from noshadow.scores.last_layer.entry import record_scores
    from noshadow.scores.last_layer.leverage import GeneralizedLeverage, last_layer_leverage
    from noshadow.scores.network.entry import damping_sweep, network_scores
    from noshadow.scores.network.generalized_leverage import NetworkInfluence, generalized_leverage, network_influence
    from noshadow.scores.result import RecordScores
    from noshadow.scores.sharded.entry import sharded_record_scores
    from noshadow.signals import Signals, load_splits, save_splits
    from noshadow.tail import TailRate, extrapolated_tnr, extrapolated_tpr, fit_calibration, group_risk, model_risk, risk_predictors
    from noshadow.traces import LossTraces
    from noshadow.views import SequenceLosses, collect_signals, sequence_losses

__version__ = "0.1.0"

# Public name → the module it lives in, imported when the name is first used: torch and scikit-learn
# take seconds to load, and `noshadow --help` or a gate need neither. A name that is a module itself
# maps to "".
_HOMES = {
    "AttackSuccess": "attacks",
    "Audit": "results",
    "Calibration": "results",
    "Comparison": "_compare",
    "Evidence": "results",
    "Exposure": "_exposure",
    "Finding": "results",
    "GeneralizedLeverage": "scores.last_layer.leverage",
    "GroundTruth": "results",
    "GroupRisk": "results",
    "InputError": "errors",
    "LoodAudit": "results",
    "LoodBounds": "_lood",
    "LoodResult": "_lood",
    "LoodScores": "_lood",
    "LossTraces": "traces",
    "ModelRisk": "results",
    "NetworkInfluence": "scores.network.generalized_leverage",
    "NotApplicable": "errors",
    "NumericalError": "errors",
    "QueryResult": "_lood",
    "RecordScores": "scores.result",
    "SequenceLosses": "views",
    "Signals": "signals",
    "TailRate": "tail",
    "Target": "_audit",
    "TokenGains": "results",
    "attacks": "",
    "audit": "_audit",
    "audit_signals": "_audit",
    "canaries": "",
    "collect_signals": "views",
    "compare": "_compare",
    "critical_weights": "_lood",
    "damping_sweep": "scores.network.entry",
    "exposure": "_exposure",
    "extrapolated_tnr": "tail",
    "extrapolated_tpr": "tail",
    "findings": "_findings",
    "fit_calibration": "tail",
    "generalized_leverage": "scores.network.generalized_leverage",
    "group_risk": "tail",
    "laplace_kernel": "_lood",
    "last_layer_leverage": "scores.last_layer.leverage",
    "load": "results",
    "load_lood": "results",
    "load_model": "model_files",
    "load_splits": "signals",
    "lood": "_lood",
    "lood_audit": "_lood",
    "lood_bounds": "_lood",
    "lood_scores": "_lood",
    "metrics": "",
    "model_risk": "tail",
    "network_influence": "scores.network.generalized_leverage",
    "network_scores": "scores.network.entry",
    "nngp_kernel": "_lood",
    "optimal_query": "_lood",
    "rbf_kernel": "_lood",
    "record_scores": "scores.last_layer.entry",
    "reference": "",
    "risk_predictors": "tail",
    "save_splits": "signals",
    "sequence_losses": "views",
    "sharded_record_scores": "scores.sharded.entry",
    "theory": "",
    "token_gains": "_audit",
    "with_lood": "_lood",
    "write_annex": "report",
    "write_comparison": "report",
    "write_lood_report": "report",
    "write_records": "record_files",
    "write_report": "report",
}

# Old public names → their new ones: they work, and warn.
_RENAMED = {"leverage_matrices": "last_layer_leverage"}

__all__ = [
    "AttackSuccess",
    "Audit",
    "Calibration",
    "Comparison",
    "Evidence",
    "Exposure",
    "Finding",
    "GeneralizedLeverage",
    "GroundTruth",
    "GroupRisk",
    "InputError",
    "LoodAudit",
    "LoodBounds",
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
    "TokenGains",
    "attacks",
    "audit",
    "audit_signals",
    "canaries",
    "collect_signals",
    "compare",
    "critical_weights",
    "damping_sweep",
    "exposure",
    "extrapolated_tnr",
    "extrapolated_tpr",
    "findings",
    "fit_calibration",
    "generalized_leverage",
    "group_risk",
    "laplace_kernel",
    "last_layer_leverage",
    "load",
    "load_lood",
    "load_model",
    "load_splits",
    "lood",
    "lood_audit",
    "lood_bounds",
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
    "token_gains",
    "with_lood",
    "write_annex",
    "write_comparison",
    "write_lood_report",
    "write_records",
    "write_report",
]


def __getattr__(name: str) -> object:
    """Return a public name from its module; it is kept here, so this runs once per name."""
    if name in _RENAMED:
        new = _RENAMED[name]
        warnings.warn(f"noshadow.{name} is now called {new}; the old name will go in a later version.", DeprecationWarning, stacklevel=2)
        return globals().get(new) or __getattr__(new)
    if name not in _HOMES:
        raise AttributeError(f"module 'noshadow' has no attribute '{name}'")
    home = _HOMES[name]
    found = getattr(importlib.import_module(f"noshadow.{home}"), name) if home else importlib.import_module(f"noshadow.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

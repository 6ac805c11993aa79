"""Rates at a fixed error level, agreement between rankings, and intervals.

All functions take arrays and return numbers.
"""

from noshadow.metrics.agreement import spearman, top_precision, top_recall
from noshadow.metrics.inputs import RELATIVE_SLACK
from noshadow.metrics.intervals import auc_interval, clopper_pearson, share_intervals, tpr_interval
from noshadow.metrics.rates import accusation_precision, auc, error_budget, loss_auc, loss_threshold, tnr_at_fnr, tpr_at_fpr
from noshadow.metrics.tables import agreement_table, noise_ceiling

__all__ = [
    "RELATIVE_SLACK",
    "accusation_precision",
    "agreement_table",
    "auc",
    "auc_interval",
    "clopper_pearson",
    "error_budget",
    "loss_auc",
    "loss_threshold",
    "noise_ceiling",
    "share_intervals",
    "spearman",
    "tnr_at_fnr",
    "top_precision",
    "top_recall",
    "tpr_at_fpr",
    "tpr_interval",
]

"""What was predicted beside what the attacks then measured."""

from typing import Any

from noshadow.report.formats import figure, interval, number
from noshadow.results import Audit

_SAME_LEVEL = 1e-6


def measured_beside_predicted(audit: Audit) -> dict[str, Any] | None:
    """Put the predicted rate beside LiRA's measured ones at the same level.

    The result is None without ground truth or prediction.
    """
    risk, truth = audit.model_risk, audit.ground_truth
    if risk is None or truth is None or risk.predicted_tpr is None:
        return None
    ends = risk.predicted_tpr_interval
    rows = [_row(measured.attacked, rate, ends) for measured in truth.attacks if measured.attack == "LiRA" for rate in measured.rates]
    same = [row for row in rows if abs(row["fpr"] / risk.fpr - 1) < _SAME_LEVEL]
    return {
        "level": number(risk.fpr),
        "predicted": figure(risk.predicted_tpr) | {"interval": "" if ends is None else interval(ends)},
        "rows": same,
        "other_levels": sorted({row["level"] for row in rows}),
    }


def _row(attacked: str, rate: Any, ends: tuple[float, float] | None) -> dict[str, Any]:
    return {
        "attacked": attacked,
        "fpr": rate.fpr,
        "level": number(rate.fpr),
        "measured": figure(rate.tpr) | {"interval": interval((rate.low, rate.high))},
        "covered": None if ends is None else ends[0] <= rate.tpr <= ends[1],
    }

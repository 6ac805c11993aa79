"""What was predicted beside what the attacks then measured."""

from typing import Any

from noshadow.report.formats import people, people_in_table
from noshadow.results import Audit

_SAME_LEVEL = 1e-6


def measured_beside_predicted(audit: Audit) -> dict[str, Any] | None:
    """Put the predicted rate beside the measured ones of the same attack at the same level.

    The result is None without ground truth or prediction.
    """
    risk, truth = audit.model_risk, audit.ground_truth
    if risk is None or truth is None or risk.predicted_tpr is None:
        return None
    ends, attack = risk.predicted_tpr_interval, risk.predicted_attack or "LiRA"
    # "LiRA", or in words which of several: each of them that was measured gets its rows.
    named = attack.split()
    held = [measured for measured in truth.attacks if measured.attack in named]
    rows = [_row(_whom(measured, attack), rate, ends) for measured in held for rate in measured.rates]
    same = [row for row in rows if abs(row["fpr"] / risk.fpr - 1) < _SAME_LEVEL]
    return {
        "attack": attack,
        "level": people(risk.fpr)["text"],
        "predicted": people_in_table(risk.predicted_tpr, ends),
        "rows": same,
        "other_levels": sorted({row["level"] for row in rows}),
    }


def _whom(measured: Any, attack: str) -> str:
    """Who was attacked, and by which attack where the prediction is of more than one."""
    return str(measured.attacked) if measured.attack == attack else f"{measured.attacked}, {measured.attack}"


def _row(attacked: str, rate: Any, ends: tuple[float, float] | None) -> dict[str, Any]:
    return {
        "attacked": attacked,
        "fpr": rate.fpr,
        "level": people(rate.fpr)["text"],
        "measured": people_in_table(rate.tpr, (rate.low, rate.high)),
        "covered": None if ends is None else ends[0] <= rate.tpr <= ends[1],
    }

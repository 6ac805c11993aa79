"""The most exposed record, with its own rate."""

from dataclasses import dataclass

import numpy as np

from noshadow._known.audited import Audited
from noshadow.checks import Array
from noshadow.figures import Interval

# Column of the rates, of both ends of their intervals, and what is known by them, best first.
# Exposure goes first: it shrinks each record's rate, and the largest of n rates that were not
# shrunk is too large. LiRA's rates have no interval.
_RATES = (
    ("attack_rate", ("attack_rate_low", "attack_rate_high"), "exposure"),
    ("lira_tpr", None, "measured"),
    ("predicted_tpr", ("predicted_tpr_low", "predicted_tpr_high"), "predicted"),
)


@dataclass(frozen=True)
class WorstRecord:
    """The record that an attack recognises most often.

    Attributes:
        id: which one. rate: share of models trained on it that the attack tells from those that
            were not, at the audit's false-positive rate (LiRA's: at 0.001).
        interval: (low, high) of this record's rate; None where there is none.
        source: "exposure", "measured" or "predicted"; as in `KnownRate`.
    """

    id: str
    rate: float
    interval: Interval | None
    source: str


def worst_record(audit: Audited) -> WorstRecord | None:
    """Find the record with the largest rate; None where no record has a rate of its own.

    Among equal rates the first by rank is taken. A prediction counts where the model resembles the
    setups behind it.

    Args:
        audit: an Audit, or whatever has its fields.

    Approximates: the largest of n estimated rates is somewhat too large, most where they were not
        shrunk ("measured").
    Cost: O(n).
    """
    for name, ends, source in _RATES:
        unlike = source == "predicted" and audit.model_risk is not None and audit.model_risk.in_calibration_domain is False
        if name not in audit.records or unlike:
            continue
        rates = audit.records[name].to_numpy(np.float64)
        if np.isnan(rates).all():
            continue
        row = _first_by_rank(audit, np.flatnonzero(rates == np.nanmax(rates)))
        interval = None
        if ends is not None and set(ends) <= set(audit.records.columns):
            interval = (float(audit.records[ends[0]].iloc[row]), float(audit.records[ends[1]].iloc[row]))
        return WorstRecord(str(audit.records["id"].iloc[row]), float(rates[row]), interval, source)
    return None


def _first_by_rank(audit: Audited, rows: Array) -> int:
    if "rank" not in audit.records:
        return int(rows[0])
    return int(rows[np.argmin(audit.records["rank"].to_numpy()[rows])])

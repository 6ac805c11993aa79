"""The most exposed record, with its own rate, and the largest rate of any record."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from noshadow._known.audited import Audited
from noshadow._known.needed import trained_models
from noshadow._known.rate import own_fpr
from noshadow._known.together import largest_rate
from noshadow.checks import Array
from noshadow.figures import Interval, LargestRate

# Column of the rates, of both ends of their intervals, and what is known by them, best first.
# Exposure goes first: it knows how uncertain each record's rate is. LiRA's rates have no interval.
RATE_COLUMNS = (
    ("attack_rate", ("attack_rate_low", "attack_rate_high"), "exposure"),
    ("lira_tpr", None, "measured"),
    ("predicted_tpr", ("predicted_tpr_low", "predicted_tpr_high"), "predicted"),
)
# LiRA's rates of single records are read at this level, whatever the audit's own is.
LEVEL_OF_LIRA_RATES = 1e-3
# Models from which the posterior of the maximum is told. With four, it puts somebody of a model
# without any leak far above a guess (benchmarks/results/largest_rate.json, "no leakage"). With
# more of them it still does so a little, and is not told where no record stands out by itself.
ENOUGH_MODELS = 16


@dataclass(frozen=True)
class WorstRecord:
    """The largest rate of any record, and the record that most probably has it.

    Attributes:
        id: of the record with the largest rate of its own.
        rate: share of models trained on it that the attack tells from those that were not, at the
            audit's false-positive rate (LiRA's: at 0.001). The median of the largest rate of any
            record where it was drawn, or else the largest of the records' estimated rates.
        interval: (low, high) of `rate`; None where there is none.
        source: "exposure", "measured" or "predicted"; as in `KnownRate`.
        own_rate, own_interval: of this very record.
        first_id, first_rate, first_interval: of the record that is named as the most exposed: the
            one that the rank puts first where it knows the order better than the rates do
            (`rank_decides`), or else the one with the largest rate.
        drawn: whether `rate` is of the posterior of the maximum. If not it is naive: nothing
            corrects it for being the largest of many.
        interval_level: coverage of `interval` where it was drawn.
        records: among how many.
        reason: one sentence on what `rate` is.
    """

    id: str
    rate: float
    interval: Interval | None
    source: str
    own_rate: float
    own_interval: Interval | None
    first_id: str
    first_rate: float
    first_interval: Interval | None
    drawn: bool
    interval_level: float | None
    records: int
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """The same in plain JSON types."""
        ends = {
            name: None if value is None else list(value)
            for name, value in (("interval", self.interval), ("own_interval", self.own_interval), ("first_interval", self.first_interval))
        }
        return asdict(self) | ends


def worst_record(audit: Audited) -> WorstRecord | None:
    """Find the record with the largest rate; None where no record has a rate of its own.

    The right question is about the largest of the records' true rates, max_i rate_i: whoever that
    is must be safe. Its posterior is drawn where exposure has sizes (`_exposure.largest_rate`), and
    told where these rest on 16 models or more and the first record's own interval leaves a guess
    out: otherwise it invents exposed records.
    Rates of LiRA or of a prediction have no posterior of each record, and their largest is given as
    it is. Among equal rates the first by rank is taken. A prediction counts where the model
    resembles the setups behind it.

    Args:
        audit: an Audit, or whatever has its fields.

    Approximates: without draws, the largest of n estimated rates: too large where they were not
        shrunk ("measured"), too small where they were.
    Cost: O(n).
    """
    for name, ends, source in RATE_COLUMNS:
        unlike = source == "predicted" and audit.model_risk is not None and audit.model_risk.in_calibration_domain is False
        if name not in audit.records or unlike:
            continue
        rates = audit.records[name].to_numpy(np.float64)
        if np.isnan(rates).all():
            continue
        largest = _first_by_rank(audit, np.flatnonzero(rates == np.nanmax(rates)))
        first = _first_by_rank(audit, np.flatnonzero(~np.isnan(rates))) if rank_decides(audit, source) else largest
        worst = _Rated.of(audit, largest, name, ends)
        drawn = _drawn(audit) if source == "exposure" and worst.interval is not None and worst.interval[0] > own_fpr(audit) else None
        return _told(worst, _Rated.of(audit, first, name, ends), source, drawn, len(rates))
    return None


def rank_decides(audit: Audited, source: str) -> bool:
    """Whether the rank knows the order of the records better than rates from this source do.

    It does beside rates that are predicted, and beside those of the exposure that it follows.
    Measured rates are an order by themselves.
    """
    return "rank" in audit.records and (source == "predicted" or (source == "exposure" and audit.ranked_by == "exposure_score"))


@dataclass(frozen=True)
class _Rated:
    """One record with its own rate."""

    id: str
    rate: float
    interval: Interval | None

    @classmethod
    def of(cls, audit: Audited, row: int, name: str, ends: tuple[str, str] | None) -> "_Rated":
        table, interval = audit.records, None
        if ends is not None and set(ends) <= set(table.columns):
            interval = (float(table[ends[0]].iloc[row]), float(table[ends[1]].iloc[row]))
        return cls(str(table["id"].iloc[row]), float(table[name].iloc[row]), interval)


def _drawn(audit: Audited) -> LargestRate | None:
    found = largest_rate(audit) if trained_models(audit) >= ENOUGH_MODELS else None
    return found if isinstance(found, LargestRate) else None


def _told(worst: _Rated, first: _Rated, source: str, drawn: LargestRate | None, n: int) -> WorstRecord:
    own, named = worst.rate, (first.id, first.rate, first.interval)
    if drawn is None:
        reason = f"The largest of {n} rates ({source}), each as it was estimated: nothing corrects it for being the largest."
        return WorstRecord(worst.id, own, worst.interval, source, own, worst.interval, *named, False, None, n, reason)
    reason = f"The largest of {n} records' true rates, whosever it is, by {drawn.draws} draws from their posterior (exposure)."
    return WorstRecord(worst.id, drawn.median, drawn.interval, source, own, worst.interval, *named, True, drawn.level, n, reason)


def _first_by_rank(audit: Audited, rows: Array) -> int:
    if "rank" not in audit.records:
        return int(rows[0])
    return int(rows[np.argmin(audit.records["rank"].to_numpy()[rows])])

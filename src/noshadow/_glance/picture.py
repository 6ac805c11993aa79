"""The one picture: a thousand people, and how exposed each record is; as numbers, not as marks."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from noshadow._answer import KnownRate, per_thousand, per_thousand_between, worst_record
from noshadow._glance.scales import LogScale, decade_ticks
from noshadow._known.audited import Audited
from noshadow._known.worst import RATE_COLUMNS
from noshadow.checks import Array
from noshadow.formats import number, power_of_ten

ROWS_OF_PEOPLE, PITCH = 20, 6
# Colour is never the only sign: each level has a mark and a title.
MARKS = {"none": "✓", "some": "!", "strong": "‼", "unknown": "?"}
BINS = 25
# The column that holds each record's own rate, by where `worst_record` has it from.
_RATES = {source: column for column, _, source in RATE_COLUMNS}
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 590.0, 26.0, 122.0


@dataclass(frozen=True, eq=False)
class Exposures:
    """How exposed each record is: by its own rate, or else by the score that ranks.

    Attributes:
        values: rates in [0, 1], or scores above zero; finite, one a record that has one.
        are_rates: whether they are rates. title: what they are. worst: the label of the largest.
    """

    values: Array
    are_rates: bool
    title: str
    worst: str

    def axis(self) -> tuple[float, float]:
        """Ends of the axis: 0 and 1 for rates, whole exponents of ten for scores."""
        if self.are_rates:
            return 0.0, 1.0
        low, high = np.quantile(self.values, 0.01), self.values.max()
        return math.floor(math.log10(low)), math.ceil(math.log10(high) + 1e-9)


def rated_by(audit: Audited) -> tuple[str, tuple[str, str] | None] | None:
    """The column of the records' own rates and those of their intervals; None without rates."""
    worst = worst_record(audit)
    if worst is None:
        return None
    column = _RATES[worst.source]
    ends = (f"{column}_low", f"{column}_high")
    return column, ends if set(ends) <= set(audit.records.columns) else None


def exposures(audit: Audited) -> Exposures | None:
    """Rates of the records, or their scores; None where neither can be drawn.

    Cost: O(n).
    """
    rated = rated_by(audit)
    if rated is not None:
        rates = audit.records[rated[0]].to_numpy(np.float64)
        rates = np.clip(rates[np.isfinite(rates)], 0, 1)
        known = worst_record(audit)
        named = "most exposed" if known is None or known.first_rate == known.own_rate else "largest estimate"
        worst = f"{named}: {per_thousand(float(rates.max()))}"
        return Exposures(rates, True, "times in 1,000 that an attack recognises the record", worst)
    if audit.ranked_by is None:
        return None
    scores = audit.records[audit.ranked_by].to_numpy(np.float64)
    scores = scores[np.isfinite(scores) & (scores > 0)]
    if len(scores) < 2 or scores.min() == scores.max():
        return None
    title = f"{audit.ranked_by}, the score that ranks records (log scale): an order, not a rate"
    return Exposures(scores, False, title, "most exposed")


def people_grids(known: KnownRate) -> list[dict[str, Any]]:
    """A thousand people twice: those the attack finds, and those a guess finds."""
    assert known.rate is not None
    title = "ruled out" if known.source == "losses" else "recognised"
    top = known.rate if known.interval is None else known.interval[1]
    attack = {"name": "attack", "title": f"{title} by the attack", "people": per_thousand(known.rate)}
    attack["between"] = "" if known.interval is None else per_thousand_between(known.interval)
    guess = {"name": "guess", "title": f"{title} by a guess", "people": per_thousand(known.fpr), "between": ""}
    return [attack | _cells(known.rate, max(top, known.rate)), guess | _cells(known.fpr, known.fpr)]


def exposure_chart(audit: Audited) -> dict[str, Any] | None:
    """How many records have which exposure, with the largest marked, in one drawing."""
    found = exposures(audit)
    if found is None:
        return None
    low, high = found.axis()
    largest = float(found.values.max())
    if found.are_rates:
        worst, told = _along(largest), per_thousand(largest)
        ticks = [{"x": _along(share), "label": number(round(1000 * share))} for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]
        parts = found.values
    else:
        scale = LogScale(low, high, _LEFT, _RIGHT)
        worst, told, ticks = scale.at(largest), number(largest), decade_ticks(scale, 60)
        parts = np.clip((np.log10(found.values) - low) / (high - low), 0, 1)
    return _bars(parts) | {
        "ticks": ticks,
        "title": found.title,
        "worst": {"x": worst, "label": found.worst, "name": found.worst.partition(":")[0], "told": told},
    }


def _cells(rate: float, top: float) -> dict[str, Any]:
    """Blocks of cells, column by column, up to the rate and (pale) to the end of its interval."""
    return {"solid": _blocks(_count(rate)), "pale": _blocks(_count(top)), "found": _count(rate)}


def _count(rate: float) -> int:
    """People of a thousand; at least one where anybody is found at all."""
    return max(round(1000 * rate), 1) if rate > 0 else 0


def _blocks(people: int) -> list[dict[str, int]]:
    whole, rest = divmod(people, ROWS_OF_PEOPLE)
    blocks = [
        {"x": 0, "width": whole * PITCH, "height": ROWS_OF_PEOPLE * PITCH},
        {"x": whole * PITCH, "width": PITCH, "height": rest * PITCH},
    ]
    return [block for block in blocks if block["width"] and block["height"]]


def _bars(parts: Array) -> dict[str, Any]:
    """Bars of shares in [0, 1] of the axis; heights are logarithmic, so that one record is seen."""
    counts = np.bincount(np.minimum((parts * BINS).astype(np.int64), BINS - 1), minlength=BINS)
    top = math.ceil(math.log10(max(int(counts.max()), 9) + 1))
    wide = (_RIGHT - _LEFT) / BINS
    bars = [
        {
            "x": round(_LEFT + place * wide, 2),
            "width": round(wide - 1, 2),
            "y": _up(int(count), top),
            "height": round(_BOTTOM - _up(int(count), top), 2),
        }
        for place, count in enumerate(counts)
        if count
    ]
    levels = [{"y": _up(10**k, top), "label": number(10**k) if k < 4 else power_of_ten(k)} for k in range(top + 1)]
    return {"bars": bars, "levels": levels, "records": number(len(parts))}


def _up(count: int, top: int) -> float:
    """Position of a count: one record stands a little above the base line."""
    return round(_BOTTOM - (math.log10(count) + 0.25) / (top + 0.25) * (_BOTTOM - _TOP), 2)


def _along(share: float) -> float:
    return round(_LEFT + min(max(share, 0.0), 1.0) * (_RIGHT - _LEFT), 2)

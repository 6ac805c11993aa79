"""The first screen: verdict, one picture, who is most exposed, what to do next."""

import math
from typing import Any

import numpy as np
import pandas as pd

from noshadow._answer import LEVELS, KnownRate, Verdict, WorstRecord, next_action, per_thousand, per_thousand_between, verdict, worst_record
from noshadow.checks import Array
from noshadow.report.charts import LogScale, decade_ticks
from noshadow.report.formats import number, power_of_ten, sentence
from noshadow.report.top_records import ROWS
from noshadow.results import Audit

PEOPLE = 3
COLUMNS, ROWS_OF_PEOPLE, PITCH = 50, 20, 6
# The column that holds each record's own rate, by where `worst_record` has it from.
_RATES = {"exposure": "attack_rate", "measured": "lira_tpr", "predicted": "predicted_tpr"}
# Colour is never the only sign: each level has a mark and a title.
_MARKS = {"none": "✓", "some": "!", "strong": "‼", "unknown": "?"}
_BINS = 25
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 590.0, 26.0, 122.0


def first_screen(audit: Audit) -> dict[str, Any]:
    """Everything above the fold, as text and plain numbers.

    Cost: O(n log n) in the number of records.
    """
    found, action = verdict(audit), next_action(audit)
    known = found.known
    worst = worst_record(audit)
    rated = _rated(audit, worst)
    return {
        "level": found.level,
        "title": found.title,
        "mark": _MARKS[found.level],
        "sentence": sentence(found.sentence),
        "why": _why(found),
        "reason": sentence(known.reason),
        "grids": [] if known.rate is None else _grids(known),
        "pale": known.interval is not None,
        "ruled_out": known.source == "losses",
        "exposure": _exposure(audit, rated, worst),
        "people": _people(audit, rated),
        "rated": rated is not None,
        "largest": None if worst is None else _largest(worst),
        "action": {"sentence": sentence(action.sentence), "command": action.command},
    }


def _why(found: Verdict) -> str:
    """The row of the table of verdicts that this one is, in words."""
    row = next((level for level in LEVELS if level.title == found.title), None)
    return "" if row is None else sentence(row.condition).replace("'", "’")


def _largest(worst: WorstRecord) -> dict[str, Any]:
    """The largest rate of any record, or that the first of these is only the largest estimate."""
    level = "" if worst.interval_level is None else f"{100 * worst.interval_level:g}\u202f% interval "
    between = "" if worst.interval is None else f" ({level}{per_thousand_between(worst.interval)})"
    return {"drawn": worst.drawn, "people": per_thousand(worst.rate) + between, "records": number(worst.records)}


def _rated(audit: Audit, worst: WorstRecord | None) -> tuple[str, tuple[str, str] | None] | None:
    """The column of the records' own rates and those of their intervals; None without rates."""
    if worst is None:
        return None
    column = _RATES[worst.source]
    ends = (f"{column}_low", f"{column}_high")
    return column, ends if set(ends) <= set(audit.records.columns) else None


def _grids(known: KnownRate) -> list[dict[str, Any]]:
    """A thousand people twice: those the attack finds, and those a guess finds."""
    assert known.rate is not None
    title = "ruled out" if known.source == "losses" else "recognised"
    top = known.rate if known.interval is None else known.interval[1]
    attack = {"name": "attack", "title": f"{title} by the attack", "people": per_thousand(known.rate)}
    attack["between"] = "" if known.interval is None else per_thousand_between(known.interval)
    guess = {"name": "guess", "title": f"{title} by a guess", "people": per_thousand(known.fpr), "between": ""}
    return [attack | _cells(known.rate, max(top, known.rate)), guess | _cells(known.fpr, known.fpr)]


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


def _exposure(audit: Audit, rated: tuple[str, tuple[str, str] | None] | None, worst: WorstRecord | None) -> dict[str, Any] | None:
    """How many records have which exposure, with the largest marked.

    Exposure is each record's rate; without rates it is the score that ranks, on a log axis.
    """
    if rated is not None and worst is not None:
        values = audit.records[rated[0]].to_numpy(np.float64)
        values = values[np.isfinite(values)]
        ticks = [{"x": _along(share), "label": number(round(1000 * share))} for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]
        return _bars(np.clip(values, 0, 1)) | {
            "ticks": ticks,
            "title": "times in 1,000 that an attack recognises the record",
            "worst": {"x": _along(worst.rate), "label": f"most exposed: {per_thousand(worst.rate)}"},
        }
    if audit.ranked_by is None:
        return None
    scores = audit.records[audit.ranked_by].to_numpy(np.float64)
    scores = scores[np.isfinite(scores) & (scores > 0)]
    if len(scores) < 2 or scores.min() == scores.max():
        return None
    low, high = math.floor(math.log10(np.quantile(scores, 0.01))), math.ceil(math.log10(scores.max()) + 1e-9)
    scale = LogScale(low, high, _LEFT, _RIGHT)
    return _bars(np.clip((np.log10(scores) - low) / (high - low), 0, 1)) | {
        "ticks": decade_ticks(scale, 60),
        "title": f"{audit.ranked_by}, the score that ranks records (log scale): an order, not a rate",
        "worst": {"x": scale.at(float(scores.max())), "label": "most exposed"},
    }


def _bars(parts: Array) -> dict[str, Any]:
    """Bars of shares in [0, 1] of the axis; heights are logarithmic, so that one record is seen."""
    counts = np.bincount(np.minimum((parts * _BINS).astype(np.int64), _BINS - 1), minlength=_BINS)
    top = math.ceil(math.log10(max(int(counts.max()), 9) + 1))
    wide = (_RIGHT - _LEFT) / _BINS
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


def _people(audit: Audit, rated: tuple[str, tuple[str, str] | None] | None) -> list[dict[str, Any]]:
    """The most exposed records: by their own rate where there is one, or else by rank."""
    if rated is None and audit.ranked_by is None:
        return []
    table, ranked = audit.records, audit.ranked_by is not None
    ranks = table["rank"].to_numpy() if ranked else np.full(len(table), ROWS + 1)
    rates = np.zeros(len(table)) if rated is None else np.nan_to_num(table[rated[0]].to_numpy(np.float64), nan=-1.0)
    return [_person(table, int(row), int(ranks[row]), rated) for row in np.lexsort((ranks, -rates))[:PEOPLE]]


def _person(table: pd.DataFrame, row: int, rank: int, rated: tuple[str, tuple[str, str] | None] | None) -> dict[str, Any]:
    """One record's id, the place of its row further down, its rate with its interval."""
    link = f"rank-{rank}" if rank <= ROWS else None
    rate, between = None, ""
    if rated is not None and np.isfinite(table[rated[0]].iloc[row]):
        rate = per_thousand(float(table[rated[0]].iloc[row]))
        low, high = (None, None) if rated[1] is None else (float(table[name].iloc[row]) for name in rated[1])
        between = "" if low is None or high is None else per_thousand_between((low, high))
    return {"id": str(table["id"].iloc[row]), "link": link, "rate": rate, "between": between}

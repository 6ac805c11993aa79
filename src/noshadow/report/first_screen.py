"""The first screen: verdict, one picture, who is most exposed, what to do next."""

import re
from typing import Any

import numpy as np
import pandas as pd

from noshadow._answer import LEVELS, Verdict, WorstRecord, next_action, per_thousand, per_thousand_between, verdict, worst_record
from noshadow._glance import MARKS, exposure_chart, people_grids, rated_by
from noshadow._known import is_level
from noshadow._known.worst import LEVEL_OF_LIRA_RATES, RATE_COLUMNS, rank_decides
from noshadow.report.formats import number, sentence
from noshadow.report.top_records import ROWS
from noshadow.results import Audit

PEOPLE = 3
SOURCES = {column: source for column, _, source in RATE_COLUMNS}
# Where a command may be broken: before an option or another word, and after "&&".
_PART = re.compile(r"[a-z]+(?: [a-z]+)*(?= |$)|--\S+(?: (?!-|&)\S+)?|\S+")
_AFTER_AND = re.compile(r"(?<=&&) ")


def first_screen(audit: Audit) -> dict[str, Any]:
    """Everything above the fold, as text and plain numbers.

    Cost: O(n log n) in the number of records.
    """
    found, action = verdict(audit), next_action(audit)
    known = found.known
    rated, worst = rated_by(audit), worst_record(audit)
    return {
        "level": found.level,
        "title": found.title,
        "mark": MARKS[found.level],
        "source": known.source,
        "sentence": sentence(found.sentence).replace(" % ", "\u00a0% "),
        "why": _why(found),
        "reason": sentence(known.reason),
        "grids": [] if known.rate is None else people_grids(known),
        "pale": known.interval is not None,
        "ruled_out": known.source == "losses",
        "exposure": exposure_chart(audit),
        "people": _people(audit, rated),
        "rated": rated is not None,
        "at_level": "" if worst is None or worst.source != "measured" else _other_level(known.fpr),
        "largest": None if worst is None else _largest(worst),
        "action": {"sentence": sentence(action.sentence), "command": action.command, "lines": command_lines(action.command)},
    }


def _why(found: Verdict) -> str:
    """The row of the table of verdicts that this one is, in words."""
    row = next((level for level in LEVELS if level.title == found.title), None)
    return "" if row is None else row.condition.replace("'", "’") + "."


def command_lines(command: str) -> list[list[str]]:
    """A command as lines of parts that stay whole: an option stays with its value."""
    return [_PART.findall(line.strip()) for line in _AFTER_AND.split(command)]


def _other_level(guess: float) -> str:
    """The level of LiRA's rates of single records, where a guess beside them is at another."""
    return "" if is_level(LEVEL_OF_LIRA_RATES, guess) else per_thousand(LEVEL_OF_LIRA_RATES)


def _largest(worst: WorstRecord) -> dict[str, Any]:
    """The largest rate of any record, or that the first of these is only the largest estimate."""
    level = "" if worst.interval_level is None else f"{100 * worst.interval_level:g}\u202f% interval "
    between = "" if worst.interval is None else f" ({level}{per_thousand_between(worst.interval)})"
    told = {"drawn": worst.drawn, "people": per_thousand(worst.rate) + between, "records": number(worst.records)}
    return told | {"is_first": worst.first_rate == worst.own_rate}


def _people(audit: Audit, rated: tuple[str, tuple[str, str] | None] | None) -> list[dict[str, Any]]:
    """The most exposed records: by rank, or by rates that know the order better."""
    if rated is None and audit.ranked_by is None:
        return []
    table, ranked = audit.records, audit.ranked_by is not None
    ranks = table["rank"].to_numpy() if ranked else np.full(len(table), ROWS + 1)
    by_rank = rated is None or rank_decides(audit, SOURCES[rated[0]])
    rates = np.zeros(len(table)) if by_rank or rated is None else np.nan_to_num(table[rated[0]].to_numpy(np.float64), nan=-1.0)
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

"""The riskiest records: which columns a glance shows, as a table and as text."""

from typing import Any

import pandas as pd

from noshadow._answer import per_thousand, per_thousand_between
from noshadow._glance.picture import rated_by
from noshadow._glance.told import Told
from noshadow.checks import refuse, require_whole
from noshadow.columns import is_target
from noshadow.formats import number
from noshadow.visible import visible

TOP_TARGETS = 6


def top_table(audit: Told, count: int) -> pd.DataFrame:
    """The first `count` records by rank, with the columns that matter.

    These are rank, id, label or targets, group, loss, each record's own rate with its interval
    where one is known, and what ranks; `audit.records` has every column.

    Raises:
        InputError: count is no whole number above zero, or the audit does not rank its records.
    """
    require_whole(count, "count", low=1)
    if audit.ranked_by is None:
        why = audit.not_applicable.get("rank", "the audit holds no record scores").rstrip(".")
        refuse("the audit", "rank its records", f"none that are ranked ({why})", "Look at the column loss of its records.")
    table = audit.records.nsmallest(count, "rank")
    targets = [str(name) for name in table.columns if is_target(str(name))]
    rated = rated_by(audit)
    rates = () if rated is None else (rated[0], *(rated[1] or ()))
    labels = ["label"] if "label" in table else targets[:TOP_TARGETS]
    wanted = ("rank", "id", *labels, "group", "loss", *rates, *_figures(audit))
    shown: pd.DataFrame = table.loc[:, [name for name in dict.fromkeys(wanted) if name in table]].reset_index(drop=True)
    return shown


def record_cells(audit: Told, count: int, *, show_ids: bool) -> tuple[list[str], list[list[str]]]:
    """Names of the columns that are shown, and the cells of the first `count` records by rank.

    Numbers are written as on the page: rates in people per thousand with their interval, and a
    class by its name. Cells are visible text, and neither markup nor HTML.
    """
    shown = [name for name in _columns(audit) if name in audit.records and (show_ids or name != "id")]
    table = audit.records.nsmallest(count, "rank")
    ends = (rated_by(audit) or ("", None))[1]
    cells = {name: _cells(audit, table, name, ends) for name in shown}
    heads = ["label" if name == "target" and audit.task != "regression" else name for name in shown]
    return heads, [[cells[name][row] for name in shown] for row in range(len(table))]


def label_text(value: Any, class_names: list[str] | None, task: str) -> str:
    """A target as text: the name of its class where there is one."""
    if task == "regression":
        return number(float(value))
    whole = float(value).is_integer()
    if class_names is not None and whole and 0 <= int(value) < len(class_names):
        return class_names[int(value)]
    return str(int(value)) if whole else number(float(value))


def _columns(audit: Told) -> dict[str, None]:
    return dict.fromkeys(("rank", "id", "label" if "label" in audit.records else "target", "loss", *_figures(audit)))


def _figures(audit: Told) -> tuple[str, ...]:
    """What is known of each record: its exposure and rate, or else a rate or leverage and score."""
    if "attack_rate" in audit.records:
        return ("exposure", "attack_rate")
    rated = rated_by(audit)
    ranking = () if audit.ranked_by is None else (audit.ranked_by,)
    return ("leverage" if rated is None else rated[0], *ranking)


def _cells(audit: Told, table: pd.DataFrame, name: str, ends: tuple[str, str] | None) -> list[str]:
    values = table[name].tolist()
    rated = rated_by(audit)
    if rated is not None and name == rated[0]:
        between = [(None, None)] * len(table) if ends is None else list(zip(table[ends[0]], table[ends[1]], strict=True))
        return [_rate(value, *limits) for value, limits in zip(values, between, strict=True)]
    if name == "target":
        names = audit.provenance.get("class_names")
        return [visible(label_text(value, names, audit.task)) for value in values]
    return [number(value, padded=True) if isinstance(value, float) else visible(value) for value in values]


def _rate(rate: float, low: float | None, high: float | None) -> str:
    if rate != rate:
        return "not known"
    return per_thousand(rate) if low is None or high is None else f"{per_thousand(rate)} ({per_thousand_between((low, high))})"

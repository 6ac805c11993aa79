"""The riskiest records as rows of text."""

from typing import Any

import numpy as np
import pandas as pd

from noshadow._glance import label_text
from noshadow.checks import Array
from noshadow.columns import is_target, meaning, named, page_order
from noshadow.report.formats import figure, interval, number
from noshadow.results import Audit

ROWS = 20
TARGET_COLUMNS = 6
_LONG_ID = 32
_SCORES = named(score=True)


def top_records(audit: Audit) -> dict[str, Any]:
    """List the first rows by rank.

    Each has its identity, and each measure with its percentile among all training records.

    A percentile is the share of records with a smaller or equal value, in per cent, rounded down to
    one decimal so that only the largest value reads 100.0.
    """
    assert audit.ranked_by is not None
    table = audit.records.sort_values("rank", kind="stable").head(ROWS)
    measures = _measures(audit.records, audit.ranked_by)
    texts, hidden = _identity_columns(table, audit.provenance.get("class_names"), audit.task)
    cells = {name: _measure_cells(table[name].to_numpy(), audit.records[name].to_numpy()) for name in measures}
    between = {name: _intervals(table, name) for name in measures}
    rows = [
        {
            "rank": number(int(rank)),
            "id": str(identifier),
            "identity": [column[i] for column in texts.values()],
            "measures": [{"name": name, "interval": between[name][i]} | cells[name][i] for name in measures],
        }
        for i, (rank, identifier) in enumerate(zip(table["rank"], table["id"], strict=True))
    ]
    return {
        "rows": rows,
        "identity_names": list(texts),
        "measure_names": measures,
        "meanings": _meanings(audit, measures),
        "hidden_targets": hidden,
        "ranked_by": audit.ranked_by,
        "total": number(len(audit.records)),
        "has_infinite": bool(np.isinf(table[[name for name in measures if name in _SCORES]].to_numpy(dtype=np.float64)).any()),
        "has_intervals": any(any(texts) for texts in between.values()),
        "has_long_id": any(len(row["id"]) > _LONG_ID for row in rows),
    }


def _meanings(audit: Audit, names: list[str]) -> dict[str, str]:
    """What each column shown says, in one sentence."""
    unit = "units of squared error" if audit.task == "regression" else "nats"
    level = "" if audit.model_risk is None else f" at a false-positive rate of {number(audit.model_risk.fpr)}"
    told = {name: meaning(name, audit.task, unit=unit, at_level=level) for name in names}
    return {name: words.replace("'", "’") for name, words in told.items() if words is not None}


def _measures(records: pd.DataFrame, ranked_by: str) -> list[str]:
    """Measures to show: the ranking first, then loss, leverage and the others the audit holds."""
    rest = [name for name in page_order() if name in records.columns and name not in (ranked_by, "shift", "loo")]
    return [ranked_by, *rest]


def _measure_cells(values: Array, everyone: Array) -> list[dict[str, Any]]:
    counts = np.searchsorted(np.sort(everyone), values, side="right")
    parts = [int(count) * 1000 // len(everyone) for count in counts]
    return [figure(float(value)) | {"percentile": f"{part / 10:.1f}"} for value, part in zip(values, parts, strict=True)]


def _intervals(table: pd.DataFrame, name: str) -> list[str]:
    """Both ends of a measure's interval as text, empty where the audit holds none."""
    ends = (f"{name}_low", f"{name}_high")
    if not set(ends) <= set(table.columns):
        return [""] * len(table)
    return [interval((float(low), float(high))) for low, high in zip(table[ends[0]], table[ends[1]], strict=True)]


def _identity_columns(table: pd.DataFrame, class_names: list[str] | None, task: str) -> tuple[dict[str, list[str]], int]:
    """Label or targets and group of each row as text, and how many target columns are left out."""
    columns: dict[str, list[str]] = {}
    if "target" in table:
        columns["target" if task == "regression" else "label"] = [label_text(value, class_names, task) for value in table["target"]]
    several = [str(name) for name in table.columns if is_target(str(name)) and name != "target"]
    for name in several[:TARGET_COLUMNS]:
        columns[name] = [number(float(value)) for value in table[name]]
    if "group" in table:
        columns["group"] = [str(value) for value in table["group"]]
    return columns, max(len(several) - TARGET_COLUMNS, 0)

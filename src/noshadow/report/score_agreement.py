"""How alike the columns of an audit rank its records: Spearman correlations between every two."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from noshadow._known import circular_columns
from noshadow.checks import Array
from noshadow.columns import named
from noshadow.report.formats import number
from noshadow.results import Audit

_MOST_RECORDS = 100_000
# Two columns whose correlation rounds to one of these are one column to a reader.
_ALIKE = ("1.00", "0.99")


def score_agreement(audit: Audit, names: Sequence[str]) -> dict[str, Any] | None:
    """Spearman correlations between columns; None where there is nothing to see.

    That is with fewer than two columns or three records, or where all agree.

    Above 100,000 records, evenly spaced ones are compared. Ties have their mean rank; ∞ ranks
    highest; a pair is compared over the records that have both, and a constant column agrees with
    nothing.
    """
    names = witnesses(names)
    step = math.ceil(len(audit.records) / _MOST_RECORDS)
    table = audit.records[list(names)].iloc[:: max(step, 1)]
    if len(names) < 2 or len(table) < 3:
        return None
    values = _without_circles(spearman_matrix(table), names, circular_columns(audit))
    cells = [[_cell(value) for value in row] for row in values]
    if _same_order(cells):
        return None
    return {"names": list(names), "rows": list(zip(names, cells, strict=True)), "records": number(len(table)), "sampled": step > 1}


def _without_circles(values: Array, names: Sequence[str], circular: Sequence[str]) -> Array:
    """The matrix without what columns have in common with the ground truth that they rest on."""
    rests, truth = (np.isin(list(names), held) for held in (circular, named(source="reference models")))
    blank = np.outer(rests, truth)
    return np.where(blank | blank.T, np.nan, values)


def agreement_absent(audit: Audit, names: Sequence[str]) -> str:
    """Why there is no table: nothing to compare, or all columns order the records alike."""
    names = witnesses(names)
    if len(names) < 2 or len(audit.records) < 3:
        return "There are no two columns of scores to compare."
    return (
        f"All {len(names)} columns put the records in nearly the same order, and are one witness, not {len(names)}: "
        + ", ".join(names)
        + "."
    )


def witnesses(names: Sequence[str]) -> list[str]:
    """The columns that may agree or not; ends of another's interval say nothing of their own."""
    ends = {f"{name}_{end}" for name in names for end in ("low", "high")}
    return [name for name in names if name not in ends]


def _same_order(cells: list[list[dict[str, Any]]]) -> bool:
    """Whether the table would hold nothing but 1.00, or what is next to it."""
    return all(cell["text"] in _ALIKE for row in cells for cell in row)


def spearman_matrix(table: pd.DataFrame) -> Array:
    """(columns, columns) Spearman correlations, NaN where one is constant."""
    values = table.astype(np.float64)
    missing = values.isna().to_numpy()
    if not missing.any():
        return _correlations(values.rank().to_numpy())
    made = np.full((values.shape[1],) * 2, np.nan)
    for i in range(len(made)):
        for j in range(i + 1):
            both = ~(missing[:, i] | missing[:, j])
            if both.sum() > 2:
                made[i, j] = made[j, i] = _correlations(values.loc[both].iloc[:, [i, j]].rank().to_numpy())[0, 1]
    return made


def _correlations(ranks: Array) -> Array:
    centred = ranks - ranks.mean(0)
    norms = np.sqrt((centred**2).sum(0))
    with np.errstate(invalid="ignore", divide="ignore"):
        made: Array = np.clip((centred.T @ centred) / np.outer(norms, norms), -1, 1)
    return made


def _cell(value: float) -> dict[str, Any]:
    """Return text, exact value, and a shade of 0 to 10 with its sign.

    One hue stands for agreement, another for disagreement.
    """
    if math.isnan(value):
        return {"text": "none", "exact": "nan", "shade": "none"}
    return {
        "text": f"{value:.2f}".replace("-", "−"),
        "exact": repr(float(value)),
        "shade": f"{'minus' if value < 0 else 'plus'}-{round(abs(value) * 10)}",
    }

"""What every column of a table means, and what the table is."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from noshadow._known import own_fpr
from noshadow.columns import column, meaning
from noshadow.results import Audit

FORMAT = 1
FIELDS = ("name", "title", "meaning", "unit", "kind", "source")


@dataclass(frozen=True, eq=False)
class Described:
    """A table, one row a record, with what its columns mean.

    Attributes:
        table: in the order that was asked for. columns: the `FIELDS` of each column, in the order
            of the table.
        about: what the table is (JSON-ready).
    """

    table: pd.DataFrame
    columns: tuple[dict[str, str], ...]
    about: dict[str, Any]


def described(audit: Audit, table: pd.DataFrame, order: str) -> Described:
    """The table with the registry's meanings, at the audit's own level and in the task's unit."""
    about = {
        "export_format": FORMAT,
        "task": audit.task,
        "ranked_by": audit.ranked_by,
        "order": order,
        "fpr": own_fpr(audit),
        "records": len(table),
        "of": len(audit.records),
        "audited_at": audit.timings.get("created"),
    }
    return Described(table, tuple(_fields(str(name), audit) for name in table.columns), about)


def _fields(name: str, audit: Audit) -> dict[str, str]:
    entry = column(name)
    unit = "units of squared error" if audit.task == "regression" else "nats"
    words = meaning(name, audit.task, unit=unit, at_level=f" at a false-positive rate of {own_fpr(audit):.3g}")
    if entry is None or words is None:
        return dict(zip(FIELDS, (name, name, "not registered by this version of noshadow", "", "", ""), strict=True))
    own_unit = "squared error" if entry.unit == "nats" and audit.task == "regression" else entry.unit
    return dict(zip(FIELDS, (name, entry.title, words, own_unit, entry.kind, entry.source), strict=True))

"""Turn the record table into one compressed text for the page's script.

Numbers are stored in planes of bytes, and names and ids in a JSON head.
"""

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from noshadow._findings import flagged_records
from noshadow._glance import label_text
from noshadow.checks import Array
from noshadow.columns import is_target, page_order
from noshadow.report.formats import shown
from noshadow.report.top_records import TARGET_COLUMNS
from noshadow.results import Audit

MOST_RECORDS = 100_000
MOST_COLUMNS = 18
_ID_CHARACTERS = 4_000_000  # over all ids, so that a page of 100,000 records stays below 8 MB
_SHORTEST_CUT = 40
# of the 52 after the point: relative error at most 2⁻¹³ ≈ 1.2e-4; three digits are shown
_KEPT_BITS = 12


@dataclass(frozen=True)
class RecordData:
    """What the script reads, and what of the table it does not hold.

    Attributes:
        text: gzip of the head and the planes, in the URL-safe alphabet of base64.
        records: number of records held, the riskiest. left_out: number that are not. hidden:
            columns that are not.
        cut_ids: number of characters after which ids are cut, None when none is.
        measures: names of the columns of numbers.
    """

    text: str
    records: int
    left_out: int
    hidden: tuple[str, ...]
    cut_ids: int | None
    measures: tuple[str, ...]


def record_data(audit: Audit, contents: Mapping[str, Any] | None = None) -> RecordData:
    """Pack the riskiest 100,000 records, by rank or else by loss.

    A record has its id, class, group, findings and at most 18 columns of numbers.

    Numbers keep a relative error of 1.2e-4 over the whole range of float64; their exact values are
    in `records.parquet`. `contents` holds the kind and the items of the contents to show, the
    riskiest record's first.
    """
    order = risk_order(audit)[:MOST_RECORDS]
    table = audit.records.iloc[order]
    held, hidden = _number_columns(audit)
    limit = max(_SHORTEST_CUT, _ID_CHARACTERS // max(len(table), 1))
    ids = [str(shown(str(identifier))) for identifier in table["id"]]
    cut = [identifier if len(identifier) <= limit else identifier[:limit] for identifier in ids]
    planes: list[Array] = [_rank_plane(table)]
    head: dict[str, Any] = {"records": len(table), "ids": cut, "cut": limit if cut != ids else None, "numbers": held}
    for name, texts in (("labels", class_labels(audit)), ("groups", _groups(audit))):
        head[name] = None
        if texts is not None:
            head[name], codes = _coded(texts[order])
            planes.append(codes)
    head["findings"], flags = _flags(audit, order)
    planes += [flags, *(_rounded_words(table[name].to_numpy(dtype=np.float64)) for name in held)]
    head |= {
        "whole": [name for name in held if _whole(table[name].to_numpy(dtype=np.float64))],
        "contents": contents,
        "ranked_by": audit.ranked_by,
        "threshold": None if audit.model_risk is None else audit.model_risk.threshold,
    }
    return RecordData(_packed(head, planes), len(table), len(audit.records) - len(table), hidden, head["cut"], tuple(held))


def _whole(values: Array) -> bool:
    """Whether every finite value is a whole number: counts read "4", not "4.00"."""
    finite = values[np.isfinite(values)]
    return len(finite) > 0 and bool((finite == np.rint(finite)).all())


def risk_order(audit: Audit) -> Array:
    """Row numbers, the riskiest first: by rank, or by loss where nothing is ranked."""
    key = audit.records["rank"].to_numpy() if audit.ranked_by is not None else -audit.records["loss"].to_numpy(dtype=np.float64)
    order: Array = np.argsort(key, kind="stable")
    return order


def class_labels(audit: Audit) -> Array | None:
    """Each record's class as text, None where targets are no classes."""
    table = audit.records
    if audit.task == "regression" or not {"label", "target"} & set(table.columns):
        return None
    if "label" in table:
        return np.array([str(label) for label in table["label"]], dtype=object)
    targets = table["target"].to_numpy(dtype=np.float64)
    if not (targets == np.round(targets)).all():
        return None
    names = audit.provenance.get("class_names")
    values, codes = np.unique(targets, return_inverse=True)
    return np.array([label_text(value, names, audit.task) for value in values], dtype=object)[codes]


def _groups(audit: Audit) -> Array | None:
    return np.array([str(group) for group in audit.records["group"]], dtype=object) if "group" in audit.records else None


def _number_columns(audit: Audit) -> tuple[list[str], tuple[str, ...]]:
    """List columns of numbers, the ranking first and targets of a regression last.

    With them come the names of those that do not fit.
    """
    table = audit.records
    named = [str(name) for name in table.columns]
    targets = [name for name in named if is_target(name)] if audit.task == "regression" else []
    kept = [name for name in named if not is_target(name) and name not in ("id", "rank") and _holds_numbers(table[name])]
    first = [audit.ranked_by, *page_order()]
    scores = sorted(kept, key=lambda name: first.index(name) if name in first else len(first))
    names = [str(name) for name in (*scores, *targets[:TARGET_COLUMNS])]
    return names[:MOST_COLUMNS], tuple([*names[MOST_COLUMNS:], *map(str, targets[TARGET_COLUMNS:])])


def _holds_numbers(values: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)


def _rank_plane(table: pd.DataFrame) -> Array:
    ranks: Array = table["rank"].to_numpy() if "rank" in table else np.arange(1, len(table) + 1)
    return ranks.astype("<u4")


def _coded(texts: Array) -> tuple[list[str], Array]:
    codes, names = pd.factorize(texts, sort=True)
    return [str(shown(name)) for name in names], codes.astype("<u4")


def _flags(audit: Audit, order: Array) -> tuple[list[dict[str, Any]], Array]:
    """List found statements that speak of records, and one bit per statement for each record."""
    drawn = {} if audit.ranked_by is None else flagged_records(audit)
    flags = np.zeros(len(audit.records), dtype="<u4")
    told = []
    for bit, (code, rows) in enumerate(list(drawn.items())[:32]):
        flags[rows] |= np.uint32(1 << bit)
        told.append({"code": code, "records": len(rows)})
    return told, flags[order]


def _rounded_words(values: Array) -> Array:
    """Take the upper halves of float64 numbers, rounded to the bits kept.

    ±0, ±∞ and NaN stay what they are.
    """
    words = np.ascontiguousarray(values, dtype="<f8").view("<u8")
    dropped = np.uint64(52 - _KEPT_BITS)
    rounded = (words + (np.uint64(1) << (dropped - np.uint64(1)))) >> dropped << dropped
    finite = np.isfinite(rounded.view("<f8"))
    kept = np.where(finite, rounded, words >> dropped << dropped)
    kept = np.where(np.isnan(values), np.float64(np.nan).view("<u8"), kept)
    upper: Array = (kept >> np.uint64(32)).astype("<u4")
    return upper


def _packed(head: dict[str, Any], planes: list[Array]) -> str:
    """Pack the length of the head, the head, then each column as its four planes of bytes.

    Equal bytes side by side shrink best.
    """
    # Padded, so that the planes start at a multiple of four.
    text = json.dumps(head, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    columns = [np.ascontiguousarray(plane, dtype="<u4").view(np.uint8).reshape(-1, 4).T.tobytes() for plane in planes]
    content = b"".join([len(text).to_bytes(4, "little"), text, *columns])
    return base64.urlsafe_b64encode(gzip.compress(content, compresslevel=6, mtime=0)).decode()

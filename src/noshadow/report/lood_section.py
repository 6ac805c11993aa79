"""Show what the architecture would leak before training, beside the audit of the trained model.

The section is text and numbers for the page.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from noshadow.checks import Array
from noshadow.report.charts import NARROW, loss_bins, loss_chart
from noshadow.report.formats import figure, interval, number, sentence
from noshadow.report.lood_charts import auc_chart, scatter_charts
from noshadow.report.lood_page import architecture
from noshadow.results import Audit

ROWS = 10
_COMPARED = ("kl", "mean_distance", "auc")
_AXES = {"kl": "KL (nats), log scale", "mean_distance": "mean distance, log scale", "auc": "AUC of the attack"}
_TITLES = {"kl": "KL", "mean_distance": "Mean distance", "auc": "Attack AUC"}


def lood_section(audit: Audit) -> dict[str, Any] | None:
    """Build the section of an audit; None for an audit without leave-one-out results.

    It holds distributions, agreement with the audit's scores, and the records that would leak most.
    """
    held = audit.provenance.get("lood")
    if held is None:
        return None
    known = audit.records[audit.records["lood_kl"].notna()]
    score = audit.ranked_by or "loss"
    return {
        "architecture": architecture(held["kernel"]),
        "noise": number(held["noise"]),
        "matched": number(len(known)),
        "total": number(len(audit.records)),
        "drawings": [_drawing(name, known[f"lood_{name}"].to_numpy(dtype=np.float64)) for name in _COMPARED],
        "score": score,
        "main": _main(held["agreement"], score),
        "rows": _rows(held["agreement"]),
        "scatters": scatter_charts(known["lood_kl"].to_numpy(), known[score].to_numpy(dtype=np.float64)),
        "top": _top(audit),
        "ranked": audit.ranked_by is not None,
        "notes": [sentence(note) for note in held["notes"]],
    }


def lood_provenance(audit: Audit) -> dict[str, Any]:
    """Say which data and architecture it was; empty for an audit without them."""
    held = audit.provenance.get("lood")
    return {} if held is None else {name: held[name] for name in ("kernel", "noise", "normalization", "hashes")}


def _drawing(name: str, values: Array) -> dict[str, Any]:
    chart = auc_chart(values, NARROW) if name == "auc" else loss_chart(loss_bins(values, np.empty(0), None), None, NARROW)
    quantities = {"median": np.median(values), "ninth": np.quantile(values, 0.9), "largest": values.max()}
    return {"name": name, "title": _TITLES[name], "axis": _AXES[name], "chart": chart} | {
        words: figure(float(value)) for words, value in quantities.items()
    }


def _main(agreement: list[dict[str, Any]], score: str) -> dict[str, Any] | None:
    row = next((row for row in agreement if (row["score"], row["compared"]) == (score, "kl")), None)
    return None if row is None else _cell(row)


def _rows(agreement: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make one row per score of the audit, with one cell per quantity.

    Scores that agree most with kl come first.
    """
    cells = {(row["score"], row["compared"]): row for row in agreement}
    names = dict.fromkeys(row["score"] for row in agreement)

    def with_kl(name: str) -> float:
        value = cells[name, "kl"]["spearman"]
        return math.inf if value is None else -float(value)

    return [{"score": name, "cells": [_cell(cells[name, compared]) for compared in _COMPARED]} for name in sorted(names, key=with_kl)]


def _cell(row: Mapping[str, Any]) -> dict[str, Any]:
    if row["spearman"] is None:
        return {"value": None, "interval": "", "note": str(row["note"] or "")}
    return {"value": figure(row["spearman"]), "interval": "" if row["low"] is None else interval((row["low"], row["high"])), "note": ""}


def _top(audit: Audit) -> list[dict[str, Any]]:
    table = audit.records.nlargest(ROWS, "lood_kl")
    ranks = [number(int(rank)) for rank in table["rank"]] if audit.ranked_by is not None else [""] * len(table)
    measures = zip(*([figure(float(value)) for value in table[f"lood_{name}"]] for name in _COMPARED), strict=True)
    return [
        {"id": str(identifier), "rank": rank, "measures": list(row)}
        for identifier, rank, row in zip(table["id"], ranks, measures, strict=True)
    ]

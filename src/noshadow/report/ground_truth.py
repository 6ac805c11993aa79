"""What reference-model attacks measured, as text and numbers for the page."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from noshadow.columns import column, named
from noshadow.report.formats import figure, interval, number, people_in_table, sentence
from noshadow.results import GroundTruth, MeasuredAttack

HEADLINE = "lira_d"  # the truth that rows are ordered by, and the first column
CEILING = "noise ceiling"
_RECALL = (0.01, 0.05)
_NEXT_TO_ZERO = 1e-3


def ground_truth_section(truth: GroundTruth) -> dict[str, Any]:
    """List the attacks with their rates, and tables of agreement with the attacks.

    There is one table per number of audited models.
    """
    rows = [_attack(measured) for measured in truth.attacks]
    here = [row for row in rows if row["attacked"] == "target"] or rows
    counts = sorted({int(row["targets"]) for row in truth.agreement})
    return {
        "models": number(truth.models),
        "records": number(truth.records),
        "fraction_words": "half" if truth.fraction == 0.5 else f"a share of {number(truth.fraction)}",
        "attacks": here,
        "attacks_elsewhere": [row for row in rows if row not in here],
        "levels": _levels(truth.attacks),
        "tables": [_agreement_table(truth, count) for count in counts],
        "perfect": _perfect_score(truth.ceiling),
        "parity": None if truth.parity is None else sentence(str(truth.parity["sentence"])),
        "outlying": bool(truth.parity and truth.parity["outlying"]),
        "absent": [{"name": name, "reason": sentence(reason)} for name, reason in sorted(truth.not_applicable.items())],
        "notes": [sentence(note) for note in truth.notes],
        "variants": [(name, _words(choice)) for name, choice in sorted(truth.variants.items())],
    }


def _attack(measured: MeasuredAttack) -> dict[str, Any]:
    return {
        "name": measured.attack,
        "attacked": measured.attacked,
        "models": number(measured.models),
        "auc": figure(measured.auc) | {"interval": interval(measured.auc_interval)},
        "rates": {rate.fpr: people_in_table(rate.tpr, (rate.low, rate.high)) for rate in measured.rates},
    }


def _levels(attacks: Iterable[MeasuredAttack]) -> list[dict[str, Any]]:
    levels = sorted({rate.fpr for measured in attacks for rate in measured.rates}, reverse=True)
    return [{"fpr": level, "text": number(level), "people": people_in_table(level)["text"]} for level in levels]


def _agreement_table(truth: GroundTruth, targets: int) -> dict[str, Any]:
    """Make one row per score, and one pair of columns (Spearman, recall) per attack.

    The noise ceiling comes last.
    """
    rows = [row for row in truth.agreement if row["targets"] == targets]
    truths = sorted(named(truth=True), key=lambda name: name != HEADLINE)
    attacks = [name for name in truths if any(row["attack"] == name for row in rows)]
    names = list(dict.fromkeys(row["score"] for row in rows))
    cells = {(row["attack"], row["score"], _metric(row)): _cell(row) for row in (*rows, *truth.ceiling)}
    told = [(name, _cells(cells, attacks, name)) for name in (*_best_first(names, attacks, rows), CEILING)]
    return {
        "targets": number(targets),
        "single": targets == 1,
        "records": number(int(rows[0]["records"])),
        "attacks": [{"name": name, "title": _title(name)} for name in attacks],
        "rows": [{"score": name, "cells": row, "is_ceiling": name == CEILING} for name, row in told],
    }


def _title(name: str) -> str:
    found = column(name)
    return name if found is None else found.title


def _cells(cells: Mapping[tuple[str, str, str], Any], attacks: list[str], score: str) -> list[Any]:
    return [cells.get((attack, score, metric)) for attack in attacks for metric in ("spearman", "recall")]


def _metric(row: Mapping[str, Any]) -> str:
    if row["metric"] == "recall":
        return "recall" if (row["top"], row["keep"]) == _RECALL else "other recall"
    return str(row["metric"])


def _cell(row: Mapping[str, Any]) -> dict[str, Any]:
    if row["value"] is None:
        return {"text": "none", "exact": "", "interval": str(row["note"])}
    # Exact binomial ends next to zero are zero to a reader.
    ends = None if row["low"] is None else interval((row["low"] if abs(row["low"]) > _NEXT_TO_ZERO else 0.0, row["high"]))
    return figure(row["value"]) | {"interval": ends or ""}


def _best_first(names: list[str], attacks: list[str], rows: list[dict[str, Any]]) -> list[str]:
    ranked = [row for row in rows if attacks and row["attack"] == attacks[0] and row["metric"] == "spearman"]
    values = {row["score"]: float(row["value"]) for row in ranked if row["value"] is not None}
    return sorted(names, key=lambda name: -values.get(name, -2.0))


def _perfect_score(ceiling: Iterable[Mapping[str, Any]]) -> dict[str, str] | None:
    """Compute the Spearman correlation that a score without error would have with the measured d′.

    It is the root of the stepped-up reliability.
    """
    stepped = [row["value"] for row in ceiling if row["attack"] == HEADLINE and row["metric"] == "spearman, both halves"]
    return figure(math.sqrt(stepped[0])) if stepped and stepped[0] is not None else None


def _words(choice: object) -> str:
    if isinstance(choice, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')} {value}" for name, value in choice.items())
    return str(choice)

"""The calibrations of the package for linear models and networks: one for each kind and each of LiRA's rules for a record's spread.

`python -m benchmarks.tail_calibration.ship` reads benchmarks/results/tail_calibration/*.json and tail_judging/*.json, but for setups that
were trained when what ships had been made (`LATER`), and writes src/noshadow/tail/shipped/ and benchmarks/results/tail_shipped.json.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd

from benchmarks.environment import environment
from benchmarks.tail_calibration.fit import CHOSEN, COUNTS, RUNS, SHIPPED, judged_rows, rounded, rows_of
from benchmarks.tail_calibration.judging import LATER
from benchmarks.tail_calibration.measure import FEWER_TARGETS
from noshadow.tail import fit_calibration
from noshadow.tail.calibration import left_out_predictions

JUDGING = RUNS.parent / "tail_judging"
RESULTS = RUNS.parent / "tail_shipped.json"
ONE_SPREAD = "LiRA with one spread for all records"


def shipped(entries, judging):
    """The calibrations of the package by file: one for each kind and each of LiRA's rules for a record's spread."""
    return {
        kind if rule == "record" else f"{kind}_global": shipped_of(kind, rule, entries, judging)
        for kind in CHOSEN
        for rule in ("record", "global")
    }


def shipped_of(kind, rule, entries, judging):
    """Curves as they were judged: fitted to the calibration's own setups. Intervals: from errors of the judging setups as well.

    The calibration's own setups were attacked by both rules with 64 references, and with fewer by one spread only. What a spread
    of each record's own finds with fewer is a share of what it finds with 64, from setups that were attacked by both with all.
    """
    predictors, form = CHOSEN[kind]
    counts = (64,) if rule == "record" else (*COUNTS, 64)
    name, attack = (f"{kind}-2", "LiRA") if rule == "record" else (f"{kind}-2, one spread", ONE_SPREAD)

    def fitted(chosen):
        frame = pd.DataFrame([row for entry in chosen for row in rows_of(entry, rule) if row["references"] in counts])
        return fit_calibration(frame.dropna(subset=list(predictors)), predictors=predictors, form=form, name=name, attack=attack)

    made, cells = fitted(entries), []
    for own, wide in zip(made.cells, fitted([*entries, *judging]).cells, strict=True):
        cover = {key: wide.quality[key] for key in ("left_out_coverage", "left_out_width")}
        cells.append(replace(own, low=wide.low, high=wide.high, quality=own.quality | cover))
    if rule == "record":
        cells += [fewer(cell, count, judging, form) for cell in cells for count in COUNTS]
    return replace(made, cells=tuple(sorted(cells, key=lambda cell: (cell.fpr, cell.references))))


def fewer(cell, count, judging, form):
    """The curve of 64 references brought down to what fewer find with a spread of each record's own."""
    both = [entry["targets"] for entry in judging if f"lira_k{count}_record_tpr_{cell.fpr:g}" in entry["targets"]]
    all64, few = (
        np.array([np.mean(own[f"{name}_tpr_{cell.fpr:g}"][:FEWER_TARGETS]) for own in both])
        for name in ("lira_record", f"lira_k{count}_record")
    )
    share = float(all64 @ few / (all64 @ all64))
    quality = {"share_of_64": share, "share_rmse": float(np.sqrt(np.mean((few - share * all64) ** 2))), "setups": float(len(both))}
    scaled = [share * value for value in cell.coefficients] if form == "linear" else [share * cell.coefficients[0], *cell.coefficients[1:]]
    return replace(cell, references=count, coefficients=tuple(scaled), quality=quality)


def by_regime(frame, predictors, form):
    """Left-out residuals of setups with small, middling and large accuracy gaps."""
    out = left_out_predictions(frame.dropna(subset=list(predictors)), predictors, form)
    gap = frame.groupby("setup")["accuracy_gap"].mean().loc[out["setup"]].to_numpy()
    errors = (out["tpr"] - out["predicted"]).to_numpy()
    regimes = {"gap below 0.1": gap < 0.1, "gap 0.1 to 0.3": (gap >= 0.1) & (gap < 0.3), "gap above 0.3": gap >= 0.3}
    return {
        name: {
            "setups": int(rows.sum()),
            "bias": round(float(errors[rows].mean()), 4),
            "rmse": round(float(np.sqrt((errors[rows] ** 2).mean())), 4),
        }
        for name, rows in regimes.items()
        if rows.any()
    }


def described(calibration, judged):
    """What the page says about one of them."""
    return {
        "name": calibration.name,
        "predictors": list(calibration.predictors),
        "form": calibration.form,
        "attack": calibration.attack,
        "domain": {name: [float(f"{end:.3g}") for end in ends] for name, ends in calibration.domain.items()},
        "regimes": by_regime(judged, calibration.predictors, calibration.form),
        "cells": [
            {"fpr": cell.fpr, "references": cell.references, "coefficients": list(cell.coefficients)} | rounded(cell.quality)
            for cell in calibration.cells
        ],
    }


def main():
    entries, judging = (
        [json.loads(path.read_text()) for path in sorted(folder.glob("*.json")) if path.stem not in LATER] for folder in (RUNS, JUDGING)
    )
    judged = judged_rows(pd.DataFrame([row for entry in entries for row in rows_of(entry)]))
    made = shipped(entries, judging)
    for name, calibration in made.items():
        calibration.save(SHIPPED / f"{name}.json")
    result = {
        "setups": len(entries),
        "judging": len(judging),
        "data_sets": sorted(judged["data_set"].unique()),
        "calibrations": {name: described(calibration, judged) for name, calibration in made.items()},
        "environment": environment(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    for name, row in result["calibrations"].items():
        print(name, [(cell["fpr"], cell["references"], [round(value, 4) for value in cell["coefficients"]]) for cell in row["cells"]])


if __name__ == "__main__":
    main()

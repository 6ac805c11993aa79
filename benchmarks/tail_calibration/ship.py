"""The calibrations of the package for linear models and networks: one for each kind and each of LiRA's rules for a record's spread.

`python -m benchmarks.tail_calibration.ship` reads benchmarks/results/tail_calibration/*.json, tail_judging/*.json (but for the setups that
were trained `LATER`) and tail_judging_again/*.json, and writes src/noshadow/tail/shipped/ and benchmarks/results/tail_shipped.json.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd

from benchmarks.environment import environment
from benchmarks.tail_calibration.fit import CHOSEN, COUNTS, RUNS, SHIPPED, judged_rows, rounded, rows_of
from benchmarks.tail_calibration.fixed import FIXED
from benchmarks.tail_calibration.judging import LATER
from benchmarks.tail_calibration.judging_again import JUDGED_AGAIN
from benchmarks.tail_calibration.measure import FEWER_TARGETS
from noshadow.tail import fit_calibration
from noshadow.tail.calibration import left_out_predictions
from noshadow.tail.forms import RATE_ADDED

JUDGING = RUNS.parent / "tail_judging"
RESULTS = RUNS.parent / "tail_shipped.json"
ONE_SPREAD = "LiRA with one spread for all records"
# A name says which curve or interval a prediction had: it changes with either.
NAMES = {"losses": "losses-2", "leverage": "leverage-3", "references": "references-3"}


def shipped(entries, judging, again):
    """The calibrations of the package by file: one for each kind and each of LiRA's rules for a record's spread."""
    return {
        kind if rule == "record" else f"{kind}_global": shipped_of(kind, rule, entries, judging, again)
        for kind in CHOSEN
        for rule in ("record", "global")
    }


def shipped_of(kind, rule, entries, judging, again):
    """Curves as they were judged, each fitted to what was there when it was fixed. Intervals: from errors of all that judged it as well.

    "leverage" was fixed with the first judging setups among those it is fitted to, and to means of setups (`fixed_again`); the others
    with the calibration's own alone, and to models. "losses" did not stand before the last setups.
    """
    predictors, form = CHOSEN[kind]
    how = {"predictors": predictors, "form": form, "name": NAMES[kind]}
    fit = of_setups([*entries, *judging], rule) if kind == "leverage" else rows(entries, rule)
    wide = rows([*entries, *judging, *(again if kind != "losses" else ())], rule)
    return calibrated(rule, fit, wide, judging, **how)


def as_before(name, entries, judging):
    """What shipped before these judged again, of the forms of `fixed` and for LiRA with each record's own spread."""
    predictors, form = FIXED[name]
    frames = (rows(chosen, "record") for chosen in (entries, [*entries, *judging]))
    return calibrated("record", *frames, judging, predictors=predictors, form=form, name=name)


def calibrated(rule, fit, wide, judging, *, predictors, form, name):
    """The calibration whose curves come from `fit` and whose intervals from `wide`, rows of both.

    The calibration's own setups were attacked by both rules with 64 references, and with fewer by one spread only. What a spread
    of each record's own finds with fewer is a share of what it finds with 64, from setups that were attacked by both with all.
    """
    title, attack = (name, "LiRA") if rule == "record" else (f"{name}, one spread", ONE_SPREAD)
    made, widened = (
        fit_calibration(frame.dropna(subset=list(predictors)), predictors=predictors, form=form, name=title, attack=attack)
        for frame in (fit, wide)
    )
    cells = []
    for own, far in zip(made.cells, widened.cells, strict=True):
        cover = {key: far.quality[key] for key in ("left_out_coverage", "left_out_width")}
        cells.append(replace(own, low=far.low, high=far.high, quality=own.quality | cover))
    if rule == "record":
        cells += [fewer(cell, count, judging, form) for cell in cells for count in COUNTS]
    return replace(made, cells=tuple(sorted(cells, key=lambda cell: (cell.fpr, cell.references))))


def rows(entries, rule):
    """One row a model and attack: all numbers of references, or the one with which setups were attacked by each record's own spread."""
    counts = (64,) if rule == "record" else (*COUNTS, 64)
    return pd.DataFrame([row for entry in entries for row in rows_of(entry, rule) if row["references"] in counts])


def of_setups(entries, rule):
    """One row a setup and attack, of means over all models that show a figure, as `fixed_again` takes them."""
    frame = rows(entries, rule)
    return frame.groupby(["setup", "data_set", "family", "fpr", "references"], as_index=False).mean()


def fewer(cell, count, judging, form):
    """The curve of 64 references brought down to what fewer find with a spread of each record's own."""
    added = RATE_ADDED if form == "factors" else 0.0  # its factor is on the rate with this added
    both = [entry["targets"] for entry in judging if f"lira_k{count}_record_tpr_{cell.fpr:g}" in entry["targets"]]
    all64, few = (
        np.array([np.mean(own[f"{name}_tpr_{cell.fpr:g}"][:FEWER_TARGETS]) for own in both]) + added
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


def stored_entries():
    """Setups of the calibration, those that judged first (but for the later ones), and those that judged again."""
    found = [[json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))] for folder in (RUNS, JUDGING, JUDGED_AGAIN)]
    return found[0], [entry for entry in found[1] if entry["setup"]["name"] not in LATER], found[2]


def main():
    entries, judging, again = stored_entries()
    judged = judged_rows(pd.DataFrame([row for entry in entries for row in rows_of(entry)]))
    made = shipped(entries, judging, again)
    for name, calibration in made.items():
        calibration.save(SHIPPED / f"{name}.json")
    result = {
        "setups": len(entries),
        "judging": len(judging),
        "judging_again": len(again),
        "data_sets": sorted(judged["data_set"].unique()),
        "calibrations": {name: described(calibration, judged) for name, calibration in made.items()},
        "environment": environment(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    for name, row in result["calibrations"].items():
        print(name, [(cell["fpr"], cell["references"], [round(value, 4) for value in cell["coefficients"]]) for cell in row["cells"]])


if __name__ == "__main__":
    main()

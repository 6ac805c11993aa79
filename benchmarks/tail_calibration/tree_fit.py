"""Calibrations of forests and of boosting: which attack is the stronger one, which curve predicts it, how far off on data sets left out.

`python -m benchmarks.tail_calibration.tree_fit [--ship]` reads benchmarks/results/tree_calibration/*.json and writes
benchmarks/results/tree_fits.json; with --ship also the data files of the package.

The rate that is predicted is that of LiRA or RMIA, whichever finds more in a setup (means over its models): neither is the stronger one
everywhere. Predictors that depend on how a probability of exactly 0 or 1 is rounded (margin shifts) are no candidates for forests.
"""

import argparse
import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.environment import environment
from noshadow.tail import fit_calibration
from noshadow.tail.calibration import fit_quality, left_out_predictions
from noshadow.tail.forms import FORMS, predicted_rates

RUNS = Path(__file__).parents[1] / "results" / "tree_calibration"
RESULTS = Path(__file__).parents[1] / "results" / "tree_fits.json"
SHIPPED = Path(__file__).parents[2] / "src" / "noshadow" / "tail" / "shipped"
RANKS = ("tnr_excess_0.01", "tnr_excess_0.05", "tnr_excess_0.1", "auc_excess", "ks")
SHIFTS = tuple(f"margin_shift_{level}" for level in (0.02, 0.05, 0.1, 0.2))
PREDICTORS = {"forest": RANKS, "boosting": (*RANKS, *SHIFTS)}
ATTACKS = {"LiRA": {4: "lira_k4", 16: "lira_k16", 64: "lira_record"}, "RMIA": {4: "rmia_k4", 16: "rmia_k16", 64: "rmia"}}
FPRS = (1e-3, 1e-2)
JUDGED = (1e-3, 64)
FAMILIES = {"XGBClassifier": "XGBoost", "LGBMClassifier": "LightGBM"}  # as audits name them, with their native boosters
STRONGER = "the stronger of LiRA and RMIA"


def rows_of(entry):
    """One row a target; the rate is the setup's mean of its stronger attack."""
    targets, setup, rows = entry["targets"], entry["setup"], []
    family = FAMILIES.get(setup["model"], setup["model"])
    for fpr, models in itertools.product(FPRS, ATTACKS["LiRA"]):
        row = {"setup": setup["name"], "data_set": setup["data_set"], "family": family, "fpr": fpr, "references": models}
        row["tpr"] = max(float(np.mean(targets[f"{names[models]}_tpr_{fpr:g}"])) for names in ATTACKS.values())
        names = (*RANKS, *SHIFTS, "skewness")
        rows += [row | {name: targets[name][number] for name in names} for number in range(len(targets["auc"]))]
    return rows


def means_of(entries):
    """Mean rate of each attack and number of models over setups, at both false-positive rates."""
    found = {}
    for attack, fpr in itertools.product(ATTACKS, FPRS):
        for models, name in ATTACKS[attack].items():
            rates = [np.mean(entry["targets"][f"{name}_tpr_{fpr:g}"]) for entry in entries]
            found.setdefault(attack, []).append({"fpr": fpr, "references": models, "mean": round(float(np.mean(rates)), 4)})
    return found


def candidates(frame, family):
    """Every predictor with every curve, best on data sets left out first."""
    judged = frame[(frame["fpr"] == JUDGED[0]) & (frame["references"] == JUDGED[1])]
    found = []
    for predictor, form in itertools.product(PREDICTORS[family], FORMS):
        out = left_out_predictions(judged, (predictor,), form)
        quality = fit_quality(out["tpr"].to_numpy(), out["predicted"].to_numpy())
        found.append({"predictor": predictor, "form": form} | {name: round(value, 4) for name, value in quality.items()})
    return sorted(found, key=lambda row: row["rmse"])


def nested(frame, family):
    """Error when predictor and curve are chosen without the data set that they are judged on, and that of guessing the mean."""
    judged = frame[(frame["fpr"] == JUDGED[0]) & (frame["references"] == JUDGED[1])]
    errors, guesses, picked = [], [], {}
    for data_set in sorted(judged["data_set"].unique()):
        rest, own = judged[judged["data_set"] != data_set], judged[judged["data_set"] == data_set]
        best = candidates(rest, family)[0]
        made = fit_calibration(rest, predictors=(best["predictor"],), form=best["form"])
        means = own.groupby("setup")[[best["predictor"], "tpr"]].mean()
        predicted = predicted_by(made, means[[best["predictor"]]].to_numpy())
        errors += (means["tpr"].to_numpy() - predicted).tolist()
        guesses += (means["tpr"].to_numpy() - rest.groupby("setup")["tpr"].mean().mean()).tolist()
        picked[data_set] = [best["predictor"], best["form"]]
    rms = {name: round(float(np.sqrt(np.mean(np.square(values)))), 4) for name, values in (("rmse", errors), ("mean_rmse", guesses))}
    return rms | {"mae": round(float(np.mean(np.abs(errors))), 4), "picked": picked}


def predicted_by(calibration, x):
    """Rates of the judged attack."""
    (cell,) = [cell for cell in calibration.cells if (cell.fpr, cell.references) == JUDGED]
    return predicted_rates(calibration.form, cell.coefficients, x)


def fitted(entries, family):
    """The calibration of a family, and what is stored about it."""
    frame = pd.DataFrame([row for entry in entries for row in rows_of(entry)])
    tried = candidates(frame, family)
    best = tried[0]
    made = fit_calibration(frame, predictors=(best["predictor"],), form=best["form"], attack=STRONGER, name=f"{family}-1")
    setups = []
    out = left_out_predictions(frame[(frame["fpr"] == 1e-3) & (frame["references"] == 64)], (best["predictor"],), best["form"])
    left = dict(zip(out["setup"], out["predicted"], strict=True))
    for entry in entries:
        mean = {name: round(float(np.mean(values)), 4) for name, values in entry["targets"].items()}
        names = ("member_accuracy", "nonmember_accuracy", "auc", "lira_record_tpr_0.001", "lira_global_tpr_0.001", "rmia_tpr_0.001")
        setup = {"name": entry["setup"]["name"], "model": entry["setup"]["model"], "how": entry["setup"]["how"]}
        setups.append(setup | {name: mean[name] for name in names} | {"left_out": round(float(left[setup["name"]]), 4)})
    cells = [
        {"fpr": cell.fpr, "references": cell.references, "coefficients": [float(f"{value:.4g}") for value in cell.coefficients]}
        | {name: round(value, 4) for name, value in cell.quality.items()}
        for cell in made.cells
    ]
    stored = {
        "attack": STRONGER,
        "means": means_of(entries),
        "candidates": tried,
        "nested": nested(frame, family),
        "chosen": {"predictor": best["predictor"], "form": best["form"], "cells": cells},
        "domain": made.domain,
        "data_sets": sorted(frame["data_set"].unique()),
        "setups": setups,
    }
    return made, stored


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ship", action="store_true", help="write the calibrations into the package")
    asked = parser.parse_args()
    entries = [json.loads(path.read_text()) for path in sorted(RUNS.glob("*.json"))]
    result = {"environment": environment(), "models": 64, "families": {}}
    for family in PREDICTORS:
        own = [entry for entry in entries if entry["setup"]["family"] == family and entry["setup"]["calibrates"]]
        made, stored = fitted(own, family)
        result["families"][family] = stored
        if asked.ship:
            made.save(SHIPPED / f"{family}.json")
        print(family, stored["attack"], len(own), "setups", stored["candidates"][:4], "nested", stored["nested"])
        print("  ", stored["chosen"]["cells"][2])
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Predictors of LiRA's rate whose form was fixed before any of the judging setups existed.

`python -m benchmarks.tail_calibration.fixed` fits each of them to the 43 calibration setups (SETUPS) and to nothing else, and
writes benchmarks/results/tail_fixed.json. `judge` reads that file and judges what stands in it, once, on JUDGING setups.

The rule, written down with the forms: the error is the RMSE over setups between the mean prediction of a setup's models and
the rate that LiRA had on them at FPR 0.001 with 64 references and a spread of each record's own. The form with the smaller
error over the judging setups ships. Cover is the share of models whose setup's rate lies in their 90 % interval, every setup
counting once. A miss is a setup whose rate lies outside the interval of most of its models; the domain should flag it.
"""

import json
from dataclasses import asdict

import pandas as pd

from benchmarks.environment import environment
from benchmarks.tail_calibration.fit import RUNS, rows_of
from benchmarks.tail_calibration.setups import SETUPS
from noshadow.tail import fit_calibration

RESULTS = RUNS.parent / "tail_fixed.json"
FIXED = {
    # What ships: the shift of the margins' lowest tenth, along a straight line.
    "losses": (("margin_shift_0.1",), "linear"),
    # a · TNR^b · h̄^c: the tail of the losses, and the mean margin leverage of the last layer at the training's own damping.
    "leverage": (("tnr", "margin_leverage_mean"), "power"),
    # What an attacker with so few models finds where it can be counted, along a straight line.
    "four references": (("lira_k4_tpr_0.01",), "linear"),
    "two references": (("rmia_k2_tpr_0.01",), "linear"),
}


def calibration_rows(names=tuple(SETUPS)):
    """One row a model and attack of the named setups."""
    entries = [json.loads((RUNS / f"{name}.json").read_text()) for name in names]
    return pd.DataFrame([row for entry in entries for row in rows_of(entry)])


def fitted(frame):
    """The fixed forms fitted to these rows, by name; models without a predictor do not count."""
    return {
        name: fit_calibration(frame.dropna(subset=list(predictors)), predictors=predictors, form=form, name=name)
        for name, (predictors, form) in FIXED.items()
    }


def main():
    frame = calibration_rows()
    made = {name: asdict(calibration) | {"format": 1} for name, calibration in fitted(frame).items()}
    result = {"setups": sorted(frame["setup"].unique()), "calibrations": made, "environment": environment()}
    RESULTS.write_text(json.dumps(result, separators=(",", ":")).replace("},{", "},\n{") + "\n")
    for name, calibration in made.items():
        cell = next(cell for cell in calibration["cells"] if (cell["fpr"], cell["references"]) == (1e-3, 64))
        print(name, cell["coefficients"], {key: round(value, 4) for key, value in cell["quality"].items()})


if __name__ == "__main__":
    main()

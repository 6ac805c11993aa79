"""Can a record's TPR be predicted from the one classifier that exists? Predicted against measured rates, leaving one setting out.

The test: φ moves by gap_i with the record, gap_i = G·shift_i^b/mean(shift^b), G the difference between the mean margins of members and
non-members (which, over records, is what the mean gap is), deviations κ times those of the margins of members and non-members. The two
numbers b and κ are fitted on the other settings (least squares over twentieths of the records), or on the setting itself ("in sample").
Measured: the same test with the means and deviations of each record over the reference models.

`python benchmarks/record_tpr.py --data DIR --work DIR` takes every classifier whose reference models are there (see
layer_settings.py) and writes results/record_tpr.json.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from environment import environment
from layer_settings import SETTINGS, references_of, target_model, target_rows
from scipy.optimize import minimize
from which_layers import scored_target

import noshadow as ns
from noshadow.losses import record_margins
from noshadow.reference import status
from noshadow.theory import margin_tpr

RESULTS = Path(__file__).parent / "results" / "record_tpr.json"
LEVELS = (1e-2, 1e-3)
FITTED_TARGETS = 3


def measured_records(setting, work, number):
    """What the prediction may use of one target, and the means and deviations it is judged by."""
    references = references_of(setting, work, progress=False)
    margins, member = np.asarray(references.statistic), np.asarray(references.membership)
    rows = target_rows(setting, number)
    others = np.setdiff1d(np.arange(len(setting.recipe.x)), rows)
    model, y = target_model(setting, work, number), setting.recipe.y.numpy()
    inside, outside = (
        record_margins(signals.outputs, signals.targets, "classification")
        for signals in (ns.collect_signals(model, (setting.recipe.x[torch.from_numpy(part)], y[part])) for part in (rows, others))
    )
    sides = [np.where(chosen, margins, np.nan)[:, rows] for chosen in (member, ~member)]
    return {
        "shift": scored_target(setting, work, number, full=False)["exact|last|1|shift"],
        "inside": inside,
        "outside": outside,
        "gap": np.nanmean(sides[0], 0) - np.nanmean(sides[1], 0),
        "deviations": [np.nanstd(side, 0, ddof=1) for side in sides],
    }


def predicted(record, power, kappa, level):
    raised = record["shift"] ** power
    gap = max(record["inside"].mean() - record["outside"].mean(), 0.0) * raised / raised.mean()
    return margin_tpr(level, gap, kappa * record["inside"].std(), kappa * record["outside"].std())


def measured(record, level):
    return margin_tpr(level, record["gap"], *record["deviations"])


def binned(record, power, kappa, level, parts):
    """(predicted, measured) mean rates in groups of records of equal size, by predicted rate."""
    rates, truth = predicted(record, power, kappa, level), measured(record, level)
    return [(float(rates[part].mean()), float(truth[part].mean())) for part in np.array_split(np.argsort(rates, kind="stable"), parts)]


def fitted(records):
    """b and κ by least squares over twentieths of the records at the first level; the best of several starts."""

    def miss(values):
        power, kappa = np.exp(values)
        return sum((p - m) ** 2 for record in records for p, m in binned(record, power, kappa, LEVELS[0], 20))

    starts = [np.log(start) for start in ((0.05, 0.5), (0.3, 0.4), (0.6, 0.3))]
    best = min((minimize(miss, start, method="Nelder-Mead", options={"maxiter": 80}) for start in starts), key=lambda found: found.fun)
    return [float(value) for value in np.exp(best.x)]


def judged(records, values):
    found = {}
    for level in LEVELS:
        rows = [binned(record, *values, level, 10) for record in records]
        pairs = np.array(rows).mean(0)
        found[f"{level:g}"] = {
            "reliability": [[round(float(value), 5) for value in pair] for pair in pairs],
            "rms_miss": float(np.sqrt(((pairs[:, 0] - pairs[:, 1]) ** 2).mean())),
            "mean_predicted": float(pairs[:, 0].mean()),
            "mean_measured": float(pairs[:, 1].mean()),
        }
    return {"power": values[0], "kappa": values[1], "levels": found}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    records = {}
    for name, build in SETTINGS.items():
        references = arguments.work / name / "references"
        complete = references.exists() and not status(references).missing
        if complete and (setting := build(arguments.data)).recipe.task == "classification":
            records[name] = [measured_records(setting, arguments.work, number) for number in range(FITTED_TARGETS)]
    result = {"settings": {}, "environment": environment(), "targets": FITTED_TARGETS}
    for name, own in records.items():
        others = [record for other, held in records.items() if other != name for record in held]
        result["settings"][name] = {"in_sample": judged(own, fitted(own)), "left_out": judged(own, fitted(others))}
        print(name, json.dumps(result["settings"][name]["left_out"]["levels"]["0.01"]), flush=True)
    RESULTS.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

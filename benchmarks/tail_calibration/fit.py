"""Curves from what a model shows to LiRA's TPR: every candidate, judged on data sets left out. `ship` ships the chosen ones.

`python -m benchmarks.tail_calibration.fit` reads benchmarks/results/tail_calibration/*.json and writes
benchmarks/results/tail_fits.json.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.environment import environment
from noshadow.tail.calibration import fit_quality, left_out_predictions
from noshadow.tail.forms import FORMS, fitted_coefficients, predicted_rates

RUNS = Path(__file__).parents[1] / "results" / "tail_calibration"
RESULTS = Path(__file__).parents[1] / "results" / "tail_fits.json"
SHIPPED = Path(__file__).parents[2] / "src" / "noshadow" / "tail" / "shipped"
SHIFTS = tuple(f"margin_shift_{level}" for level in (0.02, 0.05, 0.1, 0.2))
LOSS_PREDICTORS = ("tnr", "tnr_excess_0.01", "tnr_excess_0.05", "tnr_excess_0.1", "auc_excess", "ks", *SHIFTS)
SCORE_PREDICTORS = tuple(
    f"{name}_q{level}" for name in ("margin_leverage", "margin_leverage_fixed", "shift", "loo") for level in (0.9, 0.99)
)
# Not compared with the others: forms from these were fixed beforehand (`fixed`).
FURTHER = ("margin_leverage_mean", "lira_k4_tpr_0.01", "rmia_k2_tpr_0.01")
COUNTS = (4, 8, 16, 32)
# LiRA's rules for a record's spread: its own, one for all records, and what LiRA itself does unless told otherwise.
ATTACKS = {
    "record": {**{count: f"lira_k{count}_record" for count in COUNTS}, 64: "lira_record"},
    "global": {**{count: f"lira_k{count}" for count in COUNTS}, 64: "lira_global"},
    "auto": {**{count: f"lira_k{count}" for count in COUNTS}, 64: "lira_record"},
}
FPRS = (1e-3, 1e-2)
JUDGED = (1e-3, 64)  # the attack that candidates are compared on
RESAMPLES = 1000
# One predictor and one curve each, chosen by the nested comparison below; see docs/calibration.md.
# "references" was fixed before the judging setups existed (`fixed`, `judge`), and needs four reference models. "leverage" needs a
# last layer; its form was fixed once more, with the skewness, before the setups of `judge_again` existed, and beat there what shipped.
CHOSEN = {
    "losses": (("margin_shift_0.1",), "linear"),
    "leverage": (("tnr", "margin_leverage_mean", "skewness"), "factors"),
    "references": (("lira_k4_tpr_0.01",), "linear"),
}


def shown(targets, number):
    """Predictors of one target by the names of `noshadow.risk_predictors`."""
    found = {"tnr": targets["tnr_0.001"][number], "auc_excess": 2 * targets["auc"][number] - 1}
    found |= {f"tnr_excess_{level}": targets[f"tnr_{level}"][number] - level for level in (0.01, 0.05, 0.1)}
    found |= {name: targets[name][number] for name in ("ks", "skewness", "accuracy_gap", *SHIFTS)}
    for name in (*SCORE_PREDICTORS, *FURTHER):
        if name in targets and number < len(targets[name]):
            found[name] = targets[name][number]
    return found


def family_of(setup):
    """As audits name it: a softmax on the inputs themselves, or a network before it."""
    return "network" if setup["hidden"] or setup["channels"] else "linear"


def rows_of(entry, rule="auto"):
    """One row a target and attack; the rate is the setup's mean, since one target's own is counted on a few false positives.

    Attacks that a setup was not attacked by have no rows.
    """
    targets, rows = entry["targets"], []
    for fpr, (models, attack) in itertools.product(FPRS, ATTACKS[rule].items()):
        if f"{attack}_tpr_{fpr:g}" not in targets:
            continue
        rate = float(np.mean(targets[f"{attack}_tpr_{fpr:g}"]))
        setup = {"setup": entry["setup"]["name"], "data_set": entry["setup"]["data"].split("_")[0], "fpr": fpr, "references": models}
        setup["family"] = family_of(entry["setup"])
        rows += [setup | {"tpr": rate} | shown(targets, number) for number in range(len(targets["auc"]))]
    return rows


def judged_rows(frame):
    return frame[(frame["fpr"] == JUDGED[0]) & (frame["references"] == JUDGED[1])]


def candidates(frame):
    """(predictors, form) that every setup can serve: single predictors in all forms, pairs in the linear one."""
    complete = [name for name in (*LOSS_PREDICTORS, *SCORE_PREDICTORS) if frame.groupby("setup")[name].count().min() > 0]
    single = [((name,), form) for name in complete for form in FORMS]
    pairs = [((first, second), "linear") for first, second in itertools.combinations(complete, 2)]
    return [*single, *pairs]


def bootstrap_intervals(means, predictors, form, rng):
    """95 % intervals of in-sample R², RMSE, MAE over resampled setups."""
    x, y = means[list(predictors)].to_numpy(), means["tpr"].to_numpy()
    drawn = []
    for _ in range(RESAMPLES if form == "linear" else RESAMPLES // 10):
        rows = rng.integers(0, len(y), len(y))
        coefficients = fitted_coefficients(form, x[rows], y[rows], np.ones(len(y)))
        drawn.append(list(fit_quality(y[rows], predicted_rates(form, coefficients, x[rows])).values()))
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    return {name: [round(float(a), 4), round(float(b), 4)] for name, a, b in zip(("r2", "rmse", "mae"), low, high, strict=True)}


def compared(frame):
    """Every candidate in sample and leaving data sets out."""
    found, rng = [], np.random.default_rng(0)
    for predictors, form in candidates(frame):
        part = frame.dropna(subset=list(predictors))
        means = part.groupby(["setup", "data_set"], as_index=False)[[*predictors, "tpr"]].mean()
        x, y = means[list(predictors)].to_numpy(), means["tpr"].to_numpy()
        coefficients = fitted_coefficients(form, x, y, np.ones(len(y)))
        out = left_out_predictions(part, predictors, form)
        found.append(
            {
                "predictors": list(predictors),
                "form": form,
                "coefficients": [float(f"{value:.4g}") for value in coefficients],
                "in_sample": rounded(fit_quality(y, predicted_rates(form, coefficients, x))),
                "left_out": rounded(fit_quality(out["tpr"].to_numpy(), out["predicted"].to_numpy())),
                "in_sample_intervals": bootstrap_intervals(means, predictors, form, rng) if len(predictors) == 1 else None,
            }
        )
    return sorted(found, key=lambda row: row["left_out"]["rmse"])


def nested(frame, allowed):
    """Error when the candidate itself is chosen without the data set it is judged on."""
    errors, picks = [], {}
    for data_set in sorted(frame["data_set"].unique()):
        rest, own = frame[frame["data_set"] != data_set], frame[frame["data_set"] == data_set]
        scored = []
        for predictors, form in allowed:
            out = left_out_predictions(rest.dropna(subset=list(predictors)), predictors, form)
            scored.append((float(((out["tpr"] - out["predicted"]) ** 2).mean()), predictors, form))
        _, predictors, form = min(scored)
        kept = rest.dropna(subset=list(predictors)).groupby("setup")[[*predictors, "tpr"]].mean()
        judged = own.dropna(subset=list(predictors)).groupby("setup")[[*predictors, "tpr"]].mean()
        coefficients = fitted_coefficients(form, kept[list(predictors)].to_numpy(), kept["tpr"].to_numpy(), np.ones(len(kept)))
        errors += (judged["tpr"].to_numpy() - predicted_rates(form, coefficients, judged[list(predictors)].to_numpy())).tolist()
        picks[data_set] = [*predictors, form]
    return {"rmse": round(float(np.sqrt(np.mean(np.square(errors)))), 4), "mae": round(float(np.mean(np.abs(errors))), 4), "picked": picks}


def rounded(values):
    return {name: round(float(value), 4) for name, value in values.items()}


def main():
    entries = [json.loads(path.read_text()) for path in sorted(RUNS.glob("*.json"))]
    frame = pd.DataFrame([row for entry in entries for row in rows_of(entry)])
    judged = judged_rows(frame)
    everything = candidates(judged)
    from_losses = [pair for pair in everything if set(pair[0]) <= set(LOSS_PREDICTORS)]
    result = {
        "setups": len(entries),
        "data_sets": sorted(frame["data_set"].unique()),
        "attack": {"fpr": JUDGED[0], "references": JUDGED[1]},
        "candidates": compared(judged),
        "nested": {"losses": nested(judged, from_losses), "losses and record scores": nested(judged, everything)},
        "environment": environment(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    for row in result["candidates"][:15]:
        print(row["predictors"], row["form"], "in", row["in_sample"], "out", row["left_out"])
    print("nested", json.dumps(result["nested"]))


if __name__ == "__main__":
    main()

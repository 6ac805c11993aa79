"""[TAIL]'s Tables 1 and 2 and Figures 3, 4 and 8 on our 43 setups, from what they stored; nothing is trained.

`python -m benchmarks.tail_calibration.published` writes benchmarks/results/tail_published.json.
"""

import json

import numpy as np
import pandas as pd

from benchmarks.environment import environment
from benchmarks.tail_calibration.fit import RUNS, rounded
from benchmarks.tail_calibration.setups import SETUPS
from noshadow.tail.calibration import fit_quality, left_out_predictions
from noshadow.tail.forms import FORMS, fitted_coefficients, predicted_rates

RESULTS = RUNS.parent / "tail_published.json"
BELOW = RUNS.parent / "tail_extrapolation.json"
MEASURES = ("tnr", "accuracy_gap", "lt_iqr_excess", "auc_excess", "rmia")
COUNTS = (4, 8, 16, 32, 64)
RULES = ("record", "global")
RESAMPLES = 1000
SLOPE_LEVEL = 0.975  # of [TAIL]'s Figures 3 and 4
OVERFIT, CLEAN = 0.9, 0.0  # [TAIL]'s regime: train accuracy above, share of random labels


def setup_means(entry):
    """One row a setup: means over its models of every measure and of the attack's rates."""
    targets, setup, pooled = entry["targets"], entry["setup"], entry["pooled"]

    def mean(name):
        return float(np.mean(targets[name]))

    found = {
        "setup": setup["name"],
        "data_set": setup["data"].split("_")[0],
        "label_noise": setup["label_noise"],
        "member_accuracy": mean("member_accuracy"),
        "tnr": mean("tnr_0.001"),
        "tnr_0.01": mean("tnr_0.01"),
        "accuracy_gap": mean("accuracy_gap"),
        "auc_excess": 2 * mean("auc") - 1,
        "lt_iqr_auc": float(np.mean(entry["traced"]["lt_iqr_auc"])),
        "rmia": mean("rmia_k2_tpr_0.001"),
        "rmia_0.01": mean("rmia_k2_tpr_0.01"),
        "margin_shift_0.1": mean("margin_shift_0.1"),
    }
    found["lt_iqr_excess"] = 2 * found["lt_iqr_auc"] - 1
    for fpr in (1e-3, 1e-2):
        found |= {f"lira_{rule}_{fpr:g}": mean(f"lira_{rule}_tpr_{fpr:g}") for rule in RULES}
        found |= {f"lira_k{count}_{fpr:g}": mean(f"lira_k{count}_tpr_{fpr:g}") for count in COUNTS[:-1]}
    return found | {f"lira_{rule}_0.0001": pooled[rule].get("tpr_0.0001", np.nan) for rule in RULES}


def judged(frame, x, y, form="linear"):
    """A curve through the origin from one measure, in sample and on data sets left out, with the spread of what is predicted."""
    part = frame.dropna(subset=[x, y])
    measure, rate = part[[x]].to_numpy(), part[y].to_numpy()
    coefficients = fitted_coefficients(form, measure, rate, np.ones(len(rate)))
    found = {
        "setups": len(part),
        "coefficients": [float(f"{value:.4g}") for value in coefficients],
        "in_sample": rounded(fit_quality(rate, predicted_rates(form, coefficients, measure))),
        "spread": round(float(rate.std()), 4),
    }
    if part["data_set"].nunique() > 3:
        table = part.assign(fpr=1e-3, references=64, tpr=rate)
        out = left_out_predictions(table, (x,), form)
        found["left_out"] = rounded(fit_quality(out["tpr"].to_numpy(), out["predicted"].to_numpy()))
    return found


def with_intercept(frame, x, y):
    """R² of a line that need not pass through the origin."""
    line = np.polyfit(frame[x], frame[y], 1)
    return round(fit_quality(frame[y].to_numpy(), np.polyval(line, frame[x]))["r2"], 4)


def slope(frame, x, y, rng):
    """Slope through the origin with its bootstrap interval over setups."""
    measure, rate = frame[x].to_numpy(), frame[y].to_numpy()

    def through(rows):
        return float(measure[rows] @ rate[rows] / (measure[rows] @ measure[rows]))

    drawn = [through(rng.integers(0, len(rate), len(rate))) for _ in range(RESAMPLES)]
    ends = np.quantile(drawn, ((1 - SLOPE_LEVEL) / 2, (1 + SLOPE_LEVEL) / 2))
    return {"slope": round(through(np.arange(len(rate))), 4), "interval": [round(float(end), 4) for end in ends]}


def regimes(frame):
    """Setups of [TAIL]'s regime and the others, by label noise."""
    clean, overfit = frame["label_noise"] <= CLEAN, frame["member_accuracy"] > OVERFIT
    return {
        "all": frame,
        "train accuracy above 0.9, clean labels": frame[overfit & clean],
        "train accuracy below 0.9, clean labels": frame[~overfit & clean],
        "random labels": frame[~clean],
    }


def slopes_by_count(frame, rng):
    """Slope of LiRA's rate over TNR for each number of references and each rule that was stored."""
    found = {"global": {count: slope(frame, "tnr", f"lira_k{count}_0.001", rng) for count in COUNTS[:-1]}}
    found["global"][64] = slope(frame, "tnr", "lira_global_0.001", rng)
    found["record"] = {64: slope(frame, "tnr", "lira_record_0.001", rng)}
    steps = [found[rule][count]["slope"] for rule, count in (("global", 32), ("global", 64), ("record", 64))]
    return found | {"share_of_jump_by_rule": round((steps[2] - steps[1]) / (steps[2] - steps[0]), 4)}


def by_rate(frame):
    """[TAIL] Figure 8: each measure against LiRA at three false-positive rates; TNR at the same rate where it can be counted."""
    frame = frame.merge(pd.DataFrame(pool_tnr(), columns=["setup", "tnr_0.0001"]), on="setup", how="left")
    wanted = {
        0.01: {"tnr_0.01": "TNR", "auc_excess": "AUC", "accuracy_gap": "gap", "rmia_0.01": "RMIA"},
        0.001: {"tnr": "TNR", "auc_excess": "AUC", "accuracy_gap": "gap", "rmia": "RMIA"},
        0.0001: {"tnr": "TNR", "tnr_0.0001": "TNR of the pool", "auc_excess": "AUC", "accuracy_gap": "gap", "rmia": "RMIA"},
    }
    return {f"{fpr:g}": {name: judged(frame, name, f"lira_record_{fpr:g}") for name in names} for fpr, names in wanted.items()}


def pool_tnr():
    """TNR at FNR 1e-4 of the losses of all models of a setup, where they were pooled."""
    rows = json.loads(BELOW.read_text())["setups"]
    return [(name, level["truth"]) for name, setup in rows.items() for level in setup["levels"] if level["level"] == 1e-4]


def main():
    frame = pd.DataFrame([setup_means(json.loads((RUNS / f"{name}.json").read_text())) for name in sorted(SETUPS)])
    rng = np.random.default_rng(0)
    result = {
        "setups": len(frame),
        "table1": {
            rule: {
                name: judged(frame, name, f"lira_{rule}_0.001") | {"r2_with_intercept": with_intercept(frame, name, f"lira_{rule}_0.001")}
                for name in (*MEASURES, "margin_shift_0.1", "rmia_0.01")
            }
            for rule in RULES
        },
        "table2": {name: {form: judged(part, "tnr", "lira_record_0.001", form) for form in FORMS} for name, part in regimes(frame).items()},
        "by_noise": {
            f"{noise:g}": {name: judged(part, name, "lira_record_0.001") for name in ("tnr", "margin_shift_0.1")}
            for noise, part in frame.groupby(pd.cut(frame["label_noise"], [-1, 0, 0.1, 1], labels=[0, 0.1, 0.4]), observed=True)
        },
        "lt_iqr_below_half": sorted(frame.loc[frame["lt_iqr_auc"] < 0.5, "setup"]),
        "lt_iqr_of_overfit": {
            "setups": int((frame["accuracy_gap"] > 0.3).sum()),
            "mean": round(float(frame.loc[frame["accuracy_gap"] > 0.3, "lt_iqr_auc"].mean()), 4),
            "below_half": int((frame.loc[frame["accuracy_gap"] > 0.3, "lt_iqr_auc"] < 0.5).sum()),
        },
        "slopes": slopes_by_count(frame, rng),
        "by_rate": by_rate(frame),
        "points": json.loads(frame.round(5).to_json(orient="records")),
        "environment": environment(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: result[name] for name in result if name not in ("points", "environment")}, indent=1))


if __name__ == "__main__":
    main()

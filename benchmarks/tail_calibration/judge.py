"""The fixed forms judged on the judging setups: predictions that were written down before, against what LiRA then found.

`python -m benchmarks.tail_calibration.judge` reads benchmarks/results/tail_fixed.json and tail_judging/*.json and writes
benchmarks/results/tail_judged.json. The rule stands in `fixed`.
"""

import json
from collections import Counter

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from benchmarks.environment import environment
from benchmarks.tail_calibration.fit import judged_rows, rounded, rows_of, shown
from benchmarks.tail_calibration.fixed import FIXED, calibration_rows
from benchmarks.tail_calibration.fixed import RESULTS as FIXED_FILE
from benchmarks.tail_calibration.judging import JUDGED, JUDGING, KNOWN_SOURCES, LATER
from benchmarks.tail_calibration.measure import resolved
from noshadow.results import Calibration
from noshadow.tail.calibration import fit_quality, left_out_predictions
from noshadow.tail.prediction import predicted_tpr

RESULTS = JUDGED.parent / "tail_judged.json"
FPR, REFERENCES = 1e-3, 64
TEXTS = ("shakespeare", "wikitext", "source")
SYMMETRIC = 0.8  # skewness of strangers' losses below which no setup of the calibration lies
OFFSET = 0.02
# What few references find themselves, taken for what 64 would: what an audit reports today.
MEASURED = {"LiRA with four, as measured": "lira_k4_tpr_0.001", "RMIA with two, as measured": "rmia_k2_tpr_0.001"}


def clear_gap(auc, n):
    """Whether an AUC is above ½ by more than chance (Mann–Whitney, 95 %); audits ask their bootstrap."""
    return auc - 1.96 * np.sqrt((2 * n + 1) / (12 * n * n)) > 0.5


def of_setup(calibration, entry):
    """Mean prediction over a setup's models, the share of their intervals that hold its rate, and of models outside the domain."""
    targets, n = entry["targets"], entry["setup"]["records"] // 2
    rate, found = float(np.mean(targets["lira_record_tpr_0.001"])), []
    for number in range(len(targets["auc"])):
        own = shown(targets, number)
        if set(calibration.predictors) <= set(own):
            clear = clear_gap(targets["auc"][number], n)
            found.append(predicted_tpr(calibration, own, fpr=resolved(FPR, n), references=REFERENCES, sizes=(n, n), clear_gap=clear))
    why = Counter(part.strip() for one in found if not one.in_domain for part in named_limits(one.reason))
    return {
        "predicted": round(float(np.mean([one.value for one in found])), 5),
        "low": round(float(np.mean([one.interval[0] for one in found])), 5),
        "high": round(float(np.mean([one.interval[1] for one in found])), 5),
        "held": round(float(np.mean([one.interval[0] <= rate <= one.interval[1] for one in found])), 4),
        "flagged": round(float(np.mean([not one.in_domain for one in found])), 4),
        "why": dict(why),
    }


def named_limits(reason):
    """What of a model a reason says to be outside of the setups, without its numbers."""
    parts = reason.partition("; but ")[2].removesuffix(": take it as a hint.").split("; ")
    return [part.removeprefix("its ").partition(" of ")[0] if part.startswith("its ") and " is outside" in part else part for part in parts]


def difference(rows, resamples=2000):
    """RMSE of what shipped less that of the new form, with its 95 % bootstrap interval over setups."""
    squares = np.array([[(row[name]["predicted"] - row["rate"]) ** 2 for name in ("losses", "leverage")] for row in rows])
    rng = np.random.default_rng(0)
    drawn = [np.diff(np.sqrt(squares[rng.integers(0, len(rows), len(rows))].mean(0)))[0] for _ in range(resamples)]
    value = -float(np.diff(np.sqrt(squares.mean(0)))[0])
    return {"value": round(value, 4), "interval": [round(float(end), 4) for end in sorted(-np.quantile(drawn, (0.025, 0.975)))]}


def summary(rows, name):
    """Error, cover, and misses of one predictor over setups."""
    rates, predicted = (
        np.array([row[key] for row in pairs]) for key, pairs in (("rate", rows), ("predicted", [row[name] for row in rows]))
    )
    errors = predicted - rates
    found = rounded(fit_quality(rates, predicted)) | {
        "setups": len(rows),
        "bias": round(float(errors.mean()), 4),
        "spread": round(float(rates.std()), 4),
    }
    if "held" in rows[0][name]:
        missed = [row for row in rows if row[name]["held"] < 0.5]
        inside = [row for row in rows if row[name]["flagged"] < 0.5]
        kept = np.array([row[name]["predicted"] - row["rate"] for row in inside])
        found |= {
            "cover": round(float(np.mean([row[name]["held"] for row in rows])), 4),
            "misses": [row["setup"] for row in missed],
            "misses_flagged": [row["setup"] for row in missed if row[name]["flagged"] >= 0.5],
            "in_domain": len(inside),
            "in_domain_rmse": round(float(np.sqrt((kept**2).mean())), 4),
            "in_domain_cover": round(float(np.mean([row[name]["held"] for row in inside])), 4),
        }
    return found


def judged_row(calibrations, entry):
    """Everything about one setup."""
    targets, setup = entry["targets"], entry["setup"]
    means = {name: float(np.mean(targets[name])) for name in targets}
    row = {
        "setup": setup["name"],
        "data": setup["data"],
        "members": setup["records"] // 2,
        "label_noise": setup["label_noise"],
        "known_source": setup["name"] in KNOWN_SOURCES,
        "rate": round(means["lira_record_tpr_0.001"], 5),
        "rate_one_spread": round(means["lira_global_tpr_0.001"], 5),
    }
    names = ("member_accuracy", "nonmember_accuracy", "tnr_0.001", "auc", "skewness", "margin_shift_0.1", "margin_leverage_mean")
    row |= {name: round(means[name], 4) for name in names}
    row |= {name: of_setup(calibration, entry) for name, calibration in calibrations.items()}
    return row | {name: {"predicted": round(means[column], 5)} for name, column in MEASURED.items()}


def grown(name, rows):
    """Whether the domain could grow to texts: their error before and after other data sets' judging setups join the fit.

    A data set is always predicted from others. Beside it: how far the rate over its prediction follows the skewness of the losses,
    over all setups of both kinds.
    """
    predictors, form = FIXED[name]
    judging = [json.loads((JUDGED / f"{row['setup']}.json").read_text()) for row in rows]
    fresh = pd.DataFrame([row for entry in judging for row in rows_of(entry)])
    both = judged_rows(pd.concat([calibration_rows(), fresh])).dropna(subset=list(predictors))
    out = left_out_predictions(both, predictors, form).merge(both.groupby("setup", as_index=False)["skewness"].mean())
    text = {row["setup"] for row in rows if row["data"].startswith(TEXTS)}
    own = out[out["setup"].isin(text)]
    before = np.array([row[name]["predicted"] - row["rate"] for row in rows if row["setup"] in text])
    after = (own["predicted"] - own["tpr"]).to_numpy()
    skewness, ratio = out["skewness"], (out["tpr"] + OFFSET) / (out["predicted"] + OFFSET)
    low = skewness < SYMMETRIC
    return {
        "texts": len(own),
        "before": {"rmse": round(float(np.sqrt((before**2).mean())), 4), "bias": round(float(before.mean()), 4)},
        "after": {"rmse": round(float(np.sqrt((after**2).mean())), 4), "bias": round(float(after.mean()), 4)},
        "spearman_skewness_ratio": round(float(spearmanr(skewness, ratio).statistic), 4),
        "median_ratio": {"symmetric": round(float(ratio[low].median()), 3), "others": round(float(ratio[~low].median()), 3)},
        "symmetric": sorted(out.loc[low, "setup"]),
    }


def main():
    fixed = json.loads(FIXED_FILE.read_text())
    calibrations = {name: Calibration.from_dict(made) for name, made in fixed["calibrations"].items()}
    paths = [JUDGED / f"{setup.name}.json" for setup in JUDGING]
    rows = [judged_row(calibrations, json.loads(path.read_text())) for path in paths if path.exists()]
    parts = {"all": rows, "unseen data sets": [row for row in rows if not row["known_source"]]}
    result = {
        "attack": {"fpr": FPR, "references": REFERENCES},
        "setups": rows,
        "missing": [path.stem for path in paths if not path.exists()],
        "later": [row["setup"] for row in rows if row["setup"] in LATER],
        "difference": difference(rows),
        "grown": {name: grown(name, rows) for name in ("losses", "leverage")},
        "summary": {part: {name: summary(own, name) for name in (*calibrations, *MEASURED)} for part, own in parts.items()},
        "environment": environment(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    for part, found in result["summary"].items():
        for name, row in found.items():
            print(part, name, row)


if __name__ == "__main__":
    main()

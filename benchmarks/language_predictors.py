"""Loss AUC against loss TNR as predictor of an attack's rate on language models: errors on texts that no line was fitted on.

`python benchmarks/language_predictors.py` reads benchmarks/results/finetuned.json and language_models.json and writes
language_predictors.json; nothing is trained. Groups are fine-tunes on Shakespeare, fine-tunes on reviews, and models trained from nothing.
A line from one figure to LiRA's TPR at FPR 0.01 is fitted on two groups and judged on the third; logits: between the logits of both.
Snapshots of one training stand and fall together in the bootstrap.
"""

import json
from pathlib import Path

import numpy as np

from noshadow.metrics import spearman

FOLDER = Path(__file__).parent / "results"
FIGURES, LEAST, DRAWS = ("auc", "tnr"), 1e-3, 10_000


def points():
    """One row per configuration: group, training, AUC, TNR and LiRA's rate."""
    rows = []
    for case in json.loads((FOLDER / "finetuned.json").read_text())["cases"].values():
        training = f"{case['pool']}-{case['kind']}"
        rows.append({"group": case["pool"], "training": training, **case["risk"], "rate": case["attacks"]["lira_8"]["tpr_0.01"]})
    for name, case in json.loads((FOLDER / "language_models.json").read_text()).items():
        own = {"auc": float(np.mean(case["targets"]["auc"])), "tnr": float(np.mean(case["targets"]["tnr_0.01"]))}
        rows.append({"group": "from nothing", "training": name, **own, "rate": case["pooled"]["lira_tpr_0.01"]})
    return rows


def logit(values):
    held = np.clip(values, LEAST, 1 - LEAST)
    return np.log(held / (1 - held))


def errors(rows, figure, on_logits):
    """|predicted rate − rate| of each configuration, by a line fitted on the other groups."""
    x, y = (np.array([row[name] for row in rows]) for name in (figure, "rate"))
    groups, found = np.array([row["group"] for row in rows]), np.empty(len(rows))
    for group in np.unique(groups):
        out = groups == group
        if on_logits:
            told = 1 / (1 + np.exp(-np.polyval(np.polyfit(logit(x[~out]), logit(y[~out]), 1), logit(x[out]))))
        else:
            told = np.clip(np.polyval(np.polyfit(x[~out], y[~out], 1), x[out]), 0, 1)
        found[out] = np.abs(told - y[out])
    return found


def within(rows, figure):
    """Mean over groups of the rank correlation of a figure with the rate: group → ρ."""
    held = {}
    for group in sorted({row["group"] for row in rows}):
        own = [row for row in rows if row["group"] == group]
        held[group] = float(spearman(np.array([row[figure] for row in own]), np.array([row["rate"] for row in own])))
    return held


def difference(first, second, rows, seed=0):
    """Mean of first − second with its 95 % interval: trainings are drawn anew, whole."""
    trainings = np.array([row["training"] for row in rows])
    names, rng = np.unique(trainings), np.random.default_rng(seed)
    sums = np.array([[(first - second)[trainings == name].sum(), (trainings == name).sum()] for name in names])
    drawn = sums[rng.integers(0, len(names), (DRAWS, len(names)))].sum(1)
    return {"mean": float((first - second).mean()), "interval": np.percentile(drawn[:, 0] / drawn[:, 1], [2.5, 97.5]).tolist()}


def main():
    rows = points()
    found = {"configurations": len(rows), "trainings": len({row["training"] for row in rows}), "within": {}, "lines": {}}
    for name, on_logits in (("plain", False), ("logits", True)):
        held = {figure: errors(rows, figure, on_logits) for figure in FIGURES}
        groups = np.array([row["group"] for row in rows])
        line = {f: {"mean": float(e.mean()), **{g: float(e[groups == g].mean()) for g in np.unique(groups)}} for f, e in held.items()}
        found["lines"][name] = line | {"auc_minus_tnr": difference(held["auc"], held["tnr"], rows)}
    found["within"] = {figure: within(rows, figure) for figure in FIGURES}
    (FOLDER / "language_predictors.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

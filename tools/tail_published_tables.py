"""[TAIL]'s Tables 1 and 2 beside ours, from benchmarks/results/tail_published.json, for docs/calibration.md."""

import json
import statistics
from pathlib import Path

# [TAIL] Table 1 (R², RMSE, MAE; those of RMIA are printed the other way round, which cannot be) and Table 2, 36 setups, in sample.
TABLE1 = {
    "tnr": ("LOSS TNR at FNR 0.001", (0.945, 0.036, 0.025)),
    "accuracy_gap": ("train-test accuracy gap", (0.682, 0.087, 0.059)),
    "lt_iqr_excess": ("LT-IQR, 2 AUC − 1", (0.788, 0.071, 0.049)),
    "auc_excess": ("loss, 2 AUC − 1", (0.794, 0.070, 0.051)),
    "rmia": ("RMIA with two references, TPR at FPR 0.001", (0.908, 0.046, 0.035)),
    "margin_shift_0.1": ("margin shift at 0.1 (ours)", None),
    "rmia_0.01": ("RMIA with two references, TPR at FPR 0.01 (ours)", None),
}
TABLE2 = {
    "exponential": (0.983, 0.020, 0.014),
    "quadratic": (0.982, 0.020, 0.014),
    "power": (0.980, 0.021, 0.015),
    "linear": (0.945, 0.036, 0.025),
}
RATES = {
    "tnr": "TNR at FNR 0.001",
    "tnr_0.01": "TNR at FNR 0.01",
    "tnr_0.0001": "TNR at FNR 0.0001 of pooled losses",
    "auc_excess": "2 AUC − 1",
    "accuracy_gap": "accuracy gap",
    "rmia": "RMIA, two references, TPR at 0.001",
    "rmia_0.01": "RMIA, two references, TPR at 0.01",
}
IMAGES = "images/calibration"


def published_section(found, folder):
    """Lines on both tables, on the slopes over K, on other rates, and on errors beside the spread of what is predicted; the folder has the setups."""
    return [*_table1(found, models_lines(folder)), *_table2(found), *_slopes(found), *_rates(found), *_noise(found)]


def triple(row):
    return " / ".join(f"{row[key]:.3f}" for key in ("r2", "rmse", "mae"))


def models_lines(folder):
    """Over how many models of a setup each measure is a mean, and what that leaves to chance in LT-IQR."""
    entries = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    traced = [entry["traced"]["lt_iqr_auc"] for entry in entries]
    tnr, rmia = ([entry["targets"][name] for entry in entries] for name in ("tnr_0.001", "rmia_k2_tpr_0.001"))
    error = statistics.mean(statistics.variance(found) / len(found) for found in traced) ** 0.5
    spread = statistics.pstdev(map(statistics.mean, traced))
    return [
        f"Each setup's figure is a mean over its models: {counted(tnr)} for TNR, {counted(rmia)} for RMIA, {counted(traced)} for LT-IQR, which needs the losses of every epoch. The standard error of a",
        f"setup's LT-IQR AUC is {error:.3f} (root mean square), its spread over setups {spread:.3f}.",
        "",
    ]


def counted(found):
    """How many numbers each list has, in words."""
    fewest, most = min(map(len, found)), max(map(len, found))
    return f"{fewest}" if fewest == most else f"{fewest} to {most}"


def _table1(found, models):
    rows, pooled = found["table1"]["record"], found["table1"]["global"]
    overfit, below = found["lt_iqr_of_overfit"], len(found["lt_iqr_below_half"])
    lines = [
        "### [TAIL] Table 1",
        "",
        f"LiRA's TPR at FPR 0.001 with 64 references from one measure along a line through the origin, {found['setups']} setups; [TAIL]: 36 setups, in sample. *One spread* is",
        "the same attack with one spread for all records. The last column is the R² of a line that need not pass through the origin.",
        "",
        "| measure | [TAIL]: R² / RMSE / MAE | ours: R² / RMSE / MAE | RMSE left out | one spread: RMSE left out | R², free line |",
        "|---|---|---|---|---|---|",
    ]
    for name, (spoken, theirs) in TABLE1.items():
        row = rows[name]
        printed = "" if theirs is None else " / ".join(f"{value:.3f}" for value in theirs)
        lines.append(
            f"| {spoken} | {printed} | {triple(row['in_sample'])} | **{row['left_out']['rmse']:.3f}** | {pooled[name]['left_out']['rmse']:.3f} | {row['r2_with_intercept']:.3f} |"
        )
    rmia, tnr = rows["rmia"]["left_out"]["rmse"], rows["tnr"]["left_out"]["rmse"]
    return [
        *lines,
        "",
        *models,
        f"On our setups RMIA with two references {'beats' if rmia < tnr else 'does not beat'} TNR ({rmia:.3f} against {tnr:.3f} left out), where [TAIL] has it the other way round.",
        f"LT-IQR's AUC is below ½ on {below} of {found['setups']} setups, and in the mean {overfit['mean']:.3f} on the {overfit['setups']} whose accuracy gap is above 0.3",
        f"({overfit['below_half']} of them below ½): there losses of members spread no more over the epochs than those of strangers.",
        "",
        f"![LiRA against TNR, with the line, its interval over setups, and the exponential of the overfit ones]({IMAGES}/figure3.svg)",
        "",
    ]


def _table2(found):
    lines = [
        "### [TAIL] Table 2",
        "",
        "Curves from TNR at FNR 0.001 to LiRA's TPR at FPR 0.001 with 64 references, in sample: R² / RMSE / MAE. *Spread* is the standard deviation of the rates themselves: an",
        "error means little without it. [TAIL]'s RMSE of 0.036 with R² 0.945 is of a spread of 0.153.",
        "",
        "| setups | number | spread | " + " | ".join(TABLE2) + " |",
        "|---|---|---|" + "---|" * len(TABLE2),
        "| [TAIL] | 36 | 0.153 | " + " | ".join(" / ".join(f"{value:.3f}" for value in row) for row in TABLE2.values()) + " |",
    ]
    for name, forms in found["table2"].items():
        row = forms["linear"]
        lines.append(
            f"| {name} | {row['setups']} | {row['spread']:.3f} | " + " | ".join(triple(forms[form]["in_sample"]) for form in TABLE2) + " |"
        )
    own = found["table2"]["train accuracy above 0.9, clean labels"]["exponential"]
    a, b = own["coefficients"]
    return [
        *lines,
        "",
        f"In [TAIL]'s own regime (train accuracy above 0.9, clean labels) its exponential law appears again: {a:.3g} (e^({b:.3g} TNR) − 1), R² {own['in_sample']['r2']:.2f}, and the order of the four",
        "curves is the published one. Over all setups the four hardly differ: setups that are not overfit lie above that curve.",
        "",
    ]


def _slopes(found):
    slopes = found["slopes"]
    rows = [(count, "one for all records", row) for count, row in slopes["global"].items()]
    rows += [(count, "each record's own", row) for count, row in slopes["record"].items()]
    return [
        "### [TAIL] Figure 4: slopes over K",
        "",
        "LiRA's TPR at FPR 0.001 = slope · TNR, with 97.5 % bootstrap intervals over setups.",
        "",
        "| references K | spread | slope | interval |",
        "|---|---|---|---|",
        *(f"| {count} | {rule} | {row['slope']:.3f} | {row['interval'][0]:.3f} to {row['interval'][1]:.3f} |" for count, rule, row in rows),
        "",
        f"With one rule the slope grows ever more slowly, as in [TAIL]. From K = 32 with one spread to K = 64 with each record's own it jumps; {100 * slopes['share_of_jump_by_rule']:.0f} % of that jump is the",
        "change of rule, not the models. So the two rules are [kept apart](#one-rule-for-the-spread-over-k).",
        "",
        f"![Slopes over K by rule]({IMAGES}/figure4.svg)",
        "",
    ]


def _rates(found):
    lines = [
        "### [TAIL] Figure 8: other rates",
        "",
        "Lines through the origin from each measure to LiRA's TPR with 64 references. Single models do not resolve FPR 0.0001; its rates are of scores pooled over the 64 models of a",
        "setup, and losses were pooled for some setups only.",
        "",
        "| FPR | measure | setups | slope | R² / RMSE / MAE | spread | RMSE left out |",
        "|---|---|---|---|---|---|---|",
    ]
    for fpr, measures in found["by_rate"].items():
        for name, row in measures.items():
            lines.append(
                f"| {fpr} | {RATES[name]} | {row['setups']} | {row['coefficients'][0]:.3g} | {triple(row['in_sample'])} | {row['spread']:.3f} | {row['left_out']['rmse']:.3f} |"
            )
    return [*lines, "", f"![LiRA at three rates against TNR, AUC, gap, LT-IQR and RMIA]({IMAGES}/figure8.svg)", ""]


def _noise(found):
    lines = [
        "### Errors beside the spread, by label noise",
        "",
        "In sample, within the group.",
        "",
        "| share of random labels | setups | spread of the rates | TNR: R² / RMSE / MAE | margin shift at 0.1: R² / RMSE / MAE |",
        "|---|---|---|---|---|",
    ]
    spoken = {"0": "none", "0.1": "0.1", "0.4": "0.4 and more"}
    for noise, rows in found["by_noise"].items():
        tnr, shift = rows["tnr"], rows["margin_shift_0.1"]
        lines.append(
            f"| {spoken[noise]} | {tnr['setups']} | {tnr['spread']:.3f} | {triple(tnr['in_sample'])} | {triple(shift['in_sample'])} |"
        )
    return [*lines, ""]

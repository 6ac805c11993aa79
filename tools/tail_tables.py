"""Measured part of docs/calibration.md: setups, candidates, what was chosen and how it did on data sets left out."""

import json
from pathlib import Path

import numpy as np

# [TAIL] Table 1, 36 setups, in sample; the paper prints no coefficients and no errors on data sets left out.
PUBLISHED = {"linear": (0.945, 0.036, 0.025), "exponential": (0.983, 0.020, 0.014)}
NAMES = {
    "tnr": "TNR at FNR 0.001, as published",
    "tnr_excess_0.01": "TNR at FNR 0.01, less 0.01",
    "tnr_excess_0.05": "TNR at FNR 0.05, less 0.05",
    "tnr_excess_0.1": "TNR at FNR 0.1, less 0.1",
    **{f"margin_shift_{level}": f"margin shift at {level}" for level in (0.02, 0.05, 0.1, 0.2)},
    "auc_excess": "2 AUC − 1",
    "ks": "KS distance",
    "accuracy_gap": "accuracy gap",
    "margin_leverage_mean": "mean margin leverage",
    "skewness": "skewness of the strangers' losses",
    "lira_k4_tpr_0.01": "LiRA's TPR at FPR 0.01 with four references",
}
SHOWN_PAIRS = 8


def named(predictors):
    return " and ".join(NAMES.get(name, f"`{name}`") for name in predictors)


def calibration_section(fits, shipped, records, below, folder):
    """Lines of the generated part of the page: errors, rates of records, candidates, tails below the resolution, setups."""
    entries = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    return [
        *_regimes(shipped),
        *_records(records),
        *_candidates(fits),
        *_nested(fits),
        *_models(entries),
        *_below(below),
        *_setups(entries),
    ]


def _records(records):
    told = "Judged when models' rates were predicted from losses alone, the predictor before the one that ships; the runs that would tell it anew are gone."
    lines = ["### Rates of records", "", told, ""]
    for fpr, level in records["levels"].items():
        lines += [
            f"At FPR {fpr}: data sets left out, the model's rate predicted too. Tenths of the records by rank miss their measured rates by {level['rms_miss']:.3f} (root mean square over tenths and",
            f"{records['setups']} setups; median setup {level['median_miss']:.3f}, worst `{level['worst']}`); the 90 % interval holds {100 * level['coverage']:.0f} % of the tenths of data sets left out of it.",
            "",
            "| predicted between | share of records | mean predicted | **measured** | setups |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {row['from']:g} and {row['to']:g} | {row['share']:.3f} | {row['predicted']:.4f} | **{row['measured']:.4f}** | {row['setups']:.0f} |"
            for row in level["reliability"]
        ]
        lines.append("")
    return lines


def _below(below):
    rows = [(name, row) for name, setup in below["setups"].items() for row in setup["levels"]]
    coverage = sum(row["coverage"] for _, row in rows) / len(rows)
    lines = [
        "### Below one in n",
        "",
        f"Pooled losses of all models of a setup, samples of {below['sample']:,} drawn from them ({below['repetitions']} a row) and asked for TNR at levels below 1/{below['sample']}; the pool's own TNR is the truth.",
        f"Nominal 95 % intervals hold it in {100 * coverage:.0f} % of the samples.",
        "",
        "| setup | level | pool's TNR | median estimate | RMSE | coverage | tail shape |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {row['level']:g} | {row['truth']:.4f} | {row['median']:.4f} | {row['rmse']:.4f} | {row['coverage']:.2f} | {row['shape']:.2f} |"
        for name, row in rows
    ]
    return [*lines, ""]


def _regimes(shipped):
    kinds = [name for name in shipped["calibrations"] if not name.endswith("_global")]
    lines = [
        "### Errors by overfitting",
        "",
        "On data sets left out of the calibration setups (FPR 0.001, K = 64, each record's own spread); bias is measured less predicted.",
        "",
        "| calibration | accuracy gap | setups | bias | RMSE |",
        "|---|---|---|---|---|",
    ]
    for kind in kinds:
        lines += [
            f"| {named(shipped['calibrations'][kind]['predictors'])} | {name.removeprefix('gap ')} | {row['setups']} | {row['bias']:+.3f} | {row['rmse']:.3f} |"
            for name, row in shipped["calibrations"][kind]["regimes"].items()
        ]
    return [*lines, ""]


def _candidates(fits):
    single = [row for row in fits["candidates"] if len(row["predictors"]) == 1]
    pairs = [row for row in fits["candidates"] if len(row["predictors"]) > 1][:SHOWN_PAIRS]
    lines = [
        "### Everything that was tried",
        "",
        f"LiRA's TPR at FPR {fits['attack']['fpr']:g} with {fits['attack']['references']} references; intervals are 95 % bootstrap over setups. [TAIL]'s Table 1 beside ours: their 36 setups are larger networks, and they report errors in sample only.",
        "",
        "| predictor | curve | R² in sample | RMSE in sample | MAE in sample | RMSE left out | MAE left out | [TAIL]: R² / RMSE / MAE |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in (*single, *pairs):
        inside, outside, ends = row["in_sample"], row["left_out"], row["in_sample_intervals"]
        r2, rmse, mae = (
            f"{inside[key]:.3f}" + (f" ({ends[key][0]:.3f} to {ends[key][1]:.3f})" if ends else "") for key in ("r2", "rmse", "mae")
        )
        published = PUBLISHED.get(row["form"]) if row["predictors"] == ["tnr"] else None
        theirs = " / ".join(f"{value:.3f}" for value in published) if published else ""
        lines.append(
            f"| {named(row['predictors'])} | {row['form']} | {r2} | {rmse} | {mae} | **{outside['rmse']:.3f}** | {outside['mae']:.3f} | {theirs} |"
        )
    return [*lines, "", f"Of the pairs (always linear) the {len(pairs)} best are shown.", ""]


def _nested(fits):
    lines = [
        "### Choosing without peeking",
        "",
        "The best of many candidates looks better than it is. Here the candidate itself is chosen without the data set that judges it:",
        "",
        "| chosen among | RMSE | MAE | what was picked, data set left out by data set |",
        "|---|---|---|---|",
    ]
    for kind, row in fits["nested"].items():
        picks = "; ".join(f"{name}: {named(pick[:-1])}, {pick[-1]}" for name, pick in row["picked"].items())
        lines.append(f"| {kind} | {row['rmse']:.3f} | {row['mae']:.3f} | {picks} |")
    return [*lines, ""]


def mean(entry, name):
    values = entry["targets"].get(name)
    return float(np.mean(values)) if values else float("nan")


def _models(entries):
    counts = (4, 8, 16, 32)
    names = [*(f"lira_k{count}" for count in counts), "lira_record"]
    rates = np.array([[mean(entry, f"{name}_tpr_0.001") for name in names] for entry in entries])
    # Where the strongest attack is no better than a few times chance, ratios are noise.
    clear = rates[:, -1] > 0.01
    shares = np.median(rates[clear] / rates[clear, -1:], axis=0)
    return [
        "### How many reference models the attacker trains",
        "",
        f"Median over the {int(clear.sum())} setups with a TPR above 0.01: TPR at FPR 0.001 as a share of that with 64 references.",
        "",
        "| " + " | ".join(f"K = {count}" for count in (*counts, 64)) + " |",
        "|" + "---|" * len(names),
        "| " + " | ".join(f"{share:.2f}" for share in shares) + " |",
        "",
    ]


def _setups(entries):
    lines = [
        "### The setups",
        "",
        f"{len(entries)} setups, 64 models each, every model attacked with the 63 others; means over models. *Geometry* is the 99th percentile of last-layer margin leverage.",
        "",
        "| setup | records | train / test accuracy | TNR at 0.001 | TNR at 0.05 | AUC | geometry | RMIA, 2 references, TPR at 0.001 | LiRA TPR at 0.001 | at 0.01 | at 0.0001, pooled |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in sorted(entries, key=lambda one: mean(one, "lira_record_tpr_0.001")):
        pooled = entry["pooled"]["record"].get("tpr_0.0001")
        lines.append(
            f"| {entry['setup']['name']} | {entry['setup']['records']:,} | {mean(entry, 'member_accuracy'):.2f} / {mean(entry, 'nonmember_accuracy'):.2f} "
            f"| {mean(entry, 'tnr_0.001'):.3f} | {mean(entry, 'tnr_0.05'):.3f} | {mean(entry, 'auc'):.3f} | {mean(entry, 'margin_leverage_q0.99'):.2f} "
            f"| {mean(entry, 'rmia_k2_tpr_0.001'):.3f} | {mean(entry, 'lira_record_tpr_0.001'):.3f} | {mean(entry, 'lira_record_tpr_0.01'):.3f} | {'' if pooled is None else f'{pooled:.3f}'} |"
        )
    return [*lines, ""]

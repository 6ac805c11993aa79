"""Measured parts on trees: the calibrations in docs/calibration.md, and which score ranks in docs/trees.md."""

import json
from pathlib import Path

import numpy as np
from tail_tables import NAMES

CHOOSING = ("cifar10", "fashion", "sst2")
# The same table and kind of model, before and after.
PAIRS = (
    ("california_forest", "california_forest_leaf5"),
    ("california_forest", "california_forest_bags"),
    ("cifar10_forest", "cifar10_forest_leaf5"),
    ("pneumonia_forest", "pneumonia_forest_leaf10"),
    ("sst2_forest", "sst2_forest_leaf10"),
    ("fashion_forest", "fashion_forest_depth6"),
    ("cifar100_forest", "cifar100_forest_depth8"),
    ("fashion_xgboost", "fashion_xgboost_shallow"),
)
KINDS = {"forest": "Forests", "boosting": "Boosting"}
SCORES = {
    "forest": ("loss", "entropy", "shift", "loo", "left_out_loss", "out_of_bag_loss"),
    "boosting": (
        "loss",
        "entropy",
        "yielding_shift",
        "shift",
        "loo",
        "margin left out",
        "shift, early loss",
        "shift, other labels",
        "influence",
        "leverage",
        "early_loss",
        "lt_iqr",
        "checkpoint_shift",
        "checkpoint_loss",
    ),
}
BESIDE = (
    "exposure, nothing trained",
    "exposure, 2 references",
    "difference, 2 references",
    "cleanlab, 5 folds",
    "SHAPr",
    "SACRO worst case",
    "SACRO structural",
    "SACRO quantile",
    "second LiRA",
)
# SPEC's prototype: recall of the top 1 % in the top 5 %, per cent.
PROTOTYPE = {
    "prototype_california": {"loss": 50, "shift": 95, "margin left out": 96, "second LiRA": 94},
    "prototype_fashion": {"loss": 88, "shift": 92, "margin left out": 96, "second LiRA": 99},
}


def tree_calibration_section(fits):
    """Lines on the calibrations of both families."""
    if not fits:
        return []
    lines = ["### Trees", ""]
    for family, found in fits["families"].items():
        chosen, nested = found["chosen"], found["nested"]
        lines += [
            f"#### {KINDS[family]}",
            "",
            f"Attack: {found['attack']}. Predictor: {NAMES.get(chosen['predictor'], chosen['predictor'])}; curve: {chosen['form']}; "
            f"{len(found['setups'])} setups on {len(found['data_sets'])} data sets, {fits['models']} models each.",
            f"With predictor and curve chosen without the data set that judges them, the error (RMSE) at FPR 0.001 and K = 64 is "
            f"{nested['rmse']:.3f}; guessing the mean of the other data sets gives {nested['mean_rmse']:.3f}.",
            "",
            "| FPR | references K | coefficients | in sample R² / RMSE / MAE | left out R² / RMSE / MAE | coverage left out | mean width |",
            "|---|---|---|---|---|---|---|",
        ]
        for cell in chosen["cells"]:
            sides = [" / ".join(f"{cell[f'{side}_{name}']:.3f}" for name in ("r2", "rmse", "mae")) for side in ("in_sample", "left_out")]
            coefficients = ", ".join(f"{value:g}" for value in cell["coefficients"])
            lines.append(
                f"| {cell['fpr']:g} | {cell['references']} | {coefficients} | {' | '.join(sides)} | {cell['left_out_coverage']:.2f} | "
                f"{cell['left_out_width']:.3f} |"
            )
        lines += ["", *_attacks(found["means"]), *_candidates(found["candidates"]), *_setups(found["setups"])]
    return lines


def _attacks(means):
    lines = ["Both attacks, mean TPR over setups:", ""]
    heads = [f"FPR {row['fpr']:g}, K = {row['references']}" for row in means["LiRA"]]
    lines += [f"| attack | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for attack, rows in means.items():
        rates = [f"{row['mean']:.3f}" for row in rows]
        lines.append(f"| {attack} | {' | '.join(rates)} |")
    return [*lines, ""]


def _candidates(tried):
    lines = ["The eight best candidates on data sets left out:", "", "| predictor | curve | R² | RMSE | MAE |", "|---|---|---|---|---|"]
    for row in tried[:8]:
        name = NAMES.get(row["predictor"], row["predictor"])
        lines.append(f"| {name} | {row['form']} | {row['r2']:.3f} | {row['rmse']:.3f} | {row['mae']:.3f} |")
    return [*lines, ""]


def _setups(setups):
    lines = [
        "| setup | model | accuracy in / out | loss AUC | LiRA | LiRA, one spread | RMIA | predicted, data set left out |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(setups, key=lambda row: row["rmia_tpr_0.001"]):
        how = ", ".join(f"{name} {value}" for name, value in row["how"].items())
        rates = " | ".join(f"{row[name]:.3f}" for name in ("lira_record_tpr_0.001", "lira_global_tpr_0.001", "rmia_tpr_0.001", "left_out"))
        accuracy = f"{row['member_accuracy']:.2f} / {row['nonmember_accuracy']:.2f}"
        lines.append(f"| {row['name']} | {row['model']} ({how}) | {accuracy} | {row['auc']:.3f} | {rates} |")
    return [*lines, ""]


def leaves_section(fits):
    """Lines on what larger leaves and shallower trees did to measured attacks: pairs of setups on the same table."""
    setups = {row["name"]: row for found in fits["families"].values() for row in found["setups"]}
    lines = [
        "| table | model | test accuracy | LiRA finds | RMIA finds |",
        "|---|---|---|---|---|",
    ]
    for names in PAIRS:
        before, after = (setups[name] for name in names)
        cells = [f"{before[name]:.2f} → {after[name]:.2f}" for name in ("nonmember_accuracy", "lira_record_tpr_0.001", "rmia_tpr_0.001")]
        lines.append(f"| {names[0].split('_')[0]} | {before['model']}: {_difference(before['how'], after['how'])} | {' | '.join(cells)} |")
    return [*lines, ""]


def _difference(before, after):
    """The arguments that two setups differ in; what is not given is the library's default."""
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return ", ".join(f"`{name}` {before.get(name, 'default')} → {after.get(name, 'default')}" for name in changed)


def ranking_section(folder):
    """Lines on which score ranks: means over choosing and judging settings, every judging setting, the prototype."""
    entries = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    usual = [entry for entry in entries if entry["setup"]["calibrates"]]
    lines = []
    for family, kind in KINDS.items():
        own = [entry for entry in usual if entry["setup"]["family"] == family]
        parts = {"choosing": [entry for entry in own if _chooses(entry)], "judging": [entry for entry in own if not _chooses(entry)]}
        lines += [f"#### {kind}", "", *_means(parts, family), *_judged(parts["judging"], family)]
    again = [entry for entry in entries if not entry["setup"]["calibrates"]]
    return [*lines, *_prototype(again)] if again else lines


def tried_section(found):
    """Lines on combinations of columns that were tried, and on the cover of forests' intervals."""
    lines = []
    for family, kind in KINDS.items():
        rows = found["combinations"][family]
        (first, *_) = rows.values()
        heads = " | ".join(f"{side} ({first[side]['settings']} settings): recall | at or above a second LiRA" for side in first)
        lines += [f"#### {kind}: combinations that were tried", "", f"| score | {heads} |", f"|---|{'---|' * 4}"]
        for name, sides in rows.items():
            cells = " | ".join(f"{side['recall']:.2f} | {side['at_or_above']}" for side in sides.values())
            lines.append(f"| {name} | {cells} |")
        lines.append("")
    cover = found["cover"]
    lines += [
        f"#### Forests: intervals from {cover['references']} reference forests",
        "",
        f"Share of true d′ within the {100 * cover['level']:.0f} % interval, of all records and of the top 5 % by d′.",
        "",
        "| setting | references, all | top 5 % | with out-of-bag votes, all | top 5 % |",
        "|---|---|---|---|---|",
    ]
    for name, held in cover["settings"].items():
        lines.append(f"| {name} | {' | '.join(f'{value:.2f}' for pair in held.values() for value in pair)} |")
    return [*lines, ""]


def _chooses(entry):
    return entry["setup"]["data_set"] in CHOOSING


def _means(parts, family):
    heads = " | ".join(f"{part} ({len(entries)} settings): recall | Spearman, d′ | Spearman, success" for part, entries in parts.items())
    lines = [f"| score | {heads} |", f"|---|{'---|' * 6}"]
    # A column counts where every setting of both parts has it, or the settings that have it are told.
    for score in _held((*SCORES[family], *BESIDE), [entry for entries in parts.values() for entry in entries]):
        cells = []
        for entries in parts.values():
            held = [entry["ranking"]["scores"][score] for entry in entries if score in entry["ranking"]["scores"]]
            few = f" ({len(held)} settings)" if len(held) < len(entries) else ""
            means = [np.mean([row[name] for row in held]) if held else np.nan for name in ("recall", "spearman", "success")]
            cells += [f"{means[0]:.2f}{few}", f"{means[1]:.2f}", f"{means[2]:.2f}"] if held else ["", "", ""]
        lines.append(f"| {_spoken(score)} | {' | '.join(cells)} |")
    return [*lines, ""]


def _spoken(score):
    """Columns of an audit as code, everything else as it is called."""
    return f"`{score}`" if score in {name for names in SCORES.values() for name in names} and " " not in score else score


def _held(scores, entries):
    """Scores that some setting has, in their order."""
    return [score for score in scores if any(score in entry["ranking"]["scores"] for entry in entries)]


def _judged(entries, family):
    scores = _held((*SCORES[family], *BESIDE), entries)
    lines = [
        "Every judging setting, recall:",
        "",
        f"| setting | in / out | {' | '.join(map(_spoken, scores))} |",
        f"|---|---|{'---|' * len(scores)}",
    ]
    for entry in entries:
        inside, outside = (np.mean(entry["targets"][f"{side}_accuracy"]) for side in ("member", "nonmember"))
        held = entry["ranking"]["scores"]
        cells = [f"{held[score]['recall']:.2f}" if score in held else "" for score in scores]
        lines.append(f"| {entry['setup']['name']} | {inside:.2f} / {outside:.2f} | {' | '.join(cells)} |")
    return [*lines, ""]


def _prototype(entries):
    lines = [
        "#### A prototype, measured again",
        "",
        "Two classes, scikit-learn's `GradientBoostingClassifier`, six targets, truth from forty others. In brackets what the prototype had.",
        "",
        "| setting | in / out | loss | `shift` | margin left out | `loo` | 20 models against 20 others |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in entries:
        name, held = entry["setup"]["name"], entry["ranking"]["scores"]
        inside, outside = (np.mean(entry["targets"][f"{side}_accuracy"]) for side in ("member", "nonmember"))
        cells = []
        for score in ("loss", "shift", "margin left out", "loo", "second LiRA"):
            was = PROTOTYPE[name].get(score)
            cells.append(f"{100 * held[score]['recall']:.0f}" + ("" if was is None else f" ({was})"))
        lines.append(f"| {name} | {inside:.3f} / {outside:.3f} | {' | '.join(cells)} |")
    return [*lines, ""]

"""What `own_gain` finds on fine-tunes that are there, beside the other columns on the same targets.

`python -m benchmarks.finetuned.judge_own --work DIR` writes benchmarks/results/own_gain.json from the files of `benchmarks.finetuned` and
of `benchmarks.finetuned.own`. Each configuration has the targets whose scores are there; LiRA with references stands in finetuned.json,
over all fine-tunes of the same seeds.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.environment import environment
from benchmarks.finetuned.judge import CHOSEN_ON, JUDGED_ON
from benchmarks.finetuned.training import KINDS
from noshadow._audit.own_gains import SHARE
from noshadow.metrics import auc, spearman, tpr_at_fpr
from noshadow.scores.own_gain import DAMPING, MOST_PER_TOKEN

RESULTS = Path(__file__).parents[1] / "results" / "own_gain.json"
CHOICE = f"{SHARE:g}/{MOST_PER_TOKEN:g}/{DAMPING:g}"
BESIDE = ("loss", "base_gain", "error_zone", "window_votes")
FPR = 1e-2
LEAST_WITH_BOTH = 100  # sequences
LEAST = 0.8  # what a choice must find after ten epochs of either kind


def pooled(pairs):
    """AUC and rate of one attack over all targets together."""
    members, others = map(np.concatenate, zip(*pairs, strict=True))
    return {"auc": float(auc(members, others)), "tpr_0.01": float(tpr_at_fpr(members, others, FPR))}


def order(scores, inside):
    """What a score says of sequences that the fine-tuning never had.

    spread_without: standard deviation over sequences of the score without it; separation: mean with it less mean without it; means over
    targets. spearman: rank correlation over sequences of their mean with and without it; None where the targets leave too few with both.
    """
    spread = np.mean([row[~side].std() for row, side in zip(scores, inside, strict=True)])
    separation = np.mean([row[side].mean() - row[~side].mean() for row, side in zip(scores, inside, strict=True)])
    known = inside.any(0) & ~inside.all(0)
    found = {"spread_without": float(spread), "separation": float(separation), "spearman": None}
    if known.sum() >= LEAST_WITH_BOTH:
        with_it, without_it = (np.nanmean(np.where(side, scores, np.nan)[:, known], axis=0) for side in (inside, ~inside))
        found["spearman"] = float(spearman(with_it, without_it))
    return found


def configuration(work, pool, kind, epoch):
    """Everything measured on one configuration, None where no target is there."""
    files = sorted(work.glob(f"own-{pool}-{kind}-[0-9][0-9]-{epoch}.npz"))
    if not files:
        return None
    pairs, held, members, grid = {}, {"own_gain": [], "base_gain": []}, [], {}
    for path in files:
        own, told = np.load(path), np.load(work / f"{'-'.join(path.stem.split('-')[1:4])}.npz")
        inside = told["inside"]
        columns = {name: told[f"{epoch}/{name}"] * (-1 if name == "loss" else 1) for name in BESIDE} | {"own_gain": own[CHOICE]}
        for name, score in columns.items():
            pairs.setdefault(name, []).append((score[inside], score[~inside]))
        for name, rows in held.items():
            rows.append(columns[name])
        members.append(inside)
        for name in own.files:
            if name != "inside" and pool == CHOSEN_ON:
                grid.setdefault(name, []).append((own[name][inside], own[name][~inside]))
    return {
        "targets": len(files),
        "test_sequences": int(sum((~inside).sum() for inside in members)),
        "attacks": {name: pooled(rows) for name, rows in pairs.items()},
        "order": {name: order(np.array(rows), np.array(members)) for name, rows in held.items()},
        "grid": {name: pooled(rows)["tpr_0.01"] for name, rows in grid.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    work, cases = parser.parse_args().work, {}
    for pool in (CHOSEN_ON, JUDGED_ON):
        for kind, how in KINDS.items():
            for epoch in how["epochs"]:
                found = configuration(work, pool, kind, epoch)
                if found is not None:
                    cases[f"{pool}-{kind}-{epoch}"] = {"pool": pool, "kind": kind, "epochs": epoch} | found
    how = {"choice": {"share": SHARE, "most": MOST_PER_TOKEN, "damping": DAMPING}, "least": LEAST, "fpr": FPR}
    how |= {"chosen_on": CHOSEN_ON, "judged_on": JUDGED_ON}
    RESULTS.write_text(json.dumps({"how": how, "cases": cases, "environment": environment()}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

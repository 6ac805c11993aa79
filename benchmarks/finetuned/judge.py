"""What every column, LiRA with few references and exposure find on fine-tunes that are there.

`python -m benchmarks.finetuned.judge --work DIR` writes benchmarks/results/finetuned.json. It trains nothing. Models come in blocks of
twelve: each model is a target once, its references are others of its block, and the truth is d′ over the models of the other blocks,
which no method sees. Rules are chosen on the Shakespeare pool and judged on the reviews.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.environment import environment
from benchmarks.exposure.measures import summary
from benchmarks.exposure.rivals import lira
from benchmarks.exposure.truth import separation
from benchmarks.finetuned.rules import RULES, exposure_scores
from benchmarks.finetuned.training import KINDS, SCORED
from noshadow.metrics import loss_auc, spearman, tnr_at_fnr, top_recall, tpr_at_fpr

RESULTS = Path(__file__).parents[1] / "results" / "finetuned.json"
BLOCK, REFERENCES = 12, (1, 2, 4, 8)
WEIGHED = (2, 4)  # numbers of references that exposure is given
RANKED_EVERY = 3  # every third model is a target whose records are ranked: weighing takes most of the time
ALONE, BESIDE = ("loss", "min_k", "min_k_plus", "zlib_ratio"), ("base_gain", "error_zone", "window_votes")
FPRS = (1e-2, 1e-3)
TOP = {"top": 0.05, "keep": 0.25}
CHOSEN_ON, JUDGED_ON = "shakespeare", "sst2"


class Few:
    """Statistics and membership of a few reference models, as `rivals.lira` takes them."""

    def __init__(self, margins, membership):
        self.margins, self.membership = margins, membership


def references_of(target, count):
    """Numbers of a target's references: others of its block, never its own complement.

    Two are drawn independently of each other, as the package draws them; more are whole pairs, which have each sequence equally often.
    """
    first, own = target // BLOCK * BLOCK, target // 2
    pairs = [pair for pair in range(first // 2, (first + BLOCK) // 2) if pair != own]
    pairs = pairs[target % len(pairs) :] + pairs[: target % len(pairs)]
    if count <= 2:
        return [2 * pair + (target + number) % 2 for number, pair in enumerate(pairs[:count])]
    return [2 * pair + side for pair in pairs[: count // 2] for side in (0, 1)]


def attack_scores(columns, target, losses, inside):
    """Scores of all sequences of the pool as attacks on one model: name → (n,), larger = member."""
    found = {name: -values if name == "loss" else values for name, values in columns.items() if name in (*ALONE, *BESIDE)}
    for count in REFERENCES:
        rows = references_of(target, count)
        few = lira(-losses[target], Few(-losses[rows], inside[rows]), "larger")
        found[f"lira_{count}"] = few["lira_pooled"]
    return found


def record_scores(columns, target, losses, inside):
    """Scores of the target's members by exposure: name → (m,)."""
    member = inside[target]
    found = {name: values[member] for name, values in columns.items() if name in (*ALONE, *BESIDE)}
    found |= {f"head_{name.removeprefix('head/')}": values for name, values in columns.items() if name.startswith("head/")}
    for count in REFERENCES[1:]:
        rows = references_of(target, count)
        few = lira(-losses[target], Few(-losses[rows], inside[rows]), "larger")
        found[f"lira_{count}"] = few["lira_pooled_d"][member]
        if count in WEIGHED:
            found |= exposure_scores(columns, -losses, inside, target, rows, f"_{count}")
    return found


def truths(target, losses, inside):
    """d′ of all sequences over the models of other blocks, and over two halves of these."""
    others = np.flatnonzero(np.arange(len(losses)) // BLOCK != target // BLOCK)
    parts = (others, others[: len(others) // 2], others[len(others) // 2 :])
    return tuple(separation(-losses[part], inside[part])[0] for part in parts)


def gains(models, inside):
    """What the gain over the base says of a sequence that the fine-tuning never had.

    spearman: rank correlation over sequences of the mean gain under models with it and without it. spread_without: standard deviation over
    sequences of the latter. separation, separation_spread: mean and standard deviation of their difference, which is what a member adds.
    """
    gain = np.array([columns["base_gain"] for columns in models])
    with_it, without_it = (np.nanmean(np.where(side, gain, np.nan), axis=0) for side in (inside, ~inside))
    added = with_it - without_it
    found = {"spearman": spearman(with_it, without_it), "spread_without": without_it.std()}
    found |= {"separation": added.mean(), "separation_spread": added.std()}
    return {name: float(value) for name, value in found.items()}


def judged(models, inside):
    """Everything measured on one configuration.

    Args:
        models: per model, name → array. inside: (models, n).
    """
    losses = np.array([columns["loss"] for columns in models])
    pooled, ranks, risks, seconds = {}, {}, [], []
    for target, columns in enumerate(models):
        member = inside[target]
        for name, score in attack_scores(columns, target, losses, inside).items():
            pooled.setdefault(name, []).append((score[member], score[~member]))
        truth, first, second = (values[member] for values in truths(target, losses, inside))
        for name, score in (record_scores(columns, target, losses, inside) if target % RANKED_EVERY == 0 else {}).items():
            row = ranks.setdefault(name, {"spearman": [], "recall": []})
            row["spearman"].append(spearman(truth, score))
            row["recall"].append(top_recall(truth, score, **TOP))
        seconds += [top_recall(first, second, **TOP), top_recall(second, first, **TOP)]
        own = losses[target]
        risks.append({"auc": loss_auc(own[member], own[~member]), "tnr": tnr_at_fnr(own[member], own[~member], 1e-2)})
    attacks = {name: attacked(*map(np.concatenate, zip(*pairs, strict=True))) for name, pairs in pooled.items()}
    return {
        "models": len(models),
        "attacks": attacks,
        "records": {name: {measure: summary(values) for measure, values in row.items()} for name, row in ranks.items()},
        "second_lira": summary(seconds),
        "gains": gains(models, inside),
        "risk": {name: float(np.mean([row[name] for row in risks])) for name in risks[0]},
    }


def attacked(members, others):
    """AUC and rates of one attack over all targets together."""
    return {"auc": loss_auc(-members, -others)} | {f"tpr_{fpr:g}": tpr_at_fpr(members, others, fpr) for fpr in FPRS}


def configurations(work):
    """(pool, kind, epoch) → (per model name → array, (models, n) membership), of whole blocks of models."""
    found = {}
    for pool in (CHOSEN_ON, JUDGED_ON):
        for kind, how in KINDS.items():
            files = sorted(work.glob(f"{pool}-{kind}-[0-9][0-9].npz"))
            held = [dict(np.load(path)) for path in files[: len(files) // BLOCK * BLOCK]]
            if len(held) < 2 * BLOCK:
                continue
            inside = np.array([one["inside"] for one in held])
            for epoch in how["epochs"]:
                cut = len(f"{epoch}/")
                models = [{name[cut:]: values for name, values in one.items() if name.startswith(f"{epoch}/")} for one in held]
                found[pool, kind, epoch] = models, inside
    return found


def predictors(cases):
    """Rank correlation over configurations of the loss AUC, and of the TNR, with the rate of LiRA with eight references."""
    rate = [case["attacks"]["lira_8"]["tpr_0.01"] for case in cases.values()]
    return {name: spearman(np.array([case["risk"][name] for case in cases.values()]), np.array(rate)) for name in ("auc", "tnr")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    work = parser.parse_args().work
    cases = {}
    for (pool, kind, epoch), (models, inside) in configurations(work).items():
        cases[f"{pool}-{kind}-{epoch}"] = {"pool": pool, "kind": kind, "epochs": epoch} | judged(models, inside)
        print(pool, kind, epoch, cases[f"{pool}-{kind}-{epoch}"]["attacks"]["base_gain"], flush=True)
    if not cases:
        raise SystemExit("fewer than two whole blocks of models are there: train more (python -m benchmarks.finetuned)")
    how = {
        "rules": list(RULES),
        "chosen_on": CHOSEN_ON,
        "judged_on": JUDGED_ON,
        "top": TOP,
        "block": BLOCK,
        "scored_heads": len(SCORED),
        "ranked_every": RANKED_EVERY,
    }
    found = {"how": how, "cases": cases, "predictors": predictors(cases), "environment": environment()}
    RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

"""Canaries selected by a score against random ones: how much stronger is the attack on the records an auditor would plant?

`python -m benchmarks.canaries --data DIR --work DIR` trains 64 reference models of a small network on half of 2,000 Fashion-MNIST images
each, and 64 more on the same images with some labels changed; goes on where it stopped. Writes benchmarks/results/canaries.json.
Candidates are the training records of one audited model, which is none of the attacked ones.
"""

import argparse
import functools
import json
import time
from pathlib import Path

import numpy as np
import torch

import noshadow as ns
from benchmarks.environment import environment
from benchmarks.papers import networks
from benchmarks.papers.columns import last_layer
from benchmarks.papers.pools import fashion_small
from noshadow.attacks import attack_success, lira_scores
from noshadow.metrics import auc, tpr_at_fpr
from noshadow.reference import Recipe, train_references

RESULT = Path(__file__).parent / "results" / "canaries.json"
RECORDS, MODELS, CANARIES = 2_000, 64, 50
WIDTHS, TRAINING = (64,), {"epochs": 40, "batch_size": 50, "lr": 1e-3, "optimizer": "adamw", "weight_decay": 5e-4, "schedule": "cosine"}
SCORES = ("shift", "leverage", "loss", "influence")
LEVELS = (0.01, 0.05)
DRAWS = 20


def drawn_records(data):
    """A fixed draw of images and labels."""
    x, y = fashion_small(data, None)
    rows = np.random.default_rng(0).permutation(len(x))[:RECORDS]
    return np.ascontiguousarray(x[rows], dtype=np.float32), y[rows].astype(np.int64)


def mislabelled(y, rows, classes=10, seed=0):
    """The labels with those of `rows` replaced by another class, each of the others as likely."""
    found = y.copy()
    found[rows] = (y[rows] + np.random.default_rng(seed).integers(1, classes, len(rows))) % classes
    return found


def reference_set(folder, x, y):
    """Reference models on halves of these records."""
    recipe = Recipe(functools.partial(networks.perceptron, x.shape[1], WIDTHS, 10), x, y, **TRAINING)
    half = len(x) // 2
    records = ((x[:half], y[:half]), (x[half:], y[half:]))
    return recipe, train_references(folder, recipe, *records, models=MODELS, workers=1, threads=torch.get_num_threads(), progress=False)


def power(references, rows):
    """LiRA on these records alone, each model attacked with all the others: AUC, success and TPR with its standard error over models."""
    signals, member = np.asarray(references.statistic), np.asarray(references.membership)
    inside, outside = [], []
    for model in range(len(signals)):
        others = np.arange(len(signals)) != model
        scores = lira_scores(signals[model], signals[others], member[others], variance="record")[rows]
        own = member[model][rows]
        inside.append(scores[own])
        outside.append(scores[~own])
    known, unknown = np.concatenate(inside), np.concatenate(outside)
    found = attack_success(signals, member, attack="lira", variance="record")
    return {
        "auc": auc(known, unknown),
        "success": float(found.success[rows].mean()),
        "d_prime": float(np.median(found.d_prime[rows])),
        **{f"tpr_{level:g}": tpr_at_fpr(known, unknown, level) for level in LEVELS},
    }


def chosen_rows(columns, half, truth, rng):
    """Name → rows of the canaries that each way of choosing takes from the candidates, the first `half` records of the pool."""
    ways = {name: np.argsort(-np.asarray(columns[name]), kind="stable")[:CANARIES] for name in SCORES}
    ways["best possible"] = np.argsort(-truth[:half], kind="stable")[:CANARIES]
    return ways | {f"random {draw}": rng.permutation(half)[:CANARIES] for draw in range(DRAWS)}


def measured(data, work):
    """Power of the attack on canaries of each kind."""
    x, y = drawn_records(data)
    half, rng = len(x) // 2, np.random.default_rng(1)
    recipe, references = reference_set(work / "canaries" / "plain", x, y)
    model = recipe(np.arange(half), 2_024)
    columns = last_layer(recipe, model, (x[:half], y[:half]))
    truth = attack_success(np.asarray(references.statistic), np.asarray(references.membership), attack="lira", variance="record").d_prime
    ways = chosen_rows(columns, half, truth, rng)
    found = {name: power(references, rows) for name, rows in ways.items()}
    planted = ways["random 0"]
    _, wrong = reference_set(work / "canaries" / "mislabelled", x, mislabelled(y, planted))
    found["random, wrong labels"] = power(wrong, planted)
    draws = [found.pop(f"random {draw}") for draw in range(DRAWS)]
    found["random"] = {name: float(np.mean([draw[name] for draw in draws])) for name in draws[0]}
    correct, member = np.asarray(references.correct), np.asarray(references.membership)
    return {
        "records": len(x),
        "models": MODELS,
        "canaries": CANARIES,
        "random_draws": DRAWS,
        "fit": {"members": round(float(correct[member].mean()), 4), "others": round(float(correct[~member].mean()), 4)},
        "ways": {name: {key: round(value, 4) for key, value in held.items()} for name, held in found.items()},
        "random_spread": {name: round(float(np.std([draw[name] for draw in draws], ddof=1)), 4) for name in draws[0]},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="where models go; run again to go on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.process_time()
    entry = measured(arguments.data, arguments.work)
    entry |= {"processor_seconds": round(time.process_time() - started, 1), "environment": environment(), "version": ns.__version__}
    RESULT.write_text(json.dumps(entry, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

"""How far boosting's scores are from real trainings without each record, beside published relatives; and what they cost.

Models: scikit-learn's two-class GradientBoostingClassifier. Truth: as many trainings as there are records, each without one of them,
and how far that record's own margin falls (its loss rises) by it. `python benchmarks/boosting_loo.py`; `--skip-speed` without the
million records.

Peers, written down from their formulas: LeafRefit (leaf values refitted round after round, other margins moving along), LeafInfluence
(its derivative), BoostIn (Brophy, Hammoudeh, Lowd: arXiv 2205.00359; Sharchilev et al.: arXiv 1802.06640).
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from environment import environment
from scipy.stats import spearmanr
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier

from noshadow.scores.trees.boosting import boosting_scores
from noshadow.views.readers import reader_of
from noshadow.views.view import Settings

RESULTS = Path(__file__).parent / "results" / "boosting_loo.json"
ROUNDS, RATE, RECORDS = 40, 0.1, 200
TOP = 0.05  # share of the records that the truth calls riskiest, looked for in twice as many


def data_sets():
    x, y = load_breast_cancer(return_X_y=True)
    pixels, digits = load_digits(return_X_y=True)
    noisy = make_classification(RECORDS, 10, n_informative=5, flip_y=0.2, random_state=0)
    return {"breast cancer": (x, y), "digits, even or odd": (pixels, digits % 2), "a fifth of the labels random": noisy}


def fitted(x, y, depth):
    return GradientBoostingClassifier(n_estimators=ROUNDS, learning_rate=RATE, max_depth=depth, random_state=0).fit(x, y)


def margins(model, x, y):
    return (2 * y - 1) * model.decision_function(x)


def training_of(model, x, y):
    return reader_of(model).boosted(model, (x, y), weights=None, settings=Settings())


def leaf_refits(leaves, y, start):
    """Falls of own margins when leaf values are refitted in every round, the others' margins moving along: LeafRefit."""
    n = len(y)
    whole, without = start.copy(), np.tile(start, (n, 1))
    others = 1 - np.eye(n)
    for leaf in leaves:
        members = np.eye(leaf.max() + 1)[leaf]
        p, q = 1 / (1 + np.exp(-whole)), 1 / (1 + np.exp(-without))
        whole = whole + RATE * (((y - p) @ members) / np.maximum((p * (1 - p)) @ members, 1e-150))[leaf]
        top, bottom = (others * (y - q)) @ members, (others * q * (1 - q)) @ members
        without = without + RATE * np.where(bottom > 1e-12, top / np.maximum(bottom, 1e-12), 0.0)[:, leaf]
    return (2 * y - 1) * (whole - np.diag(without))


def leaf_influences(leaves, y, start):
    """Derivatives of own margins in the record's weight through all rounds (LeafInfluence), and BoostIn of each record on itself."""
    n = len(y)
    raw, slopes, boostin = start.copy(), np.zeros((n, n)), np.zeros(n)
    for leaf in leaves:
        members = np.eye(leaf.max() + 1)[leaf]
        p = 1 / (1 + np.exp(-raw))
        g, h, third = p - y, p * (1 - p), p * (1 - p) * (1 - 2 * p)
        bottom = np.maximum(h @ members, 1e-150)
        value = -(g @ members) / bottom
        own = (g + value[leaf] * h) / bottom[leaf]
        boostin += RATE * g * own
        moved = -((slopes * (h + value[leaf] * third)) @ members) / bottom - own[:, None] * members
        slopes = slopes + RATE * moved[:, leaf]
        raw = raw + RATE * value[leaf]
    return (2 * y - 1) * np.diag(slopes), boostin


def found_again(truth, score):
    count = round(TOP * len(truth))
    return float(np.isin(np.argsort(-truth)[:count], np.argsort(-score)[: 2 * count]).mean())


def compared(x, y, depth):
    rows = np.random.default_rng(0).permutation(len(y))[:RECORDS]
    x, y = x[rows], y[rows]
    model = fitted(x, y, depth)
    training = training_of(model, x, y)
    leaves = [one.trees[0].leaves for one in training.rounds()]
    start = np.broadcast_to(training.start, training.margins.shape)[:, 0].copy()
    own = boosting_scores(training).columns
    influence, boostin = leaf_influences(leaves, y, start)
    now = margins(model, x, y)
    truth = np.empty(len(y))
    for i in range(len(y)):
        kept = np.arange(len(y)) != i
        truth[i] = now[i] - margins(fitted(x[kept], y[kept], depth), x[i : i + 1], y[i : i + 1])[0]
    scores = {
        "shift": own["shift"],
        "margin without it": own["shift"] - now,
        "LeafRefit": leaf_refits(leaves, y, start),
        "LeafInfluence": influence,
        "influence": own["influence"],
        "BoostIn": boostin,
        "leverage": own["leverage"],
        "loss": np.log1p(np.exp(-now)),
    }
    gaps = {name: float(np.median(np.abs(scores[name] - truth))) for name in ("shift", "LeafRefit", "LeafInfluence")}
    return {
        "records": len(y),
        "median_fall": float(np.median(np.abs(truth))),
        "spearman": {name: float(spearmanr(truth, score).statistic) for name, score in scores.items()},
        "found": {name: found_again(truth, score) for name, score in scores.items()},
        "median_gap": gaps,
        "shift_to_leaf_refit": float(spearmanr(scores["shift"], scores["LeafRefit"]).statistic),
    }


def speed(records=1_000_000, rounds=20):
    x, y = make_classification(records, 10, n_informative=5, flip_y=0.1, random_state=0)
    model = HistGradientBoostingClassifier(max_iter=rounds, early_stopping=False).fit(x, y)
    started = time.perf_counter()
    boosting_scores(training_of(model, x, y))
    return {"records": records, "rounds": rounds, "seconds": time.perf_counter() - started}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--skip-speed", action="store_true")
    asked = parser.parse_args()
    found = {f"{name}, depth {depth}": compared(*data, depth) for name, data in data_sets().items() for depth in (2, 4)}
    held = json.loads(RESULTS.read_text())["speed"] if RESULTS.exists() and asked.skip_speed else None
    result = {"rounds": ROUNDS, "rate": RATE, "top": TOP, "settings": found, "speed": held if asked.skip_speed else speed()}
    RESULTS.write_text(json.dumps(result | {"environment": environment()}, indent=1) + "\n")
    for name, entry in found.items():
        print(name, {key: round(value, 2) for key, value in entry["spearman"].items()}, entry["found"])


if __name__ == "__main__":
    main()

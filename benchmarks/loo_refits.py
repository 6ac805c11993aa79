"""How close influence, newton and loo come to true leave-one-out refits of a converged head, as n grows.

Head: multinomial logistic regression on the first principal components of scikit-learn's digits (classes 0–4),
fitted to convergence; every record is left out and the head refitted. `python benchmarks/loo_refits.py`.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from environment import environment
from scipy.special import log_softmax
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

import noshadow as ns

RESULTS = Path(__file__).parent / "results" / "loo_refits.json"
SIZES = (50, 100, 200, 400, 800)
COMPONENTS, PENALTY_PER_RECORD = 6, 0.01
SCORES = ("influence", "newton", "loo")


def fitted(features, labels, damping):
    return LogisticRegression(C=1 / damping, tol=1e-12, max_iter=10_000, solver="newton-cg").fit(features, labels)


def losses(model, features, labels):
    return -log_softmax(model.decision_function(features), axis=1)[np.arange(len(labels)), labels]


def errors(n):
    """Median relative error over all records and over the riskiest tenth."""
    pixels, digits = load_digits(return_X_y=True)
    kept = np.flatnonzero(digits < 5)
    rows = np.random.default_rng(0).permutation(kept)[:n]
    features = PCA(COMPONENTS, random_state=0).fit_transform(pixels[kept] / 16)[np.searchsorted(kept, rows)]
    labels, damping = digits[rows], PENALTY_PER_RECORD * n
    model = fitted(features, labels, damping)
    scores = ns.record_scores(features, model.decision_function(features), labels, damping=damping, penalize_intercept=False)
    before = losses(model, features, labels)
    truth = np.empty(n)
    for i in range(n):
        keep = np.arange(n) != i
        truth[i] = losses(fitted(features[keep], labels[keep], damping), features[i : i + 1], labels[i : i + 1])[0] - before[i]
    top = truth >= np.quantile(truth, 0.9)
    row = {"n": n, "damping": damping, "stationarity": scores.stationarity}
    for name in SCORES:
        relative = np.abs(getattr(scores, name) / truth - 1)
        row[name] = {"median": float(np.median(relative)), "median_top_tenth": float(np.median(relative[top]))}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two small sizes, nothing stored")
    arguments = parser.parse_args()
    rows = [errors(n) for n in (SIZES[:2] if arguments.quick else SIZES)]
    print(json.dumps(rows, indent=1))
    if not arguments.quick:
        RESULTS.write_text(json.dumps({"rows": rows, "environment": environment()}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

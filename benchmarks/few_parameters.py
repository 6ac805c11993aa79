"""Sizes of exposure where a model has few parameters: what their intervals hold, and whether a verdict follows from them.

A logistic regression of three classes on four features has fifteen numbers to say everything about 300 records. What differs between two
trainings then moves all records together, which no record's own margins show. The truth are d′ and rates of 400 models on random
halves. `python benchmarks/few_parameters.py` writes benchmarks/results/few_parameters.json.
"""

import argparse
import itertools
import json
from pathlib import Path

import numpy as np
from environment import environment
from scipy.special import ndtr, ndtri
from sklearn.linear_model import LogisticRegression

import noshadow as ns
from noshadow.limits import STRONG_TIMES

RESULTS = Path(__file__).parent / "results" / "few_parameters.json"
MEMBERS, FEATURES, TRUTH_MODELS, SETS, TOP = 300, (4, 40, 200), 400, 20, 15
COUNTS = (4, 8, 16, 32)


def pool(features, rng):
    """Twice as many records as members, and labels of three classes that depend on a few of the features."""
    x = rng.normal(size=(2 * MEMBERS, features))
    x[:, 3] = rng.random(len(x)) < 0.3
    logits = np.c_[x[:, 0] + x[:, 3], x[:, 1], x[:, 2] - x[:, 0]]
    return x, (logits + rng.gumbel(size=logits.shape)).argmax(1)


def margins_of(x, y, members):
    """(models, n) log-odds of the true class, of a model for each half."""
    found = np.empty(members.shape)
    for row, member in zip(found, members, strict=True):
        logits = LogisticRegression(C=10.0, max_iter=1000).fit(x[member], y[member]).decision_function(x)
        own = logits[np.arange(len(y)), y]
        logits[np.arange(len(y)), y] = -np.inf
        row[:] = own - np.logaddexp.reduce(logits, axis=1)
    return found


def balanced(models, n, rng):
    """(models, n): every record in half of the models, chosen at random."""
    return np.argsort(np.argsort(rng.random((models, n)), axis=0), axis=0) < models // 2


def paired(models, n, rng):
    """The same, but that every second half is the rest of the one before."""
    return np.vstack([balanced(2, n, rng) for _ in range(models // 2)])


def independent(models, n, rng):
    """(models, n): halves that know nothing of each other."""
    return np.array([np.isin(np.arange(n), rng.permutation(n)[: n // 2]) for _ in range(models)])


DESIGNS = {"balanced": balanced, "pairs": paired, "independent": independent}


def truth(margins, members):
    """d′ and the rate at FPR 1/MEMBERS of every record, by Gaussians of its own."""
    sides = [np.where(members == side, margins, np.nan) for side in (True, False)]
    (mean_in, mean_out), (wide_in, wide_out) = ([step(side, axis=0) for side in sides] for step in (np.nanmean, np.nanstd))
    separation = mean_in - mean_out
    return separation / np.sqrt((wide_in**2 + wide_out**2) / 2), ndtr((separation + ndtri(1 / MEMBERS) * wide_out) / wide_in)


def judged(features, design, seed):
    """One data set: the exposure of one model's members from a few references, beside the truth."""
    rng = np.random.default_rng([features, seed])
    x, y = pool(features, rng)
    n = len(y)
    own, others = independent(1, n, rng)[0], independent(TRUTH_MODELS, n, rng)
    real, rates = (values[own] for values in truth(margins_of(x, y, others), others))
    margins = margins_of(x, y, own[None])[0, own]
    rows = {}
    for count in COUNTS:
        members = DESIGNS[design](count, n, rng)
        found = ns.exposure(margins, references=margins_of(x, y, members)[:, own], membership=members[:, own])
        rows[f"{count}"] = None if found.order_only else told(found, real, rates)
    return rows


def told(found, real, rates):
    held = (found.interval[:, 0] <= real) & (real <= found.interval[:, 1])
    top = np.argsort(-found.score)[:TOP]
    worst = int(np.argmax(found.tpr(1 / MEMBERS)))
    return {
        "cover": float(held.mean()),
        "cover_top": float(held[top].mean()),
        "d_top": float(found.d_prime[top].mean()),
        "true_d_top": float(real[top].mean()),
        "rate": float(found.tpr(1 / MEMBERS).mean()),
        "true_rate": float(rates.mean()),
        "stands_out": bool(found.tpr_interval(1 / MEMBERS)[worst, 0] > STRONG_TIMES / MEMBERS),
        "true_worst": float(rates[worst]),
    }


def summary(rows):
    """Means over the data sets that have sizes."""
    told = [row for row in rows if row is not None]
    means = {name: round(float(np.mean([row[name] for row in told])), 4) for name in told[0]} if told else {}
    return {"sets": len(rows), "with_sizes": len(told)} | means


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=SETS)
    sets = parser.parse_args().sets
    found = {}
    for features, design in itertools.product(FEATURES, DESIGNS):
        rows = [judged(features, design, seed) for seed in range(sets)]
        found[f"{features}, {design}"] = {f"{count}": summary([row[f"{count}"] for row in rows]) for count in COUNTS}
        for count, row in found[f"{features}, {design}"].items():
            print(features, design, count, row, flush=True)
    result = {
        "members": MEMBERS,
        "truth_models": TRUTH_MODELS,
        "top": TOP,
        "times": STRONG_TIMES,
        "cases": found,
        "environment": environment(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

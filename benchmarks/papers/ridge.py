"""California Housing by ridge regression in closed form, as [RET] Section 5.1 says, attacked by the signed residual and by the loss.

`python -m benchmarks.papers.ridge --data DIR` fits 200 halves of the records, scores 16 of the models and writes
benchmarks/results/papers_ridge.json; seconds, as nothing is trained by steps.
"""

import argparse
import json
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import noshadow as ns
from benchmarks.environment import environment
from benchmarks.papers.columns import LAST
from benchmarks.papers.counts import by_count
from benchmarks.papers.run import RESULTS
from benchmarks.papers.settings import SETTINGS, records
from benchmarks.papers.truth import RECALLS, agreement, lira_truth
from noshadow.metrics import noise_ceiling
from noshadow.reference import plan

SETTING = "california_ridge"
RESULT = RESULTS.parent / "papers_ridge.json"
STATISTICS = {"lira": "margin", "lira_loss": "loss"}


def fitted(x, y, damping):
    """(d + 1,) minimum of Σ(y − x̃ᵀθ)² + damping ‖θ‖², the constant among the features."""
    wide = np.column_stack([x, np.ones(len(x))])
    return np.linalg.solve(wide.T @ wide + damping * np.eye(wide.shape[1]), wide.T @ y)


def fitted_halves(x, y, models, weight_decay):
    """What `lira_truth` asks of reference models, and the parameters of each."""
    drawn = plan(len(x), models=models, seed=0)
    member, wide = np.asarray(drawn.membership), np.column_stack([x, np.ones(len(x))])
    # The training's objective is the mean squared error plus half the decay times the squared norm.
    weights = np.stack([fitted(x[rows], y[rows], rows.sum() * weight_decay / 2) for rows in member])
    residuals = weights @ wide.T - y
    references = SimpleNamespace(membership=member, statistic=residuals, loss=residuals**2, task="regression", plan=drawn)
    return references, weights


def both_truths(references, models):
    """Success and d′ of every record by each statistic."""
    found = {name: lira_truth(references, models, statistic=statistic) for name, statistic in STATISTICS.items()}
    return {f"{name}_{end}": values for name, lira in found.items() for end, values in (("success", lira.success), ("d", lira.d_prime))}


def scored(x, y, references, weights, target, weight_decay):
    """Scores of one model's own records."""
    rows = references.plan.members(target)
    outputs = np.column_stack([x[rows], np.ones(len(rows))]) @ weights[target]
    damping = len(rows) * weight_decay / 2
    scores = ns.record_scores(x[rows], outputs[:, None], y[rows], task="regression", damping=damping)
    return {name: np.asarray(getattr(scores, name)) for name in LAST if getattr(scores, name) is not None}


def second(references, targets):
    """What a LiRA with half of the models finds of another's, by each statistic: means over the targets' own records."""
    halves = [both_truths(references, half) for half in np.array_split(np.arange(references.plan.models), 2)]
    rows = []
    for name in halves[0]:
        tables = []
        for target in range(targets):
            own = references.plan.members(target)
            pair = (half[name][own] for half in halves)
            tables.append(noise_ceiling(*pair, recalls=RECALLS, attack=name, resamples=100).to_dict("records"))
        for same in zip(*tables, strict=True):
            values = [row["value"] for row in same if row["value"] is not None]
            mean = round(float(np.mean(values)), 5) if values else None
            rows.append(same[0] | {"value": mean, "low": None, "high": None, "targets": targets, "note": ""})
    return rows


def measured(data):
    """Agreement of every score with both truths, and recall over the number of models."""
    setting = SETTINGS[SETTING]
    x, y, _ = records(setting, data, None)
    x, decay, numbers = x.astype(np.float64), setting.training["weight_decay"], np.arange(setting.references)
    references, weights = fitted_halves(x, y, setting.references, decay)
    truths, scores = [], []
    for target in range(setting.targets):
        rows = references.plan.members(target)
        truths.append({name: values[rows] for name, values in both_truths(references, numbers[numbers != target]).items()})
        scores.append(scored(x, y, references, weights, target, decay))
    return {
        "title": "California Housing, ridge regression in closed form",
        "records": len(x),
        "references": setting.references,
        "targets": setting.targets,
        "agreement": agreement(truths, scores),
        "ceiling": second(references, setting.targets),
        "by_count": by_count(references, scores),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    arguments = parser.parse_args()
    started = time.process_time()
    entry = measured(arguments.data)
    entry |= {"processor_seconds": round(time.process_time() - started, 1), "environment": environment()}
    RESULT.write_text(json.dumps(entry, separators=(",", ":"), sort_keys=True).replace("},{", "},\n{") + "\n")


if __name__ == "__main__":
    main()

"""Is the demo's verdict right? LiRA on models of the demo's kind, beside what audits of them predict.

64 models of the demo's kind (`noshadow.demo.train_network`) are trained on balanced random halves of the digits, and each is
attacked with the others. Demos with 16 seeds are audited as the command does it, and attacked with the 64 models: what each audit
predicts stands beside what LiRA finds on it, and beside the mean over all of them, which is the truth that a prediction is about.
One model's own rate is counted on one false positive.

`python -m benchmarks.demo_truth --work DIR` goes on where it stopped (two minutes) and writes benchmarks/results/demo_truth.json.
"""

import argparse
import functools
import json
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.environment import environment
from benchmarks.tail_calibration.measure import attacked, gathered, resolved
from noshadow.attacks import lira_scores
from noshadow.demo import WEIGHT_DECAY, demo_audit, digit_halves, half_rows, train_network
from noshadow.losses import record_margins
from noshadow.metrics import tpr_at_fpr
from noshadow.reference import load_references, train_references
from noshadow.tail import model_risk
from noshadow.views import collect_outputs

RESULTS = Path(__file__).parent / "results" / "demo_truth.json"
MODELS, DEMOS = 64, 16
FOURS = (1, 2, 4)  # sets of four, whose rates an audit takes the mean of
FPRS = (1e-3, 1e-2)


@functools.cache
def digits():
    """All images as the demo scales them, and their labels."""
    bunch = load_digits()
    return (bunch.data / 16).astype(np.float32), bunch.target


def trained(indices, seed):
    """A model of the demo's kind on these rows."""
    pixels, labels = digits()
    return train_network(pixels[indices], labels[indices], seed=seed, progress=False)


def rates(scores, member):
    """LiRA's rate at each level that so few records resolve."""
    inside, outside = scores[member], scores[~member]
    return {f"{fpr:g}": tpr_at_fpr(inside, outside, resolved(fpr, min(len(inside), len(outside)))) for fpr in FPRS}


def of_references(references):
    """Rates of every model, attacked with the others."""
    signals, membership = np.asarray(references.statistic), np.asarray(references.membership)
    found = [rates(attacked(signals, membership, target, "record"), membership[target]) for target in range(len(signals))]
    return {level: [row[level] for row in found] for level in found[0]}


def of_demo(seed, references, rng):
    """One demo: what its audit predicts, what four models tell, and what LiRA with all 64 finds on it."""
    found = demo_audit(seed=seed, progress=False)
    member = np.zeros(len(digits()[1]), dtype=bool)
    member[half_rows(seed)[0]] = True
    model = train_network(*digit_halves(seed)[0], seed=seed, progress=False)
    statistic = record_margins(collect_outputs(model, digits())[0].outputs, digits()[1], "classification")
    held, side = np.asarray(references.statistic), np.asarray(references.membership)
    measured = rates(lira_scores(statistic, held, side, variance="record"), member)
    risk = found.model_risk
    return {
        "seed": seed,
        "fpr": risk.fpr,
        "measured": measured,
        "predicted": {"from": risk.predicted_from, "value": risk.predicted_tpr, "interval": list(risk.predicted_tpr_interval)},
        "predicted_by_fours": {f"{fours}": by_fours(found, (statistic, member), (held, side), fours, rng) for fours in FOURS},
        "in_domain": risk.in_calibration_domain,
        "level": risk.prediction_level,
    }


def by_fours(found, target, references, fours, rng):
    """The prediction from what LiRA with four models finds, the mean over so many disjoint fours, as `rate_with_four` has it."""
    statistic, member = target
    signals, membership = (np.vstack([own[None], other]) for own, other in zip(target, references, strict=True))
    drawn, sides = gathered(signals, membership, 0, 4 * fours, rng)
    rows = np.flatnonzero(sides[:, 0]), np.flatnonzero(~sides[:, 0])
    told = []
    for four in range(fours):
        own = np.concatenate([side[2 * four : 2 * four + 2] for side in rows])
        told.append(rates(lira_scores(statistic, drawn[own], sides[own], variance="global"), member)["0.01"])
    losses = found.member_losses, found.nonmember_losses
    risk = model_risk(*losses, reference_tpr=float(np.mean(told)), family="network", resamples=100)
    return {"value": risk.predicted_tpr, "interval": list(risk.predicted_tpr_interval)}


def summary(truth, demos):
    """Means over models, and how often each kind of interval holds the mean rate."""
    rate = float(np.mean(truth["0.001"]))
    told = {
        "rate": rate,
        "deviation_of_one": float(np.std(truth["0.001"], ddof=1)),
        "rate_of_demos": float(np.mean([row["measured"]["0.001"] for row in demos])),
        "predicted": beside(rate, [row["predicted"] for row in demos]),
    }
    return told | {f"predicted_by_{4 * fours}": beside(rate, [row["predicted_by_fours"][f"{fours}"] for row in demos]) for fours in FOURS}


def beside(rate, predictions):
    """Predictions of one way beside the rate: their mean, how many times the rate, their error, and the share of intervals that hold it."""
    values = np.array([one["value"] for one in predictions])
    held = [one["interval"][0] <= rate <= one["interval"][1] for one in predictions]
    error = float(np.sqrt(np.mean((values - rate) ** 2)))
    return {"mean": float(values.mean()), "times": float(values.mean() / rate), "rmse": error, "held": float(np.mean(held))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where the models go; run again to go on")
    work = parser.parse_args().work / "demo_truth"
    how = {"models": MODELS, "pool": "train", "workers": 1, "threads": 1, "keep_outputs": False, "progress": False}
    train_references(work, trained, digits(), **how)
    references, rng = load_references(work), np.random.default_rng(0)
    truth = of_references(references)
    demos = [of_demo(seed, references, rng) for seed in range(DEMOS)]
    result = {
        "models": MODELS,
        "members": len(half_rows(0)[0]),
        "weight_decay": WEIGHT_DECAY,
        "summary": summary(truth, demos),
        "demos": demos,
        "reference_models": truth,
        "environment": environment(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["summary"], indent=1), demos[0])


if __name__ == "__main__":
    main()

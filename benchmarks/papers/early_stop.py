"""Why the scores miss some records of a head that was stopped early: dampings and the path of training, on the probes.

`python -m benchmarks.papers.early_stop --data DIR --work DIR` trains the scored models of the probes on frozen features again, from their
own seeds, and scores them at the training's λ and at the λ that stopping early amounts to; of two classes it follows the losses too. Needs
the setting's reference models in the work folder. Writes benchmarks/results/papers_early_stop.json, an entry a setting; entries of settings
that are not in the work folder stay.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

import noshadow as ns
from benchmarks.environment import environment
from benchmarks.papers.run import RESULTS
from benchmarks.papers.settings import SETTINGS, recipe, records
from benchmarks.papers.truth import agreement, measured_truth
from noshadow.reference import load_references

STOPPED = ("pneumonia_probe", "fashion_probe")
RESULT = RESULTS.parent / "papers_early_stop.json"
COLUMNS = ("shift", "newton", "loo", "influence")


def stopping_decay(trained, rows):
    """The weight decay that t steps of gradient descent from small weights amount to: 1/(lr · t/(1 − momentum)).

    Exact in the limit of small eigenvalues for least squares: descent shrinks an eigendirection of curvature h by 1 − e^{−ht}, ridge
    regression with λ = 1/t by h/(h + λ); the two stay within 1.7 times of each other in risk (Ali, Kolter and Tibshirani 2019).
    """
    steps = trained.epochs * -(-rows // trained.batch_size)
    return (1 - trained.momentum) / (trained.lr * steps)


def path_separation(signals, losses, damping):
    """d′ of each record of a two-class head as it builds up over training, to first order: (n,).

    gap_i = r̄_i x_iᵀ𝓗⁻¹x_i over σ_i² = Σ_j (r̄_j x_iᵀ𝓗⁻¹x_j)², where r̄ is 1 − p_y averaged over the epochs and 𝓗 the damped curvature
    at the end: what the steps of training that took the record with them added to its margin, over what everybody's steps did.
    """
    x = np.column_stack([signals.features, np.ones(len(signals.features))]).astype(np.float64)
    margin = np.diff(signals.outputs.astype(np.float64), axis=1)[:, 0]
    weight = 1 / (2 + np.exp(margin) + np.exp(-margin))
    curvature = (x * weight[:, None]).T @ x + damping * np.eye(x.shape[1])
    responses = x @ np.linalg.solve(curvature, x.T)
    residual = (1 - np.exp(-losses)).mean(1)
    return residual * np.diag(responses) / np.sqrt(responses**2 @ residual**2)


def target_columns(trained, rows, seed):
    """Scores of one model's own records at both dampings, and along the path where there are two classes."""
    two = trained.outputs == 2
    model, losses = trained.train_one(rows, seed, traces=rows) if two else (trained.train_one(rows, seed), None)
    signals = ns.collect_signals(model, (trained.x[rows], trained.y[rows].numpy()))
    # A head of two logits with λ is one of one logit with λ/2.
    decays = {"training": trained.weight_decay, "stopping": trained.weight_decay + stopping_decay(trained, len(rows))}
    found = {}
    for name, decay in decays.items():
        damping = len(rows) * decay
        scores = ns.record_scores(signals.features, signals.outputs, signals.targets, task=trained.task, damping=damping)
        found |= {f"{name}_{column}": getattr(scores, column) for column in COLUMNS}
        if two:
            found[f"{name}_path"] = path_separation(signals, losses, damping / 2)
    return found


def measured(setting, data, work):
    """Agreement of each column with LiRA over the setting's targets."""
    x, y, _ = records(setting, data, work)
    trained, references = recipe(setting, x, y), load_references(work / setting.name / "references")
    numbers = np.arange(references.plan.models)
    truths, scores = [], []
    for target in range(setting.targets):
        rows = references.plan.members(target)
        truth = measured_truth(references, numbers[numbers != target])
        truths.append({name: truth[name][rows] for name in ("lira_success", "lira_d")})
        scores.append(target_columns(trained, rows, int(references.plan.seeds[target])))
        print(f"target {target + 1} of {setting.targets}", flush=True)
    return {
        "title": setting.title,
        "classes": trained.outputs,
        "targets": setting.targets,
        "training_decay": trained.weight_decay,
        "stopping_decay": round(stopping_decay(trained, len(rows)), 5),
        "agreement": agreement(truths, scores),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="work folder of benchmarks.papers.run")
    parser.add_argument("--only", nargs="+", choices=STOPPED, help="some of the probes")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in arguments.only or STOPPED:
        if not (arguments.work / name / "references").exists():
            print(name, "has no reference models here", flush=True)
            continue
        started = time.process_time()
        entry = measured(SETTINGS[name], arguments.data, arguments.work)
        entry |= {"processor_seconds": round(time.process_time() - started, 1), "environment": environment()}
        held = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        RESULT.write_text(json.dumps(held | {name: entry}, separators=(",", ":"), sort_keys=True).replace("},{", "},\n{") + "\n")


if __name__ == "__main__":
    main()

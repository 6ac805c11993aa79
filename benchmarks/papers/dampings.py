"""Influence over the whole network as [RET] computes it, and as noshadow does: which curvature, which damping, on one setting.

`python -m benchmarks.papers.dampings --data DIR --work DIR` trains the scored models of the setting again from their own seeds and scores
them by the Hessian and by Gauss–Newton, each at the published damping of 10 and at the training's own λ. Needs that setting's reference
models in the work folder. Writes benchmarks/results/papers_dampings.json.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

import noshadow as ns
from benchmarks.environment import environment
from benchmarks.papers.columns import last_layer
from benchmarks.papers.run import RESULTS
from benchmarks.papers.settings import SETTINGS, recipe, records
from benchmarks.papers.truth import agreement, measured_truth
from noshadow.metrics import spearman
from noshadow.reference import load_references, plan

SETTING = "energy_mlp"
RESULT = RESULTS.parent / "papers_dampings.json"
# [RET] App. D.1: beside the Hessian of the mean loss, to a tolerance of 1e-2.
PUBLISHED_DAMPING, PUBLISHED_TOLERANCE = 10.0, 1e-2
STEPS = 1_000
TARGETS = 6


def ways(weight_decay):
    """Name → arguments of `network_influence`: both curvatures at both dampings, beside the mean loss as the paper's."""
    dampings = {"10": PUBLISHED_DAMPING, "training": weight_decay}
    return {
        f"{curvature}_{name}": {"curvature": curvature, "damping": damping, "damping_scale": "mean"}
        for curvature in ("hessian", "gauss_newton")
        for name, damping in dampings.items()
    }


def target_columns(trained, model, rows):
    """Influence over the whole network in each way, the squared gradient it tends to at a large damping, and the last layer's influence."""
    data = (trained.x[rows], trained.y[rows].numpy().squeeze())
    found, ended = {}, {}
    for name, way in ways(trained.weight_decay).items():
        solved = ns.network_influence(
            model, data, data, task=trained.task, layers="all", tolerance=PUBLISHED_TOLERANCE, max_iterations=STEPS, progress=False, **way
        )
        found[name] = np.nan_to_num(np.asarray(solved.influence), nan=-np.inf)
        ended[name] = {"converged": float(np.mean(solved.converged)), "negative_curvature": float(np.mean(solved.negative_curvature))}
    found["squared_gradient"] = squared_gradients(trained, model, data)
    return found | {"last_influence": last_layer(trained, model, data)["influence"]}, ended


def squared_gradients(trained, model, data):
    """‖∇ℓ_i‖² of each record over all parameters."""
    found = []
    for x, y in zip(data[0], torch.as_tensor(data[1]), strict=True):
        output = model(x[None]).squeeze()
        loss = (output - y) ** 2 if trained.task == "regression" else torch.nn.functional.cross_entropy(output[None], y[None])
        slopes = torch.autograd.grad(loss, tuple(model.parameters()))
        found.append(float(sum((slope**2).sum() for slope in slopes)))
    return np.array(found)


def kept_columns(trained, path, rows, seed):
    """Columns of one target and how its solves ended, from disk when they are there."""
    if not path.exists():
        columns, ended = target_columns(trained, trained(rows, seed), rows)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"columns": {name: values.tolist() for name, values in columns.items()}, "ended": ended}))
        print(path.name, flush=True)
    held = json.loads(path.read_text())
    return {name: np.array(values) for name, values in held["columns"].items()}, held["ended"]


def measured(data, work):
    """Agreement of each way with LiRA over some of the setting's targets."""
    setting = SETTINGS[SETTING]
    x, y, _ = records(setting, data, work)
    trained, drawn, folder = recipe(setting, x, y), plan(len(x), models=setting.references, seed=0), work / SETTING
    held = [
        kept_columns(trained, folder / "dampings" / f"{target}.json", drawn.members(target), int(drawn.seeds[target]))
        for target in range(TARGETS)
    ]
    scores, ended = [columns for columns, _ in held], [ends for _, ends in held]
    references, numbers, truths = load_references(folder / "references"), np.arange(setting.references), []
    for target in range(TARGETS):
        truth = measured_truth(references, numbers[numbers != target])
        truths.append({name: truth[name][drawn.members(target)] for name in ("lira_success", "lira_d")})
    gradients = [{name: spearman(columns["squared_gradient"], columns[name]) for name in ways(0.0)} for columns in scores]
    return {
        "setting": SETTING,
        "title": setting.title,
        "targets": TARGETS,
        "training_decay": trained.weight_decay,
        "ended": {name: {key: round(float(np.mean([end[name][key] for end in ended])), 4) for key in ended[0][name]} for name in ended[0]},
        "spearman_with_squared_gradient": {name: round(float(np.mean([held[name] for held in gradients])), 4) for name in gradients[0]},
        "agreement": agreement(truths, scores),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="work folder of benchmarks.papers.run")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    started = time.process_time()
    entry = measured(arguments.data, arguments.work)
    entry |= {"processor_seconds": round(time.process_time() - started, 1), "environment": environment()}
    RESULT.write_text(json.dumps(entry, separators=(",", ":"), sort_keys=True).replace("},{", "},\n{") + "\n")


if __name__ == "__main__":
    main()

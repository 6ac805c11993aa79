"""Influence over the whole network as [RET] computes it, and as noshadow does: which curvature, which damping.

`python -m benchmarks.papers.dampings --data DIR --work DIR [--only NAME ...]` trains the scored models of a setting again from their own
seeds and scores them by the Hessian and by Gauss–Newton, each at the published damping of 10 and at the training's own λ. Reference models
are trained where the work folder has none, without scoring any. Writes benchmarks/results/papers_dampings.json, an entry a setting; it goes
on with the target it stopped at.
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy import stats

import noshadow as ns
from benchmarks.environment import environment
from benchmarks.papers.columns import last_layer
from benchmarks.papers.plain import plain_references
from benchmarks.papers.run import RESULTS
from benchmarks.papers.settings import SETTINGS, recipe, records
from benchmarks.papers.truth import measured_truth
from noshadow.metrics import spearman

RESULT = RESULTS.parent / "papers_dampings.json"
# [RET] App. D.1: beside the Hessian of the mean loss, to a tolerance of 1e-2.
PUBLISHED_DAMPING, PUBLISHED_TOLERANCE = 10.0, 1e-2
STEPS = 1_000
TOP, KEPT = 0.01, 0.05
ATTACKS = ("lira_d", "lira_success")


@dataclass(frozen=True)
class Compared:
    """How dearly a setting is compared.

    Attributes:
        models: reference models; None: the setting's own number. targets: how many of them are scored.
        others: random records that are scored beside a target's top 1 %, and stand for all others; None: every record is scored.
        attacks: truths that the scores are held against; success ties for many records, so that it needs every record.
    """

    models: int | None
    targets: int
    others: int | None = None
    attacks: tuple = ATTACKS


COMPARED = {
    "energy_mlp": Compared(models=None, targets=6),
    "california_mlp": Compared(models=32, targets=4, others=400, attacks=("lira_d",)),
}


def ways(weight_decay):
    """Name → arguments of `network_influence`: both curvatures at both dampings, beside the mean loss as the paper's."""
    dampings = {"10": PUBLISHED_DAMPING, "training": weight_decay}
    return {
        f"{curvature}_{name}": {"curvature": curvature, "damping": damping, "damping_scale": "mean"}
        for curvature in ("hessian", "gauss_newton")
        for name, damping in dampings.items()
    }


def top_shares(truth, top=TOP):
    """Share of each record in the top by a truth, (n,): one above the last value, and equal shares among the records that tie for it."""
    count = int(np.ceil(top * len(truth) - 1e-9))
    last = np.sort(truth)[::-1][count - 1]
    above, tied = truth > last, truth == last
    return above + tied * (count - above.sum()) / tied.sum()


def chosen_records(truths, others, seed):
    """(rows, weights): the top by each truth, and random others that stand for all others; None: every record, with weight one."""
    n = len(truths[0])
    if others is None:
        return np.arange(n), np.ones(n)
    top = np.flatnonzero(sum(top_shares(truth) for truth in truths))
    rest = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(n), top))[:others]
    return np.r_[top, rest], np.r_[np.ones(len(top)), np.full(len(rest), (n - len(top)) / len(rest))]


def weighted_recall(shares, score, weights, n, keep=KEPT):
    """Recall of the top in the records with the highest scores that stand for `keep` of all n."""
    order = np.argsort(-score, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    kept = np.clip((np.ceil(keep * n - 1e-9) - before) / weights[order], 0.0, 1.0)
    return float((shares[order] * kept).sum() / shares.sum())


def target_columns(trained, model, rows, chosen):
    """Influence of the chosen of a model's own records in each way, of the last layer, and the squared gradient it tends to."""
    data = (trained.x[rows], trained.y[rows].numpy().squeeze())
    points = tuple(part[chosen] for part in data)
    found, ended = {}, {}
    for name, way in ways(trained.weight_decay).items():
        processor = time.process_time()
        solved = ns.network_influence(
            model, data, points, task=trained.task, layers="all", tolerance=PUBLISHED_TOLERANCE, max_iterations=STEPS, progress=False, **way
        )
        found[name] = np.nan_to_num(np.asarray(solved.influence), nan=-np.inf)
        ended[name] = {
            "converged": float(np.mean(solved.converged)),
            "negative_curvature": float(np.mean(solved.negative_curvature)),
            "steps": float(np.mean(solved.iterations)),
            "processor_seconds": round(time.process_time() - processor, 1),
        }
        print(name, ended[name], flush=True)
    found["squared_gradient"] = squared_gradients(trained, model, points)
    return found | {"last_influence": last_layer(trained, model, data)["influence"][chosen]}, ended


def squared_gradients(trained, model, data):
    """‖∇ℓ_i‖² of each record over all parameters."""
    found = []
    for x, y in zip(data[0], torch.as_tensor(data[1]), strict=True):
        output = model(x[None]).squeeze()
        loss = (output - y) ** 2 if trained.task == "regression" else torch.nn.functional.cross_entropy(output[None], y[None])
        slopes = torch.autograd.grad(loss, tuple(model.parameters()))
        found.append(float(sum((slope**2).sum() for slope in slopes)))
    return np.array(found)


def kept_columns(trained, path, rows, seed, chosen):
    """Columns of one target and how its solves ended, from disk when they are there."""
    if not path.exists():
        columns, ended = target_columns(trained, trained(rows, seed), rows, chosen)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"columns": {name: values.tolist() for name, values in columns.items()}, "ended": ended}))
    held = json.loads(path.read_text())
    return {name: np.array(values) for name, values in held["columns"].items()}, held["ended"]


def measured(setting, how, data, work):
    """Recall of each way against LiRA over some of the setting's reference models."""
    x, y, _ = records(setting, data, work)
    trained, folder = recipe(setting, x, y), work / setting.name
    references = plain_references(setting, trained, folder, models=how.models)
    numbers, held, recalls, gradients = np.arange(references.plan.models), [], {}, {}
    for target in range(how.targets):
        rows = references.plan.members(target)
        truth = measured_truth(references, numbers[numbers != target])
        truths = {attack: truth[attack][rows] for attack in how.attacks}
        chosen, weights = chosen_records(list(truths.values()), how.others, target)
        path = folder / "dampings" / f"{target}.json"
        columns, ended = kept_columns(trained, path, rows, int(references.plan.seeds[target]), chosen)
        held.append(ended)
        for name, column in columns.items():
            for attack, values in truths.items():
                found = weighted_recall(top_shares(values)[chosen], column, weights, len(rows))
                recalls.setdefault((name, attack), []).append(found)
            gradients.setdefault(name, []).append(spearman(columns["squared_gradient"], column))
    return {
        "title": setting.title,
        "models": references.plan.models,
        "targets": how.targets,
        "scored": len(chosen),
        "members": len(rows),
        "training_decay": trained.weight_decay,
        "ended": {name: {key: round(float(np.mean([end[name][key] for end in held])), 4) for key in held[0][name]} for name in held[0]},
        "spearman_with_squared_gradient": {name: round(float(np.mean(values)), 4) for name, values in gradients.items()},
        "agreement": [over_targets(name, attack, values) for (name, attack), values in recalls.items()],
    }


def over_targets(score, attack, values):
    """A row as `noshadow.metrics.agreement_table` has them: mean over targets and Student's 95 % interval."""
    mean, half = float(np.mean(values)), 0.0
    if len(values) > 1:
        half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
    row = {"score": score, "attack": attack, "metric": "recall", "top": TOP, "keep": KEPT, "targets": len(values)}
    return row | {"value": round(mean, 5), "low": round(max(mean - half, 0.0), 5), "high": round(min(mean + half, 1.0), 5)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="work folder of benchmarks.papers.run")
    parser.add_argument("--only", nargs="+", choices=COMPARED, help="some settings")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in arguments.only or COMPARED:
        started = time.process_time()
        entry = measured(SETTINGS[name], COMPARED[name], arguments.data, arguments.work)
        entry |= {"processor_seconds": round(time.process_time() - started, 1), "environment": environment()}
        held = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        RESULT.write_text(json.dumps(held | {name: entry}, separators=(",", ":"), sort_keys=True).replace("},{", "},\n{") + "\n")
        print(name, flush=True)


if __name__ == "__main__":
    main()

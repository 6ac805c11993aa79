"""Which layers, which damping, which score? Every column against LiRA truth on real data, over several targets.

`python benchmarks/which_layers.py --data DIR --work DIR [--only NAME] [--threads 2]` trains what is missing (see layer_settings.py),
scores every target in all ways (one file a target in the work folder: a second run goes on where the first stopped) and writes
benchmarks/results/which_layers.json, one entry a setting; settings that are not there yet are simply missing.
"""

import argparse
import itertools
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
from environment import environment
from layer_settings import CHECKPOINTS, SETTINGS, TARGETS, references_of, target_model, target_rows, target_traces
from scipy.stats import rankdata

import noshadow as ns
from noshadow.attacks import attack_success
from noshadow.metrics import agreement_table, noise_ceiling
from noshadow.scores.network.problem import network_problem
from noshadow.scores.network.solver import NetworkSettings, network_damping, prepared_network, solved_network
from noshadow.scores.traces import loss_trace_iqr
from noshadow.views.network import network_view

RESULTS = Path(__file__).parent / "results" / "which_layers.json"
FACTORS = (0.1, 1.0, 10.0)
DIMENSION = 1024
SCORED = ("leverage", "margin_leverage", "influence", "newton", "loo", "shift")
RECALLS = ((0.01, 0.05), (0.01, 0.01), (0.05, 0.05))


def damping_of(recipe, n):
    """λ of the training on the sum over records."""
    return n * recipe.weight_decay * (recipe.outputs / 2 if recipe.task == "regression" else 1.0)


def last_layer(model, records, recipe, factors=FACTORS):
    """Columns of the exact last layer for each multiple of the training's λ."""
    signals = ns.collect_signals(model, records)
    base = damping_of(recipe, len(signals))
    found = {}
    for factor in factors:
        scores = ns.record_scores(signals.features, signals.outputs, signals.targets, task=recipe.task, damping=factor * base)
        found |= {f"exact|last|{factor:g}|{name}": values for name, values in scores.columns().items() if name in SCORED}
        found |= {name: getattr(scores, name) for name in ("loss", "gradient_norm", "entropy") if getattr(scores, name) is not None}
    return found


def many_layers(model, records, recipe, layers, method, factors=FACTORS):
    """Columns over several layers for each multiple of λ, from one kernel or one projection."""
    settings = NetworkSettings(method, DIMENSION, 6e9, 0)
    with network_view(model, records, layers=layers) as (network, data):
        problem = network_problem(network, data, task=recipe.task, outputs="auto", sample_weight=None, batch_size=128, progress=False)
        prepared = prepared_network(network, data, problem, settings, progress=False)
    base = network_damping("auto", recipe.weight_decay, prepared).value
    found = {}
    for factor in factors:
        solved = solved_network(prepared, factor * base)
        found |= {f"{method}|{layers}|{factor:g}|{name}": values for name, values in solved.columns.items() if name in SCORED}
    return found


def depths(model, records):
    """Numbers of last layers to try: 2, 4 and all, each once."""
    with network_view(model, records, layers="all") as (network, _):
        count = len(network.layers)
    return [k for k in (2, 4) if k < count] + (["all"] if count > 1 else [])


def scored_target(setting, work, number, *, full=True):
    """All columns of one target, from disk or computed now; not `full`: the last layer and the dual over all layers only."""
    path = work / setting.name / "scores" / f"{number:02d}.npz"
    if path.exists():
        with np.load(path) as arrays:
            return dict(arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    model, rows = target_model(setting, work, number), target_rows(setting, number)
    recipe = setting.recipe
    y = recipe.y.numpy()
    records = (recipe.x[torch.from_numpy(rows)], (y[:, 0] if recipe.task == "regression" else y)[rows])
    found = last_layer(model, records, recipe)
    for layers, method in itertools.product(depths(model, records), ("dual", "projected")) if full else [("all", "dual")]:
        found |= many_layers(model, records, recipe, layers, method)
    if full:
        found |= over_training(setting, work, number, records, found)
    np.savez(path.with_suffix(".part.npz"), **found)
    path.with_suffix(".part.npz").rename(path)
    return found


def over_training(setting, work, number, records, last):
    """Columns that need more than the final model: LT-IQR, and mean ranks over the last checkpoints."""
    recipe = setting.recipe
    found = {"lt_iqr": loss_trace_iqr(target_traces(setting, work, number))}
    earlier = [last_layer(target_model(setting, work, number, back=back), records, recipe, (1.0,)) for back in range(1, CHECKPOINTS)]
    for name in [key for key in last if key.startswith("exact|last|1|")]:
        ranks = [rankdata(part[name]) for part in (last, *earlier)]
        found[name.replace("exact|last|1|", f"mean of {CHECKPOINTS} checkpoints|last|1|")] = np.mean(ranks, 0)
    return found


def combined(columns, task):
    """Rank averages that were worth a try, beside the columns themselves."""

    def ranks(*names):
        held = [name for name in names if name in columns]
        return np.mean([rankdata(columns[name]) for name in held], 0) if len(held) == len(names) else None

    lead = "leverage" if task == "regression" else "margin_leverage"
    gap = "loo" if task == "regression" else "shift"
    depth = next((k for k in ("2", "all") if f"dual|{k}|1|{gap}" in columns), None)
    tried = {
        "rank mean: last leverage, last gap": ranks(f"exact|last|1|{lead}", f"exact|last|1|{gap}"),
        "rank mean: last leverage, deeper gap": ranks(f"exact|last|1|{lead}", f"dual|{depth}|1|{gap}"),
        "rank mean: last gap, all gap": ranks(f"exact|last|1|{gap}", f"dual|all|1|{gap}"),
        "rank mean: last leverage, all leverage": ranks(f"exact|last|1|{lead}", f"dual|all|1|{lead}"),
        "rank mean: last gap, lt_iqr": ranks(f"exact|last|1|{gap}", "lt_iqr"),
        "rank mean: last leverage, lt_iqr": ranks(f"exact|last|1|{lead}", "lt_iqr"),
        "rank mean: all gap, lt_iqr": ranks(f"dual|all|1|{gap}", "lt_iqr"),
    }
    return columns | {name: values for name, values in tried.items() if values is not None}


def truth_of(references):
    """Success and d′ of LiRA a record: over all reference models, and over two disjoint halves of them."""
    signals, member = np.asarray(references.statistic), np.asarray(references.membership)
    signals = signals[..., 0] if signals.ndim == 3 else signals
    options = {"attack": "lira", "levels": ()}

    def columns(models):
        found = attack_success(signals[models], member[models], **options)
        size = np.abs(found.d_prime) if references.task == "regression" else found.d_prime
        return {"lira_success": found.success, "lira_d": size}

    middle = len(signals) // 2
    return columns(slice(None)), columns(slice(middle)), columns(slice(middle, None))


def tabled(truths, scores):
    """Agreement rows of every column over the targets that have it."""
    holders = {}
    for number, columns in enumerate(scores):
        for name in columns:
            holders.setdefault(name, []).append(number)
    groups = {}
    for name, numbers in holders.items():
        groups.setdefault(tuple(numbers), []).append(name)
    rows = []
    for numbers, names in groups.items():
        table = agreement_table([truths[i] for i in numbers], [{name: scores[i][name] for name in names} for i in numbers], recalls=RECALLS)
        rows += [row for row in table.to_dict("records") if row["metric"] in ("spearman", "recall")]
    return [{key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()} for row in rows]


def judged(setting, work, full_targets):
    """The agreement table of one setting, the noise ceiling beside it."""
    references = references_of(setting, work, progress=False)
    whole, first, second = truth_of(references)
    truths, scores, ceiling = [], [], []
    started = time.perf_counter()
    for number in range(TARGETS):
        rows = target_rows(setting, number)
        columns = scored_target(setting, work, number, full=number < full_targets)
        scores.append(combined(columns, setting.recipe.task))
        truths.append({name: values[rows] for name, values in whole.items()})
        print(setting.name, "target", number, f"{time.perf_counter() - started:.0f} s", flush=True)
    for name in first:
        ceiling += noise_ceiling(first[name], second[name], recalls=RECALLS, attack=name, resamples=100).to_dict("records")
    return {
        "note": setting.note,
        "task": setting.recipe.task,
        "training": setting.recipe.settings(),
        "references": setting.references,
        "targets": TARGETS,
        "records": len(setting.recipe.x),
        "dimension": DIMENSION,
        "agreement": tabled(truths, scores),
        "ceiling": ceiling,
        "load": os.getloadavg()[0],
        "environment": environment(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="where models and scores go; run again to go on")
    parser.add_argument("--only", choices=SETTINGS, help="one setting")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--full-targets", type=int, default=TARGETS, help="targets scored in every way; the others by the main ways only")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in [arguments.only] if arguments.only else SETTINGS:
        entry = judged(SETTINGS[name](arguments.data), arguments.work, arguments.full_targets)
        held = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps(held | {name: entry}, separators=(",", ":"), sort_keys=True).replace("},{", "},\n{") + "\n")


if __name__ == "__main__":
    main()

"""The leverage score by the algorithm that [GLS] publishes, on some records of one network, at every depth.

`python -m benchmarks.papers.solved --data DIR --work DIR [--setting NAME] [--references]` trains that setting's audited model where the
work folder has none, goes on with the solves that benchmarks/results/papers_solved.json lacks, and writes it after each. Only with
--references are the setting's reference models trained too (without scoring any of them), and the scores held against what they say.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

import noshadow as ns
from benchmarks.environment import environment
from benchmarks.papers.columns import whole_network
from benchmarks.papers.gls import audited_metrics, last_layer_leverage
from benchmarks.papers.plain import plain_references
from benchmarks.papers.run import RESULTS, Clock, audited_model
from benchmarks.papers.settings import SETTINGS, members, recipe, records
from noshadow.metrics import spearman

RESULT = RESULTS.parent / "papers_solved.json"
# [GLS] Section 6.1: λ from 1e-4 to 1e-2, beside the Hessian of the mean loss; 100 steps at most, to 1e-3. The largest is ours, beyond
# that range, at which solves over several layers can end.
DAMPINGS, STEPS, TOLERANCE = (1e-2, 1e-1, 1e-3, 1e-4), 100, 1e-3
# Over many layers a solve takes minutes: fewer records there than the setting's own, the first of them.
FEWER = {4: 32, "all": 32}


def solved_traces(module, train, points, depth, damping):
    """Trace of the published score of each point, by the Hessian; our preconditioner changes when a solve ends, not where."""
    return ns.generalized_leverage(
        module,
        train,
        points,
        damping=damping,
        damping_scale="mean",
        layers=depth,
        curvature="hessian",
        tolerance=TOLERANCE,
        max_iterations=STEPS,
        precision="float32",
        progress=False,
    )


def compared(traces, ours, truths):
    """Spearman of the published score and of ours, on the records that could be solved, with each other and with each shadow metric."""
    kept = np.isfinite(traces)
    found = {"records": int(kept.sum()), "ours": round(spearman(traces[kept], ours[kept]), 4)}
    for name, column in (("spearman", traces), ("spearman_ours", ours)) if truths else ():
        found[name] = {metric: round(spearman(truth[kept], column[kept]), 4) for metric, truth in truths.items()}
    return found


def depth_entry(setting, trained, module, references, depth, damping):
    """One depth at one damping: agreement, how the solves ended, and the seconds."""
    count = members(setting, len(trained.x))
    train = (trained.x[:count], trained.y[:count].numpy())
    solved_records = min(setting.solved, FEWER.get(depth, setting.solved))
    points = tuple(part[:solved_records] for part in train)
    metrics = {} if references is None else audited_metrics(references)
    truths = {name: values[:solved_records] for name, values in metrics.items()}
    processor = time.process_time()
    solved = solved_traces(module, train, points, depth, damping)
    spent = time.process_time() - processor
    if depth == "last":
        ours = last_layer_leverage(trained, module, train)
    else:
        ours = whole_network(trained, module, train, depth, "projected", outputs="all")
    return compared(np.asarray(solved.trace), np.asarray(ours.leverage)[:solved_records], truths) | {
        "damping": damping,
        "converged": int(np.sum(solved.converged)),
        "negative_curvature": int(np.sum(solved.negative_curvature)),
        "steps": round(float(np.mean(solved.iterations)), 1),
        "processor_seconds": round(spent, 1),
        "notes": list(map(str, solved.notes)),
    }


def in_order(depths):
    """(damping, depth) of every solve: the first damping over the layers but all, then the last layer, which is quick, then the others."""
    every = [(damping, depth) for damping in DAMPINGS for depth in ("last", *depths)]
    return sorted(every, key=lambda solve: (solve[0] != DAMPINGS[0] or solve[1] == "all") + (solve[1] != "last"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="work folder of benchmarks.papers.run")
    parser.add_argument("--setting", choices=SETTINGS, default="fashion_depths")
    parser.add_argument("--references", action="store_true", help="train the reference models too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    setting, folder = SETTINGS[arguments.setting], arguments.work / arguments.setting
    x, y, _ = records(setting, arguments.data, arguments.work)
    trained = recipe(setting, x, y)
    folder.mkdir(parents=True, exist_ok=True)
    module = audited_model(trained, folder, Clock(folder / "seconds.json"), members(setting, len(x)))
    references = plain_references(setting, trained, folder, module=module) if arguments.references else None
    stored = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    found = stored["dampings"] if stored.get("setting") == setting.name else {}
    for damping, depth in in_order(setting.depths):
        entries = found.setdefault(f"{damping:g}", {})
        if str(depth) not in entries:
            entries[str(depth)] = depth_entry(setting, trained, module, references, depth, damping)
            entries[str(depth)]["environment"] = environment()
            print(damping, depth, entries[str(depth)], flush=True)
            entry = {"setting": setting.name, "title": setting.title, "dampings": found}
            RESULT.write_text(json.dumps(entry, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

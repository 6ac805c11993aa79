"""What a projection does to scores over the whole network: one model's records scored by the exact dual and in 1,024 directions.

`python -m benchmarks.papers.crowding --data DIR --work DIR [--setting NAME]` needs the audited model of that setting in the work folder.
Writes benchmarks/results/papers_crowding.json.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.environment import environment
from benchmarks.papers.columns import DIMENSION, whole_network
from benchmarks.papers.run import RESULTS, audited_model
from benchmarks.papers.settings import SETTINGS, members, recipe, records
from noshadow.metrics import spearman, top_recall

RESULT = RESULTS.parent / "papers_crowding.json"
SHOWN = ("shift", "loo", "newton", "influence", "margin_leverage")


def compared(dual, projected):
    """Of each column: the median of projected over exact among the 5 % highest, Spearman, and the share of the top 1 % in the top 5 %."""
    found = {}
    for name in SHOWN:
        exact, short = np.asarray(getattr(dual, name)), np.asarray(getattr(projected, name))
        top = np.argsort(-exact, kind="stable")[: max(len(exact) // 20, 1)]
        found[name] = {
            "ratio": round(float(np.median(short[top] / exact[top])), 4),
            "spearman": round(spearman(exact, short), 4),
            "recall": round(top_recall(exact, short), 4),
        }
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="work folder of benchmarks.papers.run")
    parser.add_argument("--setting", choices=SETTINGS, default="fashion_depths")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    setting = SETTINGS[arguments.setting]
    x, y, _ = records(setting, arguments.data, arguments.work)
    trained, count = recipe(setting, x, y), members(setting, len(x))
    module = audited_model(trained, arguments.work / setting.name, None, count)
    scores, seconds = {}, {}
    for method in ("dual", "projected"):
        started = time.process_time()
        scores[method] = whole_network(trained, module, (x[:count], y[:count]), "all", method)
        seconds[method] = round(time.process_time() - started, 1)
    entry = {
        "title": setting.title,
        "records": count,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "dimension": DIMENSION,
        "columns": compared(scores["dual"], scores["projected"]),
        "notes": {method: list(map(str, found.notes)) for method, found in scores.items()},
        "processor_seconds": seconds,
        "environment": environment(),
    }
    RESULT.write_text(json.dumps(entry, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

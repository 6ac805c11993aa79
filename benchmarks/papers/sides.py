"""What a score would have to know: LiRA's top records by the losses of models that had them, and of models that had not.

`python -m benchmarks.papers.sides --work DIR [--only NAME ...]` reads the reference models of benchmarks.papers.run and trains nothing.
A score of one model sees the side with the record; where only the other side tells the exposed records apart, no loss of the model can.
Writes benchmarks/results/papers_sides.json, an entry a setting.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.environment import environment
from benchmarks.papers.run import RESULTS
from benchmarks.papers.settings import ALWAYS, SETTINGS
from benchmarks.papers.truth import agreement, measured_truth
from noshadow.reference import load_references

RESULT = RESULTS.parent / "papers_sides.json"


def side_losses(loss, member):
    """Mean loss of each record over the models that had it, and over those that had not: (models, n) losses, membership → (n,) each."""
    return {
        "with": np.where(member, loss, 0.0).sum(0) / member.sum(0),
        "without": np.where(member, 0.0, loss).sum(0) / (~member).sum(0),
    }


def measured(references, targets):
    """Agreement with LiRA of the scored model's own loss and of the two sides over all the other models, on each target's records."""
    loss, member, numbers = np.asarray(references.loss), np.asarray(references.membership), np.arange(references.plan.models)
    truths, scores = [], []
    for target in range(targets):
        rows, others = references.plan.members(target), numbers[numbers != target]
        truth = measured_truth(references, others)
        truths.append({name: truth[name][rows] for name in ("lira_success", "lira_d")})
        sides = side_losses(loss[others][:, rows], member[others][:, rows])
        scores.append({"own": loss[target, rows]} | sides)
    return {"targets": targets, "agreement": agreement(truths, scores)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="work folder of benchmarks.papers.run")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, help="some settings")
    arguments = parser.parse_args()
    for name in arguments.only or ALWAYS:
        entry = measured(load_references(arguments.work / name / "references"), SETTINGS[name].targets)
        held = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        held |= {name: entry, "environment": environment()}
        RESULT.write_text(json.dumps(held, separators=(",", ":"), sort_keys=True).replace("},{", "},\n{") + "\n")
        print(name, flush=True)


if __name__ == "__main__":
    main()

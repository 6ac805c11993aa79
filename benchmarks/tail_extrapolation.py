"""Rates below 1/n from a fitted tail, on real losses: samples of a large set against what the large set itself says.

For each setup of the calibration the losses of all 64 models are pooled (members with members, non-members with non-members); samples of
2,000 are drawn from the pool and asked for TNR at levels that they cannot resolve and the pool can.

`python benchmarks/tail_extrapolation.py --work DIR` takes the work folder of benchmarks.tail_calibration.run and writes
benchmarks/results/tail_extrapolation.json.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from environment import environment

from noshadow.metrics import tnr_at_fnr
from noshadow.reference import load_references
from noshadow.tail import extrapolated_tnr

RESULTS = Path(__file__).parent / "results" / "tail_extrapolation.json"
SETUPS = Path(__file__).parent / "results" / "tail_calibration"
SAMPLE, LEVELS = 2000, (1e-4, 2e-4)


def pooled(references):
    """Losses of all models: of their members, and of their non-members."""
    losses, inside = np.asarray(references.loss), np.asarray(references.membership)
    return losses[inside], losses[~inside]


def judged(references, repetitions, seed=0):
    members, nonmembers = pooled(references)
    rng, rows = np.random.default_rng(seed), []
    for level in LEVELS:
        truth, found = tnr_at_fnr(members, nonmembers, level), []
        for number in range(repetitions):
            sample = rng.choice(members, SAMPLE, replace=False), rng.choice(nonmembers, SAMPLE, replace=False)
            found.append(extrapolated_tnr(*sample, level, resamples=200, seed=number))
        values = np.array([one.value for one in found])
        rows.append(
            {
                "level": level,
                "truth": truth,
                "median": float(np.median(values)),
                "rmse": float(np.sqrt(((values - truth) ** 2).mean())),
                "coverage": float(np.mean([one.interval[0] <= truth <= one.interval[1] for one in found])),
                "shape": float(np.median([one.shape for one in found])),
            }
        )
    return {"pool": len(members), "levels": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=40)
    arguments = parser.parse_args()
    names = [path.stem for path in sorted(SETUPS.glob("*.json")) if (arguments.work / path.stem / "plan.json").exists()]
    result = {"sample": SAMPLE, "repetitions": arguments.repetitions, "environment": environment(), "setups": {}}
    for name in names[::3]:
        result["setups"][name] = judged(load_references(arguments.work / name), arguments.repetitions)
        print(name, json.dumps(result["setups"][name]["levels"]), flush=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

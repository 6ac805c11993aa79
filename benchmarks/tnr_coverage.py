"""How often the 95 % interval of the loss-tail TNR covers the truth, by how many members may exceed τ.

Losses of 1,000 members are exponential with mean 0.1, of 1,000 others with mean 0.4; the truth is the TNR at the exact quantile.
`python benchmarks/tnr_coverage.py`.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from environment import environment

import noshadow as ns

RESULTS = Path(__file__).parent / "results" / "tnr_coverage.json"
RECORDS, MEMBER_MEAN, OTHER_MEAN = 1000, 0.1, 0.4
ALLOWED = (1, 2, 5, 10, 50)


def coverage(allowed, repetitions):
    level = allowed / RECORDS
    truth = level ** (MEMBER_MEAN / OTHER_MEAN)  # P(other > τ) with P(member > τ) = level
    hits = 0
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        members, others = rng.exponential(MEMBER_MEAN, RECORDS), rng.exponential(OTHER_MEAN, RECORDS)
        low, high = ns.model_risk(members, others, fpr=level, seed=seed, resamples=400).tnr_interval
        hits += low <= truth <= high
    return {"members_above_threshold": allowed, "coverage": hits / repetitions, "repetitions": repetitions}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions, nothing stored")
    arguments = parser.parse_args()
    rows = [coverage(allowed, 20 if arguments.quick else 1000) for allowed in ALLOWED]
    print(json.dumps(rows, indent=1))
    if not arguments.quick:
        stored = {"rows": rows, "records": RECORDS, "nominal": 0.95, "environment": environment()}
        RESULTS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

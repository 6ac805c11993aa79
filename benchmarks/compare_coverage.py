"""How often the 95 % intervals of `noshadow.compare` cover the true difference of two models, and how often they see one where none is.

Losses of 1,000 members and 1,000 others are lognormal, so that the true rates are known. Two models that were trained and tested on the
same records have losses correlated at 0.8 (of the logarithms); "half" shares half of the members only, "none" no records at all.
`python benchmarks/compare_coverage.py`.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from environment import environment
from scipy.special import ndtr, ndtri

from noshadow._compare.intervals import Samples, auc_difference_interval, tnr_difference_interval

RESULTS = Path(__file__).parent / "results" / "compare_coverage.json"
RECORDS, SPREAD, CORRELATION, RESAMPLES = 1000, 2.0, 0.8, 500
SAME = ((-3.0, -1.0), (-3.0, -1.0))  # (members, others): means of the log losses of the two models
APART = ((-3.0, -1.0), (-3.5, -0.5))
CASES = [
    (allowed, shared, models)
    for models, choices in ((SAME, (1, 2, 5, 10, 50)), (APART, (1, 5, 50)))
    for allowed in choices
    for shared in (("all", "half", "none") if models == SAME else ("all",))
]


def truths(models, level):
    """Differences of TNR at FNR = level and of AUC."""
    tnr = [ndtr((others - members) / SPREAD + ndtri(level)) for members, others in models]
    auc = [ndtr((others - members) / (SPREAD * 2**0.5)) for members, others in models]
    return float(tnr[1] - tnr[0]), float(auc[1] - auc[0])


def losses(rng, models, which, share):
    z = rng.standard_normal((2, RECORDS))
    together = slice(0, int(share * RECORDS))
    z[1, together] = CORRELATION * z[0, together] + (1 - CORRELATION**2) ** 0.5 * z[1, together]
    return tuple(np.exp(model[which] + SPREAD * row) for model, row in zip(models, z, strict=True))


def coverage(allowed, shared, models, repetitions):
    share, level = {"all": 1.0, "half": 0.5, "none": 0.0}[shared], allowed / RECORDS
    tnr, auc = truths(models, level)
    rows, hits, alarms = np.arange(int(share * RECORDS)), [0, 0], [0, 0]
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        tested = 0.0 if shared == "none" else 1.0
        samples = Samples(losses(rng, models, 0, share), losses(rng, models, 1, tested), (rows, rows), tested == 1.0)
        tnr_ends = tnr_difference_interval(samples, level, coverage=0.95, seed=seed, resamples=RESAMPLES)
        auc_ends = auc_difference_interval(samples, coverage=0.95)
        for k, (ends, truth) in enumerate(((tnr_ends, tnr), (auc_ends, auc))):
            hits[k] += ends[0] <= truth <= ends[1]
            alarms[k] += not ends[0] <= 0 <= ends[1]
    return {
        "members_above_threshold": allowed,
        "shared": shared,
        "tnr_difference": tnr,
        "auc_difference": auc,
        "tnr_coverage": hits[0] / repetitions,
        "auc_coverage": hits[1] / repetitions,
        "tnr_seen": alarms[0] / repetitions,
        "auc_seen": alarms[1] / repetitions,
        "repetitions": repetitions,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions, nothing stored")
    arguments = parser.parse_args()
    rows = [coverage(*case, 10 if arguments.quick else 400) for case in CASES]
    print(json.dumps(rows, indent=1))
    if not arguments.quick:
        stored = {"rows": rows, "records": RECORDS, "nominal": 0.95, "resamples": RESAMPLES, "environment": environment()}
        RESULTS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

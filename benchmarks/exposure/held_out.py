"""How far margins of left-out models reach on calibration setups, and how far rates are off where they are refused and where not.

`python -m benchmarks.exposure.held_out --data DIR --work DIR` reads the work folder of `run` and writes
benchmarks/results/exposure/held_out.json. The threshold stands in `noshadow._exposure.held_out`.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.environment import environment
from benchmarks.exposure.choose import COUNTS
from benchmarks.exposure.evidence import complete, evidence_of, first_models, pool_of
from benchmarks.exposure.judge import RESULTS, write
from benchmarks.exposure.measures import tenths
from benchmarks.exposure.methods import free_sources
from benchmarks.exposure.setups import CALIBRATION, recipe
from benchmarks.exposure.truth import FPRS, predicted_rates, truth_of
from noshadow._exposure import held_out, weighed

TARGETS = 4


def measured(evidence, pool, truth, count):
    """Of one target: ratio of the tail, whether refused, errors of rates as they would be; None where sizes are not identified at all."""
    sources = [*free_sources(evidence), first_models(evidence.references, count, count)]
    found = weighed(evidence.margins, evidence.test_margins, sources, free=evidence.final, direction=pool.direction)
    if found.state is None or found.state.tail is None:
        return None
    row = {"tail": found.state.tail.ratio, "refused": float(found.state.tail.refused)}
    told = replace(found, order_only=False)
    for k, fpr in enumerate(FPRS):
        row[f"error_{fpr:g}"] = tenths(predicted_rates(told, truth.outside[evidence.members], fpr), truth.rates[k][evidence.members])[
            "error"
        ]
    return row


def of_setup(setup, data, work):
    """Means over targets by number of references, with the smallest and largest tail; nothing for numbers that give the order only."""
    x, y = setup.records(data, work)
    trained = recipe(setup, x, y)
    pool = pool_of(setup, work / setup.name, trained.task, trained.epochs)
    truth, found = truth_of(pool), {}
    for count in COUNTS:
        evidences = [evidence_of(setup, pool, work / setup.name, target) for target in range(min(setup.targets, TARGETS))]
        rows = [row for evidence in evidences if (row := measured(evidence, pool, truth, count)) is not None]
        if rows:
            tails = [row["tail"] for row in rows]
            found[str(count)] = {name: round(float(np.mean([row[name] for row in rows])), 4) for name in rows[0]}
            found[str(count)] |= {"least": round(min(tails), 4), "most": round(max(tails), 4), "targets": len(rows)}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="work folder of benchmarks.exposure.run")
    arguments = parser.parse_args()
    setups, left = {}, []
    for setup in CALIBRATION:
        if not complete(setup, arguments.work / setup.name):
            left.append(setup.name)
            continue
        setups[setup.name] = of_setup(setup, arguments.data, arguments.work)
        print(setup.name, setups[setup.name], flush=True)
    limits = {"farther": held_out.FARTHER, "fpr": held_out.FPR}
    write(RESULTS / "held_out.json", {"thresholds": limits, "setups": setups, "not_trained": left, "environment": environment()})


if __name__ == "__main__":
    main()

"""What `ns.exposure` costs on a million records: wall and processor seconds, and memory above its inputs.

`python -m benchmarks.exposure.speed [--records 1000000] [--threads 2]` writes benchmarks/results/exposure/speed.json. Run it when the
machine is quiet; the load is stored.
"""

import argparse
import os
import resource
import time

import numpy as np
from threadpoolctl import threadpool_limits

import noshadow as ns
from benchmarks.environment import environment
from benchmarks.exposure.judge import RESULTS, write

MODELS, COVARIATES = 8, 20
GOAL = {"seconds": 30, "bytes": 2e9}


def drawn(records, seed=0):
    """Margins that follow the model, with covariates of which some say something."""
    rng = np.random.default_rng(seed)
    covariates = {f"covariate {k}": rng.normal(size=records) for k in range(COVARIATES)}
    slope = 1 + 0.5 * covariates["covariate 0"] + 0.5 * rng.normal(size=records)
    level = covariates["covariate 1"] + rng.normal(size=records)
    membership = rng.random((MODELS, records)) < 0.5
    references = rng.normal(size=(MODELS, records))
    references *= 0.7
    references += level
    references += membership * slope
    return level + slope + 0.7 * rng.normal(size=records), covariates, references, membership


def peak():
    """Largest memory the process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    margins, covariates, references, membership = drawn(arguments.records)
    # The first call pays for imports, on a few records.
    ns.exposure(
        margins[:5000],
        covariates={k: v[:5000] for k, v in covariates.items()},
        references=references[:, :5000],
        membership=membership[:, :5000],
    )
    before, load = peak(), os.getloadavg()[0]
    with threadpool_limits(arguments.threads):
        wall, processor = time.perf_counter(), time.process_time()
        found = ns.exposure(margins, covariates=covariates, references=references, membership=membership)
        spent = {"wall": round(time.perf_counter() - wall, 2), "processor": round(time.process_time() - processor, 2)}
    entry = {
        "records": arguments.records,
        "models": MODELS,
        "covariates": COVARIATES,
        "seconds": spent,
        "bytes_above_inputs": int(peak() - before),
        "goal": GOAL,
        "order_only": found.order_only,
        "load_before": round(load, 2),
        "threads": arguments.threads,
        "environment": environment(),
    }
    write(RESULTS / "speed.json", entry)
    print(spent, f"{entry['bytes_above_inputs'] / 1e9:.2f} GB above the inputs, load {load:.1f}")


if __name__ == "__main__":
    main()

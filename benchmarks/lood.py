"""Leave-one-out distinguishability: all records against two solves a record, memory at n = 10,000, bounds at n = 50,000.

Every ratio is measured in one run on one machine: `python benchmarks/lood.py [--quick] [--only NAME]`.
Results go to benchmarks/results/lood.json (one entry a case; other cases there are kept).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from cases import run_cases, seconds
from scipy.linalg import cho_factor, cho_solve

from noshadow._lood import lood, lood_bounds, lood_scores, optimal_query, posterior_of, rbf_kernel

RESULTS = Path(__file__).parent / "results" / "lood.json"
NOISE = 0.1
CLASSES = 10
KERNEL = partial(rbf_kernel, length_scale=4.0)


def data(n, d=32, seed=0):
    """Gaussian clusters, one a class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % CLASSES
    return rng.normal(size=(CLASSES, d))[labels] + rng.normal(size=(n, d)), labels


def two_solves(matrix, y, i):
    """One record the plain way: solve without it, solve with it, compare the two Gaussians."""
    kept = np.delete(np.arange(len(matrix)), i)
    sides = []
    for rows in (kept, np.arange(len(matrix))):
        noisy = matrix[np.ix_(rows, rows)] + NOISE * np.eye(len(rows))
        both = cho_solve(cho_factor(noisy, overwrite_a=True, check_finite=False), np.column_stack([y[rows], matrix[rows, i]]))
        sides.append((matrix[i, rows] @ both[:, :-1], matrix[i, i] - matrix[i, rows] @ both[:, -1]))
    (mean, variance), (mean_with, variance_with) = sides
    ratio = variance / variance_with
    return 0.5 * (y.shape[1] * (ratio - 1 - np.log(ratio)) + ((mean - mean_with) ** 2).sum() / variance_with)


def all_records(n, sampled):
    """Every record from one factorisation beside two solves a record, extrapolated from `sampled` of them."""
    x, labels = data(n)
    matrix, y = KERNEL(x).numpy(), np.eye(CLASSES)[labels]
    ours, scores = seconds(lambda: lood_scores(matrix, y, noise=NOISE), repeats=3)
    chosen = np.linspace(0, n - 1, sampled).astype(int)
    plain, values = seconds(lambda: np.array([two_solves(matrix, y, i) for i in chosen]))
    return {
        "n": n,
        "outputs": CLASSES,
        "seconds": ours,
        "sampled_records": sampled,
        "two_solves_seconds_a_record": plain / sampled,
        "two_solves_seconds_extrapolated": plain / sampled * n,
        "speed_up": plain / sampled * n / ours,
        "largest_relative_difference": float(np.abs(scores.kl[chosen] / values - 1).max()),
        "condition": scores.condition,
    }


def memory_bytes(field):
    """A field of the process's status: VmRSS now, VmHWM at its highest since the last reset."""
    (line,) = [row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith(field)]
    return int(line.split()[1]) * 1024


def measured_child(name, n):
    """One large case in a process of its own, so that peak memory is its own."""
    x, labels = data(n)
    worked = time.process_time()
    if name == "ten_thousand":
        matrix = KERNEL(x).numpy()
        before = memory_bytes("VmRSS") - matrix.nbytes
        Path("/proc/self/clear_refs").write_text("5")  # making the kernel took more than holding it: forget that peak
        elapsed, scores = seconds(lambda: lood_scores(matrix, labels, noise=NOISE))
        row = {"condition": scores.condition, "median_kl": float(np.median(scores.kl))}
    else:
        before = memory_bytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        chosen = [0, 1, 2, 3, [4, 5, 6]]
        elapsed, found = seconds(
            lambda: lood_bounds(x, labels, groups=chosen, kernel=KERNEL, noise=NOISE, rank=1000, max_memory=6e9, progress=False)
        )
        widest = float(((found.kl_high - found.kl_low) / found.kl_high).max())
        row = {
            "groups": len(chosen),
            "rank": found.rank,
            "iterations": found.iterations,
            "converged": found.converged,
            "widest_relative_gap_of_kl": widest,
            "share_of_kernel_kept": found.cached,
        }
    peak = memory_bytes("VmHWM") - before
    # Wall time reads high beside other work; processor time does not. It covers making the kernel too.
    row |= {"cpu_seconds": time.process_time() - worked, "load": os.getloadavg()[0]}
    print(json.dumps({"n": n, "seconds": elapsed, "peak_bytes": peak, "peak_over_8n2": peak / (8 * n * n)} | row))


def in_a_process(name, n):
    command = [sys.executable, __file__, "--child", name, "--size", str(n)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def groups_and_queries(n):
    """A group of three at its own records after one factorisation, and a step of query optimisation."""
    x, labels = data(n)
    factoring, factor = seconds(lambda: posterior_of(x, labels, kernel=KERNEL, noise=NOISE, with_inverse=True))
    shared = {"differing": [0, 1, 2], "kernel": KERNEL, "noise": NOISE, "factor": factor}
    group, _ = seconds(lambda: lood(x, labels, **shared), repeats=3)
    steps = 50
    ascent, _ = seconds(lambda: optimal_query(x, labels, **shared, queries=3, restarts=5, steps=steps, progress=False))
    return {
        "n": n,
        "factor_and_inverse_seconds": factoring,
        "group_of_three_seconds": group,
        "optimisation_seconds_a_step": ascent / (steps + 1),
        "restarts": 5,
        "queries": 3,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing stored: does every case run?")
    parser.add_argument("--only", help="run one case: all_records, groups_and_queries, ten_thousand, fifty_thousand")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        measured_child(arguments.child, arguments.size)
        return
    quick = arguments.quick
    cases = {
        "all_records": lambda: all_records(300 if quick else 2000, 3 if quick else 30),
        "groups_and_queries": lambda: groups_and_queries(300 if quick else 2000),
        "ten_thousand": lambda: in_a_process("ten_thousand", 500 if quick else 10_000),
        "fifty_thousand": lambda: in_a_process("fifty_thousand", 1500 if quick else 50_000),
    }
    run_cases(cases, RESULTS, only=arguments.only, quick=quick)


if __name__ == "__main__":
    main()

"""The whole audit against the two ideal products of its scores, where its time goes, and heads too wide for record scores.

`python benchmarks/audit_speed.py [--quick] [--only NAME]`. Results go to benchmarks/results/audit_speed.json (one entry a case; other
cases there are kept). The ideal is measured before and after each audit in the same run. Measure on a quiet machine: two threads that
wait for a busy core cost more than their share.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from cases import run_cases, seconds
from last_layer import DAMPING, head, ideal_seconds, memory_bytes

import noshadow as ns
from noshadow._audit import gather
from noshadow.results import audit_record
from noshadow.scores.last_layer import damping, entry, softmax_solver

RESULTS = Path(__file__).parent / "results" / "audit_speed.json"
SIZE = (300_000, 50_000, 101, 10)  # training and test records, features with the bias, classes
WIDE = ((20_000, 2_000, 65, 30_000), (4_000, 400, 65, 100_000))
THREADS = 2
# Where the time of an audit goes: calls that do not lie within one another, and the functions that make them.
PARTS = {
    "margin leverage": (softmax_solver, "margin_leverages"),
    "curvature and the other columns": (softmax_solver, "_at_precision"),
    "whitening": (damping, "whitened_design"),
    "fit of the head": (entry, "head_fit"),
    "model risk (tail)": (gather, "measured_risk"),
    "risk by class": (gather, "risks_by_group"),
    "records that look alike": (gather, "split_counts"),
    "findings": (audit_record, "findings"),
}


def signals(n, unseen, d, m):
    """Both splits of one head."""
    features, logits, labels = head(n + unseen, d, m)
    return [ns.Signals(features[part], logits[part], labels[part]) for part in (slice(0, n), slice(n, None))]


def audited(splits, columns="auto"):
    return ns.audit_signals(*splits, damping=DAMPING, score_options={"columns": columns}, progress=False)


@contextlib.contextmanager
def timed_parts():
    """Seconds spent in each part while the context is open."""
    spent = dict.fromkeys(PARTS, 0.0)

    def timing(name, function):
        def timed(*arguments, **options):
            started = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                spent[name] += time.perf_counter() - started

        return timed

    with contextlib.ExitStack() as stack:
        for name, (module, function) in PARTS.items():
            stack.enter_context(mock.patch.object(module, function, timing(name, getattr(module, function))))
        yield spent


def against_the_ideal(n, unseen, d, m, repeats, columns="auto"):
    """Best audit beside the best ideal around it; the parts are those of the best audit."""
    splits, rounds = signals(n, unseen, d, m), []
    for _ in range(repeats):
        before = ideal_seconds(n, d, m)
        with timed_parts() as spent:
            whole, result = seconds(lambda: audited(splits, columns))
        after = ideal_seconds(n, d, m)
        rounds.append({"seconds": whole, "ideal_before": before, "ideal_after": after, "parts": spent})
        print(json.dumps(rounds[-1]), flush=True)
    best = min(rounds, key=lambda row: row["seconds"])
    ideal = min(min(row["ideal_before"], row["ideal_after"]) for row in rounds)
    parts = best["parts"] | {"everything else": best["seconds"] - sum(best["parts"].values())}
    return {
        "n": n,
        "unseen": unseen,
        "d": d,
        "m": m,
        "damping": DAMPING,
        "ideal_seconds": ideal,
        "seconds": best["seconds"],
        "ratio": best["seconds"] / ideal,
        "parts": parts,
        "precision": result.provenance["scores"]["precision"],
        "precision_error": result.provenance["scores"]["precision_error"],
        "rounds": [{name: row[name] for name in ("seconds", "ideal_before", "ideal_after")} for row in rounds],
    }


def wide_child(n, unseen, d, m):
    """One wide head in a process of its own, so that peak memory is its own."""
    splits = wide_signals(n, unseen, d, m)
    held = memory_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    elapsed, result = seconds(lambda: audited(splits))
    row = {"n": n, "unseen": unseen, "d": d, "m": m, "seconds": elapsed, "input_bytes": held}
    row |= {"peak_bytes_above_inputs": memory_bytes("VmHWM") - held, "auc": result.model_risk.auc, "tnr": result.model_risk.tnr}
    row |= {"predicted_tpr": result.model_risk.predicted_tpr, "record_scores": result.not_applicable.get("shift", "as ever")}
    print(json.dumps(row))


def wide_signals(n, unseen, d, m, *, block=500):
    """As `head`, with the noise of the labels drawn a block at a time: n × m numbers are held once, in float32."""
    rng = np.random.default_rng(0)
    features = np.maximum(rng.standard_normal((n + unseen, d - 1), dtype=np.float32), 0)
    theta = rng.standard_normal((d, m), dtype=np.float32) * np.float32(8.0 / d**0.5)
    logits, labels = np.empty((n + unseen, m), dtype=np.float32), np.empty(n + unseen, dtype=np.int64)
    for start in range(0, n + unseen, block):
        rows = slice(start, min(start + block, n + unseen))
        np.matmul(features[rows], theta[:-1], out=logits[rows])
        logits[rows] += theta[-1]
        uniform = rng.random(logits[rows].shape, dtype=np.float32)
        labels[rows] = (logits[rows] - np.log(-np.log(np.maximum(uniform, 1e-12)))).argmax(1)
    return [ns.Signals(features[part], logits[part], labels[part]) for part in (slice(0, n), slice(n, None))]


def wide(sizes):
    rows = []
    for size in sizes:
        command = [sys.executable, __file__, "--wide-child", *map(str, size)]
        rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]))
    return {"damping": DAMPING, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing stored: does every case run?")
    parser.add_argument("--only", help="run one case: ideal, all_columns, wide")
    parser.add_argument("--wide-child", type=int, nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    if arguments.wide_child:
        wide_child(*arguments.wide_child)
        return
    size = (SIZE[0] // 50, SIZE[1] // 50, *SIZE[2:]) if arguments.quick else SIZE
    sizes = [(200, 50, 9, m) for *_, m in WIDE] if arguments.quick else WIDE
    repeats = 1 if arguments.quick else 3
    cases = {
        "ideal": lambda: against_the_ideal(*size, repeats=repeats),
        "all_columns": lambda: against_the_ideal(*size, repeats=repeats, columns="all"),
        "wide": lambda: wide(sizes),
    }
    run_cases(cases, RESULTS, only=arguments.only, quick=arguments.quick)


if __name__ == "__main__":
    main()

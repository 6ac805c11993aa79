"""LiRA and per-record attack success on a million records under 256 models: wall and CPU time, and memory beside the input.

Signals are float64, made and held once (2 GB): `python benchmarks/attacks.py [--quick] [--only NAME]`.
Results go to benchmarks/results/attacks.json (one entry a case; other cases there are kept).
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from environment import environment
from scipy.special import expit, log_expit

from noshadow.attacks import attack_success, lira_scores

RESULTS = Path(__file__).parent / "results" / "attacks.json"
FULL, QUICK = (1_000_000, 256), (100_000, 64)
SEPARATION = 1.0
LEVELS = (1e-3,)
CASES = {
    "lira_mean": lambda *data: lira_scores(*data, variance="record"),
    "lira_median": lambda *data: lira_scores(*data, variance="record", center="median"),
    "lira_offline": lambda *data: lira_scores(*data, variance="record", variant="offline"),
    "success_lira": lambda _, *data: attack_success(*data, variance="record", fprs=LEVELS),
    "success_lira_median": lambda _, *data: attack_success(*data, variance="record", center="median", fprs=LEVELS),
    "success_lira_offline": lambda _, *data: attack_success(*data, variance="record", variant="offline", fprs=LEVELS),
    "success_rmia": lambda _, *data: attack_success(*data, attack="rmia", fprs=LEVELS),
    "success_loss": lambda _, *data: attack_success(*data, attack="loss", fprs=LEVELS),
}
KINDS = {"success_rmia": "probabilities", "success_loss": "losses"}


def signals(n, r, *, kind, seed=0):
    """Gaussian margins of n records under r models, lifted where the model has seen the record; row by row, one copy.

    `kind` "margins", or what they give as "probabilities" or "losses".
    """
    rng = np.random.default_rng(seed)
    reference, member = np.empty((r, n)), np.empty((r, n), dtype=bool)
    for row, seen in zip(reference, member, strict=True):
        seen[:] = rng.integers(0, 2, n, dtype=np.int8)
        rng.standard_normal(out=row)
        row += SEPARATION * seen
        if kind != "margins":
            row[:] = log_expit(row) if kind == "losses" else expit(row)
            row *= -1 if kind == "losses" else 1
    return rng.standard_normal(n), reference, member


def memory_bytes(field):
    """A field of the process's status: VmRSS now, VmHWM at its highest since the last reset."""
    (line,) = [row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith(field)]
    return int(line.split()[1]) * 1024


def measured(name, n, r):
    """One case in a process of its own, so that peak memory is its own."""
    data = signals(n, r, kind=KINDS.get(name, "margins"))
    before = memory_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the input
    started, busy = time.perf_counter(), time.process_time()
    result = CASES[name](*data)
    elapsed, busy = time.perf_counter() - started, time.process_time() - busy
    row = {
        "records": n,
        "models": r,
        "input_bytes": data[1].nbytes + data[2].nbytes,
        "seconds": elapsed,
        "cpu_seconds": busy,
        "peak_bytes_above_input": memory_bytes("VmHWM") - before,
    }
    if name.startswith("success"):
        row |= {"mean_success": float(result.success.mean()), "mean_auc": float(result.model_auc.mean())}
    print(json.dumps(row))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100,000 records and 64 models, nothing stored: does every case run?")
    parser.add_argument("--only", choices=list(CASES), help="run one case")
    parser.add_argument("--child", choices=list(CASES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    if arguments.child:
        measured(arguments.child, *size)
        return
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in CASES:
        if arguments.only in (None, name):
            command = [sys.executable, __file__, "--child", name, *(["--quick"] if arguments.quick else [])]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            stored[name] = json.loads(done.stdout.splitlines()[-1]) | {"environment": environment()}
            print(name, json.dumps(stored[name], indent=1), flush=True)
            if not arguments.quick:
                RESULTS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

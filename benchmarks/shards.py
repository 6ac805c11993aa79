"""Scores over shards: an audit of two million records out of core, beside the constants of a cost model (`shard_constants.py`).

`python benchmarks/shards.py [--quick] [--only NAME] [--work FOLDER]`; the audits write 2 GB of features into the folder, once.
Results go to benchmarks/results/shards.json (one entry a case; other cases there are kept). Constants are CPU seconds of one
thread, which other work on the machine disturbs less than wall time; audits have both.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from environment import environment
from shard_constants import (
    COLUMNS,
    DAMPING,
    WORDING,
    WORKERS,
    Nothing,
    Sending,
    chunk,
    cpu_seconds,
    ekfac,
    inverses,
    passes,
    reading,
    seconds,
    sums,
)

import noshadow as ns
from noshadow.losses import record_losses
from noshadow.scores.sharded import walk as shard_walk
from noshadow.tail import model_risk
from noshadow.workers import WorkerOptions, ready_workers, surviving_results

RESULTS = Path(__file__).parent / "results" / "shards.json"
RECORDS, FEATURES = 2_000_000, 256
NONMEMBERS = 200_000
CHUNK = 100_000


def written(folder, n, m):
    """Paths of features, outputs and targets; written a chunk at a time unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}-{n}-{FEATURES}-{m}.npy" for name in ("features", "outputs", "targets")]
    if all(path.exists() for path in paths):
        return paths
    shapes = (((n, FEATURES), np.float32), ((n, m), np.float32), ((n,), np.int64))
    maps = [np.lib.format.open_memmap(path, "w+", dtype, shape) for path, (shape, dtype) in zip(paths, shapes, strict=True)]
    for start in range(0, n, CHUNK):
        stop = min(start + CHUNK, n)
        for there, rows in zip(maps, chunk(start, stop - start, FEATURES + 1, m), strict=True):
            there[start:stop] = rows
    for there in maps:
        there.flush()
    return paths


def private_bytes(pid):
    """Memory of a process that is its own: mapped files are the system's to drop, and do not count."""
    try:
        rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return 1024 * (int(rows["RssAnon"].split()[0]) + int(rows["RssShmem"].split()[0]))
    except (OSError, KeyError):
        return 0


def children(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(child)]
    return found


def spent_cpu(pid):
    """CPU seconds a process has used so far."""
    try:
        user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return 0.0
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def watched(action):
    """The action's wall time and result, CPU time and highest private memory of this process and of those that it started."""
    before = {pid: spent_cpu(pid) for pid in (os.getpid(), *children(os.getpid()))}
    peak, cpu, done = {"driver": 0, "worker": 0}, {}, threading.Event()

    def look():
        for pid in (os.getpid(), *children(os.getpid())):
            role = "driver" if pid == os.getpid() else "worker"
            peak[role] = max(peak[role], private_bytes(pid))
            cpu[pid] = max(cpu.get(pid, 0.0), spent_cpu(pid) - before.get(pid, 0.0))

    def watch():
        while not done.wait(0.1):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        elapsed, result = seconds(action)
    finally:
        done.set()
        watcher.join()
    look()
    return elapsed, result, {f"peak_bytes_{role}": size for role, size in peak.items()} | {"cpu_seconds": sum(cpu.values())}


def timed_passes():
    """Wall time of each pass, by its label; filled as passes end."""
    spent, results = {}, shard_walk.ShardWalk._results

    def timing(self, begun, merged, given, label):
        started = time.perf_counter()
        yield from results(self, begun, merged, given, label)
        spent[label] = spent.get(label, 0.0) + time.perf_counter() - started

    shard_walk.ShardWalk._results = timing
    return spent


def product_rates(d, m):
    """Flops a second of one thread on the two kinds of product, operands at hand: second moments, and pairs of classes."""
    rows = torch.rand(16_384, d, dtype=torch.float64)
    double = 2 * len(rows) * d * d / cpu_seconds(lambda: rows.T @ rows, repeats=5)[0]
    left, right = torch.rand(m * (m - 1) // 2, 1024), torch.rand(1024, d * (d + 1) // 2)
    single = 2 * left.numel() * right.shape[1] / cpu_seconds(lambda: left @ right, repeats=5)[0] if m > 1 else None
    return double, single


def ideal_seconds(n, m, read_rate):
    """One read of the features and the products nobody can avoid, shared by the workers."""
    d = FEATURES + 1
    double, single = product_rates(d, m)
    moments = 2 * n * d * d / double
    products = 2 * moments if m == 1 else 2 * 2 * n * (m * (m - 1) // 2) * (d * (d + 1) // 2) / single
    return {"read": 4 * n * FEATURES / read_rate, "products": (moments + products) / WORKERS, "flops_per_second": [double, single]}


def audit_child(folder, n, m, workers):
    """One audit in a process of its own, so that memory is its own."""
    paths = written(Path(folder), n, m)
    _, outputs, labels = chunk(10**9, max(n * NONMEMBERS // RECORDS, 1000), FEATURES + 1, m)
    task = "binary" if m == 1 else "classification"
    outside = record_losses(outputs, labels.astype(np.float64) if m == 1 else labels, task)
    read = reading(paths[0])
    with paths[0].open("rb") as file:  # the audit starts from the disk
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with ready_workers(WorkerOptions("loky", workers, 1, None, 1), WORDING) as ready:
        everyone = [Nothing(i) for i in range(4 * workers)]
        startup, _ = seconds(lambda: list(surviving_results(ready, Sending(1), everyone, attempts=1, wording=WORDING)))
    spent, before = timed_passes(), os.getloadavg()[0]

    def audit():
        scores = ns.sharded_record_scores(*paths, damping=DAMPING, columns=COLUMNS, workers=workers, threads=1)
        return scores, seconds(lambda: model_risk(scores.loss, outside))

    elapsed, (scores, (tail, risk)), seen = watched(audit)
    ideal = ideal_seconds(n, m, read["cold"]["bytes_per_second"])
    row = {"n": n, "features": FEATURES, "m": m, "workers": workers, "threads": 1, "bytes": read["cold"]["bytes"], "reading": read}
    row |= {"seconds": elapsed, "seconds_scores": scores.seconds, "seconds_model_risk": tail, "seconds_by_pass": spent}
    row |= seen | {"seconds_startup": startup, "ideal_seconds": ideal, "ratio": elapsed / (ideal["read"] + ideal["products"])}
    row |= {"cpu_ratio": seen["cpu_seconds"] / (workers * ideal["products"]), "precision": scores.precision}
    row |= {"precision_error": scores.precision_error, "effective_dof": scores.effective_dof, "tnr": risk.tnr, "auc": risk.auc}
    print(json.dumps(row | {"load_average_before": before, "load_average_after": os.getloadavg()[0]}))


def audited(folder, n, m):
    command = [sys.executable, __file__, "--audit-child", str(folder), str(n), str(m), str(WORKERS)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing stored: does every case run?")
    parser.add_argument("--only", help="run one case: passes, inverses, reading, sums, ekfac, audit_binary, audit_softmax")
    parser.add_argument("--work", type=Path, help="folder for the files of the audits, kept; a temporary one by default")
    parser.add_argument("--audit-child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.audit_child:
        folder, *numbers = arguments.audit_child
        audit_child(folder, *map(int, numbers))
        return
    n = RECORDS // 100 if arguments.quick else RECORDS
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.work or Path(temporary)
        cases = {
            "passes": lambda: passes(arguments.quick),
            "inverses": lambda: inverses(arguments.quick),
            "reading": lambda: reading(written(folder, n, 1)[0]),
            "sums": lambda: sums(arguments.quick),
            "ekfac": lambda: ekfac(arguments.quick),
            "audit_binary": lambda: audited(folder, n, 1),
            "audit_softmax": lambda: audited(folder, n, 10),
        }
        for name, case in cases.items():
            if arguments.only in (None, name):
                load = os.getloadavg()[0]
                stored[name] = case() | {"load_average": load, "environment": environment()}
                print(name, json.dumps(stored[name], indent=1))
                if not arguments.quick:
                    RESULTS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

"""Constants of the cost model of scores over shards: CPU seconds of one thread for each pass, an inverse, EK-FAC; bytes a second."""

import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from cases import seconds

import noshadow as ns
from noshadow.linalg import spd_inverse
from noshadow.scores.last_layer.curvature import ContrastInverse, difference_forms, grounded_laplacian
from noshadow.scores.last_layer.design import framed
from noshadow.scores.last_layer.inputs import HeadInputs, plain_arrays
from noshadow.scores.sharded import passes as shard_passes
from noshadow.workers import Wording, WorkerOptions, alone_in_process, ready_workers, surviving_results

WORKERS = 2
COLUMNS = ["loss", "gradient_norm", "entropy", "leverage", "influence", "newton", "loo", "shift"]
DAMPING = 1e-3
# (features with the bias, outputs, records): one logit, then softmax heads.
PASSES = ((257, 1, 40_000), (1025, 1, 20_000), (4097, 1, 8_000), (257, 10, 20_000), (65, 50, 10_000), (513, 10, 10_000))
INVERSES = (1000, 2000, 4000)
WORDING = Wording("arrays", "send", "sent", "array")


def theta(d, m, scale=3.0):
    return np.random.default_rng(1).standard_normal((d, m), dtype=np.float32) * np.float32(scale / d**0.5)


def chunk(number, n, d, m):
    """Rectified Gaussian features (d − 1 and a bias), logits of a random linear head, labels drawn from it."""
    rng = np.random.default_rng([2, number])
    features = np.maximum(rng.standard_normal((n, d - 1), dtype=np.float32), 0)
    weights = theta(d, m)
    logits = features @ weights[:-1] + weights[-1]
    if m == 1:
        return features, logits, (rng.random(n) < 1 / (1 + np.exp(-logits[:, 0]))).astype(np.int64)
    return features, logits, (logits + rng.gumbel(size=logits.shape)).argmax(1)


def cpu_seconds(action, repeats=2):
    """CPU time of the action in one thread."""
    with alone_in_process(1):
        return seconds(action, repeats, time.process_time)


def pass_seconds(d, m, n):
    """Time of every pass over n records in one thread, beside its arithmetic."""
    features, logits, labels = chunk(0, n, d, m)
    task, centre = ("binary" if m == 1 else "classification"), np.zeros(m)
    head = HeadInputs(features, logits, labels.astype(np.float64) if m == 1 else labels, None, task)
    shift = np.append(features.mean(0, dtype=np.float64), 0.0)
    # Any coordinates take as long as the whitened ones of all records, and these cost an eigendecomposition less.
    directions = torch.ones(d, dtype=torch.float64), torch.eye(d, dtype=torch.float64)
    unit = torch.from_numpy(np.append(features.std(0, dtype=np.float64), 1.0))
    design = framed(torch.from_numpy(shift), unit, directions, width=d, fit_intercept=True, penalize_intercept=True)
    packed, r = shard_passes.packed_design(design), design.rank
    problems, dtype = (["single"], "float64") if m == 1 else (["cross_entropy"], "float32")
    given = {"design": packed, "dtype": dtype, "problems": problems, "fit": True, "centre": centre}
    rows = {
        "checks": timed(lambda head: (plain_arrays(features, logits, labels), shard_passes.counts({})(head)), head),
        "means": timed(shard_passes.offsets({"means": shift[:-1]}), head),
        "second moments": timed(shard_passes.grams({"shift": shift, "fit_intercept": True}), head),
        "curvature": timed(shard_passes.curvatures(given), head),
    }
    sums = shard_passes.curvatures(given)(head)
    fit = {"design": packed, "dtype": dtype, "theta": np.zeros((r, m)), "wanted": tuple(COLUMNS), "fit": True}
    rows["columns"] = timed(shard_passes.columns(fit | solved(sums, design, m)), head)
    pairs = 2 * (m * (m - 1) // 2) * (r * (r + 1) // 2)
    plain = 2 * d * r
    flops = {"second moments": 2 * d * d, "curvature": plain + (pairs or 2 * r * r), "columns": plain + (pairs or 2 * r * r)}
    found = {name: {"seconds_per_record": value / n} for name, value in rows.items()}
    for name, count in flops.items():
        found[name] |= {"flops_per_record": count, "seconds_per_flop": rows[name] / n / count}
    return {"d": d, "m": m, "records": n, "passes": found}


def timed(walk, head):
    return cpu_seconds(lambda: walk(head))[0]


def solved(sums, design, m):
    """What the driver makes of the curvature, whatever it costs: timed elsewhere."""
    if m == 1:
        return {"single": np.diag(1 / sums["single"].diagonal())}
    curvature, others = grounded_laplacian(torch.from_numpy(sums["cross_entropy"]), m, DAMPING * design.penalty)
    contrast = ContrastInverse(spd_inverse(curvature, overwrite=True), others)
    return {"cross_entropy": shard_passes.packed_forms(difference_forms(contrast, m, design.rank, torch.float32))}


def passes(quick):
    sizes = [(d, m, n) for d, m, n in PASSES if not quick or d < 300]
    return {"rows": [pass_seconds(d, m, n // 20 if quick else n) for d, m, n in sizes]}


def inverses(quick):
    rows = []
    for n in INVERSES[: 1 if quick else None]:
        left = np.random.default_rng(0).standard_normal((n, n + 8))
        matrix = left @ left.T
        elapsed, _ = cpu_seconds(lambda matrix=matrix: spd_inverse(matrix))
        rows.append({"n": n, "seconds": elapsed, "seconds_per_cube": elapsed / n**3})
    return {"rows": rows}


def read_once(path, *, cold):
    """Bytes and seconds of reading a file from start to end; cold: what the system keeps of it in memory is dropped first."""
    buffer = bytearray(1 << 24)
    with path.open("rb", buffering=0) as file:
        if cold:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        started, size = time.perf_counter(), 0
        while count := file.readinto(buffer):
            size += count
    return size, time.perf_counter() - started


def reading(path):
    rows = {}
    for name, cold in (("cold", True), ("warm", False)):
        size, elapsed = read_once(path, cold=cold)
        rows[name] = {"bytes": size, "seconds": elapsed, "bytes_per_second": size / elapsed}
    return rows


@dataclass(frozen=True)
class Sending:
    """A job that sends back an array of so many numbers from each task."""

    numbers: int

    def carried_out(self, task):
        """The array."""
        return np.zeros(self.numbers)


@dataclass(frozen=True)
class Nothing:
    """A task that says no more than its number."""

    number: int
    wanted: tuple = ()


def sums(quick):
    """How fast a worker's sums come to the driver, loky's pipes and pickling included."""
    numbers, count = (1 << 18) if quick else (1 << 23), 16
    with ready_workers(WorkerOptions("loky", WORKERS, 1, None, 1), WORDING) as ready:
        tasks = [Nothing(i) for i in range(count)]
        list(surviving_results(ready, Sending(1), tasks, attempts=1, wording=WORDING))  # workers are up
        elapsed, _ = seconds(lambda: list(surviving_results(ready, Sending(numbers), tasks, attempts=1, wording=WORDING)), repeats=3)
    return {"bytes": 8 * numbers * count, "seconds": elapsed, "bytes_per_second": 8 * numbers * count / elapsed, "backend": "loky"}


def ekfac(quick):
    """EK-FAC of a head on one machine, one thread: seconds beside the flops its docstring counts."""
    n, d, m = (500, 33, 40) if quick else (10_000, 513, 500)
    data = chunk(0, n, d, m)
    elapsed, scores = cpu_seconds(lambda: ns.record_scores(*data, damping=1.0, columns=COLUMNS, method="ekfac", refine=0), repeats=1)
    flops = 10 * n * m * (m + d)
    return {"n": n, "d": d, "m": m, "seconds": elapsed, "flops": flops, "seconds_per_flop": elapsed / flops, "method": scores.method}

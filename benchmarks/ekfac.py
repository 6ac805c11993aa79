"""Heads too big to factor: EK-FAC for all records, exact refinement of a few, agreement with the exact columns, a peer.

`python benchmarks/ekfac.py [--quick] [--only NAME] [--work FOLDER]`. Results go to benchmarks/results/ekfac.json, one entry a
case, each stored as soon as it is measured; the trained heads are kept in the work folder, so that cases can be run one by one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from environment import environment
from kronfluence_peer import kronfluence_self_scores

import noshadow as ns
from noshadow.scores.last_layer.curvature import SoftmaxProblem, curvature_bytes
from noshadow.scores.last_layer.design import whitened_design
from noshadow.scores.last_layer.ekfac import ekfac_curvature, softmax_class_sums, softmax_shares
from noshadow.scores.last_layer.refinement import REFINED_COLUMNS, conditioning, refined

RESULTS = Path(__file__).parent / "results" / "ekfac.json"
COLUMNS = ("leverage", "influence", "newton", "loo", "shift", "margin_leverage")
WEIGHT_DECAY = 1e-4
BIG, SMALL = (100_000, 769, 1000), (20_000, 129, 50)
QUICK_BIG, QUICK_SMALL = (3_000, 33, 60), (2_000, 17, 8)
MAX_MEMORY = 4e9
REFINED_RECORDS = 2
AGREEMENT_REFINED = (0, 48, 200)
TOP_RECORDS = (10, 48)


def trained_head(n, d, m, *, epochs, seed=0):
    """Clustered classes (24 latent dimensions, two per cent of the labels wrong) and a linear head trained on them.

    Returns features (n, d−1), logits and labels; peaked probabilities, as of a head that has learnt.
    """
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, m, (n,), generator=generator)
    centres = torch.randn((m, 24), generator=generator)
    lift = torch.randn((24, d - 1), generator=generator) / 24**0.5
    features = torch.empty((n, d - 1))
    for rows in torch.arange(n).split(8192):
        latent = centres[classes[rows]] + 0.8 * torch.randn((len(rows), 24), generator=generator)
        features[rows] = torch.relu(latent @ lift + 0.3 * torch.randn((len(rows), d - 1), generator=generator))
    wrong = torch.rand(n, generator=generator) < 0.02
    labels = torch.where(wrong, torch.randint(0, m, (n,), generator=generator), classes)
    head = torch.nn.Linear(d - 1, m)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    optimiser = torch.optim.Adam(head.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * -(-n // 512))
    for _ in range(epochs):
        for rows in torch.randperm(n, generator=generator).split(512):
            optimiser.zero_grad()
            penalty = 0.5 * WEIGHT_DECAY * sum((p**2).sum() for p in head.parameters())
            (torch.nn.functional.cross_entropy(head(features[rows]), labels[rows]) + penalty).backward()
            optimiser.step()
            schedule.step()
    with torch.no_grad():
        logits = torch.cat([head(block) for block in features.split(8192)])
    return {"features": features.numpy(), "logits": logits.numpy(), "labels": labels.numpy()}


def stored_head(size, epochs, work):
    """The head of this size from the work folder, trained there first when it is not."""
    path = work / f"head-{'-'.join(map(str, size))}-{epochs}.npz"
    if not path.exists():
        unfinished = path.with_suffix(".part.npz")
        np.savez(unfinished, **trained_head(*size, epochs=epochs))
        unfinished.rename(path)
    with np.load(path, allow_pickle=False) as held:
        return held["features"], held["logits"], held["labels"]


def described(size, logits, labels):
    sample = torch.softmax(torch.from_numpy(logits[:5000]), 1)
    return dict(zip("ndm", size, strict=True)) | {
        "damping": len(labels) * WEIGHT_DECAY,
        "training_accuracy": float((logits.argmax(1) == labels).mean()),
        "classes_above_0.001_a_record": float((sample > 1e-3).float().sum(1).mean()),
        "load_average_before": os.getloadavg()[0],
    }


def with_cpu_seconds(call, *arguments, **options):
    """What the call returns, and the processor seconds it took: what a busy machine does not change."""
    started = time.process_time()
    return call(*arguments, **options), time.process_time() - started


def memory_bytes(field):
    (line,) = [row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith(field)]
    return int(line.split()[1]) * 1024


def forget_peak():
    """Making the inputs took more than holding them: forget that peak. Returns what is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_bytes("VmRSS")


def all_records(size, epochs, work):
    """Every column of every record by EK-FAC, nothing refined."""
    data = stored_head(size, epochs, work)
    row = described(size, *data[1:])
    inputs = forget_peak()
    scores = ns.record_scores(*data, damping=row["damping"], method="ekfac", refine=0, max_memory=MAX_MEMORY)
    return row | {
        "seconds": scores.seconds,
        "peak_bytes": memory_bytes("VmHWM"),
        "input_bytes": inputs,
        "exact_curvature_bytes": curvature_bytes(size[2], scores.rank),
        "precision": scores.precision,
        "precision_error": scores.precision_error,
        "stationarity": scores.stationarity,
        "effective_dof": scores.effective_dof,
        "load_average": os.getloadavg()[0],
    }


def refinement(size, epochs, work):
    """Exact influence, newton, loo and shift of some records of largest loss, after the factors are there."""
    features, logits, labels = stored_head(size, epochs, work)
    row = described(size, logits, labels)
    design = whitened_design(features, fit_intercept=True, penalize_intercept=True)
    problem = SoftmaxProblem(design, logits, labels, None, row["damping"])
    curvature = ekfac_curvature(problem, softmax_class_sums, softmax_shares, dtype=torch.float32, progress=False)
    margin = np.take_along_axis(logits, labels[:, None], 1)[:, 0] - logits.max(1)
    records = np.argsort(margin)[:REFINED_RECORDS]
    forget_peak()
    before, row["cpu_seconds_once"] = with_cpu_seconds(conditioning, problem, curvature, MAX_MEMORY)
    options = {"dtype": torch.float32, "max_memory": MAX_MEMORY, "progress": False, "before": before}
    started, spent = time.perf_counter(), time.process_time()
    found = refined(problem, curvature, records, REFINED_COLUMNS, **options)
    elapsed, spent = time.perf_counter() - started, time.process_time() - spent
    return row | {
        "records": len(records),
        "seconds_a_record": elapsed / len(records),
        "cpu_seconds_a_record": spent / len(records),
        "converged": int(found.converged.sum()),
        "largest_residual": float(found.residual.max()),
        "full_products_a_record": float(found.iterations.mean()) + 2,  # the check of each of the two systems
        "flops_a_full_product": 4.0 * size[0] * size[1] * size[2],
        "peak_bytes": memory_bytes("VmHWM"),
        "load_average": os.getloadavg()[0],
    }


def stored_exact(data, damping, size, epochs, work):
    """The exact columns of a head and what they took, from the work folder when they are there."""
    path = work / f"exact-{'-'.join(map(str, size))}-{epochs}.npz"
    if not path.exists():
        scores, spent = with_cpu_seconds(ns.record_scores, *data, damping=damping, method="exact")
        columns = {name: getattr(scores, name) for name in COLUMNS}
        unfinished = path.with_suffix(".part.npz")
        np.savez(unfinished, **columns, seconds=scores.seconds, cpu_seconds=spent)
        unfinished.rename(path)
    with np.load(path, allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


def compared(columns, exact):
    """Spearman, shares of the true top 1 % and of the very first found in the score's, and typical ratio, column by column."""
    table = {}
    for name, value in columns.items():
        truth, n = exact[name], len(value)
        table[name] = {
            "spearman": ns.metrics.spearman(truth, value),
            "top_1_percent_overlap": ns.metrics.top_recall(truth, value, top=0.01, keep=0.01),
            "median_ratio": float(np.median(value / truth)),
        } | {f"top_{k}_overlap": ns.metrics.top_recall(truth, value, top=k / n, keep=k / n) for k in TOP_RECORDS}
    return table


def agreement(size, epochs, work):
    """EK-FAC beside the exact columns, with and without refinement, and beside the other way to leave a record out."""
    data = stored_head(size, epochs, work)
    row = described(size, *data[1:])
    exact = stored_exact(data, row["damping"], size, epochs, work)
    row |= {"exact_seconds": float(exact["seconds"]), "exact_cpu_seconds": float(exact["cpu_seconds"])}
    most = max(AGREEMENT_REFINED)
    plain, row["ekfac_cpu_seconds"] = with_cpu_seconds(ns.record_scores, *data, damping=row["damping"], method="ekfac", refine=0)
    scores, spent = with_cpu_seconds(ns.record_scores, *data, damping=row["damping"], method="ekfac", refine=most)
    row |= {"refined_records": most, "exact_records": int(scores.exact.sum()), "errors": scores.errors}
    row["refinement_cpu_seconds_a_record"] = (spent - row["ekfac_cpu_seconds"]) / most
    order = np.argsort(-plain.shift, kind="stable")
    for refine in AGREEMENT_REFINED:  # the first of those refined are what a smaller `refine` would have refined
        first = np.isin(np.arange(len(order)), order[:refine])
        columns = {name: np.where(first, getattr(scores, name), getattr(plain, name)) for name in COLUMNS}
        row[f"refine_{refine}"] = compared(columns, exact)
    row["own_curvature_taken_out_of_everybodys"] = taken_out(*data, row["damping"], exact)
    return row | {"load_average": os.getloadavg()[0]}


def taken_out(features, logits, labels, damping, exact):
    """The other order: EK-FAC of everybody, then (I − W_iH_ii)⁻¹; how often that is indefinite, and its ranking of newton gaps."""
    design = whitened_design(features, fit_intercept=True, penalize_intercept=True)
    problem = SoftmaxProblem(design, logits, labels, None, damping)
    curvature = ekfac_curvature(problem, softmax_class_sums, softmax_shares, dtype=torch.float64, progress=False)
    newton, indefinite = np.empty(len(labels)), 0
    for rows in torch.arange(len(labels)).split(256):
        start, stop = int(rows[0]), int(rows[-1]) + 1
        variances = curvature.rows(design, start, stop) ** 2 @ curvature.eigenvalues.reciprocal()
        p = torch.softmax(torch.from_numpy(logits[start:stop].astype(np.float64)), 1)
        residual = p - torch.nn.functional.one_hot(torch.from_numpy(labels[start:stop]), p.shape[1])
        h = (curvature.classes * variances[:, None]) @ curvature.classes.T
        values, vectors = torch.linalg.eigh(torch.diag_embed(p) - p[:, :, None] * p[:, None])
        root = vectors * values.clamp(min=0.0).sqrt()[:, None]
        inner = torch.eye(p.shape[1], dtype=torch.float64) - root.mT @ h @ root
        broken = torch.linalg.eigvalsh(inner)[:, 0] <= 0
        image = root.mT @ (h @ residual[:, :, None])
        gap = (residual[:, None] @ h @ residual[:, :, None] + image.mT @ torch.linalg.solve(inner, image))[:, 0, 0]
        newton[start:stop] = torch.where(broken, torch.inf, gap).numpy()
        indefinite += int(broken.sum())
    finite = np.where(np.isinf(newton), 1e300, newton)
    return {
        "indefinite_records": indefinite,
        "newton_spearman": ns.metrics.spearman(exact["newton"], finite),
        "newton_top_1_percent_overlap": ns.metrics.top_recall(exact["newton"], finite, top=0.01, keep=0.01),
    }


def against_kronfluence(size, epochs, work):
    """Self-influence by both EK-FACs beside the exact one: order, size, seconds."""
    data = stored_head(size, epochs, work)
    row = described(size, *data[1:])
    peer, elapsed, peer_spent, reason = kronfluence_self_scores(*data, row["damping"])
    if peer is None:
        return row | {"skipped": reason}
    row["kronfluence_version"] = version("kronfluence")
    exact = stored_exact(data, row["damping"], size, epochs, work)["influence"]
    ours, spent = with_cpu_seconds(ns.record_scores, *data, damping=row["damping"], method="ekfac", refine=0, columns=["influence"])
    everything, all_spent = with_cpu_seconds(ns.record_scores, *data, damping=row["damping"], method="ekfac", refine=0)
    for name, value, *times in (("kronfluence", peer, elapsed, peer_spent), ("ours", ours.influence, ours.seconds, spent)):
        row[name] = {
            "seconds": times[0],
            "cpu_seconds": times[1],
            "spearman": ns.metrics.spearman(exact, value),
            "top_1_percent_overlap": ns.metrics.top_recall(exact, value, top=0.01, keep=0.01),
            "median_ratio_to_exact": float(np.median(value / exact)),
        }
    row["ours"] |= {"seconds_all_columns": everything.seconds, "cpu_seconds_all_columns": all_spent}
    row["spearman_of_the_two"] = ns.metrics.spearman(peer, ours.influence)
    return row | {"load_average": os.getloadavg()[0]}


def in_a_process(name, arguments):
    """A case in a process of its own, so that peak memory is its own."""
    command = [sys.executable, __file__, "--child", name, "--work", str(arguments.work), *(["--quick"] if arguments.quick else [])]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing stored: does every case run?")
    parser.add_argument("--only", help="run one case: all_records, refinement, agreement, kronfluence")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "noshadow-ekfac", help="where trained heads are kept")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    big, small = ((QUICK_BIG, 3), (QUICK_SMALL, 10)) if arguments.quick else ((BIG, 6), (SMALL, 20))
    cases = {
        "all_records": lambda: all_records(*big, arguments.work),
        "refinement": lambda: refinement(*big, arguments.work),
        "agreement": lambda: agreement(*small, arguments.work),
        "kronfluence": lambda: against_kronfluence(*small, arguments.work),
    }
    if arguments.child:
        print(json.dumps(cases[arguments.child]()))
        return
    for name in cases:
        if arguments.only in (None, name):
            row = in_a_process(name, arguments) | {"environment": environment()}
            print(name, json.dumps(row, indent=1), flush=True)
            if not arguments.quick:
                stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
                RESULTS.write_text(json.dumps(stored | {name: row}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

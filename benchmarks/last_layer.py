"""Exact last-layer scores: speed against the ideal product, streaming, accuracy of float32, peers.

Every ratio is measured in one run on one machine: `python benchmarks/last_layer.py [--quick] [--only NAME]`.
Results go to benchmarks/results/last_layer.json (one entry a case; other cases there are kept).
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from cases import run_cases, seconds

import noshadow as ns

RESULTS = Path(__file__).parent / "results" / "last_layer.json"
COLUMNS = ["loss", "gradient_norm", "entropy", "leverage", "influence", "newton", "loo", "shift"]
DAMPING = 1e-3
IDEAL_SIZES = {"25k_65_100": (25_000, 65, 100), "50k_513_10": (50_000, 513, 10)}
STREAM_SIZES = (100_000, 300_000, 1_000_000)


def head(n, d, m, *, seed=0, scale=3.0):
    """Rectified Gaussian features (d − 1 and a bias), a random linear head, labels drawn from its softmax."""
    rng = np.random.default_rng(seed)
    features = np.maximum(rng.standard_normal((n, d - 1), dtype=np.float32), 0)
    theta = rng.standard_normal((d, m), dtype=np.float32) * np.float32(scale / d**0.5)
    logits = features @ theta[:-1] + theta[-1]
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return features, logits, labels


def ideal_seconds(n, d, m, *, align=1, block=1024):
    """Two float32 products (m(m+1)/2 × n)·(n × d(d+1)/2) with operands at hand, from one block's best time.

    `align` rounds both sides up to a multiple: the same product where the BLAS likes it best.
    """
    pairs, forms = (-(-size // align) * align for size in (m * (m + 1) // 2, d * (d + 1) // 2))
    left, right = torch.rand(pairs, block), torch.rand(block, forms)
    out = left @ right
    best, _ = seconds(lambda: torch.mm(left, right, out=out), repeats=5)
    return 2 * best * n / block


def against_the_ideal(n, d, m, repeats):
    """Time of all columns beside the ideal, and float32's error against float64."""
    data = head(n, d, m)
    ideal, aligned = ideal_seconds(n, d, m), ideal_seconds(n, d, m, align=64)
    ours, mixed = seconds(lambda: ns.record_scores(*data, damping=DAMPING, columns=COLUMNS), repeats)
    ideal, aligned = min(ideal, ideal_seconds(n, d, m)), min(aligned, ideal_seconds(n, d, m, align=64))
    double_time, exact = seconds(lambda: ns.record_scores(*data, damping=DAMPING, columns=COLUMNS, precision="float64"))
    return {
        "n": n,
        "d": d,
        "m": m,
        "damping": DAMPING,
        "ideal_seconds": ideal,
        "seconds": ours,
        "ratio": ours / ideal,
        "aligned_ideal_seconds": aligned,
        "ratio_to_aligned_ideal": ours / aligned,
        "float64_seconds": double_time,
        "precision": mixed.precision,
        "precision_error": mixed.precision_error,
        "condition": mixed.condition,
        "largest_relative_error_top_5_percent": {name: top_error(getattr(mixed, name), getattr(exact, name)) for name in COLUMNS},
        "top_1_percent_differs_beyond_error": {name: top_set_difference(getattr(mixed, name), getattr(exact, name)) for name in COLUMNS},
    }


def top_error(value, truth):
    top = truth >= np.quantile(truth, 0.95)
    return float(np.abs(value[top] / truth[top] - 1).max())


def top_set_difference(value, truth, tolerance=1e-3):
    """Records in one top-1 % set and not the other, leaving out those within the tolerance of its edge."""
    k = max(1, len(truth) // 100)
    edge = np.partition(truth, -k)[-k]
    first, second = np.argpartition(-value, k)[:k], np.argpartition(-truth, k)[:k]
    differing = np.setxor1d(first, second)
    return int((np.abs(truth[differing] / edge - 1) > tolerance).sum())


def memory_bytes(field):
    """A field of the process's status: VmRSS now, VmHWM at its highest since the last reset."""
    (line,) = [row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith(field)]
    return int(line.split()[1]) * 1024


def stream_child(n):
    """One streaming size in a process of its own, so that peak memory is its own."""
    data = head(n, 257, 2)
    before = memory_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # making the inputs took more than holding them: forget that peak
    elapsed, scores = seconds(lambda: ns.record_scores(*data, damping=DAMPING, columns=COLUMNS))
    above = memory_bytes("VmHWM") - before
    print(json.dumps({"n": n, "seconds": elapsed, "peak_bytes_above_inputs": above, "precision": scores.precision}))


def streaming(sizes):
    rows = []
    for n in sizes:
        done = subprocess.run([sys.executable, __file__, "--stream-child", str(n)], capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    rates = [row["seconds"] / row["n"] for row in rows]
    return {"d": 257, "m": 2, "rows": rows, "slowest_over_fastest_seconds_per_record": max(rates) / min(rates)}


def naive_influence(features, theta, labels, damping):
    """The plain way: autograd Hessian of the head, autograd gradient of each record, one dense solve each."""
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    shape = theta.shape

    def total(flat):
        logits = x @ flat.view(shape)[:-1] + flat.view(shape)[-1]
        return torch.nn.functional.cross_entropy(logits, y, reduction="sum") + 0.5 * damping * (flat**2).sum()

    flat = theta.flatten()
    hessian = torch.autograd.functional.hessian(total, flat, vectorize=True)
    out = np.empty(len(labels))
    for i in range(len(labels)):
        own = flat.clone().requires_grad_(True)
        logits = x[i : i + 1] @ own.view(shape)[:-1] + own.view(shape)[-1]
        (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, y[i : i + 1]), own)
        out[i] = gradient @ torch.linalg.solve(hessian, gradient)
    return out


def dattri_influence(features, theta, labels, damping):
    """dattri's explicit self-influence with the mean loss: damping/n there, times 1/n here."""
    from dattri.algorithm.influence_function import IFAttributorExplicit  # noqa: PLC0415 - optional peer
    from dattri.task import AttributionTask  # noqa: PLC0415

    n = len(labels)
    model = torch.nn.Linear(*theta[:-1].shape).double()
    model.weight.data, model.bias.data = theta[:-1].T.clone(), theta[-1].clone()

    def loss(params, data):
        x, y = data
        return torch.nn.functional.cross_entropy(torch.func.functional_call(model, params, x), y)

    task = AttributionTask(loss_func=loss, model=model, checkpoints=model.state_dict())
    data = torch.utils.data.TensorDataset(torch.from_numpy(features), torch.from_numpy(labels))
    # One batch of all records is its fastest way by far: every further batch builds the Hessian again.
    everyone = torch.utils.data.DataLoader(data, batch_size=n, shuffle=False)
    attributor = IFAttributorExplicit(task=task, device="cpu", regularization=damping / n)
    attributor.cache(everyone)
    return attributor.self_attribute(everyone).detach().numpy() / n


def against_peers(n, d, m):
    """Influence alone, float64, on a size that the slow ways can hold; agreement is part of the record."""
    features, _, labels = head(n, d, m, seed=1)
    features = features.astype(np.float64)
    theta = torch.from_numpy(np.random.default_rng(2).normal(size=(d, m)) / d**0.5)
    logits = features @ theta[:-1].numpy() + theta[-1].numpy()
    ours, scores = seconds(lambda: ns.record_scores(features, logits, labels, damping=1.0, columns=["influence"]), repeats=3)
    all_columns, _ = seconds(lambda: ns.record_scores(features, logits, labels, damping=1.0), repeats=3)
    row = {"n": n, "d": d, "m": m, "seconds_influence": ours, "seconds_all_columns": all_columns}
    for name, way in (("autograd_dense", naive_influence), ("dattri_explicit", dattri_influence)):
        elapsed, values = seconds(lambda way=way: way(features, theta, labels, 1.0))
        row[name] = {
            "seconds": elapsed,
            "speed_up_influence": elapsed / ours,
            "speed_up_all_columns": elapsed / all_columns,
            "largest_relative_difference": float(np.abs(values / scores.influence - 1).max()),
        }
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing stored: does every case run?")
    parser.add_argument("--only", help="run one case: 25k_65_100, 50k_513_10, streaming, peers")
    parser.add_argument("--stream-child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stream_child:
        stream_child(arguments.stream_child)
        return
    shrink = 25 if arguments.quick else 1
    cases = {
        name: lambda s=size: against_the_ideal(s[0] // shrink, s[1], s[2], repeats=1 if arguments.quick else 2)
        for name, size in IDEAL_SIZES.items()
    }
    cases["streaming"] = lambda: streaming([n // shrink for n in STREAM_SIZES])
    cases["peers"] = lambda: against_peers(*((200, 9, 4) if arguments.quick else (3000, 65, 10)))
    run_cases(cases, RESULTS, only=arguments.only, quick=arguments.quick)


if __name__ == "__main__":
    main()

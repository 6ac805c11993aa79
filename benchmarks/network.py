"""Many layers at once: the dual form at n = 10,000, the projected form at n = 50,000, and how close the two are; tables of words, and
layers that run at every token, in factors.

`python benchmarks/network.py [--only dual|projected|curve|lookups|tokens] [--quick]`; results go to benchmarks/results/network.json, one
entry a case. Each case runs in a process of its own, so that its peak memory is its own.
"""

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from environment import environment
from scipy.linalg import lapack
from scipy.stats import spearmanr
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

import noshadow as ns
from noshadow.scores.network.problem import network_problem
from noshadow.scores.network.solver import NetworkSettings, prepared_network, solved_network
from noshadow.views.network import network_view

RESULTS = Path(__file__).parent / "results" / "network.json"
DIMENSIONS = (64, 128, 256, 512, 1024, 2048)
COLUMNS = ("margin_leverage", "shift", "loo")


def digits_like(n, side, channels, classes=10, seed=0):
    """Images of noisy class patterns: real enough to train on, any number of them."""
    rng = np.random.default_rng(seed)
    patterns = rng.standard_normal((classes, channels, side, side))
    labels = rng.integers(0, classes, n)
    images = 0.5 * patterns[labels] + rng.standard_normal((n, channels, side, side))
    return torch.from_numpy(images.astype(np.float32)), torch.from_numpy(labels)


def trained(model, x, y, *, epochs, lr=1e-3, decay=1e-4, seed=0):
    torch.manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=decay)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    return model.eval()


def small_cnn(channels=3, side=16, classes=10):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (side // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, classes),
    )  # fmt: skip


def mlp(inputs=768, classes=10):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, classes))


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def dual(quick):
    """Kernel, then everything beside it against one Cholesky and inverse of the same size, in one run."""
    n = 2_000 if quick else 10_000
    x, y = digits_like(n, 16, 3)
    model = trained(mlp(), x, y, epochs=3)
    matrix = np.random.default_rng(0).standard_normal((n, 64))
    gram = np.asfortranarray(matrix @ matrix.T + n * np.eye(n))
    started = time.perf_counter()
    factor, _ = lapack.dpotrf(gram, lower=1, overwrite_a=1)
    lapack.dpotri(factor, lower=1, overwrite_c=1)
    ideal = time.perf_counter() - started
    del gram, factor, matrix
    before = peak_bytes()
    settings = NetworkSettings("dual", 2048, 3e9, 0)
    started = time.perf_counter()
    with network_view(model, (x, y), layers="all") as (network, records):
        problem = network_problem(network, records, task="auto", outputs="auto", sample_weight=None, batch_size=128, progress=False)
        prepared = prepared_network(network, records, problem, settings, progress=False)
    kernel = time.perf_counter() - started
    started = time.perf_counter()
    solved_network(prepared, n * 1e-4)
    rest = time.perf_counter() - started
    return {
        "n": n,
        "parameters": network.size,
        "kernel_seconds": kernel,
        "beside_kernel_seconds": rest,
        "cholesky_and_inverse_seconds": ideal,
        "ratio": rest / ideal,
        "peak_bytes": max(peak_bytes(), before),
        "kernel_bytes": 8 * n * n,
    }


def projected(quick):
    """All records of a small CNN by the projected form."""
    n = 5_000 if quick else 50_000
    x, y = digits_like(n, 16, 3)
    model = trained(small_cnn(), x, y, epochs=1)
    before = peak_bytes()
    scores = ns.network_scores(model, (x, y), weight_decay=1e-4, method="projected", dimension=2048)
    return {
        "n": n,
        "parameters": scores.parameters,
        "dimension": 2048,
        "seconds": scores.seconds,
        "peak_bytes": peak_bytes(),
        "peak_before_bytes": before,
        "errors": scores.errors,
        "notes": list(scores.notes),
    }


def curve(quick):
    """Agreement with the dual form as the dimension grows, for a CNN and a perceptron."""
    n = 1_000 if quick else 2_000
    rows = []
    for name, build, side in (("cnn", small_cnn, 16), ("mlp", mlp, 16)):
        x, y = digits_like(n, side, 3)
        model = trained(build(), x, y, epochs=5)
        exact = ns.network_scores(model, (x, y), weight_decay=1e-4, method="dual")
        for dimension in DIMENSIONS:
            scores = ns.network_scores(model, (x, y), weight_decay=1e-4, method="projected", dimension=dimension)
            rows.append({"network": name, "n": n, "parameters": exact.parameters, "dof": exact.effective_dof, "dimension": dimension}
                        | {"seconds": scores.seconds, "dual_seconds": exact.seconds, "projected_dof": scores.effective_dof}
                        | {f"spearman_{c}": float(spearmanr(getattr(scores, c), getattr(exact, c)).statistic) for c in COLUMNS}
                        | {f"top1_overlap_{c}": overlap(getattr(scores, c), getattr(exact, c)) for c in COLUMNS}
                        | {f"error_{c}": scores.errors[c] for c in COLUMNS})  # fmt: skip
    return {"rows": rows}


class Formed(nn.Embedding):
    """Not an nn.Embedding by its type: the scores form its gradient, as they do of any other layer."""


class Bag(nn.Module):
    """The mean of a sentence's word vectors, and a small network on it."""

    def __init__(self, table, words, width):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.layers = table(words, width), nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, x):
        """(b, length) word numbers → (b, 2) logits."""
        return self.layers(self.words(x).mean(1))


def lookups(quick):
    """A table of words kept in the rows a record asks for, against its formed gradient, in one run; the small one first, for its memory."""
    n, words, width, length = (128 if quick else 512), 16_384, 64, 24
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.integers(0, words, (n, length))), torch.from_numpy(rng.integers(0, 2, n))
    found = {"n": n, "words": words, "width": width, "length": length, "seconds": {}, "peak_bytes": {"before": peak_bytes()}}
    shifts = {}
    for name, table in (("rows", nn.Embedding), ("formed", Formed)):
        started = time.process_time()
        scores = ns.network_scores(Bag(table, words, width), (x, y), weight_decay=1e-4, method="projected", dimension=512)
        found["seconds"][name], found["peak_bytes"][name] = time.process_time() - started, peak_bytes()
        shifts[name] = scores.shift
    apart = float(np.max(np.abs(shifts["rows"] / shifts["formed"] - 1)))
    return found | {"parameters": scores.parameters, "ratio": found["seconds"]["formed"] / found["seconds"]["rows"], "apart": apart}


class FormedLinear(nn.Linear):
    """Not an nn.Linear by its type, so its gradient is formed."""


def encoder(words, width, layers):
    """A BERT with a classification head: its linear layers run at every token."""
    torch.manual_seed(0)
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 4, "intermediate_size": 4 * width}
    return BertForSequenceClassification(BertConfig(vocab_size=words, max_position_embeddings=64, num_labels=2, **sizes)).eval()


TEXTS = {"words": 2_000, "width": 256, "layers": 2, "length": 24, "batch_size": 16}


def encoder_scored(n, method, formed):
    """Seconds, peak memory above what stood before, and shifts of one run, in a process of its own."""
    rng = np.random.default_rng(0)
    shape = (n, TEXTS["length"])
    inputs = {"input_ids": torch.from_numpy(rng.integers(1, TEXTS["words"], shape)), "attention_mask": torch.ones(shape, dtype=torch.long)}
    model, y = encoder(TEXTS["words"], TEXTS["width"], TEXTS["layers"]), torch.from_numpy(rng.integers(0, 2, n))
    for module in model.modules():
        if formed and type(module) is nn.Linear:
            module.__class__ = FormedLinear
    before, started = peak_bytes(), time.process_time()
    scores = ns.network_scores(
        model, (inputs, y), weight_decay=1e-4, method=method, dimension=512, batch_size=TEXTS["batch_size"], progress=False
    )
    return time.process_time() - started, peak_bytes() - before, scores.shift, scores.parameters


def tokens(quick):
    """Linear layers at every token kept in factors, against their formed gradients."""
    n = 32 if quick else 128
    found = {"n": n, **TEXTS, "methods": {}}
    for method in ("projected", "dual"):
        runs = {}
        for name in ("factors", "formed"):
            with multiprocessing.get_context("spawn").Pool(1) as alone:
                runs[name] = alone.apply(encoder_scored, (n, method, name == "formed"))
        (seconds, memory, shift, parameters), (slower, larger, other, _) = runs["factors"], runs["formed"]
        row = {"seconds": {"factors": seconds, "formed": slower}, "bytes": {"factors": memory, "formed": larger}}
        # Projections of the two draw other numbers (a bias stands beside its weight in factors), so only the exact form is compared.
        row["apart"] = float(np.max(np.abs(shift - other) / np.abs(other))) if method == "dual" else None
        found["methods"][method] = row
    return found | {"parameters": parameters}


def overlap(first, second, share=0.01):
    k = max(int(len(first) * share), 1)
    return len(set(np.argsort(-first)[:k]) & set(np.argsort(-second)[:k])) / k


CASES = {"dual": dual, "projected": projected, "curve": curve, "lookups": lookups, "tokens": tokens}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--quick", action="store_true", help="small sizes, printed and not stored")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        row = CASES[arguments.only](arguments.quick) | {"load": os.getloadavg()[0], "environment": environment()}
        print(json.dumps(row))
        return
    for name in [arguments.only] if arguments.only else CASES:
        command = [sys.executable, __file__, "--here", "--only", name, *(["--quick"] if arguments.quick else [])]
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
        print(name, line, flush=True)
        if not arguments.quick:
            held = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            RESULTS.write_text(json.dumps(held | {name: json.loads(line)}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

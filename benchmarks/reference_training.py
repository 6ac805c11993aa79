"""Reference models at once against one by one: time per model and epoch, on two cores.

Three-layer networks 768 → h → h → 10 on 5,000 of 10,000 records, float32. Four ways: the plain loop in one process with two
threads, the plain loop in two processes with a thread each (half of the models in each), and `train_many` in both settings.
Every ratio is measured in one run on one machine: `python benchmarks/reference_training.py [--quick] [--only NAME]`.
Results go to benchmarks/results/reference_training.json (one entry a case; other cases there are kept).
"""

import argparse
import functools
import json
import multiprocessing
import time
from pathlib import Path

import numpy as np
import torch
from environment import environment
from torch import nn

from noshadow.reference.recipe import Recipe

RESULTS = Path(__file__).parent / "results" / "reference_training.json"
RECORDS, FEATURES, CLASSES = 10_000, 768, 10
WIDTHS = (32, 64, 128, 256, 512)
OPTIMIZERS = {
    "sgd_momentum": {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 1e-4, "lr": 0.02},
    "adam": {"optimizer": "adam", "weight_decay": 1e-4, "lr": 1e-3},
}
MODELS, LOOP_MODELS, EPOCHS = 64, 8, 2


def network(width):
    return nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES))


def convolutional(channels):
    return nn.Sequential(
        nn.Unflatten(1, (3, 16, 16)),
        nn.Conv2d(3, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.BatchNorm2d(2 * channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * channels, CLASSES),
    )


@functools.cache
def pool(records):
    """Gaussian records, labels by a random linear rule with noise."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((records, FEATURES), dtype=np.float32)
    logits = x @ rng.standard_normal((FEATURES, CLASSES), dtype=np.float32) / FEATURES**0.5
    return x, (logits + rng.gumbel(size=logits.shape)).argmax(1)


@functools.cache
def prepared(case):
    """The recipe of a case: its checks of the data are not what is measured."""
    build, size, batch_size, optimizer, records = case
    return Recipe(functools.partial(build, size), *pool(records), epochs=EPOCHS, batch_size=batch_size, **OPTIMIZERS[optimizer])


def training(case, way, models, stack="auto"):
    """Train `models` models of a case, one by one or at once."""
    recipe, rng = prepared(case), np.random.default_rng(1)
    records = len(recipe.x)
    rows = [rng.permutation(records)[: records // 2] for _ in range(models)]
    if way == "at_once":
        recipe.train_many(rows, range(models), stack=stack)
    else:
        for seed, indices in enumerate(rows):
            recipe(indices, seed)


def worker(connection):
    """A process of one thread that trains what it is told and says when it is done."""
    torch.set_num_threads(1)
    while (order := connection.recv()) is not None:
        training(*order)
        connection.send(True)


def seconds(action, repeats):
    """Shortest wall time of a few runs."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def in_both(workers, *order):
    for connection in workers:
        connection.send(order)
    for connection in workers:
        connection.recv()


def measured(case, workers, *, models, loop_models, repeats):
    """Milliseconds per model and epoch of the four ways, and what `train_many` gains over the plain loop."""
    counts = {"one_by_one": loop_models, "at_once": models}
    per_unit = {}
    for way, count in counts.items():
        training(case, way, 2)
        in_both(workers, case, way, 2)
        per_unit[f"{way}_two_threads"] = seconds(lambda w=way, c=count: training(case, w, c), repeats) / count
        per_unit[f"{way}_two_processes"] = seconds(lambda w=way, c=count: in_both(workers, case, w, c // 2), repeats) / count
    loops, ours = ([per_unit[f"{way}_{how}"] for how in ("two_threads", "two_processes")] for way in counts)
    return {
        "milliseconds_per_model_epoch": {name: value / EPOCHS * 1000 for name, value in per_unit.items()},
        "speed_up_over_two_threads": loops[0] / ours[0],
        "speed_up_over_two_processes": loops[1] / min(ours),
        "speed_up_over_the_better_loop": min(loops) / min(ours),
    }


def networks(keep, workers, widths, batch_sizes, records, **counts):
    rows = []
    for optimizer in OPTIMIZERS:
        for batch_size in batch_sizes:
            for width in widths:
                row = {"width": width, "optimizer": optimizer, "batch_size": batch_size}
                rows.append(row | measured((network, width, batch_size, optimizer, records), workers, **counts))
                print(json.dumps(rows[-1]), flush=True)
                keep(rows)
    return rows


def convolutions(workers, records, repeats):
    """Stacked convolutions against the plain loop (two threads): why "auto" leaves them one by one."""
    rows = []
    for channels in (8, 32):
        case = (convolutional, channels, 128, "sgd_momentum", records)
        loop, stacked = (seconds(lambda c=case, w=way: training(c, w, 4, stack=4), repeats) / 4 for way in ("one_by_one", "at_once"))
        rows.append({"channels": channels, "stacked_over_one_by_one_seconds": stacked / loop})
    return rows


def stacks(records, sizes, models, repeats):
    """Milliseconds per model and epoch by the number of models in a stack (two threads, width 128)."""
    rows = {}
    for optimizer in OPTIMIZERS:
        case = (network, 128, 128, optimizer, records)
        times = {str(size): seconds(lambda c=case, s=size: training(c, "at_once", models, stack=s), repeats) for size in sizes}
        rows[optimizer] = {size: value / models / EPOCHS * 1000 for size, value in times.items()}
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing stored: does every case run?")
    parser.add_argument("--only", help="run one case: batch_128, batch_64_256, stacks, convolutions")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    quick = arguments.quick
    records = 400 if quick else RECORDS
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    processes = [context.Process(target=worker, args=(far,), daemon=True) for _, far in pipes]
    for process in processes:
        process.start()
    near = [connection for connection, _ in pipes]
    few = {"models": 4, "loop_models": 2, "repeats": 1} if quick else {"models": 16, "loop_models": LOOP_MODELS, "repeats": 2}
    cases = {
        "batch_128": lambda keep: networks(
            keep, near, WIDTHS[:2] if quick else WIDTHS, (128,), records, **(few if quick else few | {"models": MODELS})
        ),
        "batch_64_256": lambda keep: networks(keep, near, (32,) if quick else (32, 128, 512), (64, 256), records, **few),
        "stacks": lambda _: stacks(records, (2, "auto") if quick else (1, 2, 4, 8, 16, 32, "auto"), 4 if quick else 32, few["repeats"]),
        "convolutions": lambda _: convolutions(near, records // 5, few["repeats"]),
    }
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, case in cases.items():
        if arguments.only in (None, name):
            started = time.perf_counter()

            def keep(results, name=name):
                """Store what is measured as it comes: a run may be stopped."""
                stored[name] = {
                    "results": results,
                    "models": MODELS if name == "batch_128" else few["models"],
                    "environment": environment(),
                }
                if not quick:
                    RESULTS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")

            keep(case(keep))
            print(name, f"{time.perf_counter() - started:.0f} s", json.dumps(stored[name], indent=1))
    for connection in near:
        connection.send(None)
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()

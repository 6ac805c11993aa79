"""Figures over many records: how far queries from random starts stay below the record itself. CIFAR-10 cars and planes at 16 × 16."""

import numpy as np
from lood_data import BOX, bootstrap, one_by_one, pixels, rounded
from lood_queries import DEEP, FOUND, MAIN, NOISE, SIDE, cell, drawn_records, problem
from lood_together import best_queries
from PIL import Image

from noshadow._lood import optimal_query

TOGETHER = 20  # records whose queries ascend at once
PARTS, ACROSS = 6, 21  # [LOOD] Figures 14–19: one picture a part


def gap(data, pictures, *, quick, records, work=None):
    """How far the best of four random starts stays below the record itself, over many random records."""
    n, steps, count = (60, 3, 3) if quick else (1000, 150, records)
    x, y, factor = problem(data, n, MAIN)
    drawn = drawn_records(n, count)
    batches = {str(drawn[low : low + TOGETHER]): drawn[low : low + TOGETHER] for low in range(0, count, TOGETHER)}

    def measure(batch):
        return best_queries(x, y, batches[batch], kernel=MAIN, noise=NOISE, factor=factor, restarts=4, steps=steps)

    found, seconds = one_by_one(measure, batches, kept_in(work, "gap", n, steps))
    cells = [one for batch in found for one in batch]
    cells.sort(key=lambda c: c["record"])
    reached = np.array([c["share_of_ceiling"] for c in cells])
    return {
        "n": n,
        "noise": NOISE,
        "restarts": 4,
        "steps": steps,
        "cells": [{"record": c["record"]} | {name: rounded(c[name])[0] for name in ("share_of_ceiling", "cosine")} for c in cells],
        "above_record": int((reached > 1 + 1e-9).sum()),
        "largest_share": float(reached.max()),
        "reached_90_percent": bootstrap(np.mean, (reached > 0.9).astype(float)),
        "rebuilt": bootstrap(np.mean, np.array([c["cosine"] > FOUND for c in cells], dtype=float)),
        "one_start_reaches_90_percent": float(np.mean([c["restarts_near_ceiling"] for c in cells])),
        "cpu_seconds": seconds,
    }


def kept_in(work, name, n, steps):
    """The file that keeps what was measured for each record under these sizes."""
    return None if work is None else work / f"{name}-{n}-{steps}.jsonl"


def one_start(data, pictures, *, quick, records, work=None):
    """Random records, each rebuilt from one random start under the paper's relu network of depth 10; six pictures hold all of them."""
    n, steps, count = (60, 3, 8) if quick else (1000, 100, records)
    x, y, factor = problem(data, n, DEEP)
    shared = {"kernel": DEEP, "noise": NOISE, "factor": factor, "bounds": BOX, "progress": False, "restarts": 1, "steps": steps}

    def measure(i):
        found = optimal_query(x, y, differing=i, seed=i, **shared)
        return {"record": i, "query": pixels(found.queries[0]).tobytes().hex()} | cell(found)

    cells, seconds = one_by_one(measure, drawn_records(n, count, seed=14), kept_in(work, "one_start", n, steps))
    cells.sort(key=lambda c: (-c["share_of_ceiling"], c["record"]))
    reached, cosines, predictions = (np.array([c[name] for c in cells]) for name in ("share_of_ceiling", "cosine", "prediction_kl"))
    pairs = [(pixels(x[c["record"]]), np.frombuffer(bytes.fromhex(c["query"]), np.uint8).reshape(SIDE, SIDE, 3)) for c in cells]
    parts = np.array_split(np.arange(count), PARTS)
    if pictures is not None:
        for number, part in enumerate(parts, 1):
            pair_sheet([pairs[k] for k in part], across=ACROSS).save(pictures / f"one_start_{number}.webp", quality=80, method=6)
    return {
        "n": n,
        "noise": NOISE,
        "depth": DEEP.keywords["depth"],
        "steps": steps,
        "across": ACROSS,
        "parts": [len(part) for part in parts],
        "share_of_ceiling": rounded(reached),
        "cosine": rounded(cosines),
        "prediction_kl": rounded(predictions),
        "above_record": int((reached > 1 + 1e-9).sum()),
        "largest_share": float(reached.max()),
        "reached_90_percent": bootstrap(np.mean, (reached > 0.9).astype(float)),
        "rebuilt": bootstrap(np.mean, (cosines > FOUND).astype(float)),
        "rebuilt_below_90_percent": float((cosines[reached <= 0.9] > FOUND).mean()) if (reached <= 0.9).any() else None,
        "cpu_seconds": seconds,
    }


def pair_sheet(pairs, across, *, tile=2, gap=2):
    """Pairs of images in bytes, the first above the second, in rows of `across` pairs."""
    rows = [pairs[low : low + across] for low in range(0, len(pairs), across)]
    side, step = SIDE * tile, SIDE * tile + gap
    sheet = np.full((len(rows) * (2 * side + 3 * gap), across * step, 3), 255, np.uint8)
    for r, row in enumerate(rows):
        for c, pair in enumerate(row):
            for k, image in enumerate(pair):
                top = r * (2 * side + 3 * gap) + k * side
                sheet[top : top + side, c * step : c * step + side] = image.repeat(tile, 0).repeat(tile, 1)
    return Image.fromarray(sheet)

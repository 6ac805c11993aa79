"""Figures over many records: how far queries from random starts stay below the record itself. CIFAR-10 cars and planes at 16 × 16."""

import numpy as np
from lood_data import BOX, bootstrap, pixels, rounded
from lood_queries import DEEP, FOUND, MAIN, NOISE, SIDE, cell, problem, random_records
from PIL import Image

from noshadow._lood import optimal_query


def gap(data, pictures, *, quick):
    """How far the best of four random starts stays below the record itself, over many random records."""
    n, steps, count = (60, 3, 3) if quick else (1000, 150, 50)
    x, y, factor = problem(data, n, MAIN)
    shared = {"kernel": MAIN, "noise": NOISE, "factor": factor, "bounds": BOX, "progress": False}
    records = random_records(n, count)
    cells = [{"record": i} | cell(optimal_query(x, y, differing=i, restarts=4, steps=steps, seed=i, **shared)) for i in records]
    reached = np.array([c["share_of_ceiling"] for c in cells])
    return {
        "n": n,
        "noise": NOISE,
        "restarts": 4,
        "steps": steps,
        "cells": cells,
        "above_record": int((reached > 1 + 1e-9).sum()),
        "largest_share": float(reached.max()),
        "reached_90_percent": bootstrap(np.mean, (reached > 0.9).astype(float)),
        "rebuilt": bootstrap(np.mean, np.array([c["cosine"] > FOUND for c in cells], dtype=float)),
        "one_start_reaches_90_percent": float(np.mean([c["restarts_near_ceiling"] for c in cells])),
    }


def one_start(data, pictures, *, quick, records=75):
    """Random records, each rebuilt from one random start under the paper's relu network of depth 10; all of them in one picture.

    The paper has 500; `--records` measures as many as there is time for.
    """
    n, steps, count = (60, 3, 4) if quick else (1000, 100, records)
    x, y, factor = problem(data, n, DEEP)
    shared = {"kernel": DEEP, "noise": NOISE, "factor": factor, "bounds": BOX, "progress": False, "restarts": 1, "steps": steps}
    cells, found = [], []
    for i in random_records(n, count, seed=14):
        result = optimal_query(x, y, differing=i, seed=i, **shared)
        cells.append({"record": i} | {name: value for name, value in cell(result).items() if name != "restarts_near_ceiling"})
        found.append(result.queries[0])
        if len(cells) % 50 == 0:
            print("one_start", len(cells), flush=True)
    reached = np.array([c["share_of_ceiling"] for c in cells])
    cosines = np.array([c["cosine"] for c in cells])
    order = np.argsort(-reached, kind="stable")
    if pictures is not None:
        sheet = pair_sheet([(x[cells[k]["record"]], found[k]) for k in order], across=25)
        sheet.save(pictures / "one_start.webp", quality=80, method=6)
    return {
        "n": n,
        "noise": NOISE,
        "depth": DEEP.keywords["depth"],
        "steps": steps,
        "across": 25,
        "share_of_ceiling": rounded(reached[order]),
        "cosine": rounded(cosines[order]),
        "prediction_kl": rounded(np.array([c["prediction_kl"] for c in cells])[order]),
        "above_record": int((reached > 1 + 1e-9).sum()),
        "largest_share": float(reached.max()),
        "reached_90_percent": bootstrap(np.mean, (reached > 0.9).astype(float)),
        "rebuilt": bootstrap(np.mean, (cosines > FOUND).astype(float)),
        "rebuilt_below_90_percent": float((cosines[reached <= 0.9] > FOUND).mean()) if (reached <= 0.9).any() else None,
    }


def pair_sheet(pairs, across, *, tile=2, gap=2):
    """Pairs of images, the first above the second, in rows of `across` pairs."""
    rows = [pairs[low : low + across] for low in range(0, len(pairs), across)]
    side, step = SIDE * tile, SIDE * tile + gap
    sheet = np.full((len(rows) * (2 * side + 3 * gap), across * step, 3), 255, np.uint8)
    for r, row in enumerate(rows):
        for c, pair in enumerate(row):
            for k, image in enumerate(pair):
                top = r * (2 * side + 3 * gap) + k * side
                sheet[top : top + side, c * step : c * step + side] = pixels(image).repeat(tile, 0).repeat(tile, 1)
    return Image.fromarray(sheet)

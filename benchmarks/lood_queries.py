"""Figures about queries: which query leaks most about a record, and does it rebuild the record? CIFAR-10 cars and planes at 16 × 16."""

import functools

import numpy as np
import torch
from lood_data import BOX, SPREAD, car_plane, pixels, rounded
from PIL import Image

from noshadow._lood import laplace_kernel, lood, nngp_kernel, optimal_query, posterior_of, query_lood, rbf_kernel

NOISE = 0.1
SIDE = 16
TILE = 4  # screen pixels a pixel
GAP = 4
SMALL_STEP, TINY_STEP = 0.03, 0.004  # from the record upwards: pixels are scaled to a deviation near 1
RBF = functools.partial(rbf_kernel, length_scale=20.0)
MAIN = functools.partial(nngp_kernel, depth=2)
DEEP = functools.partial(nngp_kernel, depth=10)
KERNELS = {
    "relu, depth 1": functools.partial(nngp_kernel, depth=1),
    "relu, depth 5": functools.partial(nngp_kernel, depth=5),
    "gelu, depth 2": functools.partial(nngp_kernel, depth=2, activation="gelu"),
    "RBF": RBF,
    "Laplace": functools.partial(laplace_kernel, length_scale=20.0),
    "conv, depth 1": functools.partial(nngp_kernel, depth=1, architecture="conv", image_shape=(3, SIDE, SIDE)),
}
DEEP_CONVOLUTIONS = functools.partial(nngp_kernel, depth=5, architecture="conv", image_shape=(3, SIDE, SIDE))
FOUND = 0.95  # a query with this cosine to a record has rebuilt it; kernels without biases see directions only


def problem(data, n, kernel):
    """Images (n, 3, side, side), targets, and one factorisation for all records."""
    x, y = car_plane(data, n, side=SIDE)
    return x, y, posterior_of(x, y, kernel=kernel, noise=NOISE, with_inverse=True)


def drawn_records(n, count, seed=0):
    """Records in the order of their draw: the first few are the same, however many there are."""
    return [int(i) for i in np.random.default_rng(seed).permutation(n)[:count]]


def random_records(n, count, seed=0):
    return sorted(drawn_records(n, count, seed))


def tiled_picture(rows):
    """Rows of images (3, side, side) or None as one picture, enlarged pixel by pixel."""
    step = SIDE * TILE + GAP
    sheet = np.full((len(rows) * step - GAP, max(map(len, rows)) * step - GAP, 3), 255, np.uint8)
    for r, row in enumerate(rows):
        for c, image in enumerate(row):
            if image is not None:
                big = pixels(image).repeat(TILE, 0).repeat(TILE, 1)
                sheet[r * step : r * step + len(big), c * step : c * step + len(big)] = big
    return Image.fromarray(sheet)


def gallery(data, pictures, *, quick):
    """Records and the queries found for them from random starts, a column a kernel."""
    n, steps = (60, 3) if quick else (1000, 200)
    kinds = dict(list(KERNELS.items())[:1]) if quick else KERNELS
    cells, found_by = [], {}
    for name, kernel in kinds.items():
        conv = name.startswith("conv")
        size = min(n, 200) if conv else n
        x, y, factor = problem(data, size, kernel)
        rows = [int(i * size / n) for i in random_records(n, 4, seed=1)] if conv else random_records(n, 4, seed=1)
        shared = {"kernel": kernel, "noise": NOISE, "factor": factor, "bounds": BOX, "progress": False, "seed": 1}
        restarts, count = (2, min(steps, 80)) if conv else (3, steps)
        found = [optimal_query(x, y, differing=i, restarts=restarts, steps=count, **shared) for i in rows]
        found_by[name] = (x[rows], [f.queries[0] for f in found])
        cells += [
            {"kernel": name, "record": i, "n": size, "restarts": restarts, "steps": count} | cell(f)
            for i, f in zip(rows, found, strict=True)
        ]
        print("gallery", name, [round(c["share_of_ceiling"], 3) for c in cells[-len(rows) :]], flush=True)
    records = found_by["relu, depth 1"][0]
    columns = [list(records), *(queries for name, (_, queries) in found_by.items() if not name.startswith("conv"))]
    if "conv, depth 1" in found_by:
        columns += [list(found_by["conv, depth 1"][0]), found_by["conv, depth 1"][1]]  # other records: its data set is smaller
    save(tiled_picture(list(zip(*columns, strict=True))), pictures, "gallery.png")
    return {"kernels": list(kinds), "noise": NOISE, "side": SIDE, "cells": cells}


def save(picture, pictures, name):
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        picture.save(pictures / name, optimize=True)


def cell(found):
    """How close an optimised single query comes to its record."""
    return {
        "kl": found.value,
        "ceiling": found.ceiling,
        "share_of_ceiling": found.value / found.ceiling,
        "cosine": float(found.cosine[0]),
        "distance": float(found.distance[0]),
        "prediction_kl": float(found.prediction_kl[0]),
        "restarts_near_ceiling": float((found.values > 0.9 * found.ceiling).mean()),
    }


def trace(data, pictures, *, quick):
    """One optimisation from random starts: the leak as a share of the record's, and the query on the way."""
    n, steps, marks = (60, 4, (1, 2)) if quick else (1000, 200, (10, 20, 50))
    kernel = KERNELS["relu, depth 5"]
    x, y, factor = problem(data, n, kernel)
    record = random_records(n, 4, seed=1)[-1]
    shared = {"differing": record, "kernel": kernel, "noise": NOISE, "factor": factor, "bounds": BOX, "progress": False}
    starts = np.random.default_rng(3).uniform(*BOX, (4, 1, 3, SIDE, SIDE))
    found = optimal_query(x, y, **shared, start=starts, restarts=4, steps=steps)
    best = int(found.values.argmax())
    earlier = [optimal_query(x, y, **shared, start=starts[best], restarts=1, steps=k).queries[0] for k in marks]
    save(tiled_picture([[starts[best, 0], *earlier, found.queries[0], x[record]]]), pictures, "trace.png")
    return {
        "n": n,
        "record": record,
        "noise": NOISE,
        "marks": [0, *marks, steps],
        "traces": [rounded(row / found.ceiling, 4) for row in found.trace],
    } | cell(found)


def several_queries(data, pictures, *, quick):
    """Does asking more than one query reveal more? 1–8 queries optimised together, beside the record alone."""
    n, steps, count, sizes = (60, 2, 2, (1, 2)) if quick else (1000, 120, 8, (1, 2, 4, 8))
    x, y, factor = problem(data, n, MAIN)
    shared = {"kernel": MAIN, "noise": NOISE, "factor": factor, "bounds": BOX, "progress": False, "restarts": 2, "steps": steps}
    rows = []
    for size in sizes:
        found = [optimal_query(x, y, differing=i, queries=size, seed=i, **shared) for i in random_records(n, count, seed=2)]
        shares = np.array([f.value / f.ceiling for f in found])
        rows.append(
            {"queries": size, "shares_of_ceiling": rounded(shares, 12), "median": float(np.median(shares)), "largest": float(shares.max())}
        )
        print("several_queries", size, rows[-1]["median"], flush=True)
    return {"n": n, "noise": NOISE, "restarts": 2, "steps": steps, "records": count, "rows": rows}


def group_of_three(data, pictures, *, quick):
    """Three records left out together: which of them do three queries, and one, rebuild from random and from greedy starts?"""
    n, steps, count = (60, 2, 1) if quick else (1000, 150, 12)
    x, y, factor = problem(data, n, MAIN)
    shared = {"kernel": MAIN, "noise": NOISE, "factor": factor, "bounds": BOX, "progress": False, "steps": steps}
    sheets, rows = [], []
    for number in range(count):
        group = random_records(n, 3, seed=100 + number)
        ways = {"random": (3, 12, "random"), "greedy": (3, 4, "greedy"), "one": (1, 4, "random")}
        found = {
            way: optimal_query(x, y, differing=group, queries=size, restarts=starts, start=start, seed=number, **shared)
            for way, (size, starts, start) in ways.items()
        }
        order = np.argsort(-found["one"].record_values)  # highest leak first
        rows.append(
            {
                "group": group,
                "record_kl": rounded(found["one"].record_values[order]),
                "share_of_ceiling": {way: result.value / result.ceiling for way, result in found.items()},
                "one_over_best_record": found["one"].value / float(found["one"].record_values.max()),
                "rebuilt": {way: rounded(rebuilt(result.queries[None], x[group])[order]) for way, result in found.items()},
            }
        )
        sheets.append([*x[group], None, *found["greedy"].queries, None, *found["random"].queries, None, found["one"].queries[0]])
        print("group_of_three", rows[-1], flush=True)
    save(tiled_picture(sheets[:4]), pictures, "group.png")
    return {"n": n, "noise": NOISE, "starts": {"random": 12, "greedy": 4, "one": 4}, "steps": steps, "rows": rows}


def rebuilt(all_queries, records):
    """Share of restarts (s,) in which some query points where the record does."""
    queries = torch.from_numpy(all_queries).flatten(2)
    cosines = torch.cosine_similarity(queries[:, :, None], torch.from_numpy(records).flatten(1)[None, None], dim=-1)
    return (cosines.amax(1) > FOUND).double().mean(0).numpy()


def normalised(kernel, x):
    """The kernel after subtracting these images' channel means and dividing by their channel deviations."""
    mean = torch.from_numpy(x.mean((0, 2, 3)))[:, None, None]
    deviation = torch.from_numpy(x.std((0, 2, 3)))[:, None, None]
    return lambda a, b: kernel((a - mean) / deviation, (b - mean) / deviation)


def data_normalisation(data, pictures, *, quick):
    """Normalising with the training data's own means: both models change everywhere, and the record is no longer the best query."""
    sizes, steps, count = ((60,), 3, 2) if quick else ((100, 500), 60, 10)
    rows = [row for n in sizes for row, _, _ in normalised_queries(data, MAIN, n, steps, count)]
    return {"noise": NOISE, "steps": steps, "rows": rows}


def normalised_queries(data, base, n, steps, count):
    """For each record its row, image and best query, by ascent from the record itself."""
    x, y = car_plane(data, n, side=SIDE)
    kernel = normalised(base, x)
    factor = posterior_of(x, y, kernel=kernel, noise=NOISE, with_inverse=True)
    shared = {"kernel": kernel, "noise": NOISE, "factor": factor, "bounds": BOX, "restarts": 1, "steps": steps, "progress": False}
    for i in random_records(n, count, seed=4):
        without = normalised(base, np.delete(x, i, 0))
        found = optimal_query(x, y, differing=i, kernel_without=without, start="record", lr=TINY_STEP, **shared)
        record = float(found.record_values[0])
        row = {"n": n, "record": i, "record_kl": record, "gain": found.value / record - 1, "distance": float(found.distance[0])}
        yield row, x[i], found.queries[0]


def normalised_convolutions(data, pictures, *, quick):
    """The same under convolutions of depth 5, as the paper has it, with the change of the mean pixel."""
    n, steps, count = (20, 2, 2) if quick else (150, 40, 6)
    found = list(normalised_queries(data, DEEP_CONVOLUTIONS, n, steps, count))
    rows = [row | {"brightness": float((query - image).mean() * SPREAD)} for row, image, query in found]
    save(tiled_picture([[image for _, image, _ in found], [query for _, _, query in found]]), pictures, "normalised.png")
    return {"noise": NOISE, "steps": steps, "rows": rows}


def convolutions(data, pictures, *, quick):
    """Records rebuilt from random starts under convolutions of depth 5."""
    n, steps, count = (20, 2, 2) if quick else (200, 100, 4)
    x, y, factor = problem(data, n, DEEP_CONVOLUTIONS)
    shared = {"kernel": DEEP_CONVOLUTIONS, "noise": NOISE, "factor": factor, "bounds": BOX, "progress": False, "seed": 1}
    records = random_records(n, count, seed=1)
    found = [optimal_query(x, y, differing=i, restarts=3, steps=steps, **shared) for i in records]
    save(tiled_picture([list(x[records]), [result.queries[0] for result in found]]), pictures, "convolutions.png")
    cells = [{"record": i} | cell(result) for i, result in zip(records, found, strict=True)]
    return {"n": n, "noise": NOISE, "restarts": 3, "steps": steps, "cells": cells}


def perturbations(data, pictures, *, quick):
    """The leak along a random direction through the record, in steps of the pixel domain."""
    n, count, points = (60, 3, 5) if quick else (1000, 70, 41)
    x, y, factor = problem(data, n, MAIN)
    sizes = np.linspace(-50, 50, points)
    scale = (BOX[1] - BOX[0]) / 255
    rng = np.random.default_rng(5)
    curves, peaks = [], {"kl": [], "mean_distance": []}
    for i in random_records(n, count, seed=5):
        direction = rng.uniform(-1, 1, x[i].shape)
        queries = x[i] + scale * sizes[:, None, None, None] * direction
        kl, distance = query_lood(x, y, differing=i, queries=queries, kernel=MAIN, noise=NOISE, factor=factor)
        curves.append(rounded(kl / kl[points // 2], 4))
        peaks["kl"].append(float(sizes[kl.argmax()]))
        peaks["mean_distance"].append(float(sizes[distance.argmax()]))
    summary = {
        name: {"mean": float(np.mean(at)), "deviation": float(np.std(at)), "at_record": float(np.mean(np.abs(at) < 1e-9))}
        for name, at in peaks.items()
    }
    return {"n": n, "noise": NOISE, "records": count, "sizes": rounded(sizes), "curves": curves[:5], "peaks": summary}


def query_auc(x, y, record, query, kernel, factor):
    """AUC of the best attack at one query."""
    return lood(x, y, differing=[record], queries=query[None], kernel=kernel, noise=NOISE, factor=factor).auc

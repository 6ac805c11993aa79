"""Figures about the mean distance: how it goes with the attack beside KL, and where its own best query lies."""

import numpy as np
from lood_data import BOX, bootstrap, car_plane, correlation, rounded, sine_toy
from lood_queries import KERNELS, NOISE, RBF, SIDE, SMALL_STEP, problem, query_auc, random_records, save, tiled_picture

from noshadow._lood import least_stationary_record, lood_scores, optimal_query, query_lood, rbf_kernel, self_query_gradient

TOY_NOISE = 0.01
TOY_REACH = 5.0


def leak_and_attack(data, pictures, *, quick):
    """KL and mean distance of each record beside the AUC of the best attack on the Gaussian process."""
    n, added = (60, 4) if quick else (1000, 100)
    x, y = car_plane(data, n, side=SIDE)
    noise_images = np.random.default_rng(6).uniform(*BOX, (added, *x.shape[1:]))
    noise_labels = np.random.default_rng(7).choice([-1.0, 1.0], added)
    result = {}
    for name in ("relu, depth 1", "RBF"):
        matrix = KERNELS[name](np.concatenate([x, noise_images])).numpy()
        inside = lood_scores(matrix[:n, :n], y, noise=NOISE)
        outside = [bordered(matrix, y, n, n + j, noise_labels[j]) for j in range(added)]
        groups = {
            "images": (inside.kl, inside.mean_distance, inside.auc),
            "uniform noise": tuple(np.array(column) for column in zip(*outside, strict=True)),
        }
        groups["both"] = tuple(np.concatenate(pair) for pair in zip(*groups.values(), strict=True))
        result[name] = {
            group: {
                "kl": correlation(kl, auc, ranks=True, resamples=500),
                "mean_distance": correlation(distance, auc, ranks=True, resamples=500),
                "auc_range": [float(auc.min()), float(np.median(auc)), float(auc.max())],
            }
            for group, (kl, distance, auc) in groups.items()
        }
        drawn = slice(0, 200)
        result[name]["points"] = {
            group: {"kl": rounded(kl[drawn], 4), "mean_distance": rounded(distance[drawn], 4), "auc": rounded(auc[drawn], 4)}
            for group, (kl, distance, auc) in groups.items()
            if group != "both"
        }
        print("leak_and_attack", name, flush=True)
    return {"n": n, "noise": NOISE, "noise_records": added, "kernels": result}


def bordered(matrix, y, n, row, label):
    """KL, mean distance and AUC of one record added to the first n."""
    rows = [*range(n), row]
    scores = lood_scores(matrix[np.ix_(rows, rows)], np.append(y, label), noise=NOISE)
    return scores.kl[-1], scores.mean_distance[-1], scores.auc[-1]


def mean_distance_optimum(data, pictures, *, quick):
    """Where a record moves the mean prediction most: not at itself. Images under an RBF kernel, from the record upwards."""
    n, steps, count = (60, 3, 2) if quick else (1000, 100, 50)
    x, y, factor = problem(data, n, RBF)
    shared = {"kernel": RBF, "noise": NOISE, "factor": factor}
    cells, sheets = [], []
    for i in random_records(n, count, seed=8):
        found = optimal_query(
            x,
            y,
            differing=i,
            **shared,
            objective="mean_distance",
            bounds=BOX,
            restarts=1,
            steps=steps,
            start="record",
            lr=SMALL_STEP,
            progress=False,
        )
        at_query, at_record = (query_auc(x, y, i, q, RBF, factor) for q in (found.queries[0], x[i]))
        cells.append(
            {
                "record": i,
                "best_over_record": found.value / float(found.record_values[0]),
                "auc_at_record": at_record,
                "auc_at_query": at_query,
                "kl_over_record": found.kl / found.ceiling,
                "distance": float(found.distance[0]),
                "cosine": float(found.cosine[0]),
            }
        )
        sheets.append((x[i], found.queries[0]))
    save(tiled_picture([list(row) for row in zip(*sheets[:8], strict=True)]), pictures, "mean_distance.png")
    fall = np.array([c["auc_at_record"] - c["auc_at_query"] for c in cells])
    gain = np.array([c["best_over_record"] for c in cells])
    return {
        "n": n,
        "noise": NOISE,
        "steps": steps,
        "cells": cells,
        "gain": bootstrap(np.median, gain),
        "auc_falls_by_0.025": bootstrap(np.mean, (fall > 0.025).astype(float)),
    }


def toy_kernel(a, b):
    return rbf_kernel(a, b, length_scale=1.0)


def least_stationary(x, y, candidates):
    return least_stationary_record(
        x,
        y,
        label=lambda s: np.sin(s[:, 0]),
        kernel=toy_kernel,
        noise=TOY_NOISE,
        bounds=(-TOY_REACH, TOY_REACH),
        candidates=candidates,
    )


def toy_variances(x, queries):
    """Variance of the process's prediction at each query after the records x: k_QQ − k_QX (K + σ²I)⁻¹ k_XQ, without the noise."""
    cross = toy_kernel(queries, x).numpy()
    solved = np.linalg.solve(toy_kernel(x, x).numpy() + TOY_NOISE * np.eye(len(x)), cross.T)
    return 1 - (cross * solved.T).sum(1)


def sine(data, pictures, *, quick):
    """The one-dimensional toy: mean distance and KL over queries for a record close to the data, one far away and the least stationary."""
    x, y = sine_toy(seed=0)
    candidates, seeds = (64, 2) if quick else (256, 20)
    drawn = [float(least_stationary(*sine_toy(seed=seed), candidates).record[0]) for seed in range(seeds)]
    grid = np.linspace(-TOY_REACH - 1, TOY_REACH + 1, 25 if quick else 241)[:, None]
    rows = []
    for name, at in (("close", float(np.median(x))), ("least stationary", drawn[0]), ("far", TOY_REACH)):
        data_x, data_y = np.vstack([x, [[at]]]), np.append(y, np.sin(at))
        kl, distance = query_lood(data_x, data_y, differing=len(x), queries=grid, kernel=toy_kernel, noise=TOY_NOISE)
        ratio = np.log(toy_variances(x, grid) / toy_variances(data_x, grid))
        rows.append(
            {
                "record": name,
                "at": at,
                "best_query_variance_ratio": float(grid[ratio.argmax(), 0]),
                "log_variance_ratio": rounded(ratio, 4),
                "log_variance_ratio_at_mean_distance": float(ratio[distance.argmax()]),
                "best_query_mean_distance": float(grid[distance.argmax(), 0]),
                "best_query_kl": float(grid[kl.argmax(), 0]),
                "mean_distance": rounded(distance, 4),
                "kl": rounded(kl, 4),
            }
        )
    return {
        "x": rounded(x),
        "noise": TOY_NOISE,
        "grid": rounded(grid, 4),
        "rows": rows,
        "least_stationary_over_seeds": rounded(drawn, 4),
        "gradient": sine_gradients(x, y, 11 if quick else 201),
    }


def sine_gradients(x, y, points):
    """Gradient of the mean distance in the query, at the record itself, over records of the toy."""
    places = np.linspace(-TOY_REACH, TOY_REACH, points)
    found = [
        float(
            self_query_gradient(np.vstack([x, [[at]]]), np.append(y, np.sin(at)), differing=len(x), kernel=toy_kernel, noise=TOY_NOISE)[0]
        )
        for at in places
    ]
    return {"at": rounded(places, 4), "gradient": rounded(found, 4)}

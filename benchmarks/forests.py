"""Which score ranks the records of a forest? Bags, leaves and losses against d′ of forests trained again.

`python benchmarks/forests.py --data DIR` takes some ten processor minutes and writes results/forests.json. Every setting has a pool of
records; 40 forests are trained on random halves of it and give the truth d′ of each record, 4 more are the audited ones. Statistic of a
forest of B trees on a record: log((k + ½)/(B − k + ½)) with k the trees' summed probability of its class; in a regression the residual.
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import numpy as np
from environment import environment
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier, RandomForestRegressor

from noshadow._exposure import Source, weighed
from noshadow.metrics import spearman, top_recall
from noshadow.views import left_out_outputs, out_of_bag_outputs

TRUTH, TARGETS, TREES, LEVEL = 40, 4, 100, 1.6448536269514722


def california(data, *, classes):
    lon, lat, age, rooms, bed, pop, households, income, value = np.loadtxt(data / "california_housing/cal_housing.data.gz", delimiter=",").T
    x = np.c_[income, age, rooms / households, bed / households, pop, pop / households, lat, lon]
    rows = np.random.default_rng(0).permutation(len(x))[:4000]
    y = value[rows] / 1e5
    return x[rows], np.digitize(y, np.quantile(y, [0.2, 0.4, 0.6, 0.8])) if classes else y


def fashion(data):
    with (
        gzip.open(data / "fashion_mnist/train-images-idx3-ubyte.gz") as images,
        gzip.open(data / "fashion_mnist/train-labels-idx1-ubyte.gz") as labels,
    ):
        x = np.frombuffer(images.read(), np.uint8, offset=16).reshape(-1, 28, 28)
        y = np.frombuffer(labels.read(), np.uint8, offset=8).astype(np.int64)
    rows = np.random.default_rng(0).permutation(len(x))[:4000]
    return x[rows, 4:24, 4:24].reshape(-1, 10, 2, 10, 2).mean((2, 4)).reshape(-1, 100), y[rows]


def pneumonia(data):
    with np.load(data / "pneumoniamnist/pneumoniamnist.npz") as arrays:
        x, y = arrays["train_images"], arrays["train_labels"].ravel().astype(np.int64)
    rows = np.random.default_rng(0).permutation(len(x))[:4000]
    return x[rows].reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(-1, 49), y[rows]


def digits(_):
    return load_digits(return_X_y=True)


def settings(data):
    """Name → (pool, forest of a seed)."""
    rf, price, image = RandomForestClassifier, california(data, classes=True), fashion(data)
    return {
        "California classes": (price, lambda s: rf(TREES, random_state=s)),
        "California classes, leaves of 5": (price, lambda s: rf(TREES, min_samples_leaf=5, random_state=s)),
        "California classes, bags of 0.3": (price, lambda s: rf(TREES, max_samples=0.3, random_state=s)),
        "Fashion": (image, lambda s: rf(TREES, random_state=s)),
        "Fashion, extra trees": (image, lambda s: ExtraTreesClassifier(TREES, bootstrap=True, random_state=s)),
        "Pneumonia": (pneumonia(data), lambda s: rf(TREES, random_state=s)),
        "digits": (digits(data), lambda s: rf(TREES, random_state=s)),
        "California prices": (california(data, classes=False), lambda s: RandomForestRegressor(TREES, max_features=0.4, random_state=s)),
    }


def margin(share, trees=TREES):
    return np.log((share * trees + 0.5) / (trees - share * trees + 0.5))


def statistic(model, x, y):
    if not hasattr(model, "predict_proba"):
        return y - model.predict(x)
    return margin(own_share(model.predict_proba(x), y, model))


def own_share(table, y, model):
    return table[np.arange(len(y)), np.searchsorted(model.classes_, y)]


def distance(values, inside):
    """d′ of each record over models (K, n); its size in a regression."""
    held = [np.where(side, values, np.nan) for side in (inside, ~inside)]
    (mean_in, mean_out), (var_in, var_out) = ([f(side, axis=0) for side in held] for f in (np.nanmean, np.nanvar))
    return (mean_in - mean_out) / np.sqrt((var_in + var_out) / 2), mean_in, mean_out, np.sqrt((var_in + var_out) / 2)


def tree_votes(model, x, y):
    """Each tree's probability of the record's class (B, n), and whether the record was out of its bag."""
    table = x.astype(np.float32)
    numbers = np.searchsorted(model.classes_, y)
    votes = np.stack([tree.predict_proba(table)[np.arange(len(y)), numbers] for tree in model.estimators_])
    outside = np.stack([np.bincount(bag, minlength=len(y)) == 0 for bag in model.estimators_samples_])
    return votes, outside


def sample_variance(votes, outside):
    """Variance over training samples of the out-of-bag share, by the jackknife after the bootstrap.

    V = (n − 1)/n Σ_j [(t̄₋ⱼ − t̄)² − s²(1/C_j − 1/B)] over the B trees that a record was not in, C_j of which record j was not in either,
    s² their variance. The subtracted noise of finite B is that of Wager, Hastie and Efron (2014), (e − 1) n s²/B, with the counts that
    were drawn in the place of their expectation: at B ≪ n the difference would be all that is left. A single record's V is noise even
    so; the mean within tenths of the share stands for its records.
    """
    n, weight = votes.shape[1], outside.astype(np.float64)
    count = weight.sum(0)
    mean = (votes * weight).sum(0) / count
    squares = (weight * (votes - mean) ** 2).sum(0)
    tree = squares / np.maximum(count - 1, 1)
    both = weight.T @ weight
    with np.errstate(invalid="ignore", divide="ignore"):
        left = (votes * weight).T @ weight / both
        noise = np.where(both > 0, 1 / both - 1 / count[:, None], 0.0)
    raw = (n - 1) / n * (np.nansum((left - mean[:, None]) ** 2, axis=1) - tree * noise.sum(1))
    tenths = np.digitize(mean, np.quantile(mean, np.arange(0.1, 1, 0.1)))
    pooled = np.array([raw[tenths == k].mean() if (tenths == k).any() else 0.0 for k in range(10)])[tenths]
    return np.maximum(pooled, 0.0), tree, count


def scores_of(model, x, y, unseen):
    """Name → (n,) scores of a forest on its records, and what the sizes rest on (classifiers)."""
    bagged, left = out_of_bag_outputs(model, (x, y)), left_out_outputs(model, (x, y))
    if not hasattr(model, "predict_proba"):
        residual, out, fixed = y - model.predict(x), y - bagged.outputs.ravel(), y - left.outputs.ravel()
        found = {"loss": residual**2, "out-of-bag loss": out**2, "shift": np.abs(fixed) - np.abs(residual)}
        known = Source(
            "out of bag", margins=out[None], membership=np.zeros((1, len(y)), bool), test_margins=statistic(model, *unseen)[None]
        )
        weighing = weighed(residual, statistic(model, *unseen), [known], free={"shift": found["shift"]}, direction="either")
        return found | {"fall of the residual": np.abs(out) - np.abs(residual), "exposure": weighing.score}, None
    inside = own_share(model.predict_proba(x), y, model)
    outside, fixed = (own_share(np.exp(each), y, model) for each in (bagged.outputs, left.outputs))
    votes, out = tree_votes(model, x, y)
    sample, tree, count = sample_variance(votes, out)
    slope = TREES / (outside * TREES + 0.5) + TREES / (TREES - outside * TREES + 0.5)
    spread = slope * np.sqrt(tree / TREES + sample)
    fall = margin(inside) - margin(outside)
    floor = 0.5 / TREES
    found = {
        "loss": -np.log(np.maximum(inside, floor)),
        "out-of-bag loss": -margin(outside),
        "shift": margin(inside) - margin(fixed),
        "fixed-structure loss": -margin(fixed),
        "fall of the margin": fall,
        "d′ by the trees' spread": fall / np.maximum(slope * np.sqrt(tree / TREES), 1e-3),
        "d′ by both spreads": fall / np.maximum(spread, 1e-3),
    }
    own, test = margin(inside), statistic(model, *unseen)
    known = Source("out of bag", margins=margin(outside)[None], membership=np.zeros((1, len(y)), bool), test_margins=test[None])
    found["exposure"] = weighed(own, test, [known], free={"shift": found["shift"]}).score
    sizes = {"fall": fall, "spread": np.maximum(spread, 1e-3), "error": slope * np.sqrt(tree / count + tree / TREES)}
    return found, sizes


def measured(name, pool, forest):
    started = time.process_time()
    (x, y), rng = pool, np.random.default_rng(1)
    inside = np.array([rng.permutation(len(y)) < len(y) // 2 for _ in range(TRUTH)])
    values = np.stack([statistic(forest(k).fit(x[member], y[member]), x, y) for k, member in enumerate(inside)])
    truth, _, _, spread = distance(values, inside)
    truth = truth if hasattr(forest(0), "predict_proba") else np.abs(truth)
    halves = [np.abs(d) if truth.min() >= 0 else d for d in (distance(values[k::2], inside[k::2])[0] for k in range(2))]
    rows, cover, ratio, accuracy = {}, [], [], []
    for k in range(TARGETS):
        member = np.random.default_rng(100 + k).permutation(len(y)) < len(y) // 2
        model = forest(1000 + k).fit(x[member], y[member])
        found, sizes = scores_of(model, x[member], y[member], (x[~member], y[~member]))
        # A record that all forests answer alike has no spread and no d′.
        kept = np.isfinite([truth[member], *(half[member] for half in halves)]).all(0)
        for score, column in found.items():
            value = np.where(np.isnan(column), -np.inf, column)[kept]
            rows.setdefault(score, []).append((top_recall(truth[member][kept], value), spearman(truth[member][kept], value)))
        one, other = (half[member][kept] for half in halves)
        rows.setdefault("20 forests against 20 others", []).append((top_recall(one, other), spearman(one, other)))
        accuracy.append((model.score(x[member], y[member]), model.score(x[~member], y[~member])))
        if sizes is not None:
            estimate, error = sizes["fall"] / sizes["spread"], sizes["error"] / sizes["spread"]
            cover.append(float(np.mean(np.abs(estimate - truth[member])[kept] <= LEVEL * np.sqrt(error**2 + 1)[kept])))
            ratio.append(float(np.median((sizes["spread"] / spread[member])[kept])))
    table = {
        score: {"recall": float(np.mean([a for a, _ in each])), "spearman": float(np.mean([b for _, b in each]))}
        for score, each in rows.items()
    }
    sizes = {"cover_of_90": float(np.mean(cover)), "spread_ratio": float(np.mean(ratio))} if cover else None
    train, test = np.mean(accuracy, axis=0)
    seconds = time.process_time() - started
    print(
        name,
        f"{train:.3f}/{test:.3f}",
        sizes,
        {s: (round(v["recall"], 2), round(v["spearman"], 2)) for s, v in table.items()},
        f"{seconds:.0f} s",
        flush=True,
    )
    return {"records": len(y), "score_in": float(train), "score_out": float(test), "scores": table, "sizes": sizes, "seconds": seconds}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--only")
    asked = parser.parse_args()
    found = {name: measured(name, *each) for name, each in settings(asked.data).items() if asked.only in (None, name)}
    content = {"environment": environment(), "forests": TRUTH, "targets": TARGETS, "trees": TREES, "settings": found}
    if asked.only is None:
        path = Path(__file__).parent / "results" / "forests.json"
        path.write_text(json.dumps(content, indent=1) + "\n")

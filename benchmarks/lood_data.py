"""What the figures of leave-one-out distinguishability share: CIFAR-10's cars and planes, the file of results, intervals."""

import json
import time
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.stats import rankdata

RESULTS = Path(__file__).parent / "results" / "lood_figures.json"
PLANE, CAR = 0, 1
MIDDLE, SPREAD = 0.5, 0.25


def car_plane(data, n, *, side=16):
    """The first n/2 planes and n/2 cars of CIFAR-10's first batch: (n, 3, side, side) scaled pixels and targets −1 or 1 (car)."""
    with np.load(data / "cifar10/labels.npz") as labels:
        y = labels["data_batch_1"].astype(np.int64)
    mosaic = np.asarray(Image.open(data / "cifar10/data_batch_1.webp").convert("RGB"))
    rows = np.sort(np.concatenate([np.flatnonzero(y == c)[: n // 2] for c in (PLANE, CAR)]))
    down, across = rows // 100, rows % 100
    images = mosaic.reshape(100, 32, 100, 32, 3)[down, :, across].transpose(0, 3, 1, 2)
    cell = 32 // side
    small = images.reshape(n, 3, side, cell, side, cell).mean((3, 5)) / 255
    return (small - MIDDLE) / SPREAD, np.where(y[rows] == CAR, 1.0, -1.0)


BOX = ((0 - MIDDLE) / SPREAD, (1 - MIDDLE) / SPREAD)


def pixels(x):
    """Scaled images (…, 3, side, side) as bytes (…, side, side, 3)."""
    return np.moveaxis(np.clip(np.rint(255 * (np.asarray(x) * SPREAD + MIDDLE)), 0, 255).astype(np.uint8), -3, -1)


def stored_figures():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def store(name, entry):
    """Keep one figure's numbers; the others stay as they are on disk."""
    RESULTS.write_text(json.dumps(stored_figures() | {name: entry}, indent=1, sort_keys=True) + "\n")


def one_by_one(measure, keys, kept=None):
    """What `measure` says of each key, in order, and the processor seconds it took in all.

    `kept` is a file of JSON lines, one a key: a run that was stopped goes on there.
    """
    found = {row["key"]: row for row in map(json.loads, kept.read_text().splitlines())} if kept is not None and kept.exists() else {}
    for key in keys:
        if key not in found:
            clock = time.process_time()
            found[key] = {"key": key, "value": measure(key)} | {"seconds": time.process_time() - clock}
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(found[key]) + "\n")
    return [found[key]["value"] for key in keys], sum(found[key]["seconds"] for key in keys)


def rounded(values, digits=5):
    """Numbers with as many digits as a picture can show."""
    return [float(f"{float(v):.{digits}g}") for v in np.ravel(values)]


def bootstrap(statistic, *columns, resamples=1000, seed=0):
    """Value over all records and the percentile interval (95 %) when the records are drawn again."""
    rng = np.random.default_rng(seed)
    n = len(columns[0])
    drawn = [float(statistic(*(column[rows] for column in columns))) for rows in rng.integers(0, n, (resamples, n))]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return {"value": float(statistic(*columns)), "low": float(low), "high": float(high)}


def correlation(a, b, *, ranks, resamples=2000, seed=0):
    """Spearman's (ranks) or Pearson's coefficient over records, and its percentile bootstrap interval (95 %)."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    rows = np.random.default_rng(seed).integers(0, len(a), (resamples, len(a)))
    low, high = np.nanquantile(_coefficients(a[rows], b[rows], ranks), [0.025, 0.975])
    return {"value": float(_coefficients(a[None], b[None], ranks)[0]), "low": float(low), "high": float(high)}


def _coefficients(a, b, ranks):
    a, b = (rankdata(side, axis=1) if ranks else side for side in (a, b))
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    size = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return np.where(size > 0, (a * b).sum(1) / np.where(size > 0, size, 1), np.nan)


def sine_toy(*, seed=0, n=10):
    """The sine data set of [LOOD] Appendix F.1: x ~ N(0, 1) of shape (n, 1), y = sin x.

    Its set-up uses exp(−(x − x′)²/2), σ² = 0.01, and sin as the label of an added record.
    """
    x = np.random.default_rng(seed).normal(size=(n, 1))
    return x, np.sin(x[:, 0])

"""How well scores rank, and how far rates and intervals can be trusted."""

import numpy as np
from scipy.special import ndtri

from benchmarks.exposure.truth import FPRS, predicted_rates
from noshadow.metrics import spearman, top_precision, top_recall

TENTHS = 10


def ranked(truth, score):
    """Recall of the top 1 % in the top 5 %, precision at 1 %, Spearman."""
    return {
        "recall": top_recall(truth, score, top=0.01, keep=0.05),
        "precision": top_precision(truth, score, top=0.01, keep=0.01),
        "spearman": spearman(truth, score),
    }


def sized(truth, members, direction):
    """True d′ of some records: its size where residuals are signed."""
    own = truth[members]
    return np.abs(own) if direction == "either" else own


def reliability(found, truth, members, direction):
    """Predicted against measured rates by tenths of the prediction, and cover of the intervals of d′.

    Both rates are of a test whose threshold the truth models estimate.

    Cover takes the truth's own noise into account: the true d′ is itself measured with a standard error e, so an honest interval of
    half-width h holds the measured one within √(h² + (z e)²) of its middle as often as it holds the true one.
    """
    told = truth.told[members]
    rates = {
        f"{fpr:g}": tenths(predicted_rates(found, truth.outside[members], fpr)[told], truth.rates[k][members][told])
        for k, fpr in enumerate(FPRS)
    }
    low, high = found.interval.T
    z = -ndtri((1 - found.level) / 2)
    widened = np.sqrt(((high - low) / 2) ** 2 + (z * truth.error[members]) ** 2)
    real, middle = sized(truth.d_prime, members, direction), (low + high) / 2
    inside = np.abs(real - middle) <= widened
    top = np.argsort(-found.score)[: max(len(inside) // 20, 1)]
    top = top[told[top]]
    return {
        "rates": rates,
        "cover": float(inside[told].mean()),
        "cover_top": float(inside[top].mean()),
        "width": float(np.mean(high - low)),
    }


def beside_truth(found, pool, members, real):
    """Fitted spreads and separations over those of the truth models, medians: of all records, and of the truly riskiest 1 %.

    It says why a rank fails: a spread that is far too large for the riskiest takes their separation for noise.
    """
    # A record with fewer than two truth models on a side has no spread there, and no ratio.
    enough = np.minimum(pool.truth_membership.sum(0), (~pool.truth_membership).sum(0)) >= 2
    inside, outside = (np.where(side & enough, pool.truth, np.nan)[:, members] for side in (pool.truth_membership, ~pool.truth_membership))
    apart = np.abs(np.nanmean(inside, 0) - np.nanmean(outside, 0))
    ratios = {
        "spread_in": found.spread_in / np.nanstd(inside, axis=0, ddof=1),
        "spread_out": found.spread_out / np.nanstd(outside, axis=0, ddof=1),
        "separation": np.abs(found.separation) / apart,
    }
    top = np.argsort(-real)[: max(len(real) // 100, 1)]
    return {name: {"all": float(np.nanmedian(values)), "top": float(np.nanmedian(values[top]))} for name, values in ratios.items()}


def tenths(predicted, measured):
    """Mean predicted and measured rate of tenths of the records by prediction; their mean and largest distance; that of the top 1 %."""
    parts = np.array_split(np.argsort(predicted, kind="stable"), TENTHS)
    said, seen = (np.array([values[part].mean() for part in parts]) for values in (predicted, measured))
    top = np.argsort(-predicted, kind="stable")[: max(len(predicted) // 100, 1)]
    return {
        "predicted": said.tolist(),
        "measured": seen.tolist(),
        "error": float(np.abs(said - seen).mean()),
        "worst": float(np.abs(said - seen).max()),
        "top": float(predicted[top].mean() - measured[top].mean()),
    }


def summary(values):
    """Mean and standard error over targets."""
    numbers = np.asarray(values, dtype=float)
    error = numbers.std(ddof=1) / np.sqrt(len(numbers)) if len(numbers) > 1 else float("nan")
    return {"mean": round(float(numbers.mean()), 4), "error": None if np.isnan(error) else round(float(error), 4), "targets": len(numbers)}

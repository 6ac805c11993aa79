"""What one would use instead: differences of means, LiRA, RMIA and out-of-fold label quality, with the same few models.

Where no reference model of a side exists for a record, every rival takes the mean of that side over all records: it must rank the record
somewhere.
"""

import numpy as np

from benchmarks.exposure.truth import moments
from noshadow.attacks.rmia import shares_exceeded
from noshadow.reference.rmia_probabilities import probabilities_of

PRIOR_MODELS = 4.0  # weight of the pooled variance in the normal–inverse-gamma prior, in models
TRUST = 0.3  # a of RMIA's offline map
GAMMA = 2.0


def sides(margins, source):
    """Count, mean and own variance of IN (the audited model counted) and OUT, and the pooled variance of each."""
    rows = np.vstack([margins, source.margins])
    inside = np.vstack([np.ones(len(margins), bool), source.membership])
    found = []
    for chosen in (inside, ~inside):
        count, mean, variance = moments(rows, chosen)
        mean = np.where(count > 0, mean, mean[count > 0].mean())
        free = np.maximum(count - 1, 0)
        pooled = float((free * variance).sum() / free.sum()) if free.sum() else float(rows.var() / 2)
        found.append((count, mean, variance, pooled))
    return found


def differences(margins, source, direction):
    """Plain mean IN − mean OUT, the audited model one of the IN models."""
    inside, outside = sides(margins, source)
    gap = inside[1] - outside[1]
    return np.abs(gap) if direction == "either" else gap


def lira(margins, source, direction):
    """LiRA by name: Λ of the audited margin and d′ from the reference models, with record, pooled and shrunk variances.

    The audited model is no reference: IN moments are those of the others. "nig": (ν pooled + (n − 1) own)/(ν + n − 1), the mean of an
    inverse-gamma posterior as in BaVarIA-n (arXiv 2603.11799), whose prior weight we set to four models.
    """
    found = {}
    parts = []
    for chosen in (source.membership, ~source.membership):
        count, mean, variance = moments(source.margins, chosen)
        mean = np.where(count > 0, mean, mean[count > 0].mean())
        free = np.maximum(count - 1, 0)
        pooled = float((free * variance).sum() / free.sum()) if free.sum() else float(source.margins.var() / 2)
        parts.append((free, mean, variance, max(pooled, 1e-12)))
    for name in ("record", "pooled", "nig"):
        (square_in, mean_in), (square_out, mean_out) = ((_variance(name, part), part[1]) for part in parts)
        ratio = 0.5 * ((margins - mean_out) ** 2 / square_out - (margins - mean_in) ** 2 / square_in) + 0.5 * np.log(square_out / square_in)
        gap = (mean_in - mean_out) / np.sqrt((square_in + square_out) / 2)
        found[f"lira_{name}"] = ratio
        found[f"lira_{name}_d"] = np.abs(gap) if direction == "either" else gap
    return found


def _variance(name, part):
    free, _, own, pooled = part
    if name == "pooled":
        return np.full(len(own), pooled)
    if name == "record":
        return np.where((free > 0) & (own > 0), own, pooled)
    return (PRIOR_MODELS * pooled + free * own) / (PRIOR_MODELS + free)


def rmia(own, member, rows, inside, task):
    """RMIA's share of the audited model's other records whose ratio a member exceeds twice: (m,).

    p(x) = ½ (p_in + p_out) where both sides are known. Where one is missing it follows from RMIA's offline map p_in = a p_out + 1 − a;
    densities of a regression, which have no such map, take the side that is known.

    Args:
        own: (n,) statistics of all records under the audited model. member: (n,). rows, inside: (K, n) of the reference models.
    """
    chances = np.array([probabilities_of(row, chosen, task)[0] for row, chosen in zip(rows, inside, strict=True)])
    ratios = probabilities_of(own, member, task)[0] / np.maximum(_prior(chances, inside, task), 1e-300)
    return shares_exceeded(ratios[member], ratios[~member], GAMMA)


def _prior(chances, inside, task):
    _, mean_in, _ = moments(chances, inside)
    _, mean_out, _ = moments(chances, ~inside)
    has_in, has_out = inside.any(0), (~inside).any(0)
    density = task == "regression"
    mean_in = np.where(has_in, mean_in, mean_out if density else TRUST * mean_out + 1 - TRUST)
    mean_out = np.where(has_out, mean_out, mean_in if density else np.clip((mean_in - 1 + TRUST) / TRUST, 1e-3, None))
    return (mean_in + mean_out) / 2


def label_quality(source, direction):
    """Out-of-fold self-confidence turned over: cleanlab's label quality (Northcutt, Jiang and Chuang 2021); a residual's size."""
    outside = np.where(source.membership, np.nan, source.margins)
    own = np.nanmean(outside, axis=0)
    return np.abs(own) if direction == "either" else -own

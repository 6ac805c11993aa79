"""What no method sees: d′, success and rates of every record from models of their own, and how far these are noise."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import t as student

from noshadow.attacks import attack_success

FPRS = (0.05, 0.01, 0.001)
LEAST_TOLD = 3  # truth models on a side


@dataclass(frozen=True, eq=False)
class Truth:
    """Truth of n records.

    Attributes:
        d_prime: (n,) signed separation over the root of the mean variance of both sides, with Hedges' factor against the bias of a
            spread of few models. error: (n,) its standard error. sides: the d′ of two halves of the models, each from its own.
        success: (n,) of LiRA, each truth model attacked with the others.
        outside: (n,) number of truth models without the record.
        rates: (fprs, n) share of the models with the record that lie beyond the record's threshold.
        told: (n,) whether three truth models or more are on either side, so that there is a threshold and a spread.
    """

    d_prime: np.ndarray
    error: np.ndarray
    sides: tuple
    success: np.ndarray
    outside: np.ndarray
    rates: np.ndarray
    told: np.ndarray


def truth_of(pool):
    """Truth of all records of a pool."""
    d_prime, error = separation(pool.truth, pool.truth_membership)
    halves = tuple(separation(pool.truth[part], pool.truth_membership[part])[0] for part in np.array_split(np.arange(len(pool.truth)), 2))
    inside = pool.truth_membership.sum(0)
    # Of few truth models a record may have had one alone: the attack cannot be tried on it, and it ranks as a coin.
    known = (inside >= 2) & (len(pool.truth) - inside >= 2)
    success = np.full(len(inside), 0.5)
    told = attack_success(pool.truth[:, known], pool.truth_membership[:, known], direction=pool.direction, variance="global")
    success[known] = told.success
    outside = (~pool.truth_membership).sum(0)
    told = np.minimum(inside, outside) >= LEAST_TOLD
    rates = np.full((len(FPRS), len(inside)), np.nan)
    rates[:, told] = measured_rates(pool.truth[:, told], pool.truth_membership[:, told], pool.direction)
    return Truth(d_prime, error, halves, success, outside, rates, told)


def moments(margins, inside):
    """Count, mean and variance (n − 1 in the denominator) of the margins of chosen models, (n,) each."""
    count = inside.sum(0)
    mean = np.where(inside, margins, 0.0).sum(0) / np.maximum(count, 1)
    return count, mean, (np.where(inside, margins - mean, 0.0) ** 2).sum(0) / np.maximum(count - 1, 1)


def separation(margins, membership):
    """Signed d′ of every record and its standard error.

    d = J (μ_in − μ_out)/s, s² = (s²_in + s²_out)/2, J = 1 − 3/(4ν − 1); variance (s²_in/n_in + s²_out/n_out)/s² + d² Σ (s²_side/2s²)² ·
    2/(n_side − 1) / 4 (Hedges 1981, with unequal spreads).
    """
    (n_in, mean_in, var_in), (n_out, mean_out, var_out) = moments(margins, membership), moments(margins, ~membership)
    square = (var_in + var_out) / 2
    shares = var_in / (2 * square), var_out / (2 * square)
    log_square = shares[0] ** 2 * 2 / np.maximum(n_in - 1, 1) + shares[1] ** 2 * 2 / np.maximum(n_out - 1, 1)
    factor = 1 - 3 / (4 * 2 / log_square - 1)
    # Half of a few truth models may all have had a record, or none: it then has no d′, and ranks nowhere.
    found = np.where((n_in > 0) & (n_out > 0), factor * (mean_in - mean_out) / np.sqrt(square), 0.0)
    noise = var_in / np.maximum(n_in, 1) + var_out / np.maximum(n_out, 1)
    return found, np.sqrt(noise / square + found**2 * log_square / 4)


def measured_rates(margins, membership, direction):
    """(fprs, n) share of the IN models beyond the record's threshold.

    The threshold is the record's OUT mean plus its OUT spread times the quantile of all records' OUT margins together, each standardised
    by the record's *other* OUT models: one record's models cannot show a rate of 0.001, and a model that was not used for the threshold
    passes it at just that rate. "either": beyond the threshold on both sides, half the rate on each.
    """
    count, mean, variance = moments(margins, ~membership)
    step = margins - mean
    rest = np.maximum(count - 1, 1)
    # Mean and variance without one of the models, in closed form.
    without = mean - step / rest
    squares = np.maximum((count - 1) * variance - step**2 * count / rest, 1e-300) / np.maximum(count - 2, 1)
    standard = ((margins - without) / np.sqrt(squares))[~membership]
    both = direction == "either"
    pooled, where = (np.abs(values) if both else values for values in (standard, step / np.sqrt(variance)))
    bars = np.quantile(pooled, [1 - fpr for fpr in FPRS])
    return np.array([np.where(membership, where > bar, 0).sum(0) / np.maximum(membership.sum(0), 1) for bar in bars])


def predicted_rates(found, count, fpr):
    """(n,) rate that an Exposure predicts for the test of `measured_rates`, whose threshold is estimated from `count` OUT models.

    Φ((b − q σ_out)/√(σ_in² + var b + σ_out² (1/n + q²/2(n − 1)))), q = t_{n−1}(1 − fpr) √(1 + 1/n): the threshold of n models that a
    further OUT model passes at the rate fpr, and its own noise; the mean over the posterior of log(σ²_in/σ²_out). For n → ∞ this is
    `Exposure.tpr`.
    """
    both = found.direction == "either"
    count = np.maximum(count, 2)  # a record with fewer has no threshold, and is not judged
    bar = student.isf(fpr / 2 if both else fpr, count - 1) * np.sqrt(1 + 1 / count)
    places, weights = np.polynomial.hermite_e.hermegauss(7)
    rate = 0.0
    for place, weight in zip(places, weights / weights.sum(), strict=True):
        log_ratio = place * np.sqrt(found.ratio_variance)
        out, inside = found.spread_out * np.exp(-log_ratio / 4), found.spread_in * np.exp(log_ratio / 4)
        width = np.sqrt(inside**2 + found.variance + out**2 * (1 / count + bar**2 / (2 * (count - 1))))
        # The root of a variance of n models is too small by 1/4(n − 1) in the mean.
        edge = bar * out * (1 - 1 / (4 * (count - 1)))
        rate = rate + weight * (ndtr((found.separation - edge) / width) + (ndtr((-found.separation - edge) / width) if both else 0.0))
    return rate


def null_bias(models, *, balanced, records=20_000, seed=0):
    """LiRA on records that do not leak: mean success (½ would be unbiased) and mean d′, each model attacked with the others.

    Balanced: every record is in exactly half of the models, as in `train_references`; taking the attacked model out then leaves fewer
    models on its own side, whose mean is noisier. Otherwise every model has a random half of the records.
    """
    rng = np.random.default_rng(seed)
    chances = rng.random((models, records))
    middle = np.median(chances, axis=0 if balanced else 1, keepdims=True)
    membership = chances < middle
    margins = rng.normal(size=(models, records)) + rng.normal(size=records)
    enough = (membership.sum(0) > 2) & ((~membership).sum(0) > 2)
    found = {"models": models, "balanced": balanced}
    for variance in ("record", "global"):
        success = attack_success(margins[:, enough], membership[:, enough], variance=variance)
        found[variance] = {"success": round(float(success.success.mean()), 5), "d_prime": round(float(success.d_prime.mean()), 5)}
        found[variance]["success_error"] = round(float(success.success.std() / np.sqrt(enough.sum())), 5)
    signed = separation(margins[:, enough], membership[:, enough])[0]
    return found | {"mean_size": round(float(np.abs(signed).mean()), 4)}

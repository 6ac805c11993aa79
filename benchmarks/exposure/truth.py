"""What no method sees: d′, success and rates of every record from models of their own, and how far these are noise."""

from dataclasses import dataclass

import numpy as np

from noshadow.attacks import attack_success

FPRS = (0.05, 0.01, 0.001)


@dataclass(frozen=True, eq=False)
class Truth:
    """Truth of n records.

    Attributes:
        d_prime: (n,) signed separation over the root of the mean variance of both sides, with Hedges' factor against the bias of a
            spread of few models. error: (n,) its standard error. sides: the d′ of two halves of the models, each from its own.
        success: (n,) of LiRA, each truth model attacked with the others.
        rates: (fprs, n) share of the models with the record that lie beyond the record's threshold.
    """

    d_prime: np.ndarray
    error: np.ndarray
    sides: tuple
    success: np.ndarray
    rates: np.ndarray


def truth_of(pool):
    """Truth of all records of a pool."""
    d_prime, error = separation(pool.truth, pool.truth_membership)
    halves = tuple(separation(pool.truth[part], pool.truth_membership[part])[0] for part in np.array_split(np.arange(len(pool.truth)), 2))
    success = attack_success(pool.truth, pool.truth_membership, direction=pool.direction, variance="global").success
    return Truth(d_prime, error, halves, success, measured_rates(pool.truth, pool.truth_membership, pool.direction))


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
    found = factor * (mean_in - mean_out) / np.sqrt(square)
    return found, np.sqrt((var_in / n_in + var_out / n_out) / square + found**2 * log_square / 4)


def measured_rates(margins, membership, direction):
    """(fprs, n) share of the IN models beyond the record's threshold.

    The threshold is the record's OUT mean plus its OUT spread times the quantile of all records' standardised OUT margins together, as
    one record's models cannot show a rate of 0.001. "either": beyond the threshold on both sides, half the rate on each.
    """
    count, mean, variance = moments(margins, ~membership)
    spread = np.sqrt(variance)
    # Deviations from a mean they are part of are too small by (n − 1)/n.
    standard = ((margins - mean) / spread * np.sqrt(count / np.maximum(count - 1, 1)))[~membership]
    both = direction == "either"
    pooled = np.abs(standard) if both else standard
    where = (margins - mean) / spread
    where = np.abs(where) if both else where
    return np.array(
        [np.where(membership, where > np.quantile(pooled, 1 - fpr), 0).sum(0) / np.maximum(membership.sum(0), 1) for fpr in FPRS]
    )


def null_bias(models, records=20_000, seed=0):
    """LiRA on records that do not leak: mean success (½ would be unbiased) and mean d′, each model attacked with the others."""
    rng = np.random.default_rng(seed)
    membership = np.zeros((models, records), dtype=bool)
    for row in membership:
        row[rng.permutation(records)[: records // 2]] = True
    margins = rng.normal(size=(models, records)) + rng.normal(size=records)
    enough = (membership.sum(0) > 2) & ((~membership).sum(0) > 2)
    found = {}
    for variance in ("record", "global"):
        success = attack_success(margins[:, enough], membership[:, enough], variance=variance)
        found[variance] = {"success": float(success.success.mean()), "d_prime": float(success.d_prime.mean())}
        found[variance]["success_error"] = float(success.success.std() / np.sqrt(enough.sum()))
    signed = separation(margins[:, enough], membership[:, enough])[0]
    return found | {"models": models, "mean_size": float(np.abs(signed).mean())}

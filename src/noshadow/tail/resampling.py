"""Bootstrap intervals of rates and of distances between two loss samples.

No resample is drawn record by record; its counts and order statistics are drawn instead.
"""

from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array
from noshadow.results import Interval

MOST_ATOMS = 4096
# records; standard deviations that the Poisson sums are drawn below their number
POISSON_FROM, SUM_DEVIATIONS = 10_000, 6.0
RESAMPLES_AT_ONCE = 128  # a few arrays of 128 × 4,096 numbers: 4 MB each


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are drawn: number of resamples, coverage, seed."""

    resamples: int
    level: float
    seed: int

    def ends(self, draws: Array) -> Array:
        """(2, ...) percentile interval of draws along their last axis."""
        outside = (1 - self.level) / 2
        ends: Array = np.quantile(draws, (outside, 1 - outside), axis=-1)
        return ends

    def interval(self, draws: Array) -> Interval:
        """The same as a pair, for draws of one quantity."""
        low, high = self.ends(draws)
        return float(low), float(high)


def threshold_places(n: int, misses: Array) -> Array:
    """Places of the thresholds that `misses` members exceed.

    The places count n member losses in ascending order.
    """
    places: Array = np.maximum(n - 1 - misses, 0)
    return places


def share_above(nonmembers: Array, thresholds: Array) -> Array:
    """Share of the sorted non-member losses strictly above each threshold."""
    share: Array = (len(nonmembers) - np.searchsorted(nonmembers, thresholds, side="right")) / len(nonmembers)
    return share


def tnr_at(members: Array, nonmembers: Array, misses: Array) -> Array:
    """TNR of sorted losses when so many members may exceed the threshold."""
    return share_above(nonmembers, members[threshold_places(len(members), misses)])


def tnr_draws(members: Array, nonmembers: Array, misses: Array, resamples: int, rng: np.random.Generator) -> Array:
    """TNR of resampled losses, (len(misses), resamples), drawn from its exact law.

    No loss is resampled one by one. A resample of sorted losses is members[⌊n U⌋] with U uniform, a
    monotone map: its (j + 1)-th smallest value is the image of that order statistic of n uniforms,
    Beta(j + 1, n − j). Given the threshold, the number of resampled non-members above it is
    binomial.
    """
    n, places = len(members), threshold_places(len(members), misses)
    uniforms = rng.beta(places + 1, n - places, size=(resamples, len(places))).T
    thresholds = members[np.minimum((n * uniforms).astype(np.int64), n - 1)]
    draws: Array = rng.binomial(len(nonmembers), share_above(nonmembers, thresholds)) / len(nonmembers)
    return draws


@dataclass(frozen=True)
class Steps:
    """Both empirical distributions on their common support.

    It holds the distinct losses and the cumulative counts at each.
    """

    losses: Array
    cumulative: Array  # (2, distinct): members, non-members

    @classmethod
    def of(cls, members: Array, nonmembers: Array) -> "Steps":
        """The steps of two sorted samples."""
        losses = np.unique(np.concatenate((members, nonmembers)))
        return cls(losses, np.stack([np.searchsorted(sample, losses, side="right") for sample in (members, nonmembers)]))

    def lead(self) -> Array:
        """F_in − F_out at each distinct loss."""
        shares = self.cumulative / self.cumulative[:, -1:]
        lead: Array = shares[0] - shares[1]
        return lead

    def ks(self) -> float:
        """Kolmogorov–Smirnov distance."""
        return float(np.abs(self.lead()).max())

    def wasserstein(self) -> float:
        """Wasserstein-1 distance, in units of the loss."""
        return float(np.abs(self.lead())[:-1] @ np.diff(self.losses))


@dataclass(frozen=True)
class Atoms:
    """Neighbouring losses gathered into atoms, with what resampling needs to know of each.

    Rows are members and non-members.
    """

    counts: Array  # (2, atoms)
    # (atoms,) from the atom's smallest loss to that of the next (the last one: to the largest loss)
    width: Array
    reach: Array  # (2, atoms) mean distance of its losses to the right end
    spread: Array  # (2, atoms) standard deviation of its losses
    wins: Array  # (atoms,) P(L_in < L_out) + ½ P(L_in = L_out) within the atom


def atoms_of(steps: Steps, most: int = MOST_ATOMS) -> Atoms:
    """The losses gathered into at most about `most` atoms."""
    starts = _atom_starts(steps, most)
    losses, counts = steps.losses, np.diff(steps.cumulative, axis=1, prepend=0)
    edges = np.append(losses[starts], losses[-1])
    atom = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(losses)))
    in_atom = np.add.reduceat(counts, starts, axis=1)
    at_least_one = np.maximum(in_atom, 1)
    to_right = edges[1:][atom] - losses
    reach = np.add.reduceat(counts * to_right, starts, axis=1) / at_least_one
    variance = np.add.reduceat(counts * (to_right - reach[:, atom]) ** 2, starts, axis=1) / at_least_one
    before = steps.cumulative[0] - counts[0]
    members_before = before - before[starts][atom]
    pairs = np.add.reduceat(counts[1] * (members_before + counts[0] / 2), starts)
    one_value_each = len(starts) == len(losses)
    return Atoms(
        counts=in_atom,
        width=np.diff(edges),
        reach=reach,
        spread=np.zeros_like(variance) if one_value_each else np.sqrt(variance),
        wins=pairs / at_least_one.prod(axis=0),
    )


def _atom_starts(steps: Steps, most: int) -> Array:
    """Index of the first distinct loss of each atom; equal losses never part."""
    if len(steps.losses) <= most:
        return np.arange(len(steps.losses))
    pooled = steps.cumulative.sum(axis=0)
    before = np.concatenate(([0], pooled[:-1]))
    quantile = before * (most - 1) // pooled[-1]
    is_start = np.diff(quantile, prepend=-1) > 0
    # An edge where the two distributions are farthest apart: the atoms then have the KS distance of
    # the losses.
    is_start[int(np.abs(steps.lead()[:-1]).argmax()) + 1] = True
    return np.flatnonzero(is_start)


def distance_draws(atoms: Atoms, resamples: int, rng: np.random.Generator) -> Array:
    """(4, resamples) AUC, loss gap, KS and Wasserstein distance of resampled losses."""
    sizes = [min(RESAMPLES_AT_ONCE, resamples - start) for start in range(0, resamples, RESAMPLES_AT_ONCE)]
    return np.concatenate([_distance_block(atoms, size, rng) for size in sizes], axis=1)


def _distance_block(atoms: Atoms, resamples: int, rng: np.random.Generator) -> Array:
    (n_in, n_out), noise = atoms.counts.sum(axis=1), 0.0
    drawn = [_resampled_counts(counts, resamples, rng) for counts in atoms.counts]
    # Whole numbers up to here, so that rates of one stay one.
    lead = drawn[0].cumsum(axis=1) / n_in - drawn[1].cumsum(axis=1) / n_out
    auc = (drawn[1] * (drawn[0].cumsum(axis=1) - drawn[0] * (1 - atoms.wins))).sum(axis=1) / (n_in * n_out)
    share_in, share_out = drawn[0] / n_in, drawn[1] / n_out
    if atoms.spread.any():
        sums = [spread * np.sqrt(counts) * rng.standard_normal(counts.shape) for spread, counts in zip(atoms.spread, drawn, strict=True)]
        noise = sums[0] / n_in - sums[1] / n_out
    # ∫ (F_in − F_out) over each atom: their sum is the gap of the means, the sum of their sizes the
    # Wasserstein distance.
    area = (lead - share_in + share_out) * atoms.width + share_in * atoms.reach[0] - share_out * atoms.reach[1] + noise
    return np.stack((auc, area.sum(axis=1), np.abs(lead).max(axis=1), np.abs(area).sum(axis=1)))


def _resampled_counts(counts: Array, resamples: int, rng: np.random.Generator) -> Array:
    """How many of counts.sum() records drawn with replacement fall into each atom.

    The shape is (resamples, atoms).
    """
    # Only atoms that hold records: rounding in the multinomial's last step would otherwise spill
    # into empty ones.
    held, n = np.flatnonzero(counts), int(counts.sum())
    drawn = np.zeros((resamples, len(counts)))
    if n < POISSON_FROM:
        drawn[:, held] = rng.multinomial(n, counts[held] / n, size=resamples)
        return drawn
    # Poisson counts of a given sum are multinomial. Sums a little below n are drawn, and the
    # records that lack drawn one by one: exact, whatever the sums, and twice as fast as the
    # multinomial's chain of binomials.
    short = SUM_DEVIATIONS * n**0.5
    drawn[:, held] = rng.poisson(counts[held] * (1 - short / n), size=(resamples, len(held)))
    lacking = n - drawn.sum(axis=1).astype(np.int64)
    for row in np.flatnonzero(lacking < 0):
        drawn[row, held] = rng.multinomial(n, counts[held] / n)
    lacking = np.maximum(lacking, 0)
    atom_of_record = np.repeat(np.arange(len(counts)), counts)
    places = np.repeat(np.arange(resamples) * len(counts), lacking) + atom_of_record[rng.integers(0, n, lacking.sum())]
    drawn += np.bincount(places, minlength=drawn.size).reshape(drawn.shape)
    return drawn

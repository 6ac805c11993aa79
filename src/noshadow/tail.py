"""Model-level risk from two loss samples: how much of the high-loss tail training has emptied of members."""

from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array, as_array, numeric_array, refuse, require_number, require_same_length, require_whole
from noshadow.metrics import error_budget, loss_auc
from noshadow.results import Interval, ModelRisk, TnrCurve

SMALLEST_AUTO_LEVEL = 1e-3
LARGEST_LOSS = 1e100  # squares and sums of losses stay finite below it
CURVE_LEVELS = 25
CURVE_RANGE = (1e-4, 0.5)
MOST_ATOMS = 4096
RESAMPLES_AT_ONCE = 128  # a few arrays of 128 × 4,096 numbers: 4 MB each
SCORE_COLUMNS = ("loss", "gradient_norm", "entropy", "leverage", "influence", "newton", "loo", "shift", "margin_leverage")
NO_CALIBRATION = "No calibration ships with this version, so the true-positive rate of a reference-model attack is not predicted."


def model_risk(
    member_losses: object,
    nonmember_losses: object,
    *,
    scores: object = None,
    fpr: float | str = "auto",
    references: int = 64,
    seed: int = 0,
    member_correct: object = None,
    nonmember_correct: object = None,
    resamples: int = 1000,
    level: float = 0.95,
) -> ModelRisk:
    """Model-level membership risk: TNR of the loss attack at FNR = `fpr`, with the distances it is compared to.

    τ = the smallest member loss that at most ⌊fpr · n_members⌋ member losses exceed; TNR = mean(nonmember_losses > τ).
    Beside it: loss AUC, mean loss gap, accuracy gap, Kolmogorov–Smirnov and Wasserstein-1 distance, and TNR over a
    grid of levels. Members and non-members are resampled with replacement, independently, for percentile intervals.

    Args:
        member_losses: (n_members,) finite losses of training records, n_members ≥ 2.
        nonmember_losses: (n_nonmembers,) finite losses of records drawn like them and not trained on, n_nonmembers ≥ 2.
        scores: record scores of the members; checked, and reserved for the calibration.
        fpr: "auto" = max(1e-3, 1/min(n_members, n_nonmembers)), or a level in [1/min(n_members, n_nonmembers), 1].
        references: number of reference models of the attack in question; checked, and reserved for the calibration.
        seed: of the resampling; the same seed gives the same intervals.
        member_correct: (n_members,) booleans, the model predicts the record's class; None = no accuracy gap.
        nonmember_correct: (n_nonmembers,) likewise; both or neither.
        resamples: bootstrap resamples, ≥ 100.
        level: coverage of the intervals, in (0, 1).

    Returns:
        ModelRisk; its `predicted_tpr` is None and `reason` says why.

    Raises:
        InputError: losses that are not finite, not 1-dimensional or fewer than two; a level below 1/min(n); an
            argument out of range.

    Exact when: the values always; the bootstrap of TNR and accuracy always; that of the other four up to 4,096
        distinct losses.
    Approximates: beyond that, losses are gathered into 4,096 atoms by pooled quantile, an atom's losses moving by a
        Gaussian of their own variance. The interval of TNR is too short when fewer than about 5 members may exceed τ
        (raise fpr for a firmer answer; benchmarks/tnr_coverage.py measures by how much); those of KS and
        Wasserstein lean upwards when the two samples hardly differ.
    Cost: O(n log n + resamples · min(n, 4096)); a few seconds for two million losses.
    Reference: [TAIL] §5, Eq. 4 with erratum 4, Table 1.

    Example:
        >>> risk = model_risk([0.1, 0.2, 0.3, 5.0], [0.2, 0.4, 2.0, 6.0])
        >>> risk.fpr, risk.threshold, risk.tnr, risk.auc
        (0.25, 0.3, 0.75, 0.71875)
    """
    members, nonmembers = _sorted_losses(member_losses, "member_losses"), _sorted_losses(nonmember_losses, "nonmember_losses")
    sizes = (len(members), len(nonmembers))
    used = _resolved_level(fpr, min(sizes))
    shares = _correct_shares(member_correct, nonmember_correct, sizes)
    _require_member_scores(scores, len(members))
    require_whole(references, "model_risk", "references", low=1)
    bootstrap = _Bootstrap(
        resamples=require_whole(resamples, "model_risk", "resamples", low=100),
        level=require_number(level, "model_risk", "level", low=0, high=1, low_open=True, high_open=True),
        seed=require_whole(seed, "model_risk", "seed", low=0),
    )
    return _measured(members, nonmembers, fpr=used, correct_shares=shares, bootstrap=bootstrap)


@dataclass(frozen=True)
class _Bootstrap:
    resamples: int
    level: float
    seed: int

    def ends(self, draws: Array) -> Array:
        """(2, ...) percentile interval of draws along their last axis."""
        outside = (1 - self.level) / 2
        ends: Array = np.quantile(draws, (outside, 1 - outside), axis=-1)
        return ends

    def interval(self, draws: Array) -> Interval:
        low, high = self.ends(draws)
        return float(low), float(high)


def _measured(
    members: Array, nonmembers: Array, *, fpr: float, correct_shares: tuple[float, float] | None, bootstrap: _Bootstrap
) -> ModelRisk:
    # One stream a quantity: asking for the accuracy gap does not move the other intervals.
    at_level, over_levels, atoms, accuracy = np.random.default_rng(bootstrap.seed).spawn(4)
    sizes = (len(members), len(nonmembers))
    misses = np.array([error_budget(fpr, len(members))])
    steps = _Steps.of(members, nonmembers)
    auc, loss_gap, ks, wasserstein = _distance_draws(_atoms(steps), bootstrap.resamples, atoms)
    gap_interval = None
    if correct_shares is not None:
        in_share, out_share = (accuracy.binomial(n, p, bootstrap.resamples) / n for n, p in zip(sizes, correct_shares, strict=True))
        gap_interval = bootstrap.interval(in_share - out_share)
    return ModelRisk(
        fpr=fpr,
        tnr=float(_tnr(members, nonmembers, misses)[0]),
        tnr_interval=bootstrap.interval(_tnr_draws(members, nonmembers, misses, bootstrap.resamples, at_level)[0]),
        threshold=float(members[_threshold_places(len(members), misses)[0]]),
        auc=loss_auc(members, nonmembers),
        auc_interval=bootstrap.interval(auc),
        predicted_tpr=None,
        predicted_tpr_interval=None,
        in_calibration_domain=None,
        reason=NO_CALIBRATION,
        loss_gap=float(nonmembers.mean() - members.mean()),
        loss_gap_interval=bootstrap.interval(loss_gap),
        accuracy_gap=None if correct_shares is None else correct_shares[0] - correct_shares[1],
        accuracy_gap_interval=gap_interval,
        member_accuracy=None if correct_shares is None else correct_shares[0],
        nonmember_accuracy=None if correct_shares is None else correct_shares[1],
        ks=steps.ks(),
        ks_interval=bootstrap.interval(ks),
        wasserstein=steps.wasserstein(),
        wasserstein_interval=bootstrap.interval(wasserstein),
        n_members=len(members),
        n_nonmembers=len(nonmembers),
        curve=_curve(members, nonmembers, bootstrap, over_levels),
        resamples=bootstrap.resamples,
        interval_level=bootstrap.level,
        seed=bootstrap.seed,
    )


def _threshold_places(n: int, misses: Array) -> Array:
    """Places, in ascending order of n member losses, of the thresholds that `misses` members exceed."""
    places: Array = np.maximum(n - 1 - misses, 0)
    return places


def _share_above(nonmembers: Array, thresholds: Array) -> Array:
    share: Array = (len(nonmembers) - np.searchsorted(nonmembers, thresholds, side="right")) / len(nonmembers)
    return share


def _tnr(members: Array, nonmembers: Array, misses: Array) -> Array:
    return _share_above(nonmembers, members[_threshold_places(len(members), misses)])


def _tnr_draws(members: Array, nonmembers: Array, misses: Array, resamples: int, rng: np.random.Generator) -> Array:
    """(len(misses), resamples) TNR of resampled losses, without resampling them.

    A resample of sorted losses is members[⌊n U⌋] with U uniform, a monotone map: its (j + 1)-th smallest value is the
    image of that order statistic of n uniforms, Beta(j + 1, n − j). Given the threshold, the number of resampled
    non-members above it is binomial.
    """
    n, places = len(members), _threshold_places(len(members), misses)
    uniforms = rng.beta(places + 1, n - places, size=(resamples, len(places))).T
    thresholds = members[np.minimum((n * uniforms).astype(np.int64), n - 1)]
    draws: Array = rng.binomial(len(nonmembers), _share_above(nonmembers, thresholds)) / len(nonmembers)
    return draws


def _curve(members: Array, nonmembers: Array, bootstrap: _Bootstrap, rng: np.random.Generator) -> TnrCurve:
    n = len(members)
    grid = np.geomspace(max(1 / n, CURVE_RANGE[0]), CURVE_RANGE[1], CURVE_LEVELS)
    # Neighbouring levels that allow the same number of misses are one point of the step curve.
    misses, first = np.unique([error_budget(level, n) for level in grid], return_index=True)
    low, high = bootstrap.ends(_tnr_draws(members, nonmembers, misses, bootstrap.resamples, rng))
    columns = (grid[first], _tnr(members, nonmembers, misses), low, high)
    return TnrCurve(*(tuple(column.tolist()) for column in columns))


@dataclass(frozen=True)
class _Steps:
    """Both empirical distributions on their common support: distinct losses and cumulative counts at each."""

    losses: Array
    cumulative: Array  # (2, distinct): members, non-members

    @classmethod
    def of(cls, members: Array, nonmembers: Array) -> "_Steps":
        """The steps of two sorted samples."""
        losses = np.unique(np.concatenate((members, nonmembers)))
        return cls(losses, np.stack([np.searchsorted(sample, losses, side="right") for sample in (members, nonmembers)]))

    def lead(self) -> Array:
        """F_in − F_out at each distinct loss."""
        shares = self.cumulative / self.cumulative[:, -1:]
        lead: Array = shares[0] - shares[1]
        return lead

    def ks(self) -> float:
        return float(np.abs(self.lead()).max())

    def wasserstein(self) -> float:
        return float(np.abs(self.lead())[:-1] @ np.diff(self.losses))


@dataclass(frozen=True)
class _Atoms:
    """Neighbouring losses gathered: what resampling needs to know of each atom. Rows: members, non-members."""

    counts: Array  # (2, atoms)
    width: Array  # (atoms,) from the atom's smallest loss to that of the next (the last one: to the largest loss)
    reach: Array  # (2, atoms) mean distance of its losses to the right end
    spread: Array  # (2, atoms) standard deviation of its losses
    wins: Array  # (atoms,) P(L_in < L_out) + ½ P(L_in = L_out) within the atom


def _atoms(steps: _Steps, most: int = MOST_ATOMS) -> _Atoms:
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
    return _Atoms(
        counts=in_atom,
        width=np.diff(edges),
        reach=reach,
        spread=np.zeros_like(variance) if one_value_each else np.sqrt(variance),
        wins=pairs / at_least_one.prod(axis=0),
    )


def _atom_starts(steps: _Steps, most: int) -> Array:
    """Index of the first distinct loss of each atom; equal losses never part."""
    if len(steps.losses) <= most:
        return np.arange(len(steps.losses))
    pooled = steps.cumulative.sum(axis=0)
    before = np.concatenate(([0], pooled[:-1]))
    quantile = before * (most - 1) // pooled[-1]
    is_start = np.diff(quantile, prepend=-1) > 0
    # An edge where the two distributions are farthest apart: the atoms then have the KS distance of the losses.
    is_start[int(np.abs(steps.lead()[:-1]).argmax()) + 1] = True
    return np.flatnonzero(is_start)


def _distance_draws(atoms: _Atoms, resamples: int, rng: np.random.Generator) -> Array:
    """(4, resamples) AUC, loss gap, KS and Wasserstein distance of resampled losses."""
    sizes = [min(RESAMPLES_AT_ONCE, resamples - start) for start in range(0, resamples, RESAMPLES_AT_ONCE)]
    return np.concatenate([_distance_block(atoms, size, rng) for size in sizes], axis=1)


def _distance_block(atoms: _Atoms, resamples: int, rng: np.random.Generator) -> Array:
    (n_in, n_out), noise = atoms.counts.sum(axis=1), 0.0
    drawn = [_resampled_counts(counts, resamples, rng) for counts in atoms.counts]
    # Whole numbers up to here, so that rates of one stay one.
    lead = drawn[0].cumsum(axis=1) / n_in - drawn[1].cumsum(axis=1) / n_out
    auc = (drawn[1] * (drawn[0].cumsum(axis=1) - drawn[0] * (1 - atoms.wins))).sum(axis=1) / (n_in * n_out)
    share_in, share_out = drawn[0] / n_in, drawn[1] / n_out
    if atoms.spread.any():
        sums = [spread * np.sqrt(counts) * rng.standard_normal(counts.shape) for spread, counts in zip(atoms.spread, drawn, strict=True)]
        noise = sums[0] / n_in - sums[1] / n_out
    # ∫ (F_in − F_out) over each atom: their sum is the gap of the means, the sum of their sizes the Wasserstein distance.
    area = (lead - share_in + share_out) * atoms.width + share_in * atoms.reach[0] - share_out * atoms.reach[1] + noise
    return np.stack((auc, area.sum(axis=1), np.abs(lead).max(axis=1), np.abs(area).sum(axis=1)))


def _resampled_counts(counts: Array, resamples: int, rng: np.random.Generator) -> Array:
    """(resamples, atoms) how many of counts.sum() records drawn with replacement fall into each atom."""
    # Only atoms that hold records: rounding in the multinomial's last step would otherwise spill into empty ones.
    held, n = np.flatnonzero(counts), counts.sum()
    drawn = np.zeros((resamples, len(counts)))
    drawn[:, held] = rng.multinomial(n, counts[held] / n, size=resamples)
    return drawn


def _sorted_losses(value: object, argument: str) -> Array:
    losses = numeric_array(value, "model_risk", argument, ndim=1).astype(np.float64)
    if len(losses) < 2:
        refuse("model_risk", argument, "hold at least two losses", str(len(losses)))
    largest = int(np.abs(losses).argmax())
    if abs(losses[largest]) > LARGEST_LOSS:
        refuse("model_risk", argument, f"stay within ±{LARGEST_LOSS:g}", f"{losses[largest]:g} at index {largest}")
    return np.sort(losses)


def _resolved_level(fpr: float | str, smaller: int) -> float:
    if isinstance(fpr, str):
        if fpr != "auto":
            refuse("model_risk", "fpr", "be 'auto' or a number", repr(fpr))
        return max(SMALLEST_AUTO_LEVEL, 1 / smaller)
    asked = require_number(fpr, "model_risk", "fpr", low=0, high=1, low_open=True)
    if error_budget(asked, smaller) == 0:
        rule = f"be at least {1 / smaller}, the smallest level that {smaller} records of the smaller split resolve"
        refuse("model_risk", "fpr", rule, f"{asked:g}", "Raise fpr or give more losses.")
    return asked


def _correct_shares(member_correct: object, nonmember_correct: object, sizes: tuple[int, int]) -> tuple[float, float] | None:
    if member_correct is None and nonmember_correct is None:
        return None
    given = {"member_correct": member_correct, "nonmember_correct": nonmember_correct}
    shares = []
    for (argument, value), n in zip(given.items(), sizes, strict=True):
        if value is None:
            refuse("model_risk", argument, "be given together with its counterpart", "None", "Pass both, or neither.")
        array = as_array(value, "model_risk", argument)
        if array.dtype.kind != "b" or array.shape != (n,):
            refuse("model_risk", argument, f"be {n} booleans, one for each loss", f"shape {array.shape}, dtype {array.dtype}")
        shares.append(float(array.mean()))
    return shares[0], shares[1]


def _require_member_scores(scores: object, n: int) -> None:
    if scores is None:
        return
    columns = {name: getattr(scores, name, None) for name in SCORE_COLUMNS}
    given = {name: as_array(column, "model_risk", f"scores.{name}") for name, column in columns.items() if column is not None}
    if not given:
        refuse("model_risk", "scores", "be the record scores of the members", type(scores).__name__)
    require_same_length("model_risk", member_losses=range(n), **given)

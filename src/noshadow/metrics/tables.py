"""Tables of how well scores rank records like attacks do.

Another table says how well an attack agrees with itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pandas as pd

from noshadow.checks import Array, named_in_errors, require_number, require_same_length, require_whole, whole_seed
from noshadow.metrics.inputs import score_sample
from noshadow.metrics.intervals import mean_intervals, resampled_intervals, share_intervals
from noshadow.metrics.ranking import Metric, agreement, ranking
from noshadow.metrics.targets import Target, Vectors, compared_metrics, ranked_targets

RECALLS = ((0.01, 0.05), (0.01, 0.01), (0.05, 0.05))
CEILING = "noise ceiling"
STEPPED_UP = "spearman, both halves"
NULLABLE = ("top", "keep", "value", "low", "high")


@named_in_errors
def agreement_table(
    truths: Sequence[Vectors],
    scores: Sequence[Vectors],
    *,
    recalls: Sequence[tuple[float, float]] = RECALLS,
    level: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> pd.DataFrame:
    """How well each score ranks records like each attack does.

    The table has one row per (attack, score, metric), with intervals.

    Metrics: "spearman"; "recall" of the true top `top` in the score's top `keep` (`top_recall`) for
    every pair in `recalls`; and for pairs (a, b) with a ≠ b also "precision", the share of the
    score's top a that lies in the true top b (`top_precision` with top = b, keep = a). For a = b
    precision is recall, and has no row of its own.

    Args:
        truths: one mapping attack → (n_t,) per target model, n_t ≥ 2; larger = riskier; infinities
            allowed.
        scores: one mapping score → (n_t,) per target model, the same records in the same order.
        recalls: pairs (top, keep) of fractions in (0, 1].
        level: coverage of the intervals, in (0, 1).
        resamples: bootstrap resamples of the records, ≥ 100; used with one target only.
        seed: of the resampling.

    Returns:
        A frame with columns attack, score, metric, top, keep (fractions, None for Spearman), value,
        low, high, targets, records (over all targets) and note. With one target, value is the
        metric and (low, high) the percentile interval over resampled records, each resample ranked
        anew with its ties, and for recall and precision never shorter than Clopper–Pearson's for
        the number of records they count. With several, value is the mean over targets and (low,
        high) its Student interval, cut to the metric's range. An attack or score that is constant
        on a target ranks nothing: value, low and high are None and `note` says why. Numbers that
        may be missing are Python floats or None in object columns, so that `.to_dict("records")` is
        strict JSON.

    Raises:
        InputError: NaN (the message names the array), arrays of unequal length, names that differ
            between targets, no target, or an argument out of range.

    Exact when: the values always; they are those of `spearman`, `top_recall` and `top_precision`.
    Approximates: the intervals. One target's tells how far another sample of records might be from
        this one, not another training run; that of several targets takes them for independent,
        though their records may overlap.
    Cost: O(T A S n log n) with T targets, A attacks and S scores; with one target O(resamples · A S
        n): some 12 s on one core for n = 50,000, A = 3, S = 10 and 500 resamples.
    Reference: those of `spearman`, `top_recall` and `top_precision`.

    Example:
        >>> truth, score = [3.0, 1.0, 2.0, 0.0], [9.0, 5.0, 7.0, 1.0]
        >>> table = agreement_table([{"lira": truth}], [{"loo": score}])
        >>> table.loc[0, ["attack", "score", "metric", "value"]].tolist()
        ['lira', 'loo', 'spearman', 1.0]
    """
    plan = _plan(recalls, level, resamples, seed)
    attacks, judged, targets = ranked_targets({"truths": truths, "scores": scores})

    def compared(target: Target, counts: Array) -> Array:
        return agreement(target.first, target.second, plan.metrics, counts)

    estimates = _estimates(compared, targets, plan)
    rows = []
    for i, attack in enumerate(attacks):
        for j, score in enumerate(judged):
            constant = _constant_note(targets, (f"attack '{attack}'", i), (f"score '{score}'", j))
            rows += [_row(attack, score, m, e, constant, targets) for m, e in zip(plan.metrics, estimates[i][j], strict=True)]
    return _frame(rows)


@named_in_errors
def noise_ceiling(
    first: object,
    second: object,
    *,
    attack: str = "attack",
    recalls: Sequence[tuple[float, float]] = RECALLS,
    level: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> pd.DataFrame:
    """How well an attack's ranking of records agrees with itself.

    The ranking is measured twice, from disjoint halves of the models.

    Every metric of `agreement_table` with the first half as the truth and the second as the score,
    then the other way round, averaged (so that precision at (b, a) repeats recall at (a, b)). One
    more row, "spearman, both halves", is the Spearman–Brown step-up 2ρ/(1 + ρ) of the row above and
    of its interval: what two measurements from twice as many models each might reach.

    Args:
        first: (n,) the truth from one half of the reference models, n ≥ 2; larger = riskier;
            infinities allowed.
        second: (n,) the truth of the same records from the other half.
        attack: what to call it in the table.
        recalls: pairs (top, keep) of fractions in (0, 1].
        level: coverage of the intervals, in (0, 1).
        resamples: bootstrap resamples of the records, ≥ 100.
        seed: of the resampling.

    Returns:
        Rows as in `agreement_table` for one target, with "noise ceiling" for the score. The step-up
        is None, with a note, when the halves do not agree at all (ρ ≤ 0).

    Raises:
        InputError: NaN, fewer than two records, unequal lengths, or an argument out of range.

    Approximates: the agreement to expect of a second measurement with all models. The halves use
        half of the models each and are noisier than the truth from all of them, so the ceiling is
        itself a low estimate. The step-up takes the errors of the halves for independent and alike,
        and reads high where ties or a saturated truth carry the agreement. Neither bounds a score:
        one that knew the risk without noise would reach √(2ρ/(1 + ρ)) with the truth from all
        models.
    Cost: as `agreement_table` with one attack and one score, twice.
    Reference: Spearman (1910); Brown (1910).

    Example:
        >>> table = noise_ceiling([3.0, 1.0, 2.0], [3.0, 2.0, 1.0], recalls=[])
        >>> table[["metric", "value"]].values.tolist()
        [['spearman', 0.5], ['spearman, both halves', 0.6666666666666666]]
    """
    plan = _plan(recalls, level, resamples, seed)
    halves = {name: score_sample(half, name, least=2) for name, half in (("first", first), ("second", second))}
    target = Target((ranking(halves["first"]),), (ranking(halves["second"]),), require_same_length(**halves))

    def both_ways(target: Target, counts: Array) -> Array:
        there, back = ((target.first, target.second), (target.second, target.first))
        return (agreement(*there, plan.metrics, counts) + agreement(*back, plan.metrics, counts)) / 2

    estimates = _estimates(both_ways, [target], plan)
    constant = _constant_note([target], ("the first half", 0), ("the second half", 0))
    rows = [_row(attack, CEILING, m, e, constant, [target]) for m, e in zip(plan.metrics, estimates[0][0], strict=True)]
    return _frame([rows[0], _stepped_up(rows[0]), *rows[1:]])


@dataclass(frozen=True)
class _Plan:
    metrics: list[Metric]
    level: float
    resamples: int
    seed: int


@dataclass(frozen=True)
class _Row:
    attack: str
    score: str
    metric: str
    top: float | None
    keep: float | None
    value: float | None
    low: float | None
    high: float | None
    targets: int
    records: int
    note: str


@dataclass(frozen=True)
class _Estimate:
    value: float
    low: float
    high: float
    note: str


def _plan(recalls: Sequence[tuple[float, float]], level: float, resamples: int, seed: int) -> _Plan:
    return _Plan(
        metrics=compared_metrics(recalls),
        level=require_number(level, "level", low=0, high=1, low_open=True, high_open=True),
        resamples=require_whole(resamples, "resamples", low=100),
        seed=whole_seed(seed),
    )


def _estimates(compared: Callable[[Target, Array], Array], targets: Sequence[Target], plan: _Plan) -> list[list[list[_Estimate]]]:
    """Estimates with their intervals, nested as (attacks, scores, metrics).

    `compared` returns this nesting for a target's records, each counted a given number of times.
    """
    values = np.stack([compared(target, np.ones(target.records)) for target in targets])
    undefined = np.zeros(values.shape[1:], dtype=int)
    if len(targets) > 1:
        value, low, high = mean_intervals(values, plan.level)
    else:
        value, target = values[0], targets[0]
        (low, high), undefined = resampled_intervals(
            lambda counts: compared(target, counts), target.records, resamples=plan.resamples, level=plan.level, seed=plan.seed
        )
        low, high = _never_shorter_than_exact(value, low, high, target.records, plan)

    def estimate(place: tuple[int, ...]) -> _Estimate:
        lost = int(undefined[place])
        note = f"{lost} of {plan.resamples} resamples hold a constant ranking and are left out of the interval" if lost else ""
        return _Estimate(float(value[place]), float(low[place]), float(high[place]), note)

    a, b, c = value.shape
    return [[[estimate((i, j, k)) for k in range(c)] for j in range(b)] for i in range(a)]


def _never_shorter_than_exact(value: Array, low: Array, high: Array, n: int, plan: _Plan) -> tuple[Array, Array]:
    """Widen the intervals of shares to the exact ones where these are wider.

    When all or none of a few records are found, every resample says the same, and a percentile
    interval has no width.
    """
    low, high = low.copy(), high.copy()
    for k, metric in enumerate(plan.metrics):
        counted = metric.counted(n)
        if counted is not None:
            shares = value[:, :, k]
            exact = share_intervals(shares.ravel(), np.full(shares.size, counted), level=plan.level).reshape(*shares.shape, 2)
            low[:, :, k], high[:, :, k] = np.minimum(low[:, :, k], exact[..., 0]), np.maximum(high[:, :, k], exact[..., 1])
    return low, high


def _constant_note(targets: Sequence[Target], first: tuple[str, int], second: tuple[str, int]) -> str:
    """Which of the two vectors is constant, and where; empty if neither is on any target."""
    found = []
    for t, target in enumerate(targets):
        for (name, index), side in ((first, target.first), (second, target.second)):
            if side[index].is_constant:
                where = f" of target {t}" if len(targets) > 1 else ""
                found.append(f"{name} is constant over the {target.records} records{where}, so it ranks nothing")
    return "; ".join(found)


def _row(attack: str, score: str, metric: Metric, found: _Estimate, constant: str, targets: Sequence[Target]) -> _Row:
    value, low, high = (None, None, None) if constant else (found.value, max(found.low, metric.least), min(found.high, 1.0))
    records = sum(target.records for target in targets)
    note = constant or found.note
    return _Row(attack, score, metric.name, metric.top, metric.keep, value, low, high, len(targets), records, note)


def _stepped_up(row: _Row) -> _Row:
    if row.value is None or row.low is None or row.high is None:
        return replace(row, metric=STEPPED_UP)
    if row.value <= 0:
        note = "the halves do not agree (Spearman ≤ 0), so there is nothing to step up"
        return replace(row, metric=STEPPED_UP, value=None, low=None, high=None, note=note)
    value, low, high = (2 * rho / (1 + rho) for rho in (row.value, max(row.low, 0.0), row.high))
    return replace(row, metric=STEPPED_UP, value=value, low=low, high=high)


def _frame(rows: Sequence[_Row]) -> pd.DataFrame:
    names = [field.name for field in fields(_Row)]
    # Object columns keep None apart from numbers; a float column would turn it into NaN, which JSON
    # does not have.
    columns = {name: pd.Series([getattr(row, name) for row in rows], dtype=object if name in NULLABLE else None) for name in names}
    frame: pd.DataFrame = pd.DataFrame(columns)
    return frame

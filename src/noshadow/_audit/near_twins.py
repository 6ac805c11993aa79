"""Find training records that are nearly the same as another one.

Such twins hide each other: what a record leaves behind when it is taken out is small while its twin
stays.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from noshadow._audit.settled import Settled
from noshadow._audit.splits import feature_spread
from noshadow.checks import Array, as_array

NEIGHBOURS = 10  # whose distance is the record's own scale; twins in groups of up to ten are seen
FETCHED = 16  # so that ten are left when some are exact copies
LEAST_RECORDS = 100
NEAREST = 0.1  # of that scale: what is further away is no twin in any dimension
CHANCE = 1e-5  # that the nearest record of an ordinary one is as near
SAME = 1e-4  # of a feature's spread, as exact copies are counted
FEW_VALUES = 0.5  # distinct values per record, below which a feature repeats itself
LOOKED_AT = 5000  # records that tell which features repeat themselves
PAIRS, NUMBERS = 3e8, 3e10  # pairs of records, and products, that a look may cost: seconds
MOST_NUMBERS = 2e8  # of inputs, which are copied in single precision: 0.8 GB
BLOCK = 1 << 23  # distances at once
_EXAMPLES = 10


@dataclass(frozen=True, eq=False)
class _Points:
    """Features of n records that vary.

    Attributes:
        single: (n, d) centred and divided by their spread, float32. plain: (n, d) as they are.
        spread: (d,). few: (d,) whether a feature repeats its values.
        labels: (n,) that twins share, or None.
    """

    single: Array
    plain: Array
    spread: Array
    few: Array
    labels: Array | None


def near_facts(found: Settled, inputs: Array | str, seed: int) -> dict[str, Any]:
    """Twins among the training records by the model's features, and by its inputs (JSON-ready).

    Args:
        found: the settled records. inputs: (n, d) what the model was given, or why it is not known.
        seed: of the records looked at.

    Returns:
        features, inputs: as `near_twins` has them, None where twins cannot be told; reasons: why.
    """
    features: Array | str = "not given" if found.train.features is None else found.train.features
    if isinstance(inputs, np.ndarray) and isinstance(features, np.ndarray) and _same(inputs, features):
        inputs = "the same as the features"
    counted = {name: _of(found, points, seed) for name, points in (("features", features), ("inputs", inputs))}
    told = {name: None if isinstance(held, str) else held for name, held in counted.items()}
    return {**told, "reasons": {name: held for name, held in counted.items() if isinstance(held, str)}}


def given_inputs(train: object) -> Array | str:
    """The inputs of (X, y) as a table of numbers (n, d), or why there is none."""
    if not (isinstance(train, (tuple, list)) and len(train) == 2):
        return "not given as an array"
    values = as_array(train[0], "train X") if isinstance(train[0], Tensor) else train[0]
    if isinstance(values, (tuple, list, Mapping)) or not hasattr(values, "__array__"):
        return "not one array"
    table: Array = np.asarray(values)
    if table.dtype.kind not in "biuf" or table.ndim < 2:
        return "not numbers alone"
    if table.size > MOST_NUMBERS:
        return f"more than {MOST_NUMBERS:.0e} numbers"
    flat: Array = table.reshape(len(table), -1)
    return flat if np.isfinite(flat).all() else "some are missing"


def _same(first: Array, second: Array) -> bool:
    """Whether two tables hold the same: their first records tell, without a pass over all."""
    return first.shape == second.shape and bool(np.allclose(first[:LEAST_RECORDS], second[:LEAST_RECORDS]))


def _of(found: Settled, points: Array | str, seed: int) -> dict[str, Any] | str:
    if isinstance(points, str):
        return points
    if found.task == "regression":
        return near_twins(np.hstack([points, found.targets]), found.train.ids, labels=None, seed=seed)
    return near_twins(points, found.train.ids, labels=np.asarray(found.identity["target"]), seed=seed)


def near_twins(points: Array, ids: Array, *, labels: Array | None, seed: int = 0) -> dict[str, Any] | str:
    """Count records whose nearest other one is far nearer than chance puts it (JSON-ready).

    Features are divided by their spread. A record's own scale is the distance r₁₀ of its tenth
    neighbour. Where density is even around it in D dimensions, (r₁/r₁₀)^D is the least of nine
    uniform numbers, so that P(r₁ < c r₁₀) ≈ 9 c^D: the nearest record is a twin when it is nearer
    than c r₁₀ with c = (CHANCE/9)^(1/D), at most a tenth. D comes from the outer neighbours, which
    twins do not move: (r₅/r₁₀)^D has the median ½. Two records that agree in all features of few
    values (one-hot, counts) are as near as the others let them be, so that no more dimensions count
    than there are other features. Exact copies are left out: they have a count of their own.

    Args:
        points: (n, d) finite numbers; of a regression with its targets as further columns.
        ids: (n,). labels: (n,) that twins share, or None. seed: of the records looked at.

    Returns:
        records: those with a twin among the `looked` at, `of` all; dimension D and ratio c; ids of
        up to ten of them, each with its twin after it. Or the reason why twins cannot be told.

    Cost: O(snd) for s records looked at: all n up to 3·10⁸ pairs (17,000 records) and 3·10¹⁰
        products, as many as fit beyond; memory O(nd).
    Reference: dimension from ratios of neighbours' distances: Facco et al. 2017.
    """
    if len(points) < LEAST_RECORDS:
        return f"fewer than {LEAST_RECORDS} records"
    held = _standardised(points, labels, seed)
    if held is None:
        return "they do not vary"
    n, d = held.single.shape
    looked = int(min(n, max(PAIRS / n, LEAST_RECORDS), max(NUMBERS / (n * d), LEAST_RECORDS)))
    rows = np.sort(np.random.default_rng(seed).choice(n, looked, replace=False))
    scale, nearest, twins, ties = (np.concatenate(parts) for parts in zip(*_looks(held, rows), strict=True))
    ordinary = scale[:, 1] > 0
    if ordinary.sum() < LEAST_RECORDS:
        return "most records have many exact copies"
    dimension = _dimension(scale[ordinary], d)
    spared = np.where(ties, np.minimum(dimension, max(int((~held.few).sum()), 1)), dimension)
    limit = np.minimum((CHANCE / (NEIGHBOURS - 1)) ** (1 / spared), NEAREST)
    found = np.flatnonzero(ordinary & (nearest < limit * scale[:, 1]))
    pairs = [str(ids[row]) for place in found[: _EXAMPLES // 2] for row in (rows[place], twins[place])]
    return {
        "records": len(found),
        "looked": looked,
        "of": n,
        "dimension": float(dimension),
        "ratio": float(min((CHANCE / (NEIGHBOURS - 1)) ** (1 / dimension), NEAREST)),
        "first_ids": list(dict.fromkeys(pairs)),
    }


def _standardised(points: Array, labels: Array | None, seed: int) -> _Points | None:
    spread = feature_spread(points)
    varies = np.isfinite(spread)
    if not varies.any():
        return None
    kept, spread = points if varies.all() else points[:, varies], spread[varies]
    single = np.empty(kept.shape, dtype=np.float32)
    np.subtract(kept, kept.mean(0, dtype=np.float64), out=single, casting="same_kind")
    single /= spread.astype(np.float32)
    some = np.random.default_rng(seed).permutation(len(kept))[:LOOKED_AT]
    few = np.array([len(np.unique(column)) <= FEW_VALUES * len(some) for column in kept[some].T])
    return _Points(single, kept, spread, few, labels)


def _looks(held: _Points, rows: Array) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Blocks of rows: (r₅, r₁₀), distance and row of the nearest twin, and whether they tie."""
    n, d = held.single.shape
    squares = np.einsum("nd,nd->n", held.single, held.single)
    count = min(FETCHED, n - 1)
    for start in range(0, len(rows), step := max(BLOCK // max(n, FETCHED * d), 1)):
        part = rows[start : start + step]
        # Squared distances without the row's own square: the order is the same.
        distances = squares - 2 * (held.single[part] @ held.single.T)
        distances[np.arange(len(part)), part] = np.inf
        yield _neighbours(held, part, np.argpartition(distances, count - 1, axis=1)[:, :count])


def _neighbours(held: _Points, part: Array, near: Array) -> tuple[Array, Array, Array, Array]:
    plain = (held.plain[rows].astype(np.float64) for rows in (near, part[:, None]))
    apart = np.abs(np.subtract(*plain)) / held.spread  # (b, k, d)
    copies = apart.max(2) <= SAME
    distances = np.where(copies, np.inf, np.sqrt((apart**2).sum(2)))
    ordered = np.sort(distances, axis=1)
    middle, outer = ordered[:, NEIGHBOURS // 2 - 1], ordered[:, NEIGHBOURS - 1]
    # With too many copies among the neighbours there is no scale: 0.
    scale = np.where(np.isfinite(outer)[:, None], np.column_stack([middle, outer]), 0.0)
    if held.labels is not None:
        distances = np.where(held.labels[near] == held.labels[part][:, None], distances, np.inf)
    best, places = distances.argmin(1), np.arange(len(part))
    agree = apart[places, best][:, held.few] <= SAME
    return scale, distances[places, best], near[places, best], agree.all(1) & bool(held.few.any())


def _dimension(scale: Array, columns: int) -> float:
    """D by the median of r₅/r₁₀; no more than there are columns, and at least one."""
    middle = float(np.median(np.log(scale[:, 0] / scale[:, 1])))
    return max(min(math.log(0.5) / middle if middle < 0 else math.inf, float(columns)), 1.0)

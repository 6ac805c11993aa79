"""Per-record moments of the signals on each side.

The moments with one model left out follow in closed form.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noshadow.attacks.inputs import NUMBERS_AT_ONCE, doubles
from noshadow.blocks import block_length, blocks
from noshadow.checks import Array, advice, refuse
from noshadow.limits import OWN_SPREAD_MODELS

# Below this share of the whole, what a deletion leaves of a sum of squares has lost digits and is
# summed again.
CANCELLED = 1e-6


@dataclass(frozen=True, eq=False)
class Side:
    """Moments over the models of one side, for q queries of n records.

    A side is the models trained on a record, or the others.

    Attributes:
        count: (n,) models. mean: (q, n). squares: (q, n), Σ (x − mean)².
        center: (q, n), the mean or the median.
        below, above: (q, n) the order statistics beside the median (the two middle ones of an even
            count); None with means.
    """

    count: Array
    mean: Array
    squares: Array
    center: Array
    below: Array | None = None
    above: Array | None = None


def side_moments(signals: Array, membership: Array, *, sides: Sequence[bool], median: bool) -> list[Side]:
    """Compute the moments of each asked side (True = the models trained on the record).

    This takes one pass over the signals in blocks of records.

    Args:
        signals: (q, r, n) finite. membership: (r, n) with at least one model per record on each
            asked side.
        sides: which sides. median: centre by the median instead of the mean.

    Exact when: always. A side whose values are all equal has a sum of squares of exactly 0.
    Cost: O(qrn), sorting in O(log r) more for the median; temporaries of about 2²⁰ numbers.
    """
    q, r, n = signals.shape
    parts: list[list[Side]] = [[] for _ in sides]
    for start, stop in blocks(n, block_length(q * r, numbers=NUMBERS_AT_ONCE)):
        values, member = doubles(signals[:, :, start:stop]), membership[:, start:stop]
        for found, inside in zip(parts, sides, strict=True):
            found.append(block_moments(values, member if inside else ~member, median=median))
    return [_joined(found) for found in parts]


def block_moments(values: Array, held: Array, *, median: bool) -> Side:
    """Moments of values (q, r, b) over the models with held (r, b)."""
    count = held.sum(0)
    weight = held.astype(np.float64)
    # Differences from one of the side's own values: equal values then leave exactly nothing, at any
    # offset.
    pivot = values[:, held.argmax(0), np.arange(held.shape[1])]
    gaps = values - pivot[:, None]
    gaps *= weight
    shift = gaps.sum(1) / count
    gaps -= shift[:, None]
    gaps *= weight
    mean, squares = pivot + shift, np.square(gaps, out=gaps).sum(1)
    if not median:
        return Side(count, mean, squares, mean)
    below, center, above = _middle(values, held, count)
    return Side(count, mean, squares, center, below, above)


def without_model(side: Side, signals: Array, membership: Array, model: int, *, inside: bool) -> Side:
    """A side's moments with one model deleted where it is on that side.

    For x among k values with mean μ and sum of squares Q: mean μ − (x − μ)/(k − 1), sum of squares
    Q − k/(k − 1)·(x − μ)². The median moves between the three middle order statistics by where x
    lies.

    Args:
        side: moments over all r models. signals: (q, r, n). membership: (r, n).
        model: whom to delete. inside: whether `side` is that of the models trained on a record.

    Exact when: always to rounding; sums that cancel to less than 1e-6 of the whole are summed
        again.
    Cost: O(qn), and O(qr) for each record summed again (hardly ever more than two models per
        record).
    """
    row = doubles(signals[:, model])
    held = membership[model] if inside else ~membership[model]
    rest = side.count - held
    gap = np.where(held, row - side.mean, 0.0)
    mean = side.mean - gap / rest
    squares = side.squares - np.square(gap, out=gap) * (side.count / rest)
    center = mean if side.below is None or side.above is None else _median_without(side.below, side.center, side.above, row, held, rest)
    lost = np.flatnonzero((squares < CANCELLED * side.squares).any(0))
    q, r, _ = signals.shape
    for start, stop in blocks(len(lost), block_length(q * r, numbers=NUMBERS_AT_ONCE)):
        index = lost[start:stop]
        others = membership[:, index] if inside else ~membership[:, index]
        others[model] = False
        again = block_moments(doubles(signals[:, :, index]), others, median=False)
        mean[:, index], squares[:, index] = again.mean, again.squares
    return Side(rest, mean, squares, center)


def resolved_variance(variance: str, models: int) -> str:
    """How standard deviations are pooled.

    "auto" is "global" below 64 models (about 32 per side), too few for a standard deviation of each
    record's own.
    """
    return ("global" if models < OWN_SPREAD_MODELS else "record") if variance == "auto" else variance


def spreads(side: Side, variance: str, floor: float) -> Array:
    """Standard deviations (ddof = 0, about the mean), at least `floor`.

    They are (q, n) per record, or (q, 1) pooled within records.
    """
    per_record = variance == "record"
    squares = side.squares / side.count if per_record else side.squares.sum(1, keepdims=True) / side.count.sum()
    return np.maximum(np.sqrt(squares), floor)


def require_spread(spread: Array, of: str) -> None:
    """No standard deviation is 0: a Gaussian without width gives every other value density 0."""
    flat = (spread == 0).any(0)
    if not flat.any():
        return
    pooled = spread.shape[1] == 1
    got = f"a pooled standard deviation of 0 over {of}" if pooled else _flat_records(flat, of)
    other = "" if pooled else f"{advice('variance', 'global')} or "
    refuse("reference", "vary between models", got, f"Pass {other}{advice('floor', ...)}.")


def _flat_records(flat: Array, of: str) -> str:
    return f"{int(flat.sum())} records with standard deviation 0 over {of}, the first at index {int(flat.argmax())}"


def _joined(parts: list[Side]) -> Side:
    count = np.concatenate([part.count for part in parts])
    mean, squares = (np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("mean", "squares"))
    if parts[0].below is None:
        return Side(count, mean, squares, mean)
    return Side(
        count, mean, squares, *(np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("center", "below", "above"))
    )


def _middle(values: Array, held: Array, count: Array) -> tuple[Array, Array, Array]:
    """Median and its neighbours, each (q, b).

    They are (v[h−1], v[h], v[h+1]) of 2h + 1 sorted values, and (v[h−1], mean, v[h]) of 2h.
    """
    # (q, b, r): a record's values side by side, the other side's last
    ordered = np.where(held.T, values.transpose(0, 2, 1), np.inf)
    ordered.sort(axis=2)
    half, odd = count // 2, count % 2 == 1
    # (b, 3)
    places = np.stack((np.maximum(half - 1, 0), half, np.minimum(half + odd, count - 1)), axis=1)
    low, middle, high = np.moveaxis(np.take_along_axis(ordered, places[None], axis=2), 2, 0)
    return low, np.where(odd, middle, (low + middle) / 2), high


def _median_without(below: Array, center: Array, above: Array, row: Array, held: Array, rest: Array) -> Array:
    """Median after deleting the values of `row` from the sides that hold them.

    Each value is one of its side's own.
    """
    left_even = rest % 2 == 0
    # Deleting from above the median moves it down: to the lower middle value, averaged with the old
    # median when that one stays.
    down = np.where(left_even, (below + center) / 2, below)
    up = np.where(left_even, (center + above) / 2, above)
    moved = np.where(row > center, down, np.where(row < center, up, (below + above) / 2))
    found: Array = np.where(held, moved, center)
    return found

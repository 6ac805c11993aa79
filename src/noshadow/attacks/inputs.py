"""The arrays every attack starts from, checked once and never copied whole.

Inside the package signals carry the query axis first, (q, r, n), as a view of what the user gave:
(r, n) or (r, n, q).
"""

import numpy as np

from noshadow.blocks import blocks
from noshadow.checks import LARGEST, Array, as_array, refuse, require_finite

NUMBERS_AT_ONCE = 1 << 20


def signal_array(
    value: object, argument: str, *, ndim: tuple[int, ...], low: float = -LARGEST, high: float = LARGEST, hint: str = ""
) -> Array:
    """Check for finite numbers in [low, high] with an allowed number of dimensions.

    The array is read in blocks and handed back as given.
    """
    array = as_array(value, argument)
    if array.ndim not in ndim or array.size == 0:
        refuse(argument, f"be a {' or '.join(f'{k}-dimensional' for k in ndim)} array with entries", f"shape {array.shape}")
    if array.dtype.kind not in "iuf":
        refuse(argument, "be numeric", f"dtype {array.dtype}")
    size = max(NUMBERS_AT_ONCE // array[0].size, 1)
    for start, stop in blocks(len(array), size):
        block = array[start:stop]
        least, most = float(block.min()), float(block.max())
        if not np.isfinite(least) or not np.isfinite(most):
            require_finite(array, argument, block=size)
        if least < low or most > high:
            index = np.argwhere((block < low) | (block > high))[0]
            where = (start + int(index[0]), *map(int, index[1:]))
            got = f"{float(block[tuple(index)]):g} at index {where[0] if len(where) == 1 else where}"
            refuse(argument, f"stay within ±{LARGEST:g}" if low == -LARGEST else f"lie in [{low:g}, {high:g}]", got, hint)
    return array


def flags(value: object, argument: str, shape: tuple[int, ...], of: str) -> Array:
    """Booleans (r, n) of a known shape.

    0/1 integers are refused, since they would index instead of select.
    """
    array = as_array(value, argument)
    if array.dtype != np.bool_:
        refuse(argument, "be boolean", f"dtype {array.dtype}", f"Pass {argument}.astype(bool).")
    if array.shape != shape:
        refuse(argument, f"have one entry per model and record of {of}, shape {shape}", f"shape {array.shape}")
    return array


def queries_first(signals: Array, *, trailing: int) -> Array:
    """View with the query axis first, (q, …).

    `trailing` axes remain behind it, and one query needs no axis of its own.
    """
    view: Array = signals[None] if signals.ndim == trailing else np.moveaxis(signals, -1, 0)
    return view


def doubles(piece: Array) -> Array:
    """A piece of the signals in contiguous float64."""
    return np.ascontiguousarray(piece, dtype=np.float64)


def side_counts(membership: Array) -> tuple[Array, Array]:
    """How many models were trained on each record, and how many were not: two int64 (n,)."""
    inside = np.zeros(membership.shape[1], dtype=np.int64)
    for row in membership:
        inside += row
    return inside, len(membership) - inside


def require_models_on_side(counts: Array, least: int, side: str, hint: str = "", argument: str = "membership") -> None:
    """Refuse records with fewer than `least` models on a side, "IN" or "OUT"."""
    short = counts < least
    if not short.any():
        return
    first = int(short.argmax())
    never = int((counts == 0).sum())
    got = f"{int(short.sum())} records with fewer ({never} never {side}), the first at index {first} with {int(counts[first])}"
    refuse(argument, f"hold every record {side} for at least {least} model{'s' * (least > 1)}", got, hint)

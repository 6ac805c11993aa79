"""Check samples of scores and losses, and turn a decimal share into a number of records."""

import math

import numpy as np

from noshadow.checks import Array, as_array, numeric_array, refuse

# Decimal levels are not binary fractions (0.29 · 100 < 29): products are compared to twelve digits.
RELATIVE_SLACK = 1e-12


def loss_sample(value: object, argument: str) -> Array:
    """Finite losses, float64 (n,), n ≥ 1."""
    losses = numeric_array(value, argument, ndim=1).astype(np.float64)
    if len(losses) == 0:
        refuse(argument, "hold at least one loss", "an empty array")
    return losses


def score_sample(value: object, argument: str, *, least: int = 1) -> Array:
    """Scores without NaN, infinities allowed, float64 (n,), n ≥ `least`."""
    array = as_array(value, argument)
    if array.ndim != 1 or array.dtype.kind not in "biuf" or len(array) == 0:
        refuse(argument, "be a 1-dimensional numeric array with at least one entry", f"shape {array.shape}, dtype {array.dtype}")
    if len(array) < least:
        refuse(argument, f"hold at least {least} scores", str(len(array)))
    scores = array.astype(np.float64)
    missing = np.isnan(scores)
    if missing.any():
        refuse(argument, "not hold NaN", f"{int(missing.sum())}, the first at index {int(missing.argmax())}", "Drop those records.")
    return scores


def places(fraction: float, records: int) -> int:
    """⌈fraction · records⌉, safe against rounding."""
    return math.ceil(fraction * records * (1 - RELATIVE_SLACK))

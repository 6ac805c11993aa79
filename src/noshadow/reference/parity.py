"""Was the target trained as its reference models were? A comparison of mean losses."""

from typing import Any

import numpy as np

from noshadow.checks import Array
from noshadow.limits import LARGEST_Z

# of a mean loss: models that differ by less than 4 % are never called different
LEAST_SPREAD = 0.01
LEAST_SHARE = 1e-8  # of the larger mean loss: keeps losses that are all zero from dividing by zero


def loss_parity(loss: Array, member: Array, reference_loss: Array, membership: Array) -> dict[str, Any]:
    """Put the target's mean losses beside those of the reference models.

    Members and non-members of each model are compared separately.

    z = (target − mean over models)/s with s the standard deviation over models, but at least 1 % of
    their mean. A loss is outlying when |z| > 4 and it lies outside the range of the reference
    models: then the target was probably trained differently (other epochs, learning rate,
    augmentation, much more or fewer records), and attacks with these reference models say little
    about it.

    Args:
        loss: (n,) of the target. member: (n,) bool, its training records; may be all True.
        reference_loss: (r, n). membership: (r, n).

    Returns:
        "member" and "nonmember" (None without non-members): target, mean, sd, low, high, z,
        outlying; "outlying" of either; "sentence" for people. Plain numbers.

    Cost: O(rn), memory O(n).
    """
    rows = [(reference_loss[t], membership[t]) for t in range(len(membership))]
    inside = np.array([float(row[inside].mean()) for row, inside in rows])
    outside = np.array([float(row[~inside].mean()) for row, inside in rows])
    largest = max(float(inside.mean()), float(outside.mean()))
    found = {"member": _compared(float(loss[member].mean()), inside, largest), "nonmember": None}
    if not member.all():
        found["nonmember"] = _compared(float(loss[~member].mean()), outside, largest)
    off = [kind for kind, values in found.items() if values is not None and values["outlying"]]
    return {**found, "outlying": bool(off), "sentence": _sentence(found, off)}


def _compared(value: float, others: Array, largest: float) -> dict[str, Any]:
    mean, deviation = float(others.mean()), float(others.std(ddof=1)) if len(others) > 1 else 0.0
    scale = max(deviation, LEAST_SPREAD * abs(mean), LEAST_SHARE * largest, float(np.finfo(float).tiny))
    low, high = float(others.min()), float(others.max())
    # Far beyond any threshold, and finite for strict JSON.
    z = float(np.clip((value - mean) / scale, -1e9, 1e9))
    outlying = abs(z) > LARGEST_Z and not low <= value <= high
    return {"target": value, "mean": mean, "sd": deviation, "low": low, "high": high, "z": z, "outlying": outlying}


def _sentence(found: dict[str, Any], off: list[str]) -> str:
    names = {"member": "members", "nonmember": "non-members"}
    if not off:
        return "The target's mean losses are like those of the reference models."
    parts = [
        f"{values['target']:.3g} on {names[kind]} where the reference models have {values['low']:.3g} to {values['high']:.3g}"
        for kind, values in ((kind, found[kind]) for kind in off)
    ]
    return f"The target was probably trained differently from the reference models: its mean loss is {' and '.join(parts)}."

"""A record's chance of being found, from the model's predicted rate and the record's rank.

The rate is distributed over the records.
"""

import functools
import json
import math
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtri
from scipy.stats import rankdata

from noshadow.checks import Array


@dataclass(frozen=True)
class RecordCurve:
    """logit p = a + b L + c z + d L z + e z² at one false-positive rate."""

    fpr: float
    coefficients: tuple[float, ...]
    low: float
    high: float
    offset: float


@functools.cache
def shipped_curves() -> tuple[RecordCurve, ...]:
    """The curves in the package, by rising false-positive rate.

    `low` and `high` are quantiles of (measured − p)/(p + offset) over tenths of the records of data
    sets left out.
    """
    source = files("noshadow.tail") / "shipped" / "records.json"
    content = json.loads(source.read_text(encoding="utf8"))
    offset = content["offset"]
    return tuple(RecordCurve(row["fpr"], tuple(row["coefficients"]), row["low"], row["high"], offset) for row in content["curves"])


def curve_terms(model_rate: Array, z: Array) -> Array:
    """The terms that the coefficients of a `RecordCurve` multiply, (n, 5).

    They are 1, L, z, L z and z² with L = logit of the model's rate.
    """
    level = logit(model_rate)
    return np.stack((np.ones_like(z), level, z, level * z, z**2), axis=-1)


def curve_rates(coefficients: tuple[float, ...], model_rate: float, z: Array) -> Array:
    """Chance of each record with normal score z, for a model of this TPR in (0, 1).

    The chances need not average to the TPR.
    """
    rates: Array = expit(curve_terms(np.full(len(z), min(max(model_rate, 1e-9), 1 - 1e-9)), z) @ np.array(coefficients))
    return rates


def rates_averaging_to(coefficients: tuple[float, ...], model_rate: float, z: Array, fpr: float) -> Array:
    """The curve's chances, moved so that their mean over these records is the model's rate.

    The move is one constant in the logit.

    None is below `fpr`: that share of anybody is called a member.
    """
    if not 0 < model_rate < 1:
        return np.full(len(z), float(model_rate))
    floor = min(fpr, model_rate)
    logits = logit(np.clip(curve_rates(coefficients, model_rate, z), 1e-12, 1 - 1e-12))
    if floor == model_rate:
        return np.full(len(z), floor)
    # Clipped logits lie within ±28: 100 beyond them every chance is 0 or 1.
    constant = brentq(lambda c: float(np.maximum(expit(logits + c), floor).mean()) - model_rate, -100.0, 100.0, xtol=1e-14)
    moved: Array = np.maximum(expit(logits + constant), floor)
    return moved


def record_rates(score: Array, model_rate: float, fpr: float) -> tuple[Array, Array, Array] | None:
    """Chance that LiRA finds each record at `fpr`, given the model's TPR there.

    Its interval comes with it. Returns None outside of the shipped rates.

    The shipped curve's chances for the record's rank by score, moved so that they average to the
    model's rate: what is calibrated is how a rate is dealt out over records; its size comes from
    the model's own prediction. Between calibrated false-positive rates everything is interpolated
    along log fpr.

    Args:
        score: (n,) larger = riskier; equal scores get equal chances. model_rate: the model's TPR at
            `fpr`, in [0, 1].
        fpr: false-positive rate.

    Returns:
        Chances, lower and upper ends, (n,) each. The ends are nominally 90 %, for tenths of the
        records by rank; docs/calibration.md says how many of them they held on data sets left out.
    """
    curves = shipped_curves()
    if not curves[0].fpr * (1 - 1e-9) <= fpr <= curves[-1].fpr * (1 + 1e-9):
        return None
    z = ndtri((rankdata(score, method="average") - 0.5) / len(score))
    each = []
    for curve in curves:
        rates = rates_averaging_to(curve.coefficients, model_rate, z, fpr)
        scale = rates + curve.offset
        each.append(np.clip((rates, rates + curve.low * scale, rates + curve.high * scale), 0.0, 1.0))
    place = float(np.interp(math.log(fpr), [math.log(curve.fpr) for curve in curves], np.arange(len(curves))))
    below = min(int(place), len(curves) - 1)
    above = min(below + 1, len(curves) - 1)
    rates, low, high = (1 - (place - below)) * each[below] + (place - below) * each[above]
    return rates, low, high

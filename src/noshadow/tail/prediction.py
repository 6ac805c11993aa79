"""Predict the TPR of a reference-model attack from what a model shows.

This file has the shipped calibrations, their intervals, and where they hold.
"""

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from noshadow.limits import OWN_SPREAD_MODELS
from noshadow.results import Calibration, CalibrationCell, Interval
from noshadow.tail.calibration import interval_ends
from noshadow.tail.forms import as_read, predicted_rates

LEAST_RECORDS = 500
SPOKEN = {
    "ks": "KS distance of the losses",
    **{f"tnr_excess_{level}": f"TNR of the losses at FNR {level}, less {level}" for level in ("0.01", "0.05", "0.1")},
    "margin_shift_0.1": "shift of the margins' lowest tenth",
    "margin_shift_0.05": "shift of the margins' lowest twentieth",
    "auc_excess": "loss AUC beyond a coin toss (2 AUC − 1)",
    "skewness": "skewness of the losses",
    "accuracy_gap": "accuracy gap",
    "tnr": "loss-tail TNR",
    "margin_leverage_mean": "mean margin leverage of the last layer",
    "lira_k4_tpr_0.01": "the rate that LiRA with four reference models has at FPR 0.01",
}
FAMILIES = {"linear": "linear models", "network": "networks"}
# A file of the package and what its setups are, in words. The first speaks for callers who name no
# family.
SHIPPED = {"losses": "linear models, networks", "forest": "forests with bootstrap", "boosting": "boosted trees"}
# LiRA's rules for a record's spread, and what the files of each end in: linear models and networks
# have a calibration for either from losses, from losses and the leverages of the last layer, and
# from what four reference models find.
BY_RULE = {"record": "", "global": "_global"}
RULES = ("auto", *BY_RULE)
LOSSES = "losses"
READ = {LOSSES: "losses", "leverage": "losses and last layer", "references": "four reference models"}
FOUR_REFERENCES = "lira_k4_tpr_0.01"
UNKNOWN = "unknown"
STRETCH = 0.1  # how far beyond the range of the setups a predictor may lie


@dataclass(frozen=True)
class Prediction:
    """A predicted TPR with its prediction interval.

    It also says whether the model is like the setups behind it.
    """

    value: float | None
    interval: Interval | None
    in_domain: bool | None
    reason: str
    calibration: str | None
    level: float | None = None
    attack: str | None = None


@functools.cache
def shipped_calibration(name: str = "losses") -> Calibration:
    """A calibration in the package, by the name of its file."""
    source = files("noshadow.tail") / "shipped" / f"{name}.json"
    return Calibration.from_dict(json.loads(source.read_text(encoding="utf8")))


def calibration_for(family: str | None, rule: str = "record", kind: str = LOSSES) -> Calibration | None:
    """The shipped calibration whose setups are of this family; None where no setup is.

    None for a family means that the caller vouches for the model: a linear model or a network.
    `rule` is a key of `BY_RULE` and `kind` one of `READ`; other families than these have one
    calibration for whatever was attacked.
    """
    names = [name for name in SHIPPED if family is None or family in shipped_calibration(name).families]
    if not names:
        return None
    return shipped_calibration(names[0] if names[0] != LOSSES else kind + BY_RULE[rule])


def shipped_for(family: str | None, variance: str, references: int, kind: str) -> "Calibration | Prediction":
    """The shipped calibration of a family and of LiRA's rule, of a kind of `READ`.

    Where there is none, a prediction of nothing says why. `variance` is one of `RULES`; "auto" is
    one spread for all records below 64 models, as LiRA has it.
    """
    rule = variance if variance != "auto" else "record" if references >= OWN_SPREAD_MODELS else "global"
    made = calibration_for(family, rule, kind)
    if made is None:
        *first, last = SHIPPED.values()
        return _nothing(_of_another_family(f"{', '.join(first)} and {last}", family or UNKNOWN))
    asked = f"variance={variance!r}" if variance != "auto" else "four reference models" if kind == "references" else ""
    if asked and made.families != shipped_calibration(LOSSES).families:
        return _nothing(
            f"The rates behind calibration {made.name} are of {made.attack}, not of LiRA with {asked}; without it these are predicted."
        )
    return made


def predicted_tpr(
    calibration: Calibration,
    shown: Mapping[str, float],
    *,
    fpr: float,
    references: int,
    sizes: tuple[int, int],
    clear_gap: bool,
    blurred: str | None = None,
    family: str | None = None,
) -> Prediction:
    """The TPR at `fpr` of an attack with so many reference models, by this calibration.

    Between calibrated rates and numbers of models, values and ends are interpolated along log fpr
    and log K. Outside of them nothing is predicted; a model unlike the setups is predicted, and
    said to be. `blurred`: why the members' margins are not known; nothing is predicted from such.
    `family`: of the model, None where the caller vouches for it; nothing is predicted for a family
    that none of the setups was of.
    """
    if family is not None and calibration.families and family not in calibration.families:
        seen = " and ".join(FAMILIES.get(name, name) for name in calibration.families)
        return _nothing(_of_another_family(seen, family))
    rates = sorted({cell.fpr for cell in calibration.cells})
    counts = sorted({cell.references for cell in calibration.cells})
    # A rate of 1/n may differ from a calibrated one in its last digit.
    if not rates[0] * (1 - 1e-9) <= fpr <= rates[-1] * (1 + 1e-9):
        return _nothing(f"The calibration covers false-positive rates of {rates[0]:g} to {rates[-1]:g}, not {fpr:g}.")
    if not counts[0] <= references <= counts[-1]:
        return _nothing(f"The calibration covers {counts[0]} to {counts[-1]} reference models, not {references}.")
    if blurred is not None and any(name.startswith("margin_") for name in calibration.predictors):
        return _nothing(blurred)
    value, low, high = _between(calibration, shown, math.log(fpr), math.log(references))
    reasons = [*_unlike(calibration, shown), *_too_little(sizes, clear_gap)]
    source = f"{' and '.join(SPOKEN.get(name, name) for name in calibration.predictors)} by calibration {calibration.name}"
    used = f"Rate of {calibration.attack}, predicted from {source}, fitted to {len(calibration.setups)} setups"
    reason = f"{used}; this model is like them." if not reasons else f"{used}; but {'; '.join(reasons)}: take it as a hint."
    return Prediction(value, (low, high), not reasons, reason, calibration.name, calibration.level, calibration.attack)


def _of_another_family(seen: str, family: str) -> str:
    other = (
        "nothing says that this model is one of them: name it with family= (--family) if it is"
        if family == UNKNOWN
        else f"this model is of another family ({family})"
    )
    return (
        f"The calibration was made from {seen}, and {other}; the rate of a reference-model attack is not predicted, and reference models "
        "would measure it (noshadow reference train)."
    )


def _nothing(reason: str) -> Prediction:
    return Prediction(None, None, False, reason, None)


def _between(calibration: Calibration, shown: Mapping[str, float], log_fpr: float, log_references: float) -> tuple[float, float, float]:
    x = as_read(calibration.form, calibration.predictors, np.array([[shown[name] for name in calibration.predictors]]))
    cells = {(math.log(cell.fpr), math.log(cell.references)): _at(calibration, cell, x) for cell in calibration.cells}
    rows = []
    for rate in sorted({key[0] for key in cells}):
        places = sorted(key[1] for key in cells if key[0] == rate)
        values = np.array([cells[rate, place] for place in places])
        rows.append([np.interp(log_references, places, column) for column in values.T])
    rates = sorted({key[0] for key in cells})
    value, low, high = (float(np.interp(log_fpr, rates, column)) for column in np.array(rows).T)
    return value, low, high


def _at(calibration: Calibration, cell: CalibrationCell, x: np.ndarray) -> tuple[float, float, float]:
    # No attack need be worse than one that flags a share `fpr` at random.
    value = np.maximum(predicted_rates(calibration.form, cell.coefficients, x), min(cell.fpr, 1.0))
    low, high = interval_ends(value, cell.low, cell.high, calibration.offset)
    return float(value[0]), float(low[0]), float(high[0])


def _unlike(calibration: Calibration, shown: Mapping[str, float]) -> list[str]:
    found = []
    for name, (low, high) in calibration.domain.items():
        # Ranges are long at their upper end: a share of their length would take in everything below
        # them.
        least = low * (1 - STRETCH) if low > 0 else low - STRETCH * (high - low)
        if name in shown and not least <= shown[name] <= high + STRETCH * (high - low):
            symmetric = " (a more symmetric loss distribution)" if name == "skewness" and shown[name] < low else ""
            words = SPOKEN.get(name, name)
            what = f"{words}, {shown[name]:.3g}," if words.startswith("the ") else f"its {words} of {shown[name]:.3g}{symmetric}"
            found.append(f"{what} is outside that of the setups ({low:.3g} to {high:.3g})")
    return found


def _too_little(sizes: tuple[int, int], clear_gap: bool) -> list[str]:
    found = []
    if min(sizes) < LEAST_RECORDS:
        found.append(f"it has {min(sizes)} records in the smaller split and the calibration needs {LEAST_RECORDS}")
    if not clear_gap:
        found.append("its losses do not tell members from non-members more than chance would")
    return found

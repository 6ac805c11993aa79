"""Draw the tail of the losses on two logarithmic axes.

Beside it stands what the records that an attack finds cost models without them.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from noshadow._glance import LogScale, decade_ticks
from noshadow.checks import Array
from noshadow.report.charts import NARROW, WIDE, Frame, LossBins, drawing, loss_bins
from noshadow.report.formats import number, power_of_ten
from noshadow.results import Audit

_FOUND = 0.5
_LOWEST = -6  # decades of the upward axis


def tail_section(audit: Audit) -> dict[str, Any] | None:
    """Both drawings of the tail and who is in the third curve; None when no loss is positive.

    The third curve is the loss of the records that LiRA finds (true-positive rate above one half)
    under models trained without them: where it lies to the right of τ, the tail outside tells of
    the head inside.
    """
    found = _found_losses(audit)
    threshold = None if audit.model_risk is None else audit.model_risk.threshold
    bins = loss_bins(audit.member_losses, np.concatenate([audit.nonmember_losses, *([found] if found is not None else [])]), threshold)
    series = {"members": audit.member_losses, "nonmembers": audit.nonmember_losses} | ({} if found is None else {"found": found})
    shares = {name: _shares(losses, bins) for name, losses in series.items() if len(losses)}
    positive = [share for values in shares.values() for share in values if share > 0]
    if not positive:
        return None
    lowest = min(max(math.floor(math.log10(min(positive))), _LOWEST), -1)
    above = None if found is None or threshold is None or not len(found) else float((found > threshold).mean())
    return {
        "charts": [_drawing(bins, shares, threshold, lowest, frame) for frame in (WIDE, NARROW)],
        "names": list(shares),
        "found": None if found is None else number(len(found)),
        "found_above": None if above is None else number(above),
        "told": None if found is None else _told(len(found), above),
    }


def _told(found: int, above: float | None) -> str:
    """How many records LiRA finds, and how many of them lie above τ without themselves."""
    if found == 1:
        beyond = "" if above is None else f"; without it in training it lies {'above' if above else 'below'} τ"
        return f"LiRA finds one record more often than not{beyond}."
    share = "" if above is None else {0.0: "none", 1.0: "all"}.get(above, f"a share of {number(above)}")
    beyond = "" if above is None else f"; without them in training {share} of them {'lie' if above == 1 else 'lies'} above τ"
    return f"LiRA finds {number(found) if found else 'no'} records more often than not{beyond}."


def _found_losses(audit: Audit) -> Array | None:
    """Return losses of the records LiRA finds, under models trained without them.

    The result is None where that was not measured.
    """
    if not {"lira_tpr", "out_loss"} <= set(audit.records.columns):
        return None
    rates, losses = (audit.records[name].to_numpy(dtype=np.float64) for name in ("lira_tpr", "out_loss"))
    found: Array = losses[(rates > _FOUND) & ~np.isnan(losses)]
    return found


def _shares(losses: Array, bins: LossBins) -> Array:
    finite = losses[np.isfinite(losses) & (losses > 0)]
    count = len(next(iter(bins.shares.values())))
    places = (np.log10(finite) - bins.low) / (bins.high - bins.low) * count
    inside = places[places >= 0]
    counted: Array = np.bincount(np.minimum(inside.astype(np.int64), count - 1), minlength=count) / max(len(losses), 1)
    return counted


def _drawing(bins: LossBins, shares: Mapping[str, Array], threshold: float | None, lowest: int, frame: Frame) -> dict[str, Any]:
    across = LogScale(bins.low, bins.high, frame.left, frame.right)
    upward = LogScale(lowest, 0, frame.bottom, frame.top)
    x = None if threshold is None or threshold <= 0 else across.at(threshold)
    return drawing(frame) | {
        "y_ticks": [{"y": upward.at_exponent(k), "label": power_of_ten(k) if k else "1"} for k in range(lowest, 1)],
        "x_ticks": decade_ticks(across, 100 if frame is WIDE else 46),
        "axis_start": frame.left,
        "lines": [{"name": name, "runs": _runs(values, across, upward)} for name, values in shares.items()],
        "threshold": None if x is None else {"x": x, "anchor": "start" if x < (frame.left + frame.right) / 2 else "end"},
    }


def _runs(shares: Array, across: LogScale, upward: LogScale) -> list[list[tuple[float, float]]]:
    """List steps over neighbouring bins that hold a record.

    A logarithmic axis has no place for an empty bin.
    """
    edges = np.linspace(across.start, across.stop, len(shares) + 1)
    runs: list[list[tuple[float, float]]] = []
    for place, share in enumerate(shares):
        if share <= 0:
            continue
        if place == 0 or shares[place - 1] <= 0:
            runs.append([(round(float(edges[place]), 2), float(upward.start))])
        y = upward.at(float(share))
        runs[-1] += [(round(float(edges[place]), 2), y), (round(float(edges[place + 1]), 2), y)]
        if place + 1 == len(shares) or shares[place + 1] <= 0:
            runs[-1].append((round(float(edges[place + 1]), 2), float(upward.start)))
    return runs

"""Turn the two charts into plain numbers, which templates turn into SVG.

The numbers are bins, points and ticks in the units of a drawing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noshadow._glance import LogScale, decade_label, decade_ticks, plain_axis
from noshadow.checks import Array
from noshadow.report.formats import number
from noshadow.results import MeasuredRate, ModelRisk, TnrCurve

Point = tuple[float, float]
_BINS = 48
_TINY_SHARE = 0.01
_STRAY_DECADES = 2
_MOST_DECADES = 10
_EMPTY_AXIS = (-1, 0)


@dataclass(frozen=True)
class Frame:
    """A drawing and the rectangle in it that holds the data."""

    name: str
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    tiny_bin: int
    tiny_gap: int


WIDE = Frame("wide", width=920, height=340, left=64, right=898, top=34, bottom=286, tiny_bin=48, tiny_gap=20)
NARROW = Frame("narrow", width=340, height=300, left=56, right=326, top=34, bottom=246, tiny_bin=30, tiny_gap=18)


@dataclass(frozen=True, eq=False)
class LossBins:
    """Shares of each split over bins of equal width in log₁₀ loss.

    Attributes:
        low, high: whole exponents, the ends of the axis.
        shares: split → (bins,) share of the split's records in each bin.
        tiny: split → share of losses that are zero or below 10^low; empty when there are none.
        tiny_label: what those are.
        undrawn: losses that are not finite.
    """

    low: int
    high: int
    shares: dict[str, Array]
    tiny: dict[str, float]
    tiny_label: str
    undrawn: int


def loss_bins(members: Array, nonmembers: Array, threshold: float | None) -> LossBins:
    """Bins shared by both splits.

    The axis starts at the decade of the smallest positive loss. It starts higher where the lowest
    hundredth of the losses strays over more than two decades, or all over more than ten, yet never
    above the threshold; zeros and what lies below share one bin. With a threshold of zero that bin
    holds the zeros alone, and the threshold is its right edge.
    """
    splits = {name: losses for name, losses in (("members", members), ("nonmembers", nonmembers)) if len(losses)}
    pooled = np.concatenate([members, nonmembers])
    positive = pooled[np.isfinite(pooled) & (pooled > 0)]
    low, high = _decades(np.log10(positive), threshold) if len(positive) else _EMPTY_AXIS
    per_decade = max(1, round(_BINS / (high - low)))
    shares, tiny, below = {}, {}, np.empty(0)
    for name, losses in splits.items():
        finite = losses[np.isfinite(losses)]
        with np.errstate(divide="ignore"):
            exponents = np.log10(np.maximum(finite, 0.0))
        drawn = exponents[exponents >= low]
        places = np.minimum(((drawn - low) * per_decade).astype(np.int64), (high - low) * per_decade - 1)
        shares[name] = np.bincount(places, minlength=(high - low) * per_decade) / len(losses)
        tiny[name] = float((exponents < low).sum() / len(losses))
        below = np.concatenate([below, finite[exponents < low]])
    return LossBins(
        low=low,
        high=high,
        shares=shares,
        tiny=tiny if len(below) else {},
        tiny_label=f"<{decade_label(low, plain=plain_axis(low, high))}" if (below > 0).any() else "0",
        undrawn=int((~np.isfinite(pooled)).sum()),
    )


def _decades(exponents: Array, threshold: float | None) -> tuple[int, int]:
    lowest, highest = math.floor(exponents.min()), math.ceil(exponents.max())
    start = math.floor(np.quantile(exponents, _TINY_SHARE, method="lower"))
    start = max(lowest if lowest >= start - _STRAY_DECADES else start, highest - _MOST_DECADES)
    if threshold is not None:
        start = min(start, math.floor(math.log10(threshold))) if threshold > 0 else lowest
    return start, max(highest, start + 1)


def loss_chart(bins: LossBins, threshold: float | None, frame: Frame) -> dict[str, Any]:
    """Outlines of both histograms, axes and the mark of the threshold in one drawing."""
    gutter, gap = (frame.tiny_bin, frame.tiny_gap) if bins.tiny else (0, 0)
    start = frame.left + gutter + gap
    scale = LogScale(bins.low, bins.high, start, frame.right)
    tallest = max([0.0, *(float(s.max()) for s in bins.shares.values()), *bins.tiny.values()])
    ticks = level_ticks(tallest, frame)
    return drawing(frame) | {
        "y_ticks": ticks,
        "x_ticks": decade_ticks(scale, 100 if frame is WIDE else 46),
        "axis_start": start,
        "splits": [{"name": name, "outline": outline(s, scale, ticks[-1]["value"], frame)} for name, s in bins.shares.items()],
        "tiny": _tiny_bars(bins, ticks[-1]["value"], gutter, frame),
        "tiny_label": bins.tiny_label,
        "tiny_middle": frame.left + gutter / 2,
        "tiny_stop": frame.left + gutter,
        "threshold": None if threshold is None else _mark(scale.at(threshold) if threshold > 0 else start - gap / 2, threshold, frame),
    }


def outline(shares: Array, scale: LogScale, top: float, frame: Frame) -> list[Point]:
    """The steps of one histogram, from the base line and back to it."""
    edges = np.linspace(scale.start, scale.stop, len(shares) + 1)
    heights = [height(float(share), top, frame) for share in shares]
    points: list[Point] = [(round(float(edges[0]), 2), float(frame.bottom))]
    for top_edge, left, right in zip(heights, edges[:-1], edges[1:], strict=True):
        points += [(round(float(left), 2), top_edge), (round(float(right), 2), top_edge)]
    return [*points, (round(float(edges[-1]), 2), float(frame.bottom))]


def _tiny_bars(bins: LossBins, top: float, gutter: int, frame: Frame) -> list[dict[str, Any]]:
    wide = gutter / 2 - 3
    bars = []
    for place, (name, share) in enumerate(bins.tiny.items()):
        y = height(share, top, frame)
        bars.append({"name": name, "x": frame.left + 2 + place * (wide + 2), "y": y, "width": wide, "height": round(frame.bottom - y, 2)})
    return bars


def _mark(x: float, threshold: float, frame: Frame) -> dict[str, Any]:
    anchor = "start" if x < (frame.left + frame.right) / 2 else "end"
    return {"x": x, "label": number(threshold), "anchor": anchor, "label_x": x + (-6 if anchor == "start" else 6)}


def curve_chart(risk: ModelRisk, frame: Frame, measured: Sequence[MeasuredRate] = ()) -> dict[str, Any]:
    """TNR over levels with its band, the line of a guess and the level in question, in one drawing.

    Beside them, where there are any: rates extrapolated below what the members resolve, the
    predicted rate of an attack at the level in question, and the rates that the attack reached.
    """
    curve, beyond = risk.curve, risk.extrapolated
    marks = _rate_marks(risk, measured)
    ends = [*curve.levels, risk.fpr, *(() if beyond is None else beyond.levels), *(mark[0] for mark in marks["measured"])]
    low, high = math.log10(min(ends)), math.log10(max(ends))
    scale = LogScale(low, high, frame.left, frame.right) if high - low > 1e-9 else LogScale(low - 1, high + 0.1, frame.left, frame.right)
    rates = [
        *curve.high,
        *curve.tnr,
        *(() if beyond is None else beyond.high),
        *(rate for many in marks.values() for m in many for rate in m[1:]),
    ]
    ticks = level_ticks(max(*rates, risk.tnr_interval[1], 10**scale.high), frame)
    top = ticks[-1]["value"]

    def place(level: float, rate: float) -> Point:
        return scale.at(level), height(rate, top, frame)

    guesses = np.geomspace(10**scale.low, 10**scale.high, 41).tolist()

    def line(drawn: TnrCurve, name: str) -> list[Point]:
        return [place(level, rate) for level, rate in zip(drawn.levels, getattr(drawn, name), strict=True)]

    return drawing(frame) | {
        "y_ticks": ticks,
        "x_ticks": decade_ticks(scale, 60 if frame is WIDE else 40),
        "axis_start": frame.left,
        "line": line(curve, "tnr"),
        "band": line(curve, "high") + line(curve, "low")[::-1],
        "beyond": None if beyond is None else {"line": line(beyond, "tnr"), "band": line(beyond, "high") + line(beyond, "low")[::-1]},
        "marks": {
            name: [{"at": place(m[0], m[1]), "ends": [place(m[0], m[2]), place(m[0], m[3])]} for m in many] for name, many in marks.items()
        },
        "guess": [place(level, level) for level in guesses],
        "chosen": {"at": place(risk.fpr, risk.tnr), "ends": [place(risk.fpr, end) for end in risk.tnr_interval]},
    }


def _rate_marks(risk: ModelRisk, measured: Sequence[MeasuredRate]) -> dict[str, list[tuple[float, float, float, float]]]:
    """Level, rate and both ends of what is predicted and of what was measured."""
    low, high = risk.predicted_tpr_interval or (risk.predicted_tpr, risk.predicted_tpr)
    predicted = [] if risk.predicted_tpr is None or low is None or high is None else [(risk.fpr, risk.predicted_tpr, low, high)]
    return {"predicted": predicted, "measured": [(rate.fpr, rate.tpr, rate.low, rate.high) for rate in measured]}


def drawing(frame: Frame) -> dict[str, Any]:
    """The frame's numbers for the templates, with the middles of its axes."""
    names = ("name", "width", "height", "left", "right", "top", "bottom")
    middles = {"x_middle": (frame.left + frame.right) / 2, "y_middle": (frame.top + frame.bottom) / 2}
    return {name: getattr(frame, name) for name in names} | middles


def height(share: float, top: float, frame: Frame) -> float:
    """Position of a share on a linear axis from 0 to `top`."""
    return round(frame.bottom - share / top * (frame.bottom - frame.top), 2)


def level_ticks(largest: float, frame: Frame, *, intervals: int = 5) -> list[dict[str, Any]]:
    """Ticks of a linear axis from zero to the first round number that covers `largest`."""
    rough = max(largest, 1e-9) / intervals
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * (1 - 1e-9))
    count = math.ceil(largest / step - 1e-9) or 1
    values = [float(f"{step * k:.12g}") for k in range(count + 1)]
    return [{"value": value, "y": height(value, values[-1], frame), "label": number(value)} for value in values]

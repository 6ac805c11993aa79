"""Turn the charts of a leave-one-out audit into plain numbers, which templates turn into SVG.

The charts are the leak map, distributions and comparisons.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from noshadow._glance import LogScale, decade_ticks
from noshadow.checks import Array
from noshadow.report.charts import NARROW, WIDE, Frame, drawing, level_ticks, outline
from noshadow.report.formats import number

SQUARE = Frame("map", width=560, height=448, left=52, right=546, top=14, bottom=400, tiny_bin=0, tiny_gap=0)
STEPS = 6
MOST_POINTS = 3000
_ALWAYS = 500
_LOWEST_SHARE = 0.01
_AUC_BINS = 25
_MARGIN = 0.04


def leak_map(x: Array, y: Array, kl: Array, ids: Sequence[str], *, named: int) -> dict[str, Any]:
    """Records in a plane, coloured in steps of equal width in log kl, the riskiest on top.

    Of many records the riskiest 500 are drawn, and every k-th of the others by rank. The riskiest
    `named` carry their ids.
    """
    order = np.argsort(-kl, kind="stable")
    rest = order[_ALWAYS:]
    chosen = (
        order if len(order) <= MOST_POINTS else np.concatenate([order[:_ALWAYS], rest[:: math.ceil(len(rest) / (MOST_POINTS - _ALWAYS))]])
    )
    edges = _step_edges(kl)
    step = np.searchsorted(edges[1:-1], kl, side="right")
    place_x, place_y = _linear(x, SQUARE.left, SQUARE.right), _linear(y, SQUARE.bottom, SQUARE.top)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    points = [
        {
            "x": place_x(float(x[i])),
            "y": place_y(float(y[i])),
            "step": int(step[i]),
            "rank": int(rank[i]) if rank[i] <= named else 0,
            "id": ids[i] if rank[i] <= named else "",
            "kl": number(float(kl[i])),
        }
        for i in chosen[::-1]
    ]
    ranges = [(number(float(low)), number(float(high))) for low, high in itertools.pairwise(edges)]
    return drawing(SQUARE) | {"points": points, "ranges": ranges, "drawn": number(len(points)), "all": len(points) == len(kl)}


def _step_edges(kl: Array) -> Array:
    """Compute the edges of the colour steps.

    They have equal ratios from the lowest hundredth to the largest kl, and the first step reaches
    down to the smallest kl.
    """
    positive = kl[kl > 0]
    if not len(positive) or positive.min() == kl.max():
        return np.array([kl.min(), kl.max()])
    low = float(np.quantile(positive, _LOWEST_SHARE))
    edges = np.geomspace(low if low < kl.max() else positive.min(), kl.max(), STEPS + 1)
    edges[0] = min(kl.min(), edges[0])
    return edges


def _linear(values: Array, start: float, stop: float) -> Any:
    """Place values on an axis with a margin at both ends.

    They stand in the middle when all are equal.
    """
    low, high = float(values.min()), float(values.max())
    room = (high - low) * _MARGIN or 1.0

    def at(value: float) -> float:
        return round(start + (value - low + room) / (high - low + 2 * room) * (stop - start), 2)

    return at


def auc_chart(auc: Array, frame: Frame) -> dict[str, Any]:
    """Histogram of the attack's AUC between ½ and 1."""
    places = np.minimum(((auc - 0.5) * 2 * _AUC_BINS).astype(np.int64), _AUC_BINS - 1)
    shares = np.bincount(np.maximum(places, 0), minlength=_AUC_BINS) / len(auc)
    ticks = level_ticks(float(shares.max()), frame)
    # linear here: positions of numbers, not of their powers
    scale = LogScale(0.5, 1.0, frame.left, frame.right)
    labels = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    return drawing(frame) | {
        "y_ticks": ticks,
        "x_ticks": [{"x": scale.at_exponent(value), "label": number(value)} for value in labels],
        "axis_start": frame.left,
        "outline": outline(shares, scale, ticks[-1]["value"], frame),
    }


def scatter_chart(kl: Array, score: Array, frame: Frame = SQUARE) -> dict[str, Any] | None:
    """Draw kl against another score; None when nothing can be drawn.

    An axis is logarithmic where all of a score is positive, and linear otherwise.
    """
    usable = np.isfinite(kl) & np.isfinite(score) & (kl > 0)
    kl, score = kl[usable], score[usable]
    if not len(kl):
        return None
    every = math.ceil(len(kl) / MOST_POINTS)
    log = bool((score > 0).all())
    at_x, x_ticks = _log_axis(kl, frame.left, frame.right, 60)
    at_y, y_marks = _log_axis(score, frame.bottom, frame.top, 50) if log else _linear_axis(score, frame)
    return drawing(frame) | {
        "x_ticks": [{"x": x, "label": label} for x, label in x_ticks],
        "y_ticks": [{"y": y, "label": label} for y, label in y_marks],
        "axis_start": frame.left,
        "points": [(at_x(float(a)), at_y(float(b))) for a, b in zip(kl[::every], score[::every], strict=True)],
        "log": log,
        "undrawn": int((~usable).sum()),
        "thinned": every > 1,
    }


def scatter_charts(kl: Array, score: Array) -> list[dict[str, Any]]:
    """The same for wide and for narrow screens; empty when nothing can be drawn."""
    return [
        chart | {"name": screen} for screen, frame in (("wide", SQUARE), ("narrow", NARROW)) if (chart := scatter_chart(kl, score, frame))
    ]


def _log_axis(values: Array, start: float, stop: float, spacing: float) -> tuple[Any, list[tuple[float, str]]]:
    """A map from positive values to positions, and ticks as (position, label)."""
    low, high = math.log10(float(values.min())), math.log10(float(values.max()))
    room = max((high - low) * _MARGIN, 0.05)
    scale = LogScale(low - room, high + room, start, stop)
    ticks = decade_ticks(LogScale(scale.low, scale.high, 0, abs(stop - start)), spacing)
    sign = 1 if stop > start else -1
    return scale.at, [(round(start + sign * tick["x"], 2), tick["label"]) for tick in ticks]


def _linear_axis(values: Array, frame: Frame) -> tuple[Any, list[tuple[float, str]]]:
    at = _linear(values, frame.bottom, frame.top)
    low, high = float(values.min()), float(values.max())
    if low == high:
        return at, [(at(low), number(low))]
    unit = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= (high - low) / 5)
    return at, [(at(k * step), number(float(f"{k * step:.12g}"))) for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def sweep_chart(rows: Sequence[dict[str, Any]], quantity: str, frame: Frame) -> dict[str, Any] | None:
    """Draw a quantity over depth on a logarithmic axis, with one line per activation.

    The result is None when no value is positive.
    """
    held = [row for row in rows if row[quantity] is not None and row[quantity] > 0]
    if not held:
        return None
    depths = sorted({int(row["depth"]) for row in rows})
    # linear: positions of depths
    scale = LogScale(depths[0], max(depths[-1], depths[0] + 1), frame.left + 10, frame.right - 10)
    at_y, marks = _log_axis(np.array([row[quantity] for row in held]), frame.bottom, frame.top, 40)
    names = list(dict.fromkeys(row["activation"] for row in rows))
    every = math.ceil(len(depths) / (20 if frame is WIDE else 10))
    return drawing(frame) | {
        "x_ticks": [{"x": scale.at_exponent(depth), "label": str(depth)} for depth in depths[::every]],
        "y_ticks": [{"y": y, "label": label} for y, label in marks],
        "axis_start": frame.left,
        "lines": [
            {
                "name": name,
                "points": [(scale.at_exponent(row["depth"]), at_y(row[quantity])) for row in held if row["activation"] == name],
                "place": place,
            }
            for place, name in enumerate(names)
        ],
    }

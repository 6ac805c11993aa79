"""Charts of docs/calibration.md: [TAIL]'s Figures 3, 4 and 8 on our setups, as SVG from benchmarks/results/tail_published.json."""

import re

import numpy as np
from matplotlib.lines import Line2D
from pictures import COLOURS, POINTS, finish, legend_below, panels, svg

from noshadow.tail.forms import fitted_coefficients

OVERFIT = 0.9
GROUPS = ("train accuracy above 0.9, clean labels", "below 0.9, clean labels", "random labels")
MEASURES = {
    "tnr": "TNR at FNR 0.001",
    "auc_excess": "2 AUC − 1",
    "accuracy_gap": "accuracy gap",
    "lt_iqr_excess": "LT-IQR, 2 AUC − 1",
    "rmia": "RMIA, two references",
}
AT_RATE = {("tnr", "0.01"): "tnr_0.01", ("rmia", "0.01"): "rmia_0.01"}


def tail_pictures(found):
    """Text of each chart by its file's name."""
    return {"figure3.svg": _figure3(found), "figure4.svg": _figure4(found), "figure8.svg": _figure8(found)}


def group(point):
    if point["label_noise"] > 0:
        return 2
    return 0 if point["member_accuracy"] > OVERFIT else 1


def _scatter(axes, points, x, y):
    for number in range(len(GROUPS)):
        own = [point for point in points if group(point) == number and point[x] is not None and point[y] is not None]
        axes.plot([point[x] for point in own], [point[y] for point in own], color=COLOURS[number], **POINTS)


def _line(axes, slope, end, **how):
    axes.plot([0, end], [0, slope * end], **{"color": COLOURS[4], "linewidth": 1.2} | how)


def _figure3(found):
    figure, (axes,) = panels(["LiRA with 64 references against TNR"], ["x"])
    figure.legends.clear()
    row = found["slopes"]["record"]["64"]
    end = max(point["tnr"] for point in found["points"])
    axes.fill_between([0, end], [0, row["interval"][0] * end], [0, row["interval"][1] * end], color=COLOURS[4], alpha=0.15, linewidth=0)
    _line(axes, row["slope"], end)
    a, b = found["table2"]["train accuracy above 0.9, clean labels"]["exponential"]["coefficients"]
    x = np.linspace(0, end, 40)
    axes.plot(x, a * np.expm1(b * x), color=COLOURS[0], linewidth=1.2, linestyle="--")
    _scatter(axes, found["points"], "tnr", "lira_record_0.001")
    finish(axes, "TNR at FNR 0.001", "TPR at FPR 0.001", x_ends=(0, 0.8), y_ends=(0, 0.5))
    return svg(
        _keyed(figure, ("> 0.9, clean", "< 0.9", "noise")),
        "LiRA's rate against TNR on the calibration's setups, with the line through the origin",
    )


def _figure4(found):
    figure, (left, right) = panels(["Lines over TNR, one spread for all records", "Slope over K"], ["x"])
    figure.legends.clear()
    slopes, end = found["slopes"], max(point["tnr"] for point in found["points"])
    counts = list(slopes["global"])
    for number, count in enumerate(counts):
        name = "lira_global_0.001" if count == "64" else f"lira_k{count}_0.001"
        own = {**POINTS, "markersize": 3}
        left.plot([p["tnr"] for p in found["points"]], [p[name] for p in found["points"]], color=COLOURS[number % len(COLOURS)], **own)
        _line(left, slopes["global"][count]["slope"], end, color=COLOURS[number % len(COLOURS)])
    finish(left, "TNR at FNR 0.001", "TPR at FPR 0.001", x_ends=(0, 0.8), y_ends=(0, 0.4))
    for rule, mark, colour in (("global", "o", COLOURS[4]), ("record", "s", COLOURS[5])):
        rows = slopes[rule]
        x, y = [np.log2(int(count)) for count in rows], [row["slope"] for row in rows.values()]
        ends = [[row["slope"] - row["interval"][0] for row in rows.values()], [row["interval"][1] - row["slope"] for row in rows.values()]]
        right.errorbar(x, y, yerr=ends, color=colour, marker=mark, markersize=5, linewidth=1.2)
    finish(right, "references K", "slope", x_ends=(1.7, 6.3), y_ends=(0, 0.65))
    right.set_xticks([np.log2(int(count)) for count in counts], counts)
    handles = [Line2D([], [], color=COLOURS[k % len(COLOURS)], label=f"K = {count}") for k, count in enumerate(counts)]
    handles.append(Line2D([], [], color=COLOURS[5], marker="s", linestyle="none", label="own spread"))
    legend_below(figure, handles)
    return svg(figure, "Lines from TNR to LiRA's rate for each number of references, and their slopes")


def _figure8(found):
    shown = [(measure, fpr) for measure in MEASURES for fpr in found["by_rate"]]
    titles = [f"LiRA at {fpr} against {re.split(', | at ', MEASURES[measure])[0]}" for measure, fpr in shown]
    figure, drawn = panels(titles, ["x"], across=len(found["by_rate"]))
    figure.legends.clear()
    for axes, (measure, fpr) in zip(drawn, shown, strict=True):
        x, y = AT_RATE.get((measure, fpr), measure), f"lira_record_{fpr}"
        _line(axes, through_the_origin(found["points"], x, y), max(point[x] for point in found["points"]))
        _scatter(axes, found["points"], x, y)
        finish(axes, MEASURES[measure].replace("0.001", fpr if x == "tnr_0.01" else "0.001"), f"TPR at FPR {fpr}")
    return svg(_keyed(figure, GROUPS), "LiRA's rate at three false-positive rates against five measures")


def through_the_origin(points, x, y):
    """Slope of the line over the setups that have both; negative measures count as 0, as in the tables."""
    both = np.array([(point[x], point[y]) for point in points if point[x] is not None and point[y] is not None])
    return fitted_coefficients("linear", both[:, :1], both[:, 1], np.ones(len(both)))[0]


def _keyed(figure, names):
    legend_below(figure, [Line2D([], [], color=COLOURS[k], marker="o", linestyle="none", label=name) for k, name in enumerate(names)])
    return figure

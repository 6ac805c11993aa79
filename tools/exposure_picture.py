"""Chart of docs/exposure.md: recall against trainings spent, as SVG from benchmarks/results/exposure."""

import math

from exposure_bars import RIVALS
from exposure_stored import COUNTS, mean, runs
from matplotlib.lines import Line2D
from pictures import COLOURS, finish, legend_below, panels, svg


def place(trainings):
    """Where a price stands on the axis: 0, 1, 2, 4, … are evenly spaced."""
    return math.log2(1 + trainings) if trainings <= 1 else 1 + math.log2(trainings)


def recall_picture():
    """Recall against trainings spent, a panel a setting; None until something is stored."""
    entries = runs()
    if not entries:
        return None
    figure, found = panels([entry["title"] for entry in entries.values()], ["x"])
    figure.legends.clear()
    lines = {"exposure": "exposure", "without checkpoint and trace": "exposure_final", "best of LiRA and RMIA": None}
    for axes, entry in zip(found, entries.values(), strict=True):
        for colour, base in zip(COLOURS, lines.values(), strict=False):
            counts = [k for k in COUNTS if f"exposure_{k}" in entry["methods"]]
            if base:
                values = [mean(entry, f"{base}_{k}") for k in counts]
            else:
                values = [max(mean(entry, f"{rival}_{k}") for rival in RIVALS) for k in counts]
            axes.plot([place(k) for k in counts], [100 * value for value in values], color=colour, marker="o", markersize=4)
        for name, mark in (("exposure", "s"), ("exposure_trace", "D"), ("exposure_short3", "^"), ("exposure_folds2", "v")):
            if name in entry["methods"]:
                at = place(entry["methods"][name]["trainings"])
                axes.plot([at], [100 * mean(entry, name)], color=COLOURS[3], marker=mark, markersize=6, linestyle="none")
        axes.axhline(100 * entry["second_lira"]["recall"]["mean"], color=COLOURS[4], linestyle="--", linewidth=1)
        finish(axes, "trainings spent", "recall, %", x_ends=(-0.3, 5.3), y_ends=(0, 104))
        axes.set_xticks([place(k) for k in (0, *COUNTS)], ["0", *map(str, COUNTS)])
    handles = [Line2D([], [], color=colour, label=name) for colour, name in zip(COLOURS, lines, strict=False)]
    points = (("s", "final weights"), ("D", "checkpoint, trace"), ("^", "3 short"), ("v", "2 folds"))
    handles += [Line2D([], [], color=COLOURS[3], marker=mark, linestyle="none", label=name) for mark, name in points]
    handles.append(Line2D([], [], color=COLOURS[4], linestyle="--", label="second LiRA"))
    legend_below(figure, handles)
    return svg(figure, "Recall of the riskiest records against trainings spent")

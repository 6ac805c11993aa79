"""Chart of the tools one would pick instead, recall against processor seconds, as SVG from benchmarks/results/papers_peers.json."""

import re

from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter
from matplotlib.transforms import Bbox
from pictures import COLOURS, POINTS, box, finish, legend_below, sheet, svg

WIDTH, HEIGHT = 900, 500
LEFT, RIGHT, TOP, BOTTOM = 60, 880, 34, 420
CHANCE = 0.05
# Lines do not cross a label.
BLANK = {"facecolor": "white", "edgecolor": "none", "pad": 0}
# Pixels from a point's middle to the edge of what its mark needs.
MARK = 6
# Where a label may stand, in pixels from its point: nearest first, right before left, above before below.
PLACES = [(side * (8 + 6 * far), rise) for far in range(8) for rise in (0, 13, -13, 26, -26, 39, -39, 52, -52) for side in (1, -1)]
FAMILIES = (
    ("noshadow", "noshadow audit", "o", 10),
    ("loss|gradient|ART|cleanlab", "one model, other scores", "s", 9),
    ("RMIA|LiRA", "RMIA and LiRA, number of references", "D", 8),
    ("SACRO", "SACRO-ML's LiRA, number of shadow models", "^", 11),
)
SHORT = (
    (r"noshadow audit: ", ""),
    (r"ART: SHAPr", "SHAPr (ART)"),
    (r"cleanlab: label quality", "cleanlab"),
    (r"LiRA's d′, (\d+) references?", r"d′, \1"),
    (r"(RMIA|LiRA), (\d+) references?", r"\1, \2"),
    (r"SACRO-ML: LiRA, (\d+) shadow models?, (\w+).*", r"SACRO-ML, \1, \2"),
)


def short(method):
    """The method's name as a label: tools by name, references by number."""
    for long, brief in SHORT:
        method = re.sub(long, brief, method)
    return method


def family(method):
    """Number of the method's family; every method has one."""
    return next(number for number, (start, *_) in enumerate(FAMILIES) if re.match(start, method))


def free_of(bounds, room, taken):
    return (
        room.containsx(bounds.x0)
        and room.containsx(bounds.x1 - MARK)
        and room.y0 < bounds.y0
        and bounds.y1 < room.y1
        and not bounds.count_overlaps(taken)
    )


def write_labels(axes, spots, taken):
    """Write (label, x, y) at the first place that is free of marks, of boxes `taken` and of the labels before it; far ones get a line."""
    renderer, room = axes.figure.canvas.get_renderer(), axes.bbox
    middles = axes.transData.transform([(x, y) for _, x, y in spots])
    taken = [*taken, *(Bbox.from_extents(*(at - MARK), *(at + MARK)) for at in middles)]
    for label, x, y in spots:
        note = axes.annotate(label, (x, y), PLACES[0], textcoords="offset pixels", va="center_baseline", bbox=BLANK)
        for place in (*PLACES, PLACES[0]):
            note.set(position=place, ha="left" if place[0] > 0 else "right")
            bounds = note.get_window_extent(renderer)
            if free_of(bounds, room, taken):
                break
        taken.append(bounds)
        if abs(place[0]) > 8 or abs(place[1]) > 13:
            axes.annotate(
                "", (x, y), place, textcoords="offset pixels", arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.8}
            )


def write_levels(axes, levels):
    """Dashed lines across, each with its name above it at the left edge; boxes of the names."""
    notes = []
    for name, level in levels.items():
        axes.axhline(level, color="#666666", linestyle=(0, (5, 4)), linewidth=1, zorder=1)
        notes.append(
            axes.annotate(name, (0, level), (6, 3), xycoords=("axes fraction", "data"), textcoords="offset pixels", color="#666666")
        )
    return [note.get_window_extent(axes.figure.canvas.get_renderer()) for note in notes]


def peers_picture(entry):
    """Recall of LiRA's top 1 % in each method's top 5 % over the processor seconds it takes, as the text of an SVG file."""
    rows, noise = entry["rows"], entry["ceiling"]["recall_1_5"]
    figure = sheet(WIDTH, HEIGHT)
    axes = box(figure, LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP)
    axes.set_title(entry["title"])
    handles, families = [], [family(row["method"]) for row in rows]
    for number, (_, name, marker, size) in enumerate(FAMILIES):
        own = [(row["processor"], row["recall_1_5"]) for row, held in zip(rows, families, strict=True) if held == number]
        style = POINTS | {"color": COLOURS[number], "marker": marker, "markersize": size, "alpha": 0.85, "label": name}
        axes.plot([x for x, _ in own], [y for _, y in own], gid=f"family-{number}", **style)
        handles.append(Line2D([], [], **style))
    top = min(1, 1.08 * max(noise, *(row["recall_1_5"] for row in rows)))
    finish(axes, "processor seconds beyond the trained model", "recall of LiRA's top 1 % in the top 5 %", log="x", y_ends=(0, top))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    taken = write_levels(axes, {"noise between halves of the truth": noise, "random order": CHANCE})
    write_labels(axes, [(short(row["method"]), row["processor"], row["recall_1_5"]) for row in rows], taken)
    legend_below(figure, handles)
    return svg(figure, "Recall of the records most at risk against processor seconds, a point a method")

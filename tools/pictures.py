"""What the charts of docs/ share: panels of one size, axes, the legend below, and a figure as the text of an SVG file."""

import io
import math
import re
import textwrap
from html import escape

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

COLOURS = ("#1f5fa8", "#c2571a", "#2f7d4f", "#8a3f8f", "#6b6b6b", "#d1a400")
# From dark blue over grey to orange: told apart without red and green. Twenty steps: a colour bar of more is drawn as pixels.
RAMP = LinearSegmentedColormap.from_list("ramp", ("#1f5fa8", "#bebebe", "#c2571a"), N=20)
# Pixels: a panel, its margins, a line of the legend, a colour bar with its ticks. A figure has 72 dots an inch, so that a unit of its SVG is a pixel.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300, 250, 52, 12, 34, 44
LEGEND, BAR = 22, 70
DOTS = 72
PANELS_A_ROW, LETTERS_A_TITLE = 4, 38
# Text stays text, the background is white on dark pages too, and ids do not differ from run to run.
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "noshadow",
    "figure.dpi": DOTS,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "text.color": "#222222",
    "axes.prop_cycle": matplotlib.cycler(color=COLOURS),
    "axes.edgecolor": "#dddddd",
    "axes.labelcolor": "#222222",
    "axes.labelsize": 11,
    "axes.labelpad": 3,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    # A place of its own: otherwise every label is measured to find one.
    "axes.titley": 1.0,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.xmargin": 0.04,
    "axes.ymargin": 0.04,
    "axes.unicode_minus": False,
    "grid.color": "#dddddd",
    "grid.linewidth": 1,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "xtick.labelcolor": "#222222",
    "ytick.labelcolor": "#222222",
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 6,
    "ytick.major.pad": 5,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "legend.handlelength": 1.2,
}
FONT, INK = "font-size: 11px; font-family: 'DejaVu Sans', sans-serif; ", "; fill: #222222"
STYLED = re.compile(r' style="[^"]*"')
POINTS = {"linestyle": "none", "marker": "o", "markersize": 4, "markeredgewidth": 0, "alpha": 0.55, "clip_on": False}


def sheet(width, height):
    """An empty figure of so many pixels; a matplotlibrc of the machine is not read."""
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(STYLE)
    figure = Figure(figsize=(width / DOTS, height / DOTS))
    # Measures texts; the file is written by the SVG backend.
    FigureCanvasAgg(figure)
    return figure


def box(figure, left, top, width, height):
    """Axes at pixels from the upper left corner."""
    across, down = (side * DOTS for side in figure.get_size_inches())
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def panels(titles, names=(), bar=False, across=PANELS_A_ROW):
    """A figure with a panel a title, `across` a row, one legend of the names below or room for a colour bar at the right; its axes."""
    columns, rows = min(len(titles), across), -(-len(titles) // across)
    figure = sheet(WIDTH * columns, HEIGHT * rows + (LEGEND if names else 0))
    width = WIDTH - (BAR / columns if bar else 0)
    found = []
    for number, title in enumerate(titles):
        row, column = divmod(number, across)
        axes = box(figure, width * column + LEFT, HEIGHT * row + TOP, width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM)
        axes.set_title(textwrap.fill(title, LETTERS_A_TITLE), linespacing=1.1)
        found.append(axes)
    if names:
        handles = [Line2D([], [], color=COLOURS[k % len(COLOURS)], linewidth=8, label=name) for k, name in enumerate(names)]
        legend_below(figure, handles)
    return figure, found


def legend_below(figure, handles):
    at = LEFT / (figure.get_figwidth() * DOTS)
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(at, 0), ncols=len(handles), borderaxespad=0.3, borderpad=0, columnspacing=1.5
    )


def short_number(value, _=None):
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e") if value and not 1e-3 <= abs(value) <= 1e4 else f"{value:g}"


def finish(axes, x, y, *, log="", x_ends=None, y_ends=None):
    """Names, ends and ticks of both axes, after drawing; `log` has the letters of axes that run from a power of ten to a power of ten."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    for letter, axis, ends, least, most in zip(
        "xy", (axes.xaxis, axes.yaxis), (x_ends, y_ends), axes.dataLim.minpos, axes.dataLim.max, strict=True
    ):
        if letter in log:
            # What is not positive is left out.
            getattr(axes, f"set_{letter}scale")("log", nonpositive="mask")
            ends = ends or (10 ** math.floor(math.log10(least)), 10 ** math.ceil(math.log10(most)))
        if ends:
            axes.set(**{f"{letter}lim": ends})
        axis.set_major_locator(LogLocator(numticks=7) if letter in log else MaxNLocator(6, steps=[1, 2, 5, 10]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(short_number))


def colour_bar(figure, drawn, name, **options):
    """What the colours of `drawn` mean, at the right of the figure."""
    left = figure.get_figwidth() * DOTS - BAR + 10
    bar = figure.colorbar(drawn, cax=box(figure, left, TOP, 10, HEIGHT - TOP - BOTTOM), **options)
    bar.outline.set_visible(False)
    # No seams between the steps.
    bar.solids.set_edgecolor("face")
    bar.set_label(name)
    return bar


def svg(figure, description):
    """The figure as the text of an SVG file: the same bytes from the same data, numbers to a tenth of a pixel, nothing said twice."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Title": description, "Date": None, "Creator": None, "Format": None, "Type": None})
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", file.getvalue(), flags=re.DOTALL)
    # Names made of a digest of floats would differ with their last digit.
    names = {name: f"s{number}" for number, name in enumerate(re.findall(r' id="([^"]*[0-9a-f]{10})"', text))}
    text = re.sub(r'(?<=[#"])\w*[0-9a-f]{10}(?=[")])', lambda found: names.get(found[0], found[0]), text)
    text = re.sub(r' transform="rotate\(-0 [^"]*"| id="[a-z0-9.]+_\d+"', "", text)
    text = text.replace(FONT, "").replace(INK, "").replace("</style>", f" text{{{FONT}{INK[2:]}}}</style>", 1)
    text = re.sub(r'( (?:d|x|y|transform)=")([^"]*)', lambda found: found[1] + tenths(found[2]), text)
    text = re.sub(r'<g( clip-path="[^"]*")?>((?:\s*<use [^>]*/>)+)', style_of_all, text)
    text = re.sub(
        r"<svg ([^>]*?)>", lambda head: f'<svg role="img" aria-label="{escape(description)}" {head[1].replace("pt", "")}>', text, count=1
    )
    return re.sub(r"\n +", "\n", re.sub(r"\n *<g/>", "", text))


def tenths(text):
    return re.sub(r"-?\d+\.\d+", lambda found: f"{round(float(found[0]), 1) + 0.0:g}", re.sub(r"\s+", " ", text.strip()))


def style_of_all(marks):
    """Marks of one style, with the style at their group."""
    clip, inside = marks.groups("")
    styles = set(STYLED.findall(inside))
    return f"<g{clip}{styles.pop()}>{STYLED.sub('', inside)}" if len(styles) == 1 else marks[0]

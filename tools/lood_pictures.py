"""Charts of docs/lood.md as SVG, made from benchmarks/results/lood_figures.json by tools/render_benchmarks.py."""

import math
from dataclasses import dataclass
from html import escape

COLOURS = ("#1f5fa8", "#c2571a", "#2f7d4f", "#8a3f8f", "#6b6b6b", "#d1a400")
WIDTH, HEIGHT = 300, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 288, 30, 206
LABELLED_DECADES = 6


@dataclass(frozen=True)
class Series:
    """One named line or cloud of points in a panel; a band between two lists of values is shaded, on linear axes."""

    name: str
    x: list
    y: list
    points: bool = False
    band: tuple | None = None


@dataclass(frozen=True)
class Axis:
    """Ends, ticks and label of an axis; positions are logarithms when `log`; names stand at 1, 2, …"""

    label: str
    log: bool = False
    ends: tuple | None = None
    names: tuple = ()


def place(value, ends, start, stop, log):
    low, high, at = (math.log10(v) for v in (*ends, value)) if log else (*ends, value)
    return round(start + (at - low) / ((high - low) or 1) * (stop - start), 1)


def ends_of(values, axis):
    if axis.ends:
        return axis.ends
    low, high = min(values), max(values)
    if axis.log:
        return 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
    margin = 0.04 * (high - low) or 1.0
    return low - margin, high + margin


def ticks(ends, axis):
    if axis.names:
        return range(1, len(axis.names) + 1)
    if axis.log:
        low, high = round(math.log10(ends[0])), round(math.log10(ends[1]))
        every = max(1, math.ceil((high - low) / LABELLED_DECADES))
        return [10.0**k for k in range(low, high + 1, every)]
    step = 10 ** math.floor(math.log10(ends[1] - ends[0]))
    step *= next(f for f in (0.2, 0.5, 1, 2) if (ends[1] - ends[0]) / (f * step) <= 6)
    return [k * step for k in range(math.ceil(ends[0] / step - 1e-9), math.floor(ends[1] / step + 1e-9) + 1)]


def tick_text(value, axis):
    if axis.names:
        return axis.names[value - 1]
    if axis.log and not 1e-3 <= value <= 1e4:
        return f"1e{round(math.log10(value))}"
    return f"{round(value, 10):g}"


def panel(title, x_axis, y_axis, series, left):
    """One chart as SVG elements, `left` pixels from the picture's edge."""
    shown = [
        Series(s.name, *map(list, zip(*pairs, strict=True)), s.points, s.band)
        for s in series
        if (pairs := [(a, b) for a, b in zip(s.x, s.y, strict=True) if (a > 0 or not x_axis.log) and (b > 0 or not y_axis.log)])
    ]
    x_ends = ends_of([v for s in shown for v in s.x], x_axis)
    y_ends = ends_of([v for s in shown for v in s.y], y_axis)
    parts = [f'<g transform="translate({left} 0)">', f'<text x="{LEFT}" y="18" class="t">{escape(title)}</text>']
    for value in ticks(x_ends, x_axis):
        at = place(value, x_ends, LEFT, RIGHT, x_axis.log)
        parts.append(
            f'<path d="M{at} {TOP}V{BOTTOM}" class="g"/><text x="{at}" y="{BOTTOM + 14}" class="m">{tick_text(value, x_axis)}</text>'
        )
    for value in ticks(y_ends, y_axis):
        at = place(value, y_ends, BOTTOM, TOP, y_axis.log)
        parts.append(
            f'<path d="M{LEFT} {at}H{RIGHT}" class="g"/><text x="{LEFT - 5}" y="{at + 4}" class="e">{tick_text(value, y_axis)}</text>'
        )
    for number, s in enumerate(shown):
        colour = COLOURS[number % len(COLOURS)]
        spots = [
            (place(a, x_ends, LEFT, RIGHT, x_axis.log), place(b, y_ends, BOTTOM, TOP, y_axis.log)) for a, b in zip(s.x, s.y, strict=True)
        ]
        if s.band:
            edge = [*zip(s.x, s.band[0], strict=True), *reversed(list(zip(s.x, s.band[1], strict=True)))]
            corners = " ".join(f"{place(a, x_ends, LEFT, RIGHT, False)},{place(b, y_ends, BOTTOM, TOP, False)}" for a, b in edge)
            parts.append(f'<polygon points="{corners}" fill="{colour}" fill-opacity=".18"/>')
        if s.points:
            parts += [f'<circle cx="{a}" cy="{b}" r="2" fill="{colour}" fill-opacity=".55"/>' for a, b in spots]
        else:
            parts.append(f'<polyline points="{" ".join(f"{a},{b}" for a, b in spots)}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    parts.append(f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 30}" class="m">{escape(x_axis.label)}</text>')
    parts.append(f'<text transform="translate(12 {(TOP + BOTTOM) / 2}) rotate(-90)" class="m">{escape(y_axis.label)}</text></g>')
    return parts


def picture(description, panels, names=()):
    """Panels beside each other with one legend below, as the text of an SVG file."""
    width, height = WIDTH * len(panels), HEIGHT + (22 if names else 0)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(description)}">'
        "<style>text{font:11px sans-serif;fill:#222}.t{font-weight:600}.m{text-anchor:middle}.e{text-anchor:end}.g{stroke:#ddd}</style>"
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
    )
    parts = [line for number, arguments in enumerate(panels) for line in panel(*arguments, WIDTH * number)]
    at = LEFT
    for number, name in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(
            f'<rect x="{at}" y="{HEIGHT}" width="10" height="10" fill="{colour}"/><text x="{at + 15}" y="{HEIGHT + 9}">{escape(name)}</text>'
        )
        at += 34 + 6.4 * len(name)
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def trace_picture(entry):
    runs = [Series(f"start {k + 1}", list(range(len(run))), run) for k, run in enumerate(entry["traces"])]
    axes = Axis("step"), Axis("KL at the query over KL at the record", ends=(0, 1))
    return picture("KL over optimisation steps", [("Four random starts", *axes, runs)])


def gap_picture(entry):
    reached = sorted(cell["share_of_ceiling"] for cell in entry["cells"])
    cosines = [cell["cosine"] for cell in entry["cells"]]
    shares = [cell["share_of_ceiling"] for cell in entry["cells"]]
    panels = [
        (
            "Best of four starts, records sorted",
            Axis("records"),
            Axis("KL at the query over KL at the record", ends=(0, 1)),
            [Series("", list(range(1, len(reached) + 1)), reached, True)],
        ),
        (
            "Is it the record?",
            Axis("cosine of query and record"),
            Axis("KL at the query over KL at the record", ends=(0, 1)),
            [Series("", cosines, shares, True)],
        ),
    ]
    return picture("Leak at the optimised query as a share of the leak at the record", panels)


def perturbation_picture(entry):
    curves = [Series("", entry["sizes"], curve) for curve in entry["curves"]]
    axes = Axis("size of the perturbation (of 255)"), Axis("KL over KL at the record", ends=(0, 1))
    return picture("KL along a random direction through five records", [("Along random directions", *axes, curves)])


def attack_picture(entry):
    panels = []
    for kernel, found in entry["kernels"].items():
        for column, label in (("kl", "KL, nats"), ("mean_distance", "mean distance")):
            clouds = [Series(group, points[column], points["auc"], True) for group, points in found["points"].items()]
            panels.append((kernel, Axis(label, log=True), Axis("attack AUC", ends=(0.5, 1)), clouds))
    return picture("KL and mean distance against the attack's AUC", panels, ["images", "uniform noise"])


def activation_picture(entry):
    names = list(dict.fromkeys(row["activation"] for row in entry["rows"]))
    panels = []
    for title, case, column in (
        ("Same weights, fixed noise", "sphere", "fixed_kl"),
        ("Same weights, scaled noise", "sphere", "scaled_kl"),
        ("Variance kept at 1", "kept", "scaled_kl"),
    ):
        lines = []
        for name in names:
            rows = [row for row in entry["rows"] if (row["case"], row["activation"]) == (case, name)]
            lines.append(Series(name, [row["depth"] for row in rows], [row[column]["median"] for row in rows]))
        panels.append((title, Axis("depth"), Axis("median KL, nats"), lines))
    return picture("Median KL over depth for five activations", panels, names)


def sine_picture(entry):
    panels = []
    for row in entry["rows"]:
        lines = [
            Series(name, entry["grid"], [v / max(row[column]) for v in row[column]]) for name, column in (("", "mean_distance"), ("", "kl"))
        ]
        panels.append((f"Record {row['record']}: {row['at']:.2f}", Axis("query"), Axis("share of its largest value", ends=(0, 1)), lines))
    return picture("Mean distance and KL over queries on the sine data", panels, ["mean distance", "KL"])


def network_picture(entry):
    truth, estimates = entry["truth"], entry["estimates"]
    panels = [
        (
            "Attack on trained networks",
            Axis("KL of the process, nats", log=True),
            Axis("attack AUC"),
            [Series("", estimates["kl_0.1"], truth["auc"], True)],
        ),
        (
            "Prediction change",
            Axis("change of the process's mean"),
            Axis("change of the networks' mean"),
            [Series("", estimates["distance_0.1"], truth["prediction_change"], True)],
        ),
        (
            "TracIn",
            Axis("TracIn", log=True),
            Axis("change of the networks' mean"),
            [Series("", estimates["tracin"], truth["prediction_change"], True)],
        ),
        (
            "Influence",
            Axis("influence", log=True),
            Axis("change of the networks' mean"),
            [Series("", estimates["influence"], truth["prediction_change"], True)],
        ),
    ]
    return picture("What the process and two baselines say against what leave-one-out training shows", panels)


CHARTS = {
    "trace": trace_picture,
    "gap": gap_picture,
    "perturbations": perturbation_picture,
    "leak_and_attack": attack_picture,
    "activations": activation_picture,
    "sine": sine_picture,
    "networks_relu": network_picture,
    "networks_gelu": network_picture,
}


def lood_pictures(figures):
    """File name → text of every chart whose figures are stored."""
    return {f"{name}.svg": chart(figures[name]) for name, chart in CHARTS.items() if name in figures}

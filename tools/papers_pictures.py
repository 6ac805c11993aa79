"""Charts of docs/papers.md as SVG, from benchmarks/results/papers/*.json and papers_pictures.json, by tools/render_benchmarks.py."""

import json

import numpy as np
from lood_pictures import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, Series, panel, picture, place
from papers_stored import RUNS, runs

ATTACKS = {"lira_success": "LiRA", "rmia_success": "RMIA", "shokri_success": "Shokri"}
SHOWN = {"loss": "loss", "gradient_norm": "gradient norm", "newton": "Newton", "influence": "influence", "shift": "shift"}
WHOLE = {
    "loss": "loss",
    "influence": "influence",
    "network_influence": "influence, whole network",
    "shift": "shift",
    "network_shift": "shift, whole network",
}
A_ROW = 4
# From dark blue over grey to orange: told apart without red and green.
RAMP = ((31, 95, 168), (190, 190, 190), (194, 87, 26))
RATES = Axis("false-positive rate", ends=(0, 1)), Axis("false-negative rate", ends=(0, 1))


def stacked(description, rows, names=()):
    """Pictures of several rows of panels, one legend below."""
    heights, parts = HEIGHT, []
    width = max(WIDTH * max(map(len, rows)), round(LEFT + sum(34 + 6.4 * len(name) for name in names)))
    for number, panels in enumerate(rows):
        inner = [line for k, arguments in enumerate(panels) for line in panel(*arguments, WIDTH * k)]
        parts += [f'<g transform="translate(0 {heights * number})">', *inner, "</g>"]
    one = picture(description, [rows[0][0]], names)
    head, *_, tail = one.splitlines()
    # Lines of the one-panel picture after its panel are the legend.
    legend = [line for line in one.splitlines()[1:-1] if line.startswith('<rect x="')]
    height = heights * len(rows) + (22 if names else 0)
    head = head.replace(f'width="{WIDTH}"', f'width="{width}"').replace(f'viewBox="0 0 {WIDTH} ', f'viewBox="0 0 {width} ')
    old = HEIGHT + (22 if names else 0)
    head = head.replace(f'height="{old}"', f'height="{height}"').replace(f' {old}"', f' {height}"')
    return "\n".join([head, *parts, f'<g transform="translate(0 {height - old})">', *legend, "</g>", tail]) + "\n"


def rows_of(panels):
    return [panels[start : start + A_ROW] for start in range(0, len(panels), A_ROW)]


def recall_picture(entries, attack, chosen):
    """Recall of the top k in the top k over k, both axes logarithmic, with the random diagonal ([RET] Figures 2–5)."""
    axes = Axis("k", log=True, ends=(1e-3, 1)), Axis("recall", log=True, ends=(1e-3, 1))
    panels = []
    for entry in entries.values():
        curves = entry["curves"]
        found = curves["attacks"].get(attack, {})
        lines = [Series(label, curves["k"], found[name]["mean"]) for name, label in chosen.items() if name in found]
        if lines:
            panels.append((entry["title"], *axes, [*lines, Series("random", [1e-3, 1], [1e-3, 1])]))
    return stacked(f"Recall of the top k by {ATTACKS[attack]}", rows_of(panels), [*chosen.values(), "random"]) if panels else None


def colour(value):
    """Hex colour of a value in [0, 1]."""
    part, start = (value * 2, 0) if value < 0.5 else (value * 2 - 1, 1)
    mixed = [round(a + (b - a) * part) for a, b in zip(RAMP[start], RAMP[start + 1], strict=True)]
    return "#" + "".join(f"{c:02x}" for c in mixed)


def coloured(title, axes, ends, x, y, shade, left):
    """A panel of points coloured by a value in [0, 1]."""
    frame = panel(title, *(Axis(a.label, a.log, e) for a, e in zip(axes, ends, strict=True)), [], left)
    spots = [
        f'<circle cx="{place(a, ends[0], LEFT, RIGHT, axes[0].log)}" cy="{place(b, ends[1], BOTTOM, TOP, axes[1].log)}" r="1.8" fill="{colour(c)}"/>'
        for a, b, c in sorted(zip(x, y, shade, strict=True), key=lambda point: point[2])
    ]
    return [*frame[:-1], *spots, frame[-1]]


def scatter_picture(pictures, entries):
    """Loss and influence of one model's records, coloured by LiRA's success ([RET] Figure 7)."""
    titles = {name: entry["title"] for name, entry in entries.items() if "scatter" in pictures.get(name, {})}
    if not titles:
        return None
    axes, parts = (Axis("loss", log=True), Axis("influence", log=True)), []
    for number, (name, title) in enumerate(titles.items()):
        held = pictures[name]["scatter"]
        kept = [k for k in range(len(held["loss"])) if held["loss"][k] > 0 and held["influence"][k] > 0]
        x, y = ([held[column][k] for k in kept] for column in ("loss", "influence"))
        ends = [(10 ** np.floor(np.log10(np.quantile(v, 0.01))), 10 ** np.ceil(np.log10(max(v)))) for v in (x, y)]
        inside = [k for k in range(len(x)) if x[k] >= ends[0][0] and y[k] >= ends[1][0]]
        shade = [min(max(2 * held["lira_success"][kept[k]] - 1, 0), 1) for k in inside]
        row, column = divmod(number, A_ROW)
        drawn = coloured(title, axes, ends, [x[k] for k in inside], [y[k] for k in inside], shade, WIDTH * column)
        parts += [f'<g transform="translate(0 {HEIGHT * row})">', *drawn, "</g>"]
    return framed("Loss and influence coloured by the attack's success", parts, min(A_ROW, len(titles)), -(-len(titles) // A_ROW))


def framed(description, parts, columns, rows):
    """Drawn parts as the text of an SVG file."""
    head = picture(description, [("", Axis("", ends=(0, 1)), Axis("", ends=(0, 1)), [])]).splitlines()[0]
    wide = head.replace(f'width="{WIDTH}"', f'width="{WIDTH * columns}"').replace(f'height="{HEIGHT}"', f'height="{HEIGHT * rows}"')
    return "\n".join([wide.replace(f'"0 0 {WIDTH} {HEIGHT}"', f'"0 0 {WIDTH * columns} {HEIGHT * rows}"'), *parts, "</svg>"]) + "\n"


def theory_picture(found):
    """Expected gap over error and leverage, and trade-offs of the best attack ([RET] Figure 1)."""
    cells, top = len(found["side"]), max(map(max, found["gap"]))
    step_x, step_y = (RIGHT - LEFT) / cells, (BOTTOM - TOP) / cells
    heat = [
        f'<rect x="{LEFT + c * step_x:.1f}" y="{BOTTOM - (r + 1) * step_y:.1f}" width="{step_x + 0.3:.1f}" height="{step_y + 0.3:.1f}" fill="{colour(value / top)}"/>'
        for r, row in enumerate(found["gap"])
        for c, value in enumerate(row)
    ]
    ends = (0, found["side"][-1])
    frame = panel("Expected loss gap (blue: none, orange: most)", Axis("error ε", ends=ends), Axis("leverage h̄", ends=ends), [], 0)
    parts = [*frame[:-1], *heat, frame[-1]]
    for number, (title, lines) in enumerate(
        (("h̄ = 1, ε = 0, 1, 2, 4", found["by_error"]), ("ε = 1, h̄ = 0.5, 1, 4, 16", found["by_leverage"]))
    ):
        parts += panel(title, *RATES, [Series("", found["rates"], line) for line in lines], WIDTH * (number + 1))
    return framed("Gaussian theory: expected gap and trade-offs", parts, 3, 1)


def fixed_design_picture(found):
    """Trade-offs of the best test on the residual for five leverages ([GLS] Figure 5)."""
    lines = [Series("", found["rates"], line) for line in found["fixed_design"].values()]
    return picture("Fixed-design trade-offs", [("Fixed design, one output", *RATES, lines)], [f"h = {h}" for h in found["fixed_design"]])


def depth_picture():
    """Spearman with LiRA's score and with d′, and processor seconds by depth ([GLS] Figure 1)."""
    path = RUNS / "cifar10_residual.json"
    if not path.exists():
        return None
    entry = json.loads(path.read_text())
    depths = ("last", "2", "4", "all")
    places = list(range(1, len(depths) + 1))
    spread = {
        metric: [Series("", [at] * len(found[depth]), found[depth], True) for at, depth in zip(places, depths, strict=True)]
        for metric, found in entry["depths"].items()
    }
    axis = Axis("layers", ends=(0.5, len(depths) + 0.5), names=depths)
    panels = [
        ("Spearman with LiRA's score", axis, Axis("a point a target"), spread["lira_score"]),
        ("Spearman with LiRA's d′", axis, Axis("a point a target"), spread["d_prime"]),
        (
            "Cost of one model",
            axis,
            Axis("processor seconds"),
            [Series("", places, [entry["depth_seconds"][d]["processor"] for d in depths])],
        ),
    ]
    return picture("Leverage score by depth: agreement and cost", panels)


def frog_picture(found):
    """t-SNE of one class's features, coloured by the rank of the leverage ([GLS] Figure 2)."""
    ends = [(min(v) - 1, max(v) + 1) for v in (found["x"], found["y"])]
    order = np.argsort(np.argsort(found["leverage"])) / (len(found["leverage"]) - 1)
    parts = coloured("Frogs, last-layer features", (Axis("t-SNE 1"), Axis("t-SNE 2")), ends, found["x"], found["y"], order.tolist(), 0)
    return framed("t-SNE of last-layer features coloured by leverage", parts, 1, 1)


def tradeoff_picture(found):
    """Trade-off of LiRA on the records with the highest and lowest leverage ([GLS] Figure 4)."""
    names = {"highest": "highest 2 %", "lowest": "lowest 2 %"}
    lines = [
        Series(label, part["fpr"], part["mean"], band=(part["low"], part["high"])) for end, label in names.items() for part in [found[end]]
    ]
    return picture("Trade-off of the highest and lowest leverage", [("LiRA on high and low leverage", *RATES, lines)], list(names.values()))


def papers_pictures(pictures):
    """File name → text of every chart whose figures are stored."""
    entries, held = runs(), pictures.get("cifar10_residual", {})
    found = {
        "theory.svg": theory_picture(pictures["theory"]) if "theory" in pictures else None,
        "fixed_design.svg": fixed_design_picture(pictures["theory"]) if "theory" in pictures else None,
        "recall_lira.svg": recall_picture(entries, "lira_success", SHOWN),
        "recall_rmia.svg": recall_picture(entries, "rmia_success", SHOWN),
        "recall_shokri.svg": recall_picture(entries, "shokri_success", SHOWN),
        "recall_network.svg": recall_picture({n: e for n, e in entries.items() if e["network"]}, "lira_success", WHOLE),
        "scatter.svg": scatter_picture(pictures, entries),
        "depths.svg": depth_picture(),
        "frogs.svg": frog_picture(held["frogs"]) if "frogs" in held else None,
        "high_and_low.svg": tradeoff_picture(held["high_and_low"]) if "high_and_low" in held else None,
    }
    return {name: text for name, text in found.items() if text is not None}

"""Charts of docs/papers.md as SVG, from benchmarks/results/papers/*.json and papers_pictures.json, by tools/render_benchmarks.py."""

import numpy as np
from matplotlib.cm import ScalarMappable
from papers_stored import depth_runs, runs
from pictures import COLOURS, POINTS, RAMP, colour_bar, finish, panels, short_number, svg

ATTACKS = {"lira_success": "LiRA", "rmia_success": "RMIA", "shokri_success": "Shokri"}
SHOWN = {"loss": "loss", "gradient_norm": "gradient norm", "newton": "Newton", "influence": "influence", "shift": "shift"}
WHOLE = {
    "loss": "loss",
    "influence": "influence",
    "network_influence": "influence, whole network",
    "shift": "shift",
    "network_shift": "shift, whole network",
}
ERRORS, LEVERAGES = (0, 1, 2, 4), (0.5, 1, 4, 16)


def recall_picture(entries, attack, chosen):
    """Recall of the top k in the top k over k, both axes logarithmic, with the random diagonal ([RET] Figures 2–5)."""
    shown = [entry for entry in entries.values() if chosen.keys() & entry["curves"]["attacks"].get(attack, {}).keys()]
    if not shown:
        return None
    figure, all_axes = panels([entry["title"] for entry in shown], [*chosen.values(), "random"])
    for axes, entry in zip(all_axes, shown, strict=True):
        curves = entry["curves"]
        found = curves["attacks"][attack]
        for name, colour in zip(chosen, COLOURS, strict=False):
            if name in found:
                axes.plot(curves["k"], found[name]["mean"], color=colour)
        axes.plot([1e-3, 1], [1e-3, 1], color=COLOURS[len(chosen)])
        finish(axes, "k", "recall", log="xy", x_ends=(1e-3, 1), y_ends=(1e-3, 1))
    return svg(figure, f"Recall of the top k by {ATTACKS[attack]}")


def coloured(axes, x, y, shade):
    """Points coloured by a value in [0, 1], a set of marks for each step of the ramp, the largest on top; what a colour bar needs."""
    x, y, step = np.asarray(x), np.asarray(y), np.minimum((np.asarray(shade) * RAMP.N).astype(int), RAMP.N - 1)
    for number in np.unique(step):
        chosen = step == number
        axes.plot(x[chosen], y[chosen], **POINTS | {"color": RAMP(int(number)), "markersize": 3.6, "alpha": 1})
    return ScalarMappable(cmap=RAMP)


def scatter_picture(pictures, entries):
    """Loss and influence of one model's records, coloured by LiRA's success ([RET] Figure 7)."""
    shown = {entry["title"]: pictures[name]["scatter"] for name, entry in entries.items() if "scatter" in pictures.get(name, {})}
    if not shown:
        return None
    figure, all_axes = panels(shown, bar=True)
    for axes, held in zip(all_axes, shown.values(), strict=True):
        points = np.array([held[column] for column in ("loss", "influence", "lira_success")])
        points = points[:, (points[:2] > 0).all(0)]
        low, high = 10 ** np.floor(np.log10(np.quantile(points[:2], 0.01, axis=1))), 10 ** np.ceil(np.log10(points[:2].max(1)))
        x, y, success = points[:, (points[:2] >= low[:, None]).all(0)]
        drawn = coloured(axes, x, y, np.clip(2 * success - 1, 0, 1))
        finish(axes, "loss", "influence", log="xy", x_ends=(low[0], high[0]), y_ends=(low[1], high[1]))
    bar = colour_bar(figure, drawn, "LiRA's success", ticks=[0, 0.5, 1])
    bar.set_ticklabels(["≤ 0.5", "0.75", "1"])
    return svg(figure, "Loss and influence coloured by the attack's success")


def theory_picture(found):
    """Expected gap over error and leverage, and trade-offs of the best attack ([RET] Figure 1)."""
    figure, (by_error, by_leverage, gap) = panels(["Trade-off, h̄ = 1", "Trade-off, ε = 1", "Expected loss gap"], bar=True)
    drawn = gap.contourf(found["side"], found["side"], found["gap"], levels=20, cmap=RAMP)
    gap.grid(False)
    finish(gap, "error ε", "leverage h̄")
    colour_bar(figure, drawn, "expected loss gap")
    for axes, name, values, lines in ((by_error, "ε", ERRORS, found["by_error"]), (by_leverage, "h̄", LEVERAGES, found["by_leverage"])):
        trade_off(axes, [(f"{name} = {value}", found["rates"], line) for value, line in zip(values, lines, strict=True)])
    return svg(figure, "Gaussian theory: expected gap and trade-offs")


def trade_off(axes, lines):
    """False-negative over false-positive rates: (name, x, y) of each line; the corner above the diagonal is free for the legend."""
    for name, x, y in lines:
        axes.plot(x, y, label=name)
    finish(axes, "false-positive rate", "false-negative rate", x_ends=(0, 1), y_ends=(0, 1))
    axes.legend(loc="upper right")


def fixed_design_picture(found):
    """Trade-offs of the best test on the residual for five leverages ([GLS] Figure 5)."""
    figure, (axes,) = panels(["Fixed design, one output"])
    trade_off(axes, [(f"h = {h}", found["rates"], line) for h, line in found["fixed_design"].items()])
    return svg(figure, "Fixed-design trade-offs")


def depth_picture():
    """Spearman with LiRA's score and with d′ of each network, and processor seconds by depth of those that were timed ([GLS] Figure 1)."""
    entries, depths = depth_runs(), ("last", "2", "4", "all")
    if not entries:
        return None
    timed = [(entry, colour) for entry, colour in zip(entries.values(), COLOURS, strict=False) if "depth_seconds" in entry]
    metrics = {"lira_score": "Spearman with LiRA's score", "d_prime": "Spearman with LiRA's d′"}
    figure, all_axes = panels(
        [*metrics.values(), *(["Cost of one model"] if timed else [])], [entry["title"] for entry in entries.values()]
    )
    for axes, metric in zip(all_axes, metrics, strict=False):
        for number, (entry, colour) in enumerate(zip(entries.values(), COLOURS, strict=False)):
            for place, depth in enumerate(depths):
                found = entry["depths"][metric][depth]
                axes.plot([place + 0.3 * number - 0.15] * len(found), found, **POINTS | {"color": colour})
        finish(axes, "layers", "Spearman, a point a target", x_ends=(-0.5, len(depths) - 0.5))
    for entry, colour in timed:
        all_axes[-1].plot([entry["depth_seconds"][depth]["processor"] for depth in depths], color=colour)
    if timed:
        finish(all_axes[-1], "layers", "processor seconds", x_ends=(-0.5, len(depths) - 0.5))
    for axes in all_axes:
        axes.set_xticks(range(len(depths)), depths)
    return svg(figure, "Leverage score by depth: agreement and cost")


def frog_picture(found):
    """t-SNE of one class's features, coloured by the rank of the leverage ([GLS] Figure 2)."""
    figure, (axes,) = panels(["Frogs, last-layer features"], bar=True)
    rank = np.argsort(np.argsort(found["leverage"], kind="stable")) / (len(found["leverage"]) - 1)
    drawn = coloured(axes, found["x"], found["y"], rank)
    finish(axes, "t-SNE 1", "t-SNE 2")
    colour_bar(figure, drawn, "rank of the leverage", ticks=[0, 0.5, 1], format=short_number)
    return svg(figure, "t-SNE of last-layer features coloured by leverage")


def tradeoff_picture(found):
    """Trade-off of LiRA on the records with the highest and lowest leverage ([GLS] Figure 4)."""
    figure, (axes,) = panels(["LiRA on high and low leverage"])
    for end in ("highest", "lowest"):
        axes.fill_between(found[end]["fpr"], found[end]["low"], found[end]["high"], alpha=0.18, linewidth=0)
    trade_off(axes, [(f"{end} 2 %", found[end]["fpr"], found[end]["mean"]) for end in ("highest", "lowest")])
    return svg(figure, "Trade-off of the highest and lowest leverage")


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

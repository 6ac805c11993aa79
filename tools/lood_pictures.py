"""Charts of docs/lood.md as SVG, made from benchmarks/results/lood_figures.json by tools/render_benchmarks.py."""

from lood_network_tables import TITLES
from matplotlib.lines import Line2D
from pictures import COLOURS, POINTS, finish, legend_below, panels, svg

MEAN = {"color": "#222222", "linewidth": 2.4}
SHARE = "KL at query ÷ KL at record"


def trace_picture(entry):
    figure, (axes,) = panels(["Four random starts"])
    for number, run in enumerate(entry["traces"], 1):
        axes.plot(run, label=f"start {number}")
    finish(axes, "step", SHARE, y_ends=(0, 1))
    axes.legend(loc="lower right")
    return svg(figure, "KL over optimisation steps")


def gap_picture(entry):
    figure, (by_rank, by_cosine) = panels(["Best of four starts, records sorted", "Is it the record?"])
    reached = [cell["share_of_ceiling"] for cell in entry["cells"]]
    by_rank.plot(range(1, len(reached) + 1), sorted(reached), **POINTS)
    by_cosine.plot([cell["cosine"] for cell in entry["cells"]], reached, **POINTS)
    finish(by_rank, "records", SHARE, y_ends=(0, 1))
    finish(by_cosine, "cosine of query and record", SHARE, y_ends=(0, 1))
    return svg(figure, "Leak at the optimised query as a share of the leak at the record")


def perturbation_picture(entry):
    figure, (axes,) = panels(["Along random directions"])
    for number, curve in enumerate(entry["curves"], 1):
        axes.plot(entry["sizes"], curve, label=number)
    finish(axes, "size of the perturbation (of 255)", "KL ÷ KL at the record", y_ends=(0, 1))
    axes.legend(title="record", loc="lower center")
    return svg(figure, "KL along a random direction through five records")


def attack_picture(entry):
    shown = [
        (kernel, found["points"], column, label)
        for kernel, found in entry["kernels"].items()
        for column, label in (("kl", "KL, nats"), ("mean_distance", "mean distance"))
    ]
    figure, all_axes = panels([kernel for kernel, *_ in shown], ["images", "uniform noise"])
    for axes, (_, groups, column, label) in zip(all_axes, shown, strict=True):
        for points in groups.values():
            axes.plot(points[column], points["auc"], **POINTS)
        finish(axes, label, "attack AUC", log="x", y_ends=(0.5, 1))
    return svg(figure, "KL and mean distance against the attack's AUC")


def activation_picture(entry):
    shown = {
        "Same weights, fixed noise": ("sphere", "fixed_kl"),
        "Same weights, scaled noise": ("sphere", "scaled_kl"),
        "Variance kept at 1": ("kept", "scaled_kl"),
        "Edge of chaos": ("critical", "scaled_kl"),
    }
    names = list(dict.fromkeys(row["activation"] for row in entry["rows"]))
    figure, all_axes = panels(shown, names)
    for axes, (case, column) in zip(all_axes, shown.values(), strict=True):
        for name in names:
            rows = [row for row in entry["rows"] if (row["case"], row["activation"]) == (case, name)]
            axes.plot([row["depth"] for row in rows], [row[column]["median"] for row in rows])
        finish(axes, "depth", "median KL, nats")
    return svg(figure, "Median KL over depth for five activations")


def sine_picture(entry):
    columns = {"mean_distance": "mean distance", "kl": "KL", "log_variance_ratio": "log of the variances' ratio"}
    figure, all_axes = panels([f"Record {row['record']}: {row['at']:.2f}" for row in entry["rows"]], columns.values())
    for axes, row in zip(all_axes, entry["rows"], strict=True):
        for column in columns:
            axes.plot(entry["grid"], [value / max(row[column]) for value in row[column]])
        finish(axes, "query", "share of its largest value", y_ends=(0, 1))
    return svg(figure, "Mean distance, KL and the ratio of the variances over queries on the sine data")


def network_picture(entry):
    truth, estimates = entry["truth"], entry["estimates"]
    change = "change of the networks' mean"
    shown = (
        ("Attack on trained networks", "kl_0.1", "KL of the process, nats", "x", "auc", "attack AUC"),
        ("Prediction change", "distance_0.1", "change of the process's mean", "", "prediction_change", change),
        ("TracIn", "tracin", "TracIn", "x", "prediction_change", change),
        ("Influence", "influence", "influence", "x", "prediction_change", change),
    )
    figure, all_axes = panels([title for title, *_ in shown])
    for axes, (_, estimate, x_name, log, measured, y_name) in zip(all_axes, shown, strict=True):
        axes.plot(estimates[estimate], truth[measured], **POINTS)
        finish(axes, x_name, y_name, log=log)
    return svg(figure, "What the process and two baselines say against what leave-one-out training shows")


def one_start_picture(entry):
    figure, (by_rank, by_prediction) = panels(["One start each, records sorted", "Do predictions agree?"])
    reached = entry["share_of_ceiling"]
    by_rank.plot(range(1, len(reached) + 1), sorted(reached), **POINTS)
    by_prediction.plot(entry["prediction_kl"], reached, **POINTS)
    finish(by_rank, "records", SHARE, y_ends=(0, 1))
    finish(by_prediction, "KL of the predictions at query and record", SHARE, log="x", y_ends=(0, 1))
    return svg(figure, "Leak at the optimised query as a share of the leak at the record")


def gradient_picture(entry):
    figure, (axes,) = panels(["Records of the sine toy"])
    axes.plot(entry["gradient"]["at"], entry["gradient"]["gradient"])
    finish(axes, "record S", "gradient of the mean distance at Q = S")
    return svg(figure, "Gradient of the mean distance at the record itself, over records of the sine toy")


def rates_picture(entry):
    names = list(entry["weights"])
    figure, (on, off) = panels(["On the edge of chaos", "Weight variance 2, no biases"], names)
    for axes, rows in ((on, entry["on_the_edge"]), (off, entry["off_the_edge"])):
        for name in names:
            axes.plot([row["depth"] for row in rows[name]], [max(row["distance"], 1e-12) for row in rows[name]])
        finish(axes, "depth", "1 − correlation", log="xy")
    return svg(figure, "How fast two records become alike over depth")


def perturbed_picture(networks):
    shown = max(len(entry["perturbed"]["curves"]) for entry in networks.values())
    figure, all_axes = panels([TITLES[name] for name in networks], ["records"], across=3)
    figure.legends.clear()
    for axes, entry in zip(all_axes, networks.values(), strict=True):
        for curve in entry["perturbed"]["curves"]:
            axes.plot(entry["perturbed"]["sizes"], curve, alpha=0.5)
        axes.plot(entry["perturbed"]["sizes"], entry["perturbed"]["mean_curve"], **MEAN)
        finish(axes, "size of the perturbation (of 255)", "attack AUC", y_ends=(0.4, 1))
    records = [Line2D([], [], color=COLOURS[k], alpha=0.5, label=f"record {k + 1}") for k in range(shown)]
    legend_below(figure, [*records, Line2D([], [], **MEAN, label="mean of all records")])
    return svg(figure, "Attack AUC on trained networks along random directions through five records")


CHARTS = {
    "trace": trace_picture,
    "gap": gap_picture,
    "perturbations": perturbation_picture,
    "leak_and_attack": attack_picture,
    "activations": activation_picture,
    "sine": sine_picture,
    "networks_relu": network_picture,
    "networks_gelu": network_picture,
    "networks_relu_deep": network_picture,
    "networks_gelu_deep": network_picture,
    "one_start": one_start_picture,
    "rates": rates_picture,
}


def lood_pictures(figures):
    """File name → text of every chart whose figures are stored."""
    drawn = {f"{name}.svg": chart(figures[name]) for name, chart in CHARTS.items() if name in figures}
    if "gradient" in figures.get("sine", {}):
        drawn["sine_gradient.svg"] = gradient_picture(figures["sine"])
    perturbed = {name: figures[name] for name in TITLES if "perturbed" in figures.get(name, {})}
    return drawn | ({"networks_perturbed.svg": perturbed_picture(perturbed)} if perturbed else {})

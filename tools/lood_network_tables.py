"""Measured part of docs/lood.md about trained networks: agreement, perturbed queries, depth 10, and what retraining costs."""

import statistics

from lood_query_tables import PICTURES, interval

ESTIMATES = {
    "kl": "KL of the process",
    "gp_auc": "attack AUC of the process",
    "distance": "change of the process's mean",
    "influence": "influence (Gauss–Newton, damped)",
    "tracin": "TracIn",
}
NOISES = ("0.01", "0.1", "1")
TITLES = {
    "networks_relu": "relu, 2 layers",
    "networks_gelu": "gelu, 2 layers",
    "networks_gelu_fitted": "gelu, 2 layers, same loss",
    "networks_relu_deep": "relu, 10 layers",
    "networks_gelu_deep": "gelu, 10 layers, same training",
    "networks_gelu_deep_fitted": "gelu, 10 layers, same loss",
}
FITTED_WORDS = "After the same training gelu networks fit less, so they were also trained to about the relu networks' loss."
SHOWN_DEEP = ("kl_0.1", "gp_auc_0.1", "distance_0.1", "influence", "tracin")


def network_lines(figures):
    """All sections about networks whose figures are stored."""
    networks = {name: figures[name] for name in TITLES if name in figures}
    if not networks:
        return []
    shallow = {name: entry for name, entry in networks.items() if entry["plan"]["depth"] == 2}
    deep = {name: entry for name, entry in networks.items() if entry["plan"]["depth"] != 2}
    fitted = shallow.pop("networks_gelu_fitted", None)
    lines = agreement_lines(shallow, fitted) if shallow else []
    lines += deep_lines(deep) if deep else []
    perturbed = {name: entry for name, entry in networks.items() if "perturbed" in entry}
    lines += perturbed_lines(perturbed) if perturbed else []
    timed = {name: entry for name, entry in networks.items() if "seconds" in entry}
    return [*lines, *(speed_lines(timed) if timed else [])]


def agreement_lines(networks, fitted=None):
    plan = next(iter(networks.values()))["plan"]
    lines = [
        "### Does it predict trained networks?",
        "",
        f"Cars and planes at {plan['side']} × {plan['side']}, n = {plan['n']}, targets ±1, squared loss, SGD (rate {plan['lr']:g}, batches of {plan['batch_size']}, {plan['epochs']} epochs); fully connected networks with {plan['depth']} hidden layers of",
        f"{plan['width']}, weights drawn as the kernel assumes. {plan['chosen']} random records, each left out of {plan['seeds']} networks; {plan['seeds_with']} networks with everything. *Attack AUC*: of the loss at the record.",
        "*Prediction change*: size of the difference of the mean predictions. Spearman over records with bootstrap intervals (95 %). *Two halves of the seeds*: the truth",
        "measured with one half against the other: how noisy it is, with half as many seeds. Noise of the process as a share of the kernel's mean diagonal. The",
        "baselines are not tuned: influence damped by a tenth of the mean curvature, TracIn over five moments of the training, both over three networks.",
        "",
        "| network | estimate | with attack AUC | with prediction change |",
        "|---|---|---|---|",
    ]
    for entry in networks.values():
        for estimate, label in ESTIMATES.items():
            keys = [(estimate, "")] if estimate in entry["estimates"] else [(f"{estimate}_{noise}", f", noise {noise}") for noise in NOISES]
            lines += [_agreement_row(entry["plan"]["activation"], f"{label}{shown}", entry, key) for key, shown in keys]
        lines.append(_halves_row(entry["plan"]["activation"], entry))
    lines.append("")
    for name, entry in networks.items():
        lines += [
            *_range_lines(entry["plan"]["activation"], entry),
            f"![Trained {entry['plan']['activation']} networks]({PICTURES}/{name}.svg)",
            "",
        ]
    pair = [networks.get(name) for name in ("networks_relu", "networks_gelu")]
    if all(pair):
        lines += activation_difference(*pair, "The attack on trained gelu networks against relu ones, same records")
    if fitted is not None and pair[0]:
        same = f"The same with gelu networks trained for {fitted['plan']['epochs']} epochs, to a training loss of {fitted['training_loss']:.3f}"
        lines += activation_difference(pair[0], fitted, same)
    return lines


def _agreement_row(title, label, entry, key):
    both = (entry["correlations"][truth][key]["spearman"] for truth in ("auc", "prediction_change"))
    return f"| {title} | {label} | " + " | ".join(map(interval, both)) + " |"


def _halves_row(title, entry):
    return (
        f"| {title} | two halves of the seeds | "
        + " | ".join(interval(entry["reliability"][t]) for t in ("auc", "prediction_change"))
        + " |"
    )


def _range_lines(title, entry):
    auc = entry["truth"]["auc"]
    text = f"{title}: attack AUC from {min(auc):.2f} to {max(auc):.2f}, median {statistics.median(auc):.2f}; training loss {entry['training_loss']:.3f}."
    return [text, ""]


def activation_difference(relu, gelu, words):
    """gelu minus relu in the attack on trained networks, over the same records."""
    gaps = [g - r for g, r in zip(gelu["truth"]["auc"], relu["truth"]["auc"], strict=True)]
    mean, error = statistics.mean(gaps), statistics.stdev(gaps) / len(gaps) ** 0.5
    return [f"{words}: AUC {mean:+.3f} in the mean, {mean - 1.96 * error:+.3f} to {mean + 1.96 * error:+.3f} (95 %, over records).", ""]


def deep_lines(networks):
    plan = next(iter(networks.values()))["plan"]
    lines = [
        "#### Ten layers",
        "",
        f"[LOOD] Figure 5's depth with {plan['width']} units a layer: {plan['chosen']} records, {plan['seeds']} networks without each, {plan['seeds_with']} with everything. Ten layers diverge at the rate of two; here it is",
        f"{plan['lr']:g} over {plan['epochs']} epochs." + (f" {FITTED_WORDS}" if "networks_gelu_deep_fitted" in networks else ""),
        "",
        "| network | estimate | with attack AUC | with prediction change |",
        "|---|---|---|---|",
    ]
    labels = {key: f"{ESTIMATES[key.rsplit('_0.1', 1)[0]]}{', noise 0.1' if key.endswith('0.1') else ''}" for key in SHOWN_DEEP}
    for name, entry in networks.items():
        lines += [_agreement_row(TITLES[name], label, entry, key) for key, label in labels.items()]
        lines.append(_halves_row(TITLES[name], entry))
    lines.append("")
    for name, entry in networks.items():
        lines += _range_lines(TITLES[name], entry)
    for name in ("networks_relu_deep", "networks_gelu_deep"):
        if name in networks:
            lines += [f"![Trained networks, {TITLES[name]}]({PICTURES}/{name}.svg)", ""]
    for name, words in (
        ("networks_gelu_deep", "gelu against relu at ten layers, same training"),
        ("networks_gelu_deep_fitted", "the same at the same loss"),
    ):
        if name in networks and "networks_relu_deep" in networks:
            lines += activation_difference(networks["networks_relu_deep"], networks[name], words)
    return lines


def perturbed_lines(networks):
    """[LOOD] Figure 4c."""
    lines = [
        "#### Queries beside the record",
        "",
        "The attack on the same networks when the query is the record plus x times a random direction (every pixel between −1 and 1, x of 255): where each record's AUC is largest,",
        "mean ± standard deviation over records (ties at their middle). [LOOD] has −2.375 ± 5.978 for its networks and 0 ± 0 for the process.",
        "",
        "| networks | largest at x | largest AUC over that at the record | AUC at the record over that at x = ±50 |",
        "|---|---|---|---|",
    ]
    for name, entry in networks.items():
        found = entry["perturbed"]
        lines.append(
            f"| {TITLES[name]} | {found['peak_mean']:+.1f} ± {found['peak_deviation']:.1f} | {found['largest_over_record']:+.3f} | {found['at_ends']:+.3f} |"
        )
    return [*lines, "", f"![Attack AUC along random directions]({PICTURES}/networks_perturbed.svg)", ""]


def speed_lines(networks):
    """What leave-one-out training cost beside the process, in one run each."""
    lines = [
        "#### What retraining costs",
        "",
        "Processor seconds on one core, in the run that made the figures: all those networks, and the process (kernel and figures of *all* n records). [LOOD]: over 140 × for its networks on a GPU,",
        "with two solves a record.",
        "",
        "| networks | trained | seconds | records measured | process, seconds | records | **times as long** |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, entry in networks.items():
        spent, plan = entry["seconds"], entry["plan"]
        lines.append(
            f"| {TITLES[name]} | {spent['trained']:,} | {spent['networks']:.0f} | {plan['chosen']} | {spent['process']:.3f} | {plan['n']} | **{spent['networks'] / spent['process']:,.0f} ×** |"
        )
    return [*lines, ""]

"""Sections of docs/benchmarks.md on many layers: speed and agreement of `network_scores`, which layers win, predicted rates of records."""

SETTING_TITLES = {
    "california_mlp": "California Housing, MLP",
    "energy_mlp": "UCI Energy, MLP",
    "pneumonia_cnn": "PneumoniaMNIST, CNN",
    "cifar10_mlp": "CIFAR-10, MLP",
    "fashion_mlp": "Fashion-MNIST, MLP",
    "cifar10_cnn": "CIFAR-10, CNN",
}
SCORED = ("leverage", "margin_leverage", "influence", "newton", "loo", "shift")
FACTORS = ("0.1", "1", "10")


def network_section(cases):
    lines = ["## Many layers", ""]
    if "dual" in cases:
        row = cases["dual"]
        lines += [
            f"`network_scores`, dual form: n = {row['n']:,} records, all layers of a perceptron with {row['parameters']:,} parameters. The kernel takes",
            f"{row['kernel_seconds']:.0f} s, everything beside it {row['beside_kernel_seconds']:.0f} s = **{row['ratio']:.2f} ×** one Cholesky factorisation and inverse of that size",
            f"({row['cholesky_and_inverse_seconds']:.0f} s, LAPACK, same run; goal: 4 ×). Peak memory of the process {row['peak_bytes'] / 1e9:.1f} GB (goal: 3 GB), of which the kernel is {row['kernel_bytes'] / 1e9:.1f} GB."
            f"{busy(row)}",
            "",
        ]
    if "projected" in cases:
        row = cases["projected"]
        lines += [
            f"Projected form: n = {row['n']:,} records of a small CNN with {row['parameters']:,} parameters, {row['dimension']:,} dimensions, two projections: {row['seconds']:.0f} s, peak",
            f"memory {row['peak_bytes'] / 1e9:.1f} GB.{busy(row)}",
            "",
        ]
    if "lookups" in cases:
        row = cases["lookups"]
        rows, formed = ((row["peak_bytes"][name] - row["peak_bytes"]["before"]) / 1e9 for name in ("rows", "formed"))
        lines += [
            f"A table of {row['words']:,} words, {row['width']} wide, under a small network ({row['parameters']:,} parameters), {row['n']:,} sentences of {row['length']} words, projected form: {row['seconds']['rows']:.1f} s and",
            f"{rows:.1f} GB more memory with the rows that a sentence asks for, {row['seconds']['formed']:.1f} s (**{row['ratio']:.1f} ×**) and {formed:.1f} GB with its gradient formed, same run;",
            f"{'the same scores' if row['apart'] < 1e-6 else 'scores differ by up to ' + format(row['apart'], '.0e')}.{busy(row)}",
            "",
        ]
    if "tokens" in cases:
        row = cases["tokens"]
        told = []
        for name, run in row["methods"].items():
            seconds, size = run["seconds"], run["bytes"]
            told.append(
                f"{name} form {seconds['factors']:.1f} s and {size['factors'] / 1e9:.2f} GB in factors, {seconds['formed']:.1f} s (**{seconds['formed'] / seconds['factors']:.1f} ×**) and "
                f"{size['formed'] / 1e9:.2f} GB (**{size['formed'] / size['factors']:.1f} ×**) with gradients formed"
            )
        lines += [
            f"Linear layers at every token: all layers of a BERT ({row['layers']} layers, {row['width']} wide, {row['parameters']:,} parameters), {row['n']:,} texts of {row['length']} tokens, {row['batch_size']} at a time:",
            f"{';'.join(chr(10) + one for one in told).strip()}.",
            f"Processor seconds and peak memory above what stood before, each in a process of its own; the exact scores agree to {row['methods']['dual']['apart']:.0e}.{busy(row)}",
            "",
        ]
    if "curve" in cases:
        lines += [
            f"How close the projected form comes to the dual, over the dimension (n = {cases['curve']['rows'][0]['n']:,}): Spearman and overlap of the top 1 %, and the relative",
            f"difference of two projections, which is what a run reports.{busy(cases['curve'])}",
            "",
            "| network | parameters | dof | dimension | Spearman margin leverage | shift | top-1 % overlap margin leverage | shift | reported error, shift |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for row in cases["curve"]["rows"]:
            lines.append(
                f"| {row['network']} | {row['parameters']:,} | {row['dof']:.0f} | {row['dimension']:,} | {row['spearman_margin_leverage']:.3f} | {row['spearman_shift']:.3f} "
                f"| {row['top1_overlap_margin_leverage']:.2f} | {row['top1_overlap_shift']:.2f} | {row['error_shift']:.3f} |"
            )
        lines += [""]
    return lines


def busy(row):
    """A caveat when the machine was doing other work beside the measurement."""
    return f" Measured beside other work (load {row['load']:.1f} on two cores): times read high." if row.get("load", 0) > 3 else ""


def which_layers_section(settings):
    lines = [
        "## Which layers, which damping, which score",
        "",
        "LiRA truth a record from reference models (d′ and success), scores of several targets trained alike on other random halves: recall of LiRA's top 1 % in the",
        "score's top 5 %, and Spearman; means over targets, Student intervals in the JSON. *Ceiling*: the same between two LiRA truths from disjoint halves of the",
        "reference models. × 0.1, × 1, × 10 are multiples of the training's own λ. Projected scores have "
        f"{next(iter(settings.values()))['dimension']:,} dimensions.",
        "",
    ]
    for name, title in SETTING_TITLES.items():
        if name in settings:
            lines += _setting_table(title, settings[name])
    return lines


def _setting_table(title, entry):
    found = {(r["attack"], r["score"], r["metric"], r["top"], r["keep"]): r for r in entry["agreement"]}

    def cell(attack, score, metric="recall"):
        row = found.get((attack, score, metric, *((0.01, 0.05) if metric == "recall" else (None, None))))
        return "" if row is None or row["value"] is None else f"{row['value']:.2f}"

    ceiling = {(r["attack"], r["metric"], r.get("top"), r.get("keep")): r["value"] for r in entry["ceiling"]}
    top = (
        ceiling.get(("lira_d", "recall", 0.01, 0.05)),
        ceiling.get(("lira_success", "recall", 0.01, 0.05)),
        ceiling.get(("lira_d", "spearman", None, None)),
    )
    lines = [
        f"### {title}",
        "",
        f"{entry['note']}; {entry['references']} reference models, {entry['targets']} targets, {entry['records']:,} records in the pool.",
        "",
        "| score | recall, d′, × 0.1 | **× 1** | × 10 | recall, success, × 1 | Spearman, d′, × 1 |",
        "|---|---|---|---|---|---|",
        f"| *ceiling* | | *{top[0]:.2f}* | | *{top[1]:.2f}* | *{top[2]:.2f}* |",
    ]
    names = list(dict.fromkeys(r["score"] for r in entry["agreement"]))
    for plain in [name for name in ("loss", "gradient_norm", "entropy", "lt_iqr") if name in names]:
        lines.append(f"| {plain} | | {cell('lira_d', plain)} | | {cell('lira_success', plain)} | {cell('lira_d', plain, 'spearman')} |")
    grid = dict.fromkeys(tuple(name.split("|")[:2]) for name in names if name.count("|") == 3)
    for method, layers in grid:
        for column in SCORED:
            scores = [f"{method}|{layers}|{factor}|{column}" for factor in FACTORS]
            if scores[1] in names:
                label = f"{method}, {layers if layers in ('last', 'all') else f'last {layers}'}: `{column}`"
                lines.append(
                    f"| {label} | {cell('lira_d', scores[0])} | **{cell('lira_d', scores[1])}** | {cell('lira_d', scores[2])} "
                    f"| {cell('lira_success', scores[1])} | {cell('lira_d', scores[1], 'spearman')} |"
                )
    for tried in [name for name in names if name.startswith("rank mean")]:
        lines.append(f"| {tried} | | {cell('lira_d', tried)} | | {cell('lira_success', tried)} | {cell('lira_d', tried, 'spearman')} |")
    return [*lines, ""]


def record_tpr_section(result):
    lines = [
        "## A predicted TPR for each record of a classifier: not calibrated",
        "",
        "A Gaussian test on `shift`, brought to scale by the mean margins of members and non-members, with two fitted numbers (an exponent and a share of the margins'",
        "spread): mean predicted against measured TPR, and the root mean square miss over tenths of the records. In sample the numbers are fitted on the setting itself;",
        "left out, on the others. The misses left out are why an audit of a classifier shows no `predicted_tpr`: the numbers do not carry over.",
        "",
        "| setting | FPR | measured | in sample: predicted | miss | left out: predicted | miss | exponent in sample / left out |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in result["settings"].items():
        for level in entry["in_sample"]["levels"]:
            own, other = entry["in_sample"]["levels"][level], entry["left_out"]["levels"][level]
            lines.append(
                f"| {SETTING_TITLES[name]} | {level} | {own['mean_measured']:.3f} | {own['mean_predicted']:.3f} | {own['rms_miss']:.3f} "
                f"| {other['mean_predicted']:.3f} | **{other['rms_miss']:.3f}** | {entry['in_sample']['power']:.2f} / {entry['left_out']['power']:.2f} |"
            )
    lines += [
        "",
        "Reliability, left out, at FPR 0.01 (predicted → measured mean rate in each tenth of the records):",
        "",
    ]
    for name, entry in result["settings"].items():
        pairs = entry["left_out"]["levels"]["0.01"]["reliability"]
        lines.append(f"- {SETTING_TITLES[name]}: " + ", ".join(f"{p:.2f} → {m:.2f}" for p, m in pairs) + ".")
    return [*lines, ""]

"""Measured part of docs/papers.md beside the tables: stopping early, sentences, what one would pick instead, figures."""


def percent(value, digits=1):
    return "–" if value is None else f"{100 * value:.{digits}f}"


def early_stop_lines(found):
    """What the damping, and of two classes the path of training, explain of the probes, whose heads were stopped early."""
    if not found:
        return []
    lines = [
        "### A head that was stopped early",
        "",
        "The heads of both probes on images are far from the minimum that the scores assume: gradient descent was stopped after a fixed number of steps t. That acts",
        "as a weight decay of (1 − momentum)/(lr · t) (Ali, Kolter and Tibshirani 2019, for least squares), far above the one they were trained with; and a record that",
        "ends with a small residual pulled on the head while its residual was larger, which the final weights do not show. Both can be measured: the scored models trained",
        "again from their seeds, scored with that decay added, and, of two classes, by the *separation along the path*: how far a record moves its own margin with its residual averaged over the",
        "epochs, over the root of the squares of how far every record moves it likewise. This was looked for after the result of the first probe, on the same targets; the second was scored once, as planned.",
        "Per cent of LiRA's top 1 % in the top 5 %, and of that by d′ in the top 1 %, mean over targets and 95 % interval.",
        "",
        "| setting | score | LiRA's success | LiRA's d′ | d′, top 1 % in top 1 % |",
        "|---|---|---|---|---|",
    ]
    for entry in found.values():
        rows = {(row["attack"], row["score"], row["keep"]): row for row in entry["agreement"] if row["top"] == 0.01}
        for name, label in _early_stop_ways(entry).items():
            if ("lira_d", name, 0.05) in rows:
                cells = [rows[attack, name, keep] for attack, keep in (("lira_success", 0.05), ("lira_d", 0.05), ("lira_d", 0.01))]
                shown = [f"{percent(c['value'])} ({percent(c['low'])} – {percent(c['high'])})" for c in cells]
                lines.append(f"| {entry['title']} | {label} | {' | '.join(shown)} |")
    return [*lines, ""]


def _early_stop_ways(entry):
    names = {"shift": "`shift`", "loo": "leave-one-out loss gap", "newton": "Newton", "influence": "influence"}
    names["path"] = "separation along the path"
    decays = {
        "training": f"at the training's weight decay, {entry['training_decay']:g}",
        "stopping": f"with {entry['stopping_decay']:g} more, what stopping early amounts to",
    }
    return {f"{decay}_{name}": f"{label} {where}" for name, label in names.items() for decay, where in decays.items()}


def sentence_lines(pictures):
    found = pictures.get("sst2_probe", {}).get("sentences")
    if not found:
        return []
    lines = [
        "## Sentences with the highest scores ([RET] Table 6)",
        "",
        "SST-2, linear head on MiniLM; in brackets the label (0 negative, 1 positive) and LiRA's success on the sentence.",
        "",
        "| | Newton | influence |",
        "|---|---|---|",
    ]
    for rank, (newton, influence) in enumerate(zip(found["newton"], found["influence"], strict=True), 1):
        cells = [f"{_cell(row['text'])} ({row['label']}, {row['success']:.2f})" for row in (newton, influence)]
        lines.append(f"| {rank} | {' | '.join(cells)} |")
    return [*lines, ""]


def _cell(text):
    return text.replace("|", "\\|").replace("`", "'").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")


def peer_lines(peers):
    if not peers:
        return []
    lines = [
        "## What one would pick instead",
        "",
        f"{peers['title']}: the same model, the same records, the same truth (LiRA with {peers['references']} models), the same machine. Processor seconds include everything",
        "that the method needs beyond the trained model.",
        "",
        "| method | processor seconds | recall of the top 1 % in the top 5 % | the same by d′ | of the top 5 % in the top 5 % | Spearman with success | Spearman with d′ |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in peers["rows"]:
        lines.append(
            f"| {row['method']} | {row['processor']:,.2g} | {percent(row['recall_1_5'])} | {percent(row['recall_1_5_d'])} | {percent(row['recall_5_5'])} "
            f"| {row['spearman_success']:.3f} | {row['spearman_d']:.3f} |"
        )
    held = peers["ceiling"]
    lines.append(
        f"| *a second LiRA, half of the truth against the other* | – | {percent(held['recall_1_5'])} | {percent(held['recall_1_5_d'])} | {percent(held['recall_5_5'])} "
        f"| {held['spearman_success']:.3f} | {held['spearman_d']:.3f} |"
    )
    chart = "![Recall against processor seconds of each method](images/papers/peers.svg)"
    return [*lines, "", chart, "", *[f"- {note}" for note in peers["notes"]], ""]


def figure_lines(entries, pictures):
    """The charts and galleries that are stored, each with what it shows."""
    residual = pictures.get("cifar10_residual", {})
    galleries = [name for name in (*entries, "cifar10_residual") if "gallery" in pictures.get(name, {})]
    curves = "Recall of the top k in the top k, mean over targets, both axes logarithmic; the last line is a random order."
    shown = [
        (
            "theory" in pictures,
            "theory.svg",
            "**Theory ([RET] Figure 1).** Expected loss gap over a record's error and leverage, and the trade-off of the best attack. Closed forms, not simulations.",
        ),
        (
            "theory" in pictures,
            "fixed_design.svg",
            "**Fixed design ([GLS] Figure 5).** Trade-off of the best test on the residual for five leverages.",
        ),
        (True, "recall_lira.svg", f"**LiRA ([RET] Figure 2).** {curves}"),
        (
            any(e["network"] for e in entries.values()),
            "recall_network.svg",
            f"**LiRA, with scores over the whole network ([RET] Figure 3).** {curves}",
        ),
        (True, "recall_rmia.svg", f"**RMIA ([RET] Figure 4).** {curves}"),
        (True, "recall_shokri.svg", f"**Shokri ([RET] Figure 5).** {curves}"),
        (
            any("scatter" in pictures.get(name, {}) for name in entries),
            "scatter.svg",
            "**Loss and influence ([RET] Figure 7).** A sample of the audited model's records, coloured by LiRA's success: blue a coin toss or less, orange always right.",
        ),
        (
            "frogs" in residual,
            "depths.svg",
            "**Depth ([GLS] Figure 1).** A point a target, against LiRA's score of the scored model and its d′ over all models, for the network in the paper's regime and for the one that knows its records by heart; and what a model of the latter costs.",
        ),
        (
            "frogs" in residual,
            "frogs.svg",
            "**Frogs ([GLS] Figure 2).** t-SNE of the last layer's features of one class, coloured by the rank of the leverage: orange highest.",
        ),
        (
            "high_and_low" in residual,
            "high_and_low.svg",
            "**High and low leverage ([GLS] Figure 4).** LiRA's trade-off on the 2 % of records with the highest and the lowest leverage, over all models, with 95 % bands.",
        ),
    ]
    lines = ["## Figures", ""]
    for there, name, text in shown:
        lines += [text, "", f"![{text.partition('.**')[0].strip('* ')}](images/papers/{name})", ""] if there else []
    for name in galleries:
        figure = "[GLS] Figure 3" if name == "cifar10_residual" else "[RET] Figure 6"
        title = entries[name]["title"] if name in entries else "CIFAR-10, residual network"
        rows = "; ".join(pictures[name]["gallery"])
        lines += [
            f"**{title} ({figure}).** Rows from the top: {rows}.",
            "",
            f"![Images of {title} with extreme scores](images/papers/{name}.png)",
            "",
        ]
    return lines

"""Measured part of docs/papers.md: what it costs, in time by setting."""

from papers_stored import published_row, ratio, reference_seconds


def time_lines(entries):
    lines = [
        "## Time ([RET] Table 4)",
        "",
        "Seconds. *Published*: one V100, 200 reference models. *Ours*: processor seconds of one CPU core, so that what else ran beside it does not count; an audit is everything",
        "`noshadow audit` does, signals, all score columns and model risk. *All references* are as many as the list above says, and cheaper than that many single models where they",
        "are trained many at a time. *Over the recommended score*: what the truth costs in what the recommended score costs: an audit for classes, an audit and a pass over all layers for numbers.",
        "A star: the targets were scored on the references' clock; an audit and a pass over all layers have been taken off for each target, which is more than their scores took.",
        "",
        "| setting | published: one model | published: scores of one target | published: influence over all layers | ours: one model | **ours: one audit** | ours: all scores over all layers | ours: all references | **over the recommended score** | whole setting, CPU-hours | wall, hours |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in entries.items():
        printed, seconds = published_row("ret_table_4", name), entry["seconds"]
        whole = seconds.get("network")
        total = {clock: sum(part[clock] for part in seconds.values()) / 3600 for clock in ("processor", "wall")}
        cells = [
            printed["train_model"],
            printed["score_target"],
            f"{printed['score_target_network']:,}" if "score_target_network" in printed else "–",
            f"{seconds['train_model']['processor']:.1f}",
            f"**{seconds['audit']['processor']:.1f}**",
            f"{whole['processor']:.1f}" if whole else "–",
            f"{reference_seconds(entry):,.0f}{'' if 'scores' in seconds else '*'}",
            f"**{ratio(entry)}**",
            f"{total['processor']:.2f}",
            f"{total['wall']:.2f}",
        ]
        lines.append(f"| {entry['title']} | {' | '.join(map(str, cells))} |")
    return [*lines, ""]

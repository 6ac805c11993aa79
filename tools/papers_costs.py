"""Measured part of docs/papers.md: what it costs, in time by setting."""

from papers_stored import published_row, ratio, recommended_seconds, reference_seconds

# Reference models behind every figure of [RET] Table 4.
PUBLISHED_MODELS = 200


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


def equal_cost_lines(entries):
    """[RET] Table 4 with our seconds brought to its numbers of records and reference models, and the attacks beside the trainings."""
    lines = [
        "### At the published size, with the attacks",
        "",
        f"The same as processor hours at the paper's number of records and {PUBLISHED_MODELS} reference models. *Records*: the paper's over ours; *models*: ours. Trainings, attacks and scores are",
        "brought there in proportion to records and models, which they are for the same network and epochs; where nothing differs nothing is reckoned. *Attacks*: the paper's LiRA, RMIA and",
        "Shokri with their statistics; ours the same on the audited model and on every reference model, with the comparison of all scores. *Truth over score*: references and",
        "attacks in what the score of one target costs, on each side's own machine. The paper's text says 50,000 of BloodMNIST; its table gives what is shown ([erratum 12](references.md#errata-we-work-around)).",
        "",
        f"| setting | records | models | published: {PUBLISHED_MODELS} references | ours | published: attacks | ours | published: scores of one target | ours: recommended score | published: truth over score | ours |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in entries.items():
        printed = published_row("ret_table_4", name)
        ours = at_size(entry, printed["records"])
        over = [
            (truth["references"] + truth["attacks"]) / score for truth, score in ((printed, printed["score_target"]), (ours, ours["score"]))
        ]
        cells = [
            f"{printed['records']:,} / {entry['records']:,}",
            entry["references"],
            _hours(printed["references"]),
            _hours(ours["references"]),
            _hours(printed["attacks"]),
            _hours(ours["attacks"]),
            f"{printed['score_target']} s",
            f"{ours['score']:.1f} s",
            *(f"{float(f'{value:.2g}'):,.0f} ×" for value in over),
        ]
        lines.append(f"| {entry['title']} | {' | '.join(map(str, cells))} |")
    return [*lines, ""]


def at_size(entry, records):
    """Our processor seconds of references, attacks and the recommended score at another number of records and the published number of models."""
    more, models = records / entry["records"], PUBLISHED_MODELS / entry["references"]
    return {
        "references": reference_seconds(entry) * more * models,
        "attacks": entry["seconds"]["ground_truth"]["processor"] * more * models,
        "score": recommended_seconds(entry) * more,
    }


def _hours(seconds):
    """Hours to two digits."""
    return f"{float(f'{seconds / 3600:.2g}'):,g} h"

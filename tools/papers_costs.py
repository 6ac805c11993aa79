"""Measured part of docs/papers.md: what it costs, in time by setting and by depth, and the leverage score by depth."""

import json

import numpy as np
from papers_stored import DIFFERS, PUBLISHED, RUNS, fit, ratio, reference_seconds


def time_lines(entries):
    lines = [
        "## Time ([RET] Table 4)",
        "",
        "Seconds. *Published*: one V100, 200 reference models. *Ours*: processor seconds of one CPU core, so that what else ran beside it does not count; an audit is everything",
        "`noshadow audit` does, signals, all score columns and model risk. *All references* are as many as the list above says, and cheaper than that many single models where they",
        "are trained many at a time. *Over the recommended score*: what the truth costs in what the recommended score costs, an audit for classes, a pass over all layers for numbers.",
        "A star: the targets were scored on the references' clock; an audit and a pass over all layers have been taken off for each target, which is more than their scores took.",
        "",
        "| setting | published: one model | published: scores of one target | published: influence over all layers | ours: one model | **ours: one audit** | ours: all scores over all layers | ours: all references | **over the recommended score** | whole setting, CPU-hours | wall, hours |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in entries.items():
        printed, seconds = PUBLISHED["ret_table_4"]["rows"][name], entry["seconds"]
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


def depth_lines():
    path = RUNS / "cifar10_residual.json"
    if not path.exists():
        return []
    entry = json.loads(path.read_text())
    labels = {
        "lira_score": "LiRA score",
        "sigma_ratio": "σ out / σ in",
        "tpr_0.05": "TPR at FPR 0.05",
        "mean_gap": "mean gap",
        "d_prime": "d′ (not in the paper)",
    }
    depths = ("last", "2", "4", "all")
    lines = [
        "## The leverage score by depth ([GLS] Table 2, Table 1 and Figure 1)",
        "",
        f"{entry['title']}: {entry['records']:,} records, {entry['references']} models, {entry['targets']} of them scored; {fit(entry)}. {DIFFERS['cifar10_residual']}",
        "",
        "Spearman, mean over models; *published → ours*, ± half of the range of the central 95 % of the models. The LiRA score is the log-likelihood ratio of the scored model's own",
        "output, with one variance for all records; the other metrics are of a record over all the other models, with its own variances.",
        "",
        "| shadow metric | " + " | ".join("last layer" if d == "last" else f"{d} layers" for d in depths) + " | margin leverage | shift |",
        "|---|" + "---|" * (len(depths) + 2),
    ]
    for metric, label in labels.items():
        found = {name: _central(values) for name, values in entry["depths"][metric].items()}
        printed = PUBLISHED["gls_table_2"]["rows"].get(metric, {})
        cells = [f"{printed[d][0]:.2f} ± {printed[d][1]:.2f} → {found[d]}" if d in printed else found[d] for d in depths]
        lines.append(f"| {label} | {' | '.join(cells)} | {found['margin_leverage']} | {found['shift']} |")
    return [*lines, "", *_depth_costs(entry, depths)]


def _central(values):
    """Mean ± half of the distance between the 2.5 % and 97.5 % quantiles, as in [GLS] Table 2."""
    low, high = np.quantile(values, (0.025, 0.975))
    return f"{np.mean(values):.2f} ± {(high - low) / 2:.2f}"


def _depth_costs(entry, depths):
    """[GLS] Table 1 in seconds: what the published algorithm and ours cost over the last layers."""
    ours, product, published = entry["depth_seconds"], entry["product_seconds"], PUBLISHED["gls_table_1"]
    points, steps = entry["records"] // 2, published["iterations"]
    some, every = ({d: k * steps * product[d] / 3600 for d in depths} for k in (published["records"], points))
    rows = {
        "published algorithm: one product with the Hessian, O(npm), seconds": [f"{product[d]:.2f}" for d in depths],
        f"published algorithm: {published['records']} records, as in the paper, O(kTnpm), hours at most": [
            f"{some[d]:,.1f}" for d in depths
        ],
        f"published algorithm: all {points:,} records, hours at most": [f"{every[d]:,.0f}" for d in depths],
        f"**ours**: all {points:,} records, **seconds**": [f"**{ours[d]['processor']:.1f}**" for d in depths],
        "published algorithm over ours, all records, at most": [
            "–",
            *(_rounded(3600 * every[d] / ours[d]["processor"]) for d in depths[1:]),
        ],
    }
    return [
        "What it costs, in processor time of one core, measured in one run. The published algorithm solves a linear system for each record by conjugate gradients; this is our",
        f"implementation of it. One product with the Hessian over all training records, for the outputs of one record, was measured; the hours are that many products with T = {steps} steps",
        "a record, its limit, which most records do not need. Ours is exact on the last layer, where the paper has a closed form too, and takes 1,024 projected gradients over several,",
        "which is an approximation.",
        "",
        "| | " + " | ".join("last layer" if d == "last" else f"{d} layers" for d in depths) + " |",
        "|---|" + "---|" * len(depths),
        *(f"| {label} | {' | '.join(cells)} |" for label, cells in rows.items()),
        "",
    ]


def _rounded(value):
    """Two digits: the count of steps behind it is a limit."""
    return f"{float(f'{value:.1e}'):,.0f} ×"

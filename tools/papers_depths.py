"""Measured part of docs/papers.md: the leverage score by depth, beside [GLS] Table 2, and what the published algorithm finds and costs."""

import numpy as np
from papers_stored import DIFFERS, PUBLISHED, depth_runs, fit

METRICS = {
    "lira_score": "LiRA score, one variance",
    "lira_score_record": "LiRA score, each record's variances",
    "sigma_ratio": "σ out / σ in",
    "tpr_0.05": "TPR at FPR 0.05",
    "mean_gap": "mean gap",
    "d_prime": "d′ (not in the paper)",
}
DEPTHS = ("last", "2", "4", "all")


def depth_lines(solved):
    """The tables of each network, the published algorithm on one of them (`solved`, empty where it was not run), and what both cost."""
    entries = depth_runs()
    if not entries:
        return []
    lines = [
        "## The leverage score by depth ([GLS] Table 2, Table 1 and Figure 1)",
        "",
        "Spearman, mean over models; *published → ours*, ± half of the range of the central 95 % of the models. The LiRA score is the log-likelihood ratio of the scored model's own",
        "output; the other metrics are of a record over all the other models. The paper does not say whether its LiRA has one variance for all records or each record's own: both are",
        "shown where there are models enough. Layers are counted as [Many layers](network.md) does, by modules with parameters: a normalisation counts as one.",
        "",
    ]
    for name, entry in entries.items():
        lines += _table(name, entry)
    if solved:
        lines += _solved(solved)
    for entry in entries.values():
        lines += _depth_costs(entry) if "depth_seconds" in entry else []
    return lines


def _heads(depths=DEPTHS):
    return " | ".join("last layer" if d == "last" else f"{d} layers" for d in depths)


def _table(name, entry):
    share = entry.get("fraction", 0.5)
    lines = [
        f"**{entry['title']}**: {entry['records']:,} records, {entry['references']} models on {100 * share:.0f} % of them each, {entry['targets']} of them scored; {fit(entry)}. {DIFFERS[name]}",
        "",
        f"| shadow metric | {_heads()} | margin leverage | shift |",
        "|---|" + "---|" * (len(DEPTHS) + 2),
    ]
    for metric, label in METRICS.items():
        if metric not in entry["depths"]:
            continue
        found = {column: _central(values) for column, values in entry["depths"][metric].items()}
        printed = PUBLISHED["gls_table_2"]["rows"].get(metric.removesuffix("_record"), {})
        cells = [f"{printed[d][0]:.2f} ± {printed[d][1]:.2f} → {found[d]}" if d in printed else found[d] for d in DEPTHS]
        lines.append(f"| {label} | {' | '.join(cells)} | {found['margin_leverage']} | {found['shift']} |")
    return [*lines, ""]


def _central(values):
    """Mean ± half of the distance between the 2.5 % and 97.5 % quantiles, as in [GLS] Table 2."""
    low, high = np.quantile(values, (0.025, 0.975))
    return f"{np.mean(values):.2f} ± {(high - low) / 2:.2f}"


def _solved(entry):
    """The published algorithm on some records of one network, at the depths and dampings that were solved."""
    counts = sorted({row["records"] for found in entry["dampings"].values() for row in found.values()}, reverse=True)
    errors = ", ".join(f"{1 / (count - 1) ** 0.5:.2f} over {count}" for count in counts)
    lines = [
        f"**The published algorithm itself** on {counts[0]} training records of one network ({entry['title']}), over many layers on the first of them: the Hessian, conjugate gradients (with our preconditioner: it changes when a solve ends, not where), at most 100 steps, a tolerance of 10⁻³,",
        "λ beside the mean loss. The paper's λ go from 10⁻⁴ to 10⁻²; a larger one is ours. Ours is exact on the last layer, and over several takes 1,024 projected gradients, Gauss–Newton and the training's λ.",
        f"A rank correlation has a standard error of about {errors} records of one network. In brackets ours, on the same records;",
        "a dash where the network was trained again alone, without reference models.",
        "",
        "| λ | depth | Spearman of the published score with ours | with the LiRA score, one variance | with d′ | solves that ended within the tolerance | that met negative curvature | steps, mean | processor seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for damping, found in sorted(entry["dampings"].items(), key=lambda item: float(item[0])):
        for depth in [depth for depth in DEPTHS if depth in found]:
            row = found[depth]
            truths = ["–", "–"]
            if "spearman" in row:
                truths = [f"{row['spearman'][name]:.2f} ({row['spearman_ours'][name]:.2f})" for name in ("lira_score", "d_prime")]
            ended = f"{row['converged']} of {row['records']} | {row['negative_curvature']} | {row['steps']:.0f} | {row['processor_seconds']:.0f}"
            lines.append(f"| {damping} | {_heads((depth,))} | {row['ours']:.3f} | {' | '.join(truths)} | {ended} |")
    return [*lines, ""]


def _depth_costs(entry):
    """[GLS] Table 1 in seconds: what the published algorithm and ours cost over the last layers."""
    ours, product, published = entry["depth_seconds"], entry["product_seconds"], PUBLISHED["gls_table_1"]
    points, steps = int(entry.get("fraction", 0.5) * entry["records"]), published["iterations"]
    some, every = ({d: k * steps * product[d] / 3600 for d in DEPTHS} for k in (published["records"], points))
    rows = {
        "published algorithm: one product with the Hessian, O(npm), seconds": [f"{product[d]:.2f}" for d in DEPTHS],
        f"published algorithm: {published['records']} records, as in the paper, O(kTnpm), hours at most": [
            f"{some[d]:,.1f}" for d in DEPTHS
        ],
        f"published algorithm: all {points:,} records, hours at most": [f"{every[d]:,.0f}" for d in DEPTHS],
        f"**ours**: all {points:,} records, **seconds**": [f"**{ours[d]['processor']:.1f}**" for d in DEPTHS],
        "published algorithm over ours, all records, at most": [
            "–",
            *(_rounded(3600 * every[d] / ours[d]["processor"]) for d in DEPTHS[1:]),
        ],
    }
    return [
        f"What it costs on **{entry['title']}**, in processor time of one core, measured in one run. The published algorithm solves a linear system for each record by conjugate gradients; this is our",
        f"implementation of it. One product with the Hessian over all training records, for the outputs of one record, was measured; the hours are that many products with T = {steps} steps",
        "a record, its limit, which most records do not need.",
        "",
        f"| | {_heads()} |",
        "|---|" + "---|" * len(DEPTHS),
        *(f"| {label} | {' | '.join(cells)} |" for label, cells in rows.items()),
        "",
    ]


def _rounded(value):
    """Two digits: the count of steps behind it is a limit."""
    return f"{float(f'{value:.1e}'):,.0f} ×"

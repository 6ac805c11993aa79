"""The table of scores on forests in docs/benchmarks.md."""

TITLES = {
    "loss": "`loss`",
    "out-of-bag loss": "`out_of_bag_loss`",
    "fixed-structure loss": "`left_out_loss`",
    "shift": "`shift`",
    "fall of the margin": "in − out of bag",
    "d′ by the trees' spread": "d′, trees' spread",
    "d′ by both spreads": "d′, both spreads",
    "exposure": "bags weighed by `exposure`",
    "20 forests against 20 others": "20 forests against 20 others",
}


def forest_section(stored):
    """Recall and Spearman of every score per setting, and the cover of the sizes that were tried."""
    lines = [
        "## Forests",
        "",
        f"Truth d′ per record from {stored['forests']} forests of {stored['trees']} trees on random halves of the pool, scores of {stored['targets']} others: recall of the",
        "truth's top 1 % in the score's top 5 % (Spearman in brackets), means over targets. *Cover*: share of records whose d′ is within the",
        "90 % interval of a d′ by both spreads (trees, and the sample's by the jackknife after the bootstrap).",
        "",
        f"| setting | in / out | {' | '.join(TITLES.values())} | cover |",
        f"|---|---|{'---|' * len(TITLES)}---|",
    ]
    for name, entry in stored["settings"].items():
        cells = [_cell(entry["scores"].get(score)) for score in TITLES]
        cover = "" if entry["sizes"] is None else f"{entry['sizes']['cover_of_90']:.2f}"
        lines.append(f"| {name} | {entry['score_in']:.2f} / {entry['score_out']:.2f} | {' | '.join(cells)} | {cover} |")
    return [*lines, ""]


def _cell(found):
    return "" if found is None else f"{found['recall']:.2f} ({found['spearman']:.2f})"

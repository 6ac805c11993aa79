"""Sizes of exposure where a model has few parameters, by how reference models share records: a measured part of docs/benchmarks.md."""

SPOKEN = {
    "balanced": "balanced (ours)",
    "pairs": "pairs of complements",
    "independent": "independent",
}


def few_parameters_section(stored):
    """Lines on covers, rates and verdicts, one row a model size, design and number of references."""
    lines = [
        "## Exposure of small models",
        "",
        f"Logistic regressions of three classes on {stored['members']} members, whose other records move all margins together. Reference models",
        "share records in three ways: every record in half of them, chosen at random (what we draw below twelve models); pairs of complementary",
        f"halves; halves that know nothing of each other. The truth is from {stored['truth_models']} models on independent halves. *Cover*: share of the",
        f"nominal 90 % intervals of d′ that hold it, of all records and of the {stored['top']} ranked first. *Rate*: mean `attack_rate` at FPR",
        f"1/{stored['members']} beside the true one. *Stands out*: share of the data sets in which the record with the largest rate lies, by its own",
        f"interval, above {stored['times']:g} times a guess. Means over data sets; – where sizes are not identified.",
        "",
        "| features | references share records | references | sets with sizes | cover | cover of the first | d′ of the first, true | rate, true | stands out |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case, counts in stored["cases"].items():
        features, design = case.split(", ")
        for count, row in counts.items():
            told = (
                f"{row['cover']:.2f} | {row['cover_top']:.2f} | {row['d_top']:.1f}, {row['true_d_top']:.1f} | {row['rate']:.3f}, {row['true_rate']:.3f} | {row['stands_out']:.2f}"
                if row["with_sizes"]
                else "– | – | – | – | –"
            )
            lines.append(f"| {features} | {SPOKEN[design]} | {count} | {row['with_sizes']} of {row['sets']} | {told} |")
    return [*lines, ""]

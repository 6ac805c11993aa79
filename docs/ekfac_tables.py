"""Section of docs/benchmarks.md on heads too big to factor; whatever cases are stored."""

COLUMNS = ("leverage", "influence", "newton", "loo", "shift", "margin_leverage")


def ekfac_section(cases):
    lines = ["## Heads too big to factor", ""]
    if "all_records" in cases:
        row = cases["all_records"]
        lines += [
            f"EK-FAC, every column of every record, n = {row['n']:,}, d = {row['d']}, m = {row['m']:,}: {row['seconds']:.0f} s, peak memory of the process {row['peak_bytes'] / 1e9:.1f} GB",
            f"(goal: 6 GB); the exact way would need {row['exact_curvature_bytes'] / 1e12:.0f} TB. Load average {row['load_average']:.1f} on two cores.",
            "",
        ]
    if "refinement" in cases:
        row = cases["refinement"]
        lines += [
            f"Exact refinement there: {row['seconds_a_record']:.0f} s a record ({row['converged']} of {row['records']} converged; a product with the curvature takes",
            f"{row['flops_a_full_product']:.1e} flops). Load average {row['load_average']:.1f}.",
            "",
        ]
    if "agreement" in cases:
        lines += _agreement_table(cases["agreement"])
    if "kronfluence" in cases:
        row = cases["kronfluence"]
        figures = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in sorted(row.items()) if isinstance(value, float))
        lines += [f"Beside kronfluence's self-scores, on the same head: {figures}.", ""]
    return lines


def _agreement_table(row):
    ways = {name: row[name] for name in row if name.startswith("refine_")}
    lines = [
        f"Against the exact columns (n = {row['n']:,}, d = {row['d']}, m = {row['m']}): Spearman / overlap of the top 1 %, without refinement and with the given number of records refined.",
        "",
        "| records refined | " + " | ".join(f"`{c}`" for c in COLUMNS) + " |",
        "|---|" + "---|" * len(COLUMNS),
    ]
    for name, way in ways.items():
        cells = " | ".join(f"{way[c]['spearman']:.3f} / {way[c]['top_1_percent_overlap']:.2f}" for c in COLUMNS)
        lines.append(f"| {name.removeprefix('refine_')} | {cells} |")
    return [*lines, "", f"Load average {row['load_average']:.1f} on two cores.", ""]

"""Section of docs/benchmarks.md on heads too big to factor; whatever cases are stored."""

COLUMNS = ("leverage", "influence", "newton", "loo", "shift", "margin_leverage")
REFINED = ("influence", "newton", "loo", "shift")


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
            f"Exact refinement (n = {row['n']:,}, d = {row['d']}, m = {row['m']:,}; `influence`, `newton`, `loo` and `shift`): {row['cpu_seconds_a_record']:.0f} processor seconds a record, after",
            f"{row['cpu_seconds_once']:.0f} once for all records. {row['converged']} of {row['records']} converged, largest relative residual {row['largest_residual']:.0e}; {row['full_products_a_record']:.0f} products with the curvature a record, checks in",
            f"float64 included, of {row['flops_a_full_product']:.1e} flops each; peak memory of the process {row['peak_bytes'] / 1e9:.1f} GB. The clock showed {row['seconds_a_record']:.0f} s a record, at a load average of {row['load_average']:.1f} on",
            "two cores.",
            "",
        ]
    if "agreement" in cases:
        lines += _agreement_table(cases["agreement"])
    if "kronfluence" in cases:
        lines += _peer_table(cases["kronfluence"])
    return lines


def _peer_table(row):
    if "skipped" in row:
        return [f"Not compared with kronfluence: {row['skipped']}.", ""]
    lines = [
        f"Self-influence beside kronfluence {row['kronfluence_version']} (EK-FAC, its Fisher from sampled labels, the same damping), n = {row['n']:,}, d = {row['d']}, m = {row['m']}, both against the exact",
        f"`influence`; Spearman of the two with each other {row['spearman_of_the_two']:.4f}.",
        "",
        "| | Spearman | overlap of the top 1 % | median ratio to exact | processor seconds |",
        "|---|---|---|---|---|",
    ]
    for name, label in (("kronfluence", "kronfluence, self-scores"), ("ours", "noshadow, `influence` only, nothing refined")):
        way = row[name]
        figures = (
            f"{way['spearman']:.4f} | {way['top_1_percent_overlap']:.2f} | {way['median_ratio_to_exact']:.2f} | {way['cpu_seconds']:.1f}"
        )
        lines.append(f"| {label} | {figures} |")
    return [
        *lines,
        "",
        f"All six columns take {row['ours']['cpu_seconds_all_columns']:.1f} processor seconds. kronfluence takes any network; ours is the last layer only. `make benchmarks` installs it with `--no-deps`.",
        "",
    ]


def _agreement_table(row):
    numbers = sorted(int(name.removeprefix("refine_")) for name in row if name.startswith("refine_"))
    ways = {number: row[f"refine_{number}"] for number in numbers}
    lines = [
        f"Against the exact columns (n = {row['n']:,}, d = {row['d']}, m = {row['m']}): Spearman / overlap of the top 1 %, without refinement and with the given number of records refined.",
        "",
        "| records refined | " + " | ".join(f"`{c}`" for c in COLUMNS) + " |",
        "|---|" + "---|" * len(COLUMNS),
    ]
    for number, way in ways.items():
        cells = " | ".join(f"{way[c]['spearman']:.3f} / {way[c]['top_1_percent_overlap']:.2f}" for c in COLUMNS)
        lines.append(f"| {number} | {cells} |")
    lines += ["", "Refinement is for the first few: overlap of the top 10 / of the top 48.", ""]
    lines += ["| records refined | " + " | ".join(f"`{c}`" for c in REFINED) + " |", "|---|" + "---|" * len(REFINED)]
    for number, way in ways.items():
        cells = " | ".join(f"{way[c]['top_10_overlap']:.2f} / {way[c]['top_48_overlap']:.2f}" for c in REFINED)
        lines.append(f"| {number} | {cells} |")
    other, errors = row["own_curvature_taken_out_of_everybodys"], ", ".join(f"`{c}` {row['errors'][c]:.2f}" for c in REFINED)
    return [
        *lines,
        "",
        f"Processor seconds: EK-FAC {row['ekfac_cpu_seconds']:.1f}, {row['refinement_cpu_seconds_a_record']:.1f} a refined record, the exact columns {row['exact_cpu_seconds']:.0f} (they fit here). {row['exact_records']} of {row['refined_records']} refined records converged;",
        f"EK-FAC was off there by (median relative difference) {errors}. Taking a record's own curvature out of everybody's",
        f"instead leaves {other['indefinite_records']:,} of {row['n']:,} records with an indefinite rest, and `newton` at {other['newton_spearman']:.3f} / {other['newton_top_1_percent_overlap']:.2f}.",
        "",
    ]

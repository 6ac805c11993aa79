"""Measured parts of docs/lood.md about queries: reconstruction, perturbations, KL and mean distance."""

import statistics

PICTURES = "images/lood"
PUBLISHED_RECORDS, FIRST_PART = 500, 14  # [LOOD] Figures 14–19, a part each


def percent(share):
    return f"{100 * share:.0f} %"


def interval(found, digits=2):
    return f"{found['value']:.{digits}f} [{found['low']:.{digits}f}, {found['high']:.{digits}f}]"


def gallery_lines(entry):
    lines = [
        "### Rebuilding records",
        "",
        f"Queries from random starts in the pixel box, noise {entry['noise']:g}. Left: the record; then, left to right, the query found under "
        + ", ".join(name for name in entry["kernels"] if not name.startswith("conv"))
        + ";",
        "last two columns: another record and its query under a convolutional kernel on a smaller data set.",
        "",
        f"![Records and the queries found for them]({PICTURES}/gallery.png)",
        "",
        "| kernel | n | starts | KL at the query over KL at the record | cosine to the record | starts that got within a tenth |",
        "|---|---|---|---|---|---|",
    ]
    for name in entry["kernels"]:
        cells = [cell for cell in entry["cells"] if cell["kernel"] == name]
        shares, cosines = (", ".join(f"{cell[key]:.3f}" for cell in cells) for key in ("share_of_ceiling", "cosine"))
        near = statistics.mean(cell["restarts_near_ceiling"] for cell in cells)
        lines.append(f"| {name} | {cells[0]['n']:,} | {cells[0]['restarts']} | {shares} | {cosines} | {percent(near)} |")
    return [*lines, ""]


def trace_lines(entry):
    marks = ", ".join(str(mark) for mark in entry["marks"])
    return [
        f"One start (relu, depth 5, n = {entry['n']:,}), optimised for {marks} steps, and the record; below, that start and three others:",
        "",
        f"![The query on its way]({PICTURES}/trace.png)",
        "",
        f"![KL over steps]({PICTURES}/trace.svg)",
        "",
    ]


def gap_lines(entry):
    median = statistics.median(cell["share_of_ceiling"] for cell in entry["cells"])
    return [
        f"Over {len(entry['cells'])} random records (relu, depth 2, n = {entry['n']:,}, {entry['restarts']} random starts of {entry['steps']} steps): the best query reaches {percent(median)} of the record's own KL in the",
        f"median, at least 90 % for {interval(entry['reached_90_percent'])} of the records, and points where the record does (cosine above 0.95) for {interval(entry['rebuilt'])}. A single",
        f"start gets there in {percent(entry['one_start_reaches_90_percent'])} of the cases. Queries above the record's own KL: {entry['above_record']} (largest share {entry['largest_share']:.6f}).",
        "",
        f"![Gap between query and record]({PICTURES}/gap.svg)",
        "",
    ]


def several_lines(entry):
    lines = [
        f"Several queries at once, {entry['records']} records, {entry['restarts']} random starts of {entry['steps']} steps, KL of the whole set over KL at the record alone:",
        "",
        "| queries | median | largest |",
        "|---|---|---|",
    ]
    return [*lines, *(f"| {row['queries']} | {row['median']:.4f} | {row['largest']:.6f} |" for row in entry["rows"]), ""]


def one_start_lines(entry):
    shares = entry["share_of_ceiling"]
    stuck = entry["rebuilt_below_90_percent"]
    lines = [
        f"{len(shares)} random records (the paper has {PUBLISHED_RECORDS}) under its relu network of depth {entry['depth']} (n = {entry['n']:,}), *one* random start of {entry['steps']} steps each: the query reaches {percent(statistics.median(shares))} of the record's own KL in the median,",
        f"at least 90 % for {interval(entry['reached_90_percent'])} of the records, and points where the record does for {interval(entry['rebuilt'])}. Of the records where it stays below 90 % it still points there for "
        + ("none." if not stuck else f"{percent(stuck)}."),
        f"Queries above the record's own KL: {entry['above_record']} (largest share {entry['largest_share']:.6f}).",
        "",
        f"![Share of the record's KL, one start each]({PICTURES}/one_start.svg)",
        "",
        f"All of them in {len(entry['parts'])} parts, rows of {entry['across']} pairs, the record above its query, sorted by the share reached.",
        "",
    ]
    first = 0
    for number, count in enumerate(entry["parts"], 1):
        part = shares[first : first + count]
        first += count
        lines += [
            f"Part {number} ([LOOD] Figure {FIRST_PART + number - 1}), {count} records, shares from {part[0]:.4f} to {part[-1]:.4f}:",
            "",
            f"![Records and the queries found for them, part {number}]({PICTURES}/one_start_{number}.webp)",
            "",
        ]
    return lines


def group_lines(entry):
    starts = entry["starts"]
    means = {way: statistics.mean(row["share_of_ceiling"][way] for row in entry["rows"]) for way in starts}
    lines = [
        f"Three records left out together, {len(entry['rows'])} random groups, {entry['steps']} steps: three queries from {starts['random']} *random* starts; from {starts['greedy']} *greedy* ones, which find one query after the other",
        f'(`start="greedy"`, about the same arithmetic); one query from {starts["one"]} random starts. The share of the group\'s KL that is reached is {means["random"]:.2f} in the mean from random starts, **{means["greedy"]:.2f}** from greedy',
        f"ones and {means['one']:.2f} by one query. In the table the records are sorted by their own KL, highest first; *rebuilt*: which of them have a cosine above 0.95 with some query found. The picture has four groups:",
        "the three, the three greedy queries, the three random ones, the single one.",
        "",
        f"![Groups of three and the queries found]({PICTURES}/group.png)",
        "",
        "| KL of the records | random: share of the group's KL | rebuilt | greedy: share | rebuilt | one query: share | rebuilt | one query over the best record alone |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in entry["rows"]:
        kls = ", ".join(f"{kl:.2f}" for kl in row["record_kl"])
        cells = [
            f"{row['share_of_ceiling'][way]:.3f} | " + ", ".join("yes" if found else "no" for found in row["rebuilt"][way])
            for way in ("random", "greedy", "one")
        ]
        lines.append(f"| {kls} | {' | '.join(cells)} | {row['one_over_best_record']:.3f} |")
    return [*lines, ""]


def perturbation_lines(entry):
    kl, mean = entry["peaks"]["kl"], entry["peaks"]["mean_distance"]
    return [
        f"Along random directions through {entry['records']} records, up to 50 of 255 grey levels either way: KL is largest at the record for {percent(kl['at_record'])} of them (mean place",
        f"{kl['mean']:.2f} ± {kl['deviation']:.2f}), the mean distance for {percent(mean['at_record'])} ({mean['mean']:.2f} ± {mean['deviation']:.2f}).",
        "",
        f"![KL along random directions]({PICTURES}/perturbations.svg)",
        "",
    ]


def normalisation_lines(entry):
    lines = [
        f"Normalising with the training data's own channel means and deviations (relu, depth 2, {entry['steps']} steps from the record): by how much the best query's KL exceeds the",
        "record's, and how far away it lies as a share of the data's spread. With one kernel for both models nothing exceeds it.",
        "",
        "| n | records | of them exceeded | median excess | largest excess | median distance |",
        "|---|---|---|---|---|---|",
    ]
    sizes = sorted({row["n"] for row in entry["rows"]})
    return [*lines, *(_normalised_row(n, [row for row in entry["rows"] if row["n"] == n]) for n in sizes), ""]


def _normalised_row(n, rows):
    gains = [row["gain"] for row in rows]
    exceeded, distance = sum(gain > 0 for gain in gains), statistics.median(row["distance"] for row in rows)
    return f"| {n} | {len(rows)} | {exceeded} | {statistics.median(gains):.1e} | {max(gains):.1e} | {distance:.4f} |"


def normalised_convolution_lines(entry):
    """[LOOD] Figure 10."""
    rows = entry["rows"]
    brighter = statistics.median(row["brightness"] for row in rows)
    return [
        f"The same under convolutions of depth 5 ({entry['steps']} steps), records above, their best queries below. The mean pixel changes by {brighter:+.4f} of 1 in the median; [LOOD]'s queries are darker to the eye.",
        "",
        "| n | records | of them exceeded | median excess | largest excess | median distance |",
        "|---|---|---|---|---|---|",
        _normalised_row(rows[0]["n"], rows),
        "",
        f"![Queries under data-dependent normalisation]({PICTURES}/normalised.png)",
        "",
    ]


def convolution_lines(entry):
    cells = entry["cells"]
    shares, cosines = (", ".join(f"{cell[key]:.3f}" for cell in cells) for key in ("share_of_ceiling", "cosine"))
    return [
        f"Convolutions of depth 5 without pooling (n = {entry['n']}, {entry['restarts']} random starts of {entry['steps']} steps), records above, queries below: KL over that at the record {shares}; cosine to the record {cosines}.",
        "",
        f"![Records and queries under convolutions of depth 5]({PICTURES}/convolutions.png)",
        "",
    ]


def attack_lines(entry):
    lines = [
        "### KL, mean distance and the attack",
        "",
        f"Spearman correlation with the AUC of the best attack on the process, over {entry['n']:,} images and {entry['noise_records']} records of uniform noise with random labels.",
        "",
        "| kernel | records | KL | mean distance | AUC: lowest, median, highest |",
        "|---|---|---|---|---|",
    ]
    for kernel, found in entry["kernels"].items():
        for group in ("images", "uniform noise", "both"):
            row = found[group]
            aucs = ", ".join(f"{value:.2f}" for value in row["auc_range"])
            lines.append(f"| {kernel} | {group} | {interval(row['kl'])} | {interval(row['mean_distance'])} | {aucs} |")
    return [*lines, "", f"![KL and mean distance against AUC]({PICTURES}/leak_and_attack.svg)", ""]


def optimum_lines(entry):
    distances = statistics.median(cell["distance"] for cell in entry["cells"])
    return [
        f"The query whose *mean* moves most, {len(entry['cells'])} records under an RBF kernel (n = {entry['n']:,}, {entry['steps']} steps from the record): its mean distance is {interval(entry['gain'])} times",
        f"the record's in the median, {distances:.2f} data spreads away. There the attack is weaker: the AUC falls by more than 0.025 for {interval(entry['auc_falls_by_0.025'])} of the records.",
        "Above eight records, below their queries.",
        "",
        f"![Records and the queries they move most]({PICTURES}/mean_distance.png)",
        "",
    ]


def sine_lines(entry):
    far = entry["least_stationary_over_seeds"]
    rows = "; ".join(
        f"{row['record']} ({row['at']:.2f}): mean distance {row['best_query_mean_distance']:.2f}, KL {row['best_query_kl']:.2f}, ratio of the variances {row['best_query_variance_ratio']:.2f}"
        for row in entry["rows"]
    )
    (least,) = (row for row in entry["rows"] if row["record"] == "least stationary")
    at_mean, largest = least["log_variance_ratio_at_mean_distance"], max(least["log_variance_ratio"])
    return [
        f"The sine toy, best queries: {rows}. The least stationary record depends on the ten points drawn: over {len(far)} seeds its size",
        f"ranges from {min(map(abs, far)):.2f} to {max(map(abs, far)):.2f}, median {statistics.median(map(abs, far)):.2f}.",
        "",
        f"The ratio of the variances is that of the prediction without the record to that with it ([LOOD] Figure 7). Where the least stationary record moves the mean most, its logarithm is {at_mean:.2f},",
        f"and {largest:.2f} at its largest.",
        "",
        f"![Mean distance, KL and the ratio of the variances over queries]({PICTURES}/sine.svg)",
        "",
        "The gradient of the mean distance at the record itself, over records of the toy: near 0 far from the data and among them.",
        "",
        f"![Gradient of the mean distance at the record]({PICTURES}/sine_gradient.svg)",
        "",
    ]

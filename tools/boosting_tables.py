"""The benchmark page's section on boosted trees, from benchmarks/results/boosting_loo.json."""

NAMES = ("shift", "LeafRefit", "LeafInfluence", "influence", "BoostIn", "leverage", "loss")


def speed_section(case):
    """Cost of the scores of boosted models, from benchmarks/results/boosting_speed.json."""
    lines = [
        "## Boosted trees: what the scores cost",
        "",
        f"`yielding_shift`, `shift`, `loo`, `influence`, `leverage` and `leaf_size` of every record, {case['features']} features, two classes, one thread, while other",
        "work shared the machine: seconds are the processor's. The fit on the same thread stands beside it. CatBoost without backtracking of leaf steps.",
        "",
        "| model | records | rounds | fit, s | scores, s | peak of the process, GB |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in case["rows"].items():
        times = f"{row['fit_processor_seconds']:.1f} | {row['processor_seconds']:.1f} | {row['peak_gigabytes']:.1f}"
        lines.append(f"| {name.partition(', full')[0]} | {row['records']:,} | {row['rounds']} | {times} |")
    return [*lines, ""]


def boosting_section(case):
    some = next(iter(case["settings"].values()))
    lines = [
        "## Boosted trees, left out for real",
        "",
        f"scikit-learn's two-class gradient boosting, {case['rounds']} rounds, {some['records']} records, trained again without each of them: Spearman correlation of",
        "each score with how far the record's own margin really falls. LeafRefit moves the other records' margins along from round to round, at O(n²) a round;",
        "LeafInfluence is its derivative; BoostIn adds up first-order terms along the training. Formulas of the published relatives as in arXiv 2205.00359.",
        "",
        "| setting | " + " | ".join(f"`{name}`" if name[0].islower() else name for name in NAMES) + " |",
        "|---|" + "---|" * len(NAMES),
    ]
    for name, entry in case["settings"].items():
        lines.append(f"| {name} | " + " | ".join(f"{entry['spearman'][score]:.2f}" for score in NAMES) + " |")
    gaps = ("shift", "LeafRefit", "LeafInfluence")
    lines += [
        "",
        "Median distance from the true fall, and the median size of that fall; last, the correlation of `shift` with LeafRefit.",
        "",
        "| setting | fall | " + " | ".join(f"`{name}`" if name == "shift" else name for name in gaps) + " | `shift` with LeafRefit |",
        "|---|---|" + "---|" * (len(gaps) + 1),
    ]
    for name, entry in case["settings"].items():
        apart = " | ".join(f"{entry['median_gap'][score]:.3f}" for score in gaps)
        lines.append(f"| {name} | {entry['median_fall']:.3f} | {apart} | {entry['shift_to_leaf_refit']:.2f} |")
    speed = case["speed"]
    each = 1e9 * speed["seconds"] / speed["records"] / speed["rounds"]
    lines += [
        "",
        f"{speed['records']:,} records × {speed['rounds']} rounds of `HistGradientBoostingClassifier` on one thread: {speed['seconds']:.0f} s for all four columns, {each:.0f} ns per record and round.",
        "",
    ]
    return lines

"""The whole audit's part of docs/benchmarks.md."""


def audit_section(cases):
    lines = ["## A whole audit", ""]
    lines += _ideal_lines(cases["ideal"], cases["all_columns"]) if "ideal" in cases else []
    return lines + (_wide_lines(cases["wide"]) if "wide" in cases else [])


def _ideal_lines(case, every):
    lines = [
        f"`audit_signals` of {case['n']:,} training and {case['unseen']:,} test records, d = {case['d']}, m = {case['m']}, against the same two float32 products as above, which are",
        "measured before and after each audit in the same run. `margin_leverage` needs the two products a second time, over another curvature, and is on request for a head of this size:",
        f"with it, in a run of its own before it was on request, an audit took {every['seconds']:.1f} s, {every['ratio']:.2f} times the ideal ({every['ideal_seconds']:.1f} s) of that run. The best of",
        f"{len(case['rounds'])} audits and the best of their ideals. Goal: a ratio of at most 3.",
        "",
        "| ideal, s | whole audit, s | **ratio** | precision | measured error |",
        "|---|---|---|---|---|",
        f"| {case['ideal_seconds']:.1f} | {case['seconds']:.1f} | **{case['ratio']:.2f}** | {case['precision']} | {case['precision_error']:.0e} |",
        "",
        "Where the time went:",
        "",
        "| part | seconds | share |",
        "|---|---|---|",
    ]
    for name, spent in sorted(case["parts"].items(), key=lambda part: -part[1]):
        lines.append(f"| {name} | {spent:.2f} | {100 * spent / case['seconds']:.0f} % |")
    return [*lines, ""]


def _wide_lines(case):
    lines = [
        "Heads too wide for record scores keep the rest of their audit, one process a size. Memory above the inputs; what the record scores would need (EK-FAC) is what the audit's own",
        "reason says. Seconds are wall time; other work shared the cores for a part of the run.",
        "",
        "| classes | d | training records | test records | seconds | inputs, GB | peak above inputs, GB | record scores | loss AUC |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in case["rows"]:
        need = row["record_scores"].partition("needs ")[2].partition(",")[0]
        lines.append(
            f"| {row['m']:,} | {row['d']} | {row['n']:,} | {row['unseen']:,} | {row['seconds']:.0f} | {row['input_bytes'] / 1e9:.1f} "
            f"| {row['peak_bytes_above_inputs'] / 1e9:.1f} | do not fit: {need} | {row['auc']:.3f} |"
        )
    return [*lines, ""]

"""The measured part of docs/lood.md and the section of docs/benchmarks.md on leave-one-out distinguishability."""

from lood_network_tables import network_lines
from lood_query_tables import (
    PICTURES,
    attack_lines,
    convolution_lines,
    gallery_lines,
    gap_lines,
    group_lines,
    interval,
    normalisation_lines,
    normalised_convolution_lines,
    one_start_lines,
    optimum_lines,
    percent,
    perturbation_lines,
    several_lines,
    sine_lines,
    trace_lines,
)
from lood_theory_tables import bound_lines, rate_lines


def lood_section(cases):
    """Speed and memory: docs/benchmarks.md."""
    lines = ["## Leave-one-out distinguishability", ""]
    if "all_records" in cases:
        row = cases["all_records"]
        lines += [
            f"All n = {row['n']:,} records from one factorisation, {row['outputs']} outputs: {row['seconds']:.2f} s. Two solves a record, extrapolated from {row['sampled_records']} records of the",
            f"same run: {row['two_solves_seconds_extrapolated']:.0f} s, **{row['speed_up']:,.0f} ×** as long (goal: 500 ×). Largest relative difference: {row['largest_relative_difference']:.0e}.",
            "",
        ]
    if "groups_and_queries" in cases:
        row = cases["groups_and_queries"]
        lines += [
            f"After one factorisation and inverse at n = {row['n']:,} ({row['factor_and_inverse_seconds']:.1f} s): a group of three {1e3 * row['group_of_three_seconds']:.0f} ms; a step of query",
            f"optimisation with {row['restarts']} starts of {row['queries']} queries {1e3 * row['optimisation_seconds_a_step']:.0f} ms.",
            "",
        ]
    large = [cases[name] for name in ("ten_thousand", "fifty_thousand") if name in cases]
    if large:
        lines += [
            "Large data sets, one process each; memory above the inputs, and as a multiple of an n × n float64 matrix (goal at 10,000: 3). The larger uses",
            "`lood_bounds`, which holds no such matrix: bounds for four records and a group of three. Wall seconds read high where the load was above two.",
            "",
            "| n | way | wall s | CPU s | load | peak memory, GB | n × n matrices | widest gap between bounds |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in large:
            bounds = "widest_relative_gap_of_kl" in row
            way = f"bounds, {row['iterations']} steps, rank {row['rank']:,}" if bounds else "exact, every record"
            cpu = f"{row['cpu_seconds']:.0f}" if "cpu_seconds" in row else "not measured"
            load = f"{row['load']:.1f}" if "load" in row else "not measured"
            gap = f"{row['widest_relative_gap_of_kl']:.0e}" if bounds else "exact"
            lines.append(
                f"| {row['n']:,} | {way} | {row['seconds']:.0f} | {cpu} | {load} | {row['peak_bytes'] / 1e9:.1f} | {row['peak_over_8n2']:.2f} | {gap} |"
            )
        lines.append("")
    return lines


def measured_section(figures):
    """Every stored figure in words, tables and pictures: docs/lood.md."""
    parts = {
        "activations": activation_lines,
        "rates": rate_lines,
        "gallery": gallery_lines,
        "convolutions": convolution_lines,
        "trace": trace_lines,
        "gap": gap_lines,
        "one_start": one_start_lines,
        "several_queries": several_lines,
        "group_of_three": group_lines,
        "perturbations": perturbation_lines,
        "data_normalisation": normalisation_lines,
        "normalised_convolutions": normalised_convolution_lines,
        "leak_and_attack": attack_lines,
        "mean_distance_optimum": optimum_lines,
        "sine": sine_lines,
    }
    lines = [line for name, part in parts.items() if name in figures for line in part(figures[name])]
    return [*lines, *network_lines(figures)]


def activation_lines(entry):
    rows = {(row["case"], row["activation"], row["depth"]): row for row in entry["rows"]}
    depths = sorted({row["depth"] for row in entry["rows"]})
    names = [name for name in dict.fromkeys(row["activation"] for row in entry["rows"]) if name != "relu"]
    kept = ", ".join(f"{name} {value:.2f}" for name, value in entry["kept_weight_variance"].items())
    lines = [
        "### Which activation leaks more",
        "",
        f"n = {entry['n']} cars and planes at {entry['side']} × {entry['side']}, every record queried at itself, fully connected kernels. Each cell: KL under relu over KL under the",
        "other activation, median over records and its bootstrap interval (95 %); above 1, relu leaks more. *Same weights*: weight variance",
        f"{entry['weight_variance']:g} and no biases for all, records scaled to one length. *Fixed noise*: {entry['fixed_noise']:g}; *scaled*: {entry['noise_share']:g} of the kernel's mean diagonal. *Variance kept*: weights",
        f"and inputs scaled so that every layer has variance 1 (weight variances: {kept}), which makes all diagonals 1; scaled noise. *Edge of chaos*:",
        "weights of `ns.critical_weights`, all diagonals 1; scaled noise.",
        "",
        "| | depth | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for title, case, column in (
        ("same weights, fixed noise", "sphere", "fixed_kl"),
        ("same weights, scaled noise", "sphere", "scaled_kl"),
        ("variance kept", "kept", "scaled_kl"),
        ("edge of chaos", "critical", "scaled_kl"),
        ("same weights, scaled noise, lengths as they are", "raw", "scaled_kl"),
    ):
        for depth in depths:
            cells = " | ".join(interval(rows[case, name, depth][column]["relu_over_this"]) for name in names)
            lines.append(f"| {title} | {depth} | {cells} |")
    return [*lines, *flatness_lines(rows, (depths[0], depths[-1]), names), *activation_verdict(rows, depths), "", *bound_lines(entry)]


def flatness_lines(rows, depths, names):
    lines = [
        "",
        "The mean distance in the same way, and how flat the kernel is: h(α_min)/α_min and, in brackets, the mean diagonal (same weights).",
        "",
        "| | depth | relu | " + " | ".join(names) + " |",
        "|---|---|---|" + "---|" * len(names),
    ]
    for depth in depths:
        for title, column in (
            ("mean distance, fixed noise", "fixed_mean_distance"),
            ("mean distance, scaled noise", "scaled_mean_distance"),
        ):
            cells = " | ".join(interval(rows["sphere", name, depth][column]["relu_over_this"]) for name in names)
            lines.append(f"| {title} | {depth} | 1 | {cells} |")
        flats = (rows["sphere", name, depth] for name in ("relu", *names))
        lines.append(
            f"| flatness (diagonal) | {depth} | " + " | ".join(f"{row['h_relative']:.2f} ({row['diagonal']:.2f})" for row in flats) + " |"
        )
    return lines


def activation_verdict(rows, depths):
    """The paper's two sentences, each with its set-up and its number."""
    deep, first = rows["sphere", "gelu", depths[-1]], rows["sphere", "gelu", depths[0]]
    kept, critical = (rows[case, "gelu", depths[-1]] for case in ("kept", "critical"))
    return [
        "",
        f"![Median KL over depth for five activations]({PICTURES}/activations.svg)",
        "",
        f"At fixed noise relu and gelu are close, and the sign depends on depth: at depth {depths[0]} relu's KL is higher for {percent(first['fixed_kl']['relu_higher'])} of the records, at depth {depths[-1]}",
        f"for {percent(deep['fixed_kl']['relu_higher'])} (higher by more than a tenth for {percent(deep['fixed_kl']['relu_higher_by_tenth'])}). With the noise scaled to the kernel relu's is higher for {percent(deep['scaled_kl']['relu_higher'])} at depth {depths[-1]}, with the",
        f"variance kept for {percent(kept['scaled_kl']['relu_higher'])}, on the edge of chaos for {percent(critical['scaled_kl']['relu_higher'])}.",
    ]

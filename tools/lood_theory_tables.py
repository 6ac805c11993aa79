"""Measured part of docs/lood.md about flat kernels: rates over depth, and the bound that flatness puts on the leak."""

from lood_query_tables import PICTURES


def rate_lines(entry):
    """[LOOD] Proposition G.1 by recursion."""
    names = list(entry["weights"])
    depths = [row["depth"] for row in entry["on_the_edge"][names[0]]]
    weights = ", ".join(f"{name} ({weight:.4g}, {bias:.3g})" for name, (weight, bias) in entry["weights"].items())
    lines = [
        "### How fast deep kernels become flat",
        "",
        f"Two records 60° apart, c their correlation after L layers. On the edge of chaos (`ns.critical_weights`: weight and bias variance {weights}) the variance stays 1,",
        f"and 1 − c follows a recursion: closed forms in {entry['digits']} digits for relu, gelu and erf, differences without cancellation for tanh and elu. Each cell: the local exponent",
        "d log(1 − c)/d log L and, in brackets, 1 − c over its limit, 9π²/(2L²) for relu and 2/(weight·E[φ″²]·L) for the others.",
        "",
        "| L | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for place, depth in enumerate(depths):
        cells = (entry["on_the_edge"][name][place] for name in names)
        lines.append(f"| {depth:,} | " + " | ".join(f"{cell['exponent']:.2f} ({cell['over_limit']:.2f})" for cell in cells) + " |")
    lines += [
        "",
        "So [LOOD] Proposition G.1 holds on the edge of chaos, where its sources prove it: relu tends to L⁻², smooth activations to L⁻¹. At depth 10 neither is there yet. With weight",
        "variance 2 and no biases, which is the edge for relu alone, it does not hold. Each cell: 1 − c and, in brackets, the variance of a prediction.",
        "",
        "| L | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for place, row in enumerate(entry["off_the_edge"][names[0]]):
        cells = (entry["off_the_edge"][name][place] for name in names)
        lines.append(f"| {row['depth']:,} | " + " | ".join(f"{cell['distance']:.3g} ({cell['diagonal']:.2g})" for cell in cells) + " |")
    return [
        *lines,
        "",
        "tanh and erf tear all records apart (c tends to 0, the kernel to a multiple of the identity), gelu fades to nothing, elu grows without end: none has a constant α > 0 to tend to.",
        "",
        f"![1 − correlation over depth, on and off the edge of chaos]({PICTURES}/rates.svg)",
        "",
    ]


def bound_lines(entry):
    """[LOOD] Proposition 6.1 beside what it bounds."""
    cases = {"same weights": "sphere", "edge of chaos": "critical"}
    rows = {(row["case"], row["activation"], row["depth"]): row for row in entry["rows"]}
    depths = sorted({row["depth"] for row in entry["rows"]})
    names = list(dict.fromkeys(row["activation"] for row in entry["rows"]))
    lines = [
        "**What flatness bounds.** [LOOD] Proposition 6.1, put right ([how](references.md#errata-we-work-around)), bounds the mean distance of any record by h(α_min). Each cell: h(α_min),",
        "the bound, and in bold the largest mean distance that there is; noise scaled.",
        "",
        "| | depth | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for title, case in cases.items():
        for depth in (depths[0], depths[-1]):
            cells = (rows[case, name, depth] for name in names)
            lines.append(f"| {title} | {depth} | " + " | ".join(map(_bound_cell, cells)) + " |")
    bounds = [
        row["bound"] / row["largest_mean_distance"] for row in entry["rows"] if row["bound"] is not None and row["case"] in cases.values()
    ]
    return [
        *lines,
        "",
        f"The bound is {min(bounds):.0e} to {max(bounds):.0e} times what it bounds: with hundreds of records it says nothing about a kernel that is not constant to many digits. What the",
        "proposition explains, that flatter kernels leak less, shows in the table of KL above and not through the bound.",
        "",
    ]


def _bound_cell(row):
    bound = "none" if row["bound"] is None else f"{row['bound']:.0e}"
    return f"{row['h']:.2f}, {bound}, **{row['largest_mean_distance']:.2g}**"

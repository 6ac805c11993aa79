"""The section of docs/benchmarks.md on the largest rate of any record, from benchmarks/results/largest_rate.json."""


def largest_section(stored):
    nominal, fpr = f"{100 * stored['nominal']:g} %", stored["fpr"]
    lines = [
        "## The largest rate of any record",
        "",
        f"The posterior of the largest true rate at false-positive rate {fpr:g}, against the truth; means over data sets. *Plain*: the largest of",
        "the records' own rates without shrinking, as LiRA takes them. *Shrunk*: the largest `attack_rate`. *Cover*: how often the",
        f"{nominal} interval holds the true one; *above*: how often the true one lies above it. *Alarm*: how often the interval's lower end lies above",
        f"{stored['times']:g} times a guess of {stored['rare']:g}, and the same by the own interval of the record with the largest rate, which verdicts go by.",
        f"*Spreads of their own* have {stored['freedom']} degrees of freedom, *heavy tails* are slopes of a t distribution with {stored['tail']}.",
        f"The truth of digits is measured with the others of {stored['truth_models']} models, and being the largest of many it is itself a little too large.",
        "",
        "| records | reference models | data sets | true | plain | shrunk | median | cover | above | alarm | alarm, own |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in stored["rows"]:
        figures = [row[name] for name in ("true", "largest_plain", "largest_shrunk", "median")]
        shares = [row[name] for name in ("covered", "above", "alarm", "alarm_own")]
        cells = [f"{value:.3f}" for value in figures] + [f"{value:.2f}" for value in shares]
        lines.append(f"| {row['kind']} | {row['models']} | {row['repetitions']} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "What a retraining flags again: the share of the records flagged in one training that the next one flags, and the overlap of the top 1 %",
        "of two trainings (*two trainings* were drawn for it). Cover as above.",
        "",
        "| records | reference models | flagged again | said | cover | overlap, two trainings | said | cover |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in stored["rows"]:
        cells = [f"{row['again']:.3f}", f"{row['again_said']:.3f}", f"{row['again_covered']:.2f}"]
        known = "overlap" in row
        cells += [
            f"{row['overlap']:.3f}" if known else "–",
            f"{row['overlap_said']:.3f}",
            f"{row['overlap_covered']:.2f}" if known else "–",
        ]
        lines.append(f"| {row['kind']} | {row['models']} | " + " | ".join(cells) + " |")
    return [*lines, ""]

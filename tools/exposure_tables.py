"""Measured part of docs/exposure.md: recall against trainings spent, reliability of sizes, how the rules were chosen, from benchmarks/results/exposure."""

import json

from exposure_bars import RIVALS, SHOWN, goal_lines, halves
from exposure_stored import COUNTS, RUNS, cell, earlier_lines, mean, rules, runs, titled
from papers_stored import POOLED_BELOW

MEASURES = {"recall": "recall", "precision": "precision@1 %", "spearman": "Spearman"}
# Rows shown by all measures, in words.
MEASURED = {
    "exposure": "final weights (`shift`)",
    "exposure_checkpoint": "and a checkpoint",
    "exposure_short3": "and 3 short references",
    "exposure_folds5": "and 5 folds",
    "exposure_2": "and 2 references",
    "exposure_4": "and 4 references",
    "difference_4": "mean IN − mean OUT, 4 references",
    "label_quality_folds5": "out-of-fold label quality, 5 folds",
}


def measured(entry, method):
    """Recall with its standard error."""
    if method not in entry["methods"]:
        return "–"
    found = entry["methods"][method]["d_prime"]["recall"]
    return cell(found["mean"], found["error"])


def exposure_section():
    """Everything between the marks of docs/exposure.md."""
    entries, chosen = runs(), rules()
    if not entries:
        return []
    lines = [*recall_lines(entries), *measure_lines(entries), *rival_lines(entries), *goal_lines(entries), *reliability_lines(entries)]
    return [*lines, *(rule_lines(chosen) if chosen else []), *held_out_lines(), *null_lines(), *speed_lines()]


def recall_lines(entries):
    lines = [
        "Recall of the truly riskiest 1 % (by d′ of models that no method sees) in the top 5 % of the rank,",
        "per cent, mean ± standard error over audited models. *Trainings* are counted in trainings of the",
        "audited model; a random order finds 5. Every record's d′ has its own spread here, also in a second",
        f"LiRA, whose halves have {halves(entries)} models. [The papers, re-made](papers.md) has another truth:",
        f"more models, and one spread for all records below {POOLED_BELOW} of them. Its second LiRA is higher ([both](#goals)).",
        "",
        "| evidence | trainings | " + " | ".join(titled(entry) for entry in entries.values()) + " |",
        "|---|---|" + "---|" * len(entries),
    ]
    rows = [
        ("final weights (`shift`)", "0", "exposure"),
        ("and a checkpoint", "0", "exposure_checkpoint"),
        ("and a loss trace", "0", "exposure_trace"),
        ("and 3 short references", "see below", "exposure_short3"),
        ("and 7 short references", "see below", "exposure_short7"),
        ("and 2 folds", "1", "exposure_folds2"),
        ("and 5 folds", "4", "exposure_folds5"),
        *((f"and {k} reference{'s' * (k > 1)}", str(k), f"exposure_{k}") for k in COUNTS),
        *((f"{k} references, final weights only", str(k), f"exposure_final_{k}") for k in (2, 4)),
        ("2 references and 3 short ones", "see below", "exposure_short3_2"),
    ]
    lines += [f"| {title} | {price} | " + " | ".join(measured(e, name) for e in entries.values()) + " |" for title, price, name in rows]
    price = " · ".join(f"{entry['title']} {mean_price(entry):.2f}" for entry in entries.values())
    second = [cell(entry["second_lira"]["recall"]["mean"], entry["second_lira"]["recall"]["error"]) for entry in entries.values()]
    return [
        *lines,
        "| *a second LiRA: half of the truth models against the other half* | | " + " | ".join(second) + " |",
        *earlier_lines(entries),
        "",
        f"Price of one short reference, in trainings: {price}.",
        "",
        "![Recall against trainings spent](images/exposure/recall.svg)",
        "",
    ]


def measure_lines(entries):
    """Precision, Spearman and the success truth of a few rows, whose recall by d′ the first table has."""
    lines = [
        "### By success, precision and Spearman",
        "",
        "The same ranks by other measures, each by d′ / by success, which is how often LiRA of the truth models is right",
        "about the record. *Recall* is that of the first table; *precision@1 %* is the share of the top 1 % of the rank",
        "that is truly in the top 1 %; *Spearman* is the rank correlation over all records. Per cent but for Spearman.",
        "A second LiRA's figures by success were not stored.",
        "",
        "| measure | evidence | " + " | ".join(titled(entry) for entry in entries.values()) + " |",
        "|---|---|" + "---|" * len(entries),
    ]
    for measure, words in MEASURES.items():
        for name, title in MEASURED.items():
            cells = [two_truths(entry, name, measure) for entry in entries.values()]
            lines.append(f"| {words} | {title} | {' | '.join(cells)} |")
        second = [shown_as(entry["second_lira"][measure]["mean"], measure) for entry in entries.values()]
        lines.append(f"| {words} | *a second LiRA* | {' | '.join(second)} |")
    return [*lines, ""]


def two_truths(entry, name, measure):
    """A method's measure by d′ and by success."""
    if name not in entry["methods"]:
        return "–"
    return " / ".join(shown_as(mean(entry, name, truth, measure), measure) for truth in ("d_prime", "success"))


def shown_as(value, measure):
    """Shares in per cent; correlations as they are."""
    return f"{value:.2f}" if measure == "spearman" else cell(value)


def mean_price(entry):
    """Trainings of one short reference."""
    return entry["methods"]["exposure_short3"]["trainings"] / 3


def rival_lines(entries):
    lines = [
        "### What others find with the same models",
        "",
        "LiRA's Λ of the audited margin, and its d′ from the reference models, each with a record's own variance,",
        "one pooled over records, and one shrunk by a normal–inverse-gamma prior as BaVarIA does (arXiv 2603.11799;",
        "the prior's weight, four models, is ours). RMIA with γ = 2 and a = 0.3. Label quality is cleanlab's",
        "self-confidence of out-of-fold predictions (Northcutt, Jiang and Chuang 2021). Where a record has no",
        "model on a side, others take the mean of that side over all records.",
        "",
        "| method | " + " | ".join(titled(entry) for entry in entries.values()) + " |",
        "|---|" + "---|" * len(entries),
    ]
    for name, title in (
        ("loss", "loss"),
        ("lt_iqr", "LT-IQR of the whole trace"),
        ("label_quality_folds2", "out-of-fold label quality, 2 folds"),
        ("label_quality_folds5", "out-of-fold label quality, 5 folds"),
    ):
        lines.append(f"| {title} | " + " | ".join(measured(e, name) for e in entries.values()) + " |")
    for rival in RIVALS:
        cells = [" / ".join(cell(mean(e, f"{rival}_{k}")) for k in COUNTS) for e in entries.values()]
        lines.append(f"| {SHOWN[rival]}, {' / '.join(map(str, COUNTS))} references | " + " | ".join(cells) + " |")
    return [*lines, ""]


def reliability_lines(entries):
    lines = [
        "### Can sizes be trusted?",
        "",
        "*Error*: mean distance of predicted and measured per-record attack rates at false-positive rate 0.05",
        "(0.01, 0.001) over tenths of the records by prediction; *worst*: the largest of them at 0.05. *Cover*:",
        "share of the 90 % intervals of d′ that hold the true one, of all records and of the 5 % ranked highest.",
        "The truth is itself measured; its standard error is added to the interval's. The test's threshold is",
        "estimated from the truth models too, and predictions are made for that test. Goal: an error of at",
        "most 0.05.",
        "",
        "| setting | references | error 0.05 | 0.01 | 0.001 | worst | cover | cover of the top 5 % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry in entries.values():
        title = titled(entry) + (" §" if "held_out" not in entry else "")
        for count in (2, 4, 8):
            held = entry["reliability"].get(f"exposure_{count}")
            if held is None:
                lines.append(f"| {title} | {count} | order only | | | | | |")
                continue
            refused = entry.get("held_out", {}).get("order_only", {}).get(f"exposure_{count}", {}).get("targets", 0)
            number = f"{count}, order only in {refused} of {entry['models']['targets']}" if refused else str(count)
            errors = [held[f"rate_{fpr}"]["error"] for fpr in ("0.05", "0.01", "0.001")]
            shown = " | ".join(f"{value:.3f}" for value in errors)
            lines.append(
                f"| {title} | {number} | {shown} | {held['rate_0.05']['worst']:.3f} "
                f"| {held['cover']['mean']:.2f} | {held['cover_top']['mean']:.2f} |"
            )
    unheld = any("held_out" not in entry for entry in entries.values())
    mark = ["", "§ Judged before rates were [held against left-out references](#left-out-references)."] if unheld else []
    return [*lines, *mark, "", *beside_truth_lines(entries)]


def beside_truth_lines(entries):
    """Fitted spreads and separations over the true ones, for settings whose run kept them."""
    lines = [
        "Fitted figures over those of the truth models, medians of all records / of the truly riskiest 1 %, where the run kept",
        "them. The riskiest are chosen by the truth itself, so that true spreads among them are rather too small.",
        "",
        "| setting | references | spread with the record | spread without it | separation |",
        "|---|---|---|---|---|",
    ]
    rows = []
    for entry in entries.values():
        for count in (2, 4, 8):
            held = entry["reliability"].get(f"exposure_{count}", {}).get("beside_truth")
            if held is not None:
                cells = [f"{held[name]['all']:.2f} / {held[name]['top']:.2f}" for name in ("spread_in", "spread_out", "separation")]
                rows.append(f"| {titled(entry)} | {count} | {' | '.join(cells)} |")
    return [*lines, *rows, ""] if rows else []


def rule_lines(chosen):
    setups = len(chosen["setups"])
    lines = [
        "### How the rules were chosen",
        "",
        f"On {setups} calibration setups, none of which is a setting above; means over them. The same figures",
        "by setup are in `benchmarks/results/exposure/rules.json`.",
        "",
        "| form, with 2 / 4 / 8 references | recall by separation / √spread | by separation | by d′ | rate error at 0.05 | cover of the top 5 % |",
        "|---|---|---|---|---|---|",
    ]
    forms = chosen["forms"]
    for name in [key.removeprefix("2 references, ") for key in forms if key.startswith("2 references, ")]:
        counted = [forms[key] for count in COUNTS if (key := f"{count} references, {name}") in forms]
        recalls = [" / ".join(cell(one[measure]["mean"]) for one in counted) for measure in ("recall_0.5", "recall_0", "recall_1")]
        told = [" / ".join(f"{one[measure]['mean']:.3f}" for one in counted) for measure in ("error", "cover_top")]
        lines.append(f"| {name} | " + " | ".join([*recalls, *told]) + " |")
    lines += ["", *sure_lines(chosen), "| order | recall |", "|---|---|"]
    for section in ("folds", "short", "ranks"):
        lines += [f"| {name} | {cell(row['recall']['mean'])} |" for name, row in chosen[section].items()]
    lines += ["", "| order without any other model | classifiers | regressions |", "|---|---|---|"]
    numbers = chosen["orders"]["regression"]
    lines += [
        f"| {name} | {cell(row['mean'])} | {cell(numbers[name]['mean']) if name in numbers else '–'} |"
        for name, row in chosen["orders"]["classification"].items()
    ]
    lines += ["", "What was decided:", ""]
    return [*lines, *(f"- *{name}*: {words}." for name, words in chosen["decisions"].items()), ""]


def sure_lines(chosen):
    """What a spread that may bend changes, on the setups where it changes most; rates that stay off."""
    forms, counts = chosen["forms"], [count for count in COUNTS if f"{count} references, chosen" in chosen["forms"]]
    bent, straight = ([forms[f"{count} references, {name}"] for count in counts] for name in ("chosen", "spread that only rises or falls"))
    gains = {
        setup: [
            100 * (one["recall_0.5"]["setups"][setup] - other["recall_0.5"]["setups"][setup])
            for one, other in zip(bent, straight, strict=True)
        ]
        for setup in chosen["setups"]
    }
    ranked = sorted(gains, key=lambda setup: -sum(gains[setup]))
    shown = [f"{setup} {' / '.join(f'{gain:+.0f}' for gain in gains[setup])}" for setup in (*ranked[:3], *ranked[-3:])]
    lines = [
        f"What the bent spread adds to the recall with {' / '.join(map(str, counts))} references, on the three setups where it adds most and the three",
        f"where it adds least: {' · '.join(shown)}.",
    ]
    off = [f"{setup} {error:.3f} with {count}" for count, held in chosen["error_above_0.05"].items() for setup, error in held.items()]
    return [*lines, f"Rates off by more than 0.05: {', '.join(off) or 'none'}.", ""]


def held_out_lines():
    """How far margins of left-out references reach on the calibration setups, and how far rates are off."""
    path = RUNS / "held_out.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    limits = found["thresholds"]
    lines = [
        "### Left-out references",
        "",
        f"On {len(found['setups'])} of the calibration setups, means over up to four audited models. *Reach*: how far margins of left-out models",
        "without a record reach, over how far their spread says (smallest to largest). *Refused*: share of the audited models whose rates are",
        f"refused, as the reach is short by more than a factor of {limits['farther']:g} beyond twice its standard error. *Error*: mean distance of the rates, told or",
        "not, from those of models that no method sees.",
        "",
        "| setup | references | reach | refused | error at 0.05 | 0.01 | 0.001 |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [(name, count, row) for name, counts in found["setups"].items() for count, row in counts.items()]
    for name, count, row in rows:
        errors = " | ".join(f"{row[f'error_{fpr}']:.3f}" for fpr in ("0.05", "0.01", "0.001"))
        lines.append(f"| {name} | {count} | {row['least']:.2f} to {row['most']:.2f} | {row['refused']:.2f} | {errors} |")
    told = max(row["error_0.05"] for _, _, row in rows if row["refused"] < 0.5)
    lines += ["", f"The largest mean error where fewer than half are refused: {told:.3f}.", ""]
    if found["not_trained"]:
        lines += [f"Not measured here, as their models were not trained again: {', '.join(found['not_trained'])}.", ""]
    return lines


def null_lines():
    path = RUNS / "null_records.json"
    if not path.exists():
        return []
    lines = [
        "### LiRA on records that do not leak",
        "",
        "Simulated records whose margins do not depend on membership, random halves of one pool, each model",
        "attacked with the others (arXiv 2605.25819 reports a bias here). Success of ½ and d′ of 0 would be",
        "unbiased. Margins are drawn on their own here: a bias that the pool's finite size causes through the",
        "training itself cannot be seen. The truth of this page is not attacked this way: d′ comes from models",
        "that no method sees.",
        "",
        "| models | halves | success, record variance | success, pooled variance | mean d′ | mean size of d′ |",
        "|---|---|---|---|---|---|",
    ]
    for row in json.loads(path.read_text())["bias"]:
        lines.append(
            f"| {row['models']} | {'balanced over records' if row['balanced'] else 'independent'} | {row['record']['success']:.3f} | {row['global']['success']:.3f} | {row['record']['d_prime']:.3f} | {row['mean_size']:.2f} |"
        )
    return [*lines, ""]


def speed_lines():
    path = RUNS / "speed.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    seconds, goal = found["seconds"], found["goal"]
    return [
        "### Cost",
        "",
        f"{found['records']:,} records, {found['models']} models and {found['covariates']} covariates: {seconds['processor']:.0f} processor seconds, "
        f"{seconds['wall']:.0f} s on the clock of a machine with",
        f"{found['environment']['cores']} cores and a load of {found['load_before']:.1f} before the run, and {found['bytes_above_inputs'] / 1e9:.1f} GB above the inputs "
        f"(goal: {goal['seconds']} s on a quiet machine and {goal['bytes'] / 1e9:.0f} GB).",
        "",
    ]

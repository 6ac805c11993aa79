"""Measured part of docs/papers.md: the papers' tables with the published figure beside ours."""

import math
import statistics

from exposure_bars import cheapest_evidence, halves
from exposure_stored import runs as exposure_runs
from papers_costs import equal_cost_lines, time_lines
from papers_depths import depth_lines
from papers_disclosed import (
    count_lines,
    crowding_lines,
    damping_lines,
    epoch_lines,
    note_lines,
    one_spread_lines,
    replaced_lines,
    statistic_lines,
)
from papers_extras import early_stop_lines, figure_lines, peer_lines, percent, sentence_lines
from papers_stored import (
    DIFFERS,
    ORDER,
    POOLED_BELOW,
    begun,
    default_score,
    depth_runs,
    fit,
    judged,
    published_row,
    recall,
    row_of,
    runs,
    with_spread,
)
from papers_uses import use_lines
from scipy import stats

# Results that the page shows beside those of the settings.
BESIDE_THE_SETTINGS = (
    "papers_pictures",
    "papers_peers",
    "papers_early_stop",
    "papers_sides",
    "papers_replaced",
    "papers_epochs",
    "papers_dampings",
    "papers_solved",
    "papers_ridge",
    "papers_crowding",
    "canaries",
    "private_training",
)
NAMES = {
    "loss": "loss",
    "gradient_norm": "gradient norm",
    "entropy": "self-entropy",
    "newton": "Newton",
    "influence": "influence",
    "leverage": "leverage",
    "margin_leverage": "margin leverage",
    "loo": "leave-one-out",
    "shift": "shift",
}
GOAL = 0.10
# Rows whose published figure is of other data or features.
STAND_INS = ("pneumonia_probe", "fashion_probe", "sst2_probe")


def named(score):
    whole = score.startswith("network_")
    return NAMES[score.removeprefix("network_")] + (", whole network" if whole else "")


def papers_section(beside):
    """Lines of the generated part of the page, from the settings' results and those `beside` them (name → results, empty where not run)."""
    entries = runs()
    if not entries:
        return []
    missing = [name for name in ORDER if name not in entries]
    return [
        *_headline(entries),
        *_table_1(entries, missing),
        *_differences(entries),
        *_other_truths(entries),
        *_table_5(entries),
        *_attacks(entries),
        *count_lines(entries | _beside(beside, "papers_ridge") | depth_runs()),
        *statistic_lines(entries | _beside(beside, "papers_ridge")),
        *damping_lines(beside["papers_dampings"]),
        *crowding_lines(beside["papers_crowding"]),
        *time_lines(entries),
        *equal_cost_lines(entries),
        *depth_lines(beside["papers_solved"]),
        *_side_lines(beside["papers_sides"], entries),
        *early_stop_lines(beside["papers_early_stop"]),
        *use_lines(beside["canaries"], beside["private_training"]),
        *replaced_lines(beside["papers_replaced"]),
        *epoch_lines(beside["papers_epochs"]),
        *note_lines(entries | depth_runs()),
        *sentence_lines(beside["papers_pictures"]),
        *peer_lines(beside["papers_peers"]),
        *figure_lines(entries, beside["papers_pictures"]),
    ]


def _beside(beside, name):
    return {name: beside[name]} if beside[name] else {}


def _headline(entries):
    lines = [
        "## Does one model find the most exposed records?",
        "",
        "Per cent of LiRA's top 1 % in a score's top 5 %, higher is better, a random order finds 5. The truth is LiRA's **d′**; beside it, in brackets, the same by LiRA's success,",
        "which ties for many records and is what the paper judges by. Each a mean over targets ± half of its 95 % interval. *Recommended* is the one score per task that this page",
        'judges: `shift`, by which audits rank, of the last layer for classes and over the whole network (`layers="all"`) for numbers; *lead* is how far it is above the best of the four',
        "published scores (loss, gradient norm, Newton, influence) in the same run. *Second LiRA*: what a LiRA with half of the models finds of the top 1 % of another with the other",
        "half, so how far the truth can be known. *Goal*: not below it, by the means of d′ alone. *Cheapest evidence*: what [exposure](exposure.md) needs, in the price of trainings, in a",
        "run of its own that shares nothing with this one, by two bars. **The second LiRA of that run is a weaker bar** than this table's, and does not count for the goal: its halves have",
        f"{halves(exposure_runs())} models and each record's own spread. This table's have {_halves(entries)} models, and one spread for all records below {POOLED_BELOW}. Recalls there are of that run's own truth,",
        "which is noisier, so that this table's bar is a stern one for them.",
        "",
        "| setting | **recommended** | best of the four, same run | lead | second LiRA | goal | cheapest evidence that reaches a second LiRA |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, entry in entries.items():
        rows = {attack: row_of(entry, default_score(entry), "recall", attack, 0.01, 0.05) for attack in ("lira_d", "lira_success")}
        value, _, rerun, again = judged(name, entry, "lira_d")
        _, _, rerun_success, again_success = judged(name, entry)
        lines.append(
            f"| {entry['title']} | **{with_spread(rows['lira_d'])}** ({with_spread(rows['lira_success'])}) | {percent(rerun)} ({percent(rerun_success)}) "
            f"| {100 * (value - rerun):+.1f} | {percent(again)} ({percent(again_success)}) | {'met' if value >= again else 'missed'} | {cheapest_evidence(name, again)} |"
        )
    return [*lines, "", *one_spread_lines(entries)]


def _halves(entries):
    counts = [entry["references"] // 2 for entry in entries.values()]
    return f"{min(counts)} to {max(counts)}"


def _table_1(entries, missing):
    lines = [
        "## The published figures beside ours ([RET] Table 1)",
        "",
        "The same recall by LiRA's success, the paper's truth; *published → ours*, each a mean over targets ± half of its 95 % interval (the paper prints standard deviations over",
        "16 targets; they are divided by √16 and multiplied by Student's 2.13 here). *Against the published*: whether the recommended score is ten points above the best published",
        "figure, or else not below the second LiRA by success; both truths are noisy where the second LiRA is low, and half of the models know less than all, so that a score without",
        "noise of its own may pass it.",
        "",
        "| setting | loss | gradient norm | Newton | influence | **recommended** | lead | best published | second LiRA | against the published |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in entries.items():
        printed = published_row("ret_table_1", name)
        shown = {score: with_spread(row_of(entry, score, "recall", top=0.01, keep=0.05)) for score in (*printed, default_score(entry))}
        cells = [f"{_printed(printed[score])} → {shown[score]}" for score in ("loss", "gradient_norm", "newton", "influence")]
        value, best, rerun, again = judged(name, entry)
        title = f"{entry['title']} (published: other data or features)" if name in STAND_INS else entry["title"]
        lines.append(
            f"| {title} | {' | '.join(cells)} | **{shown[default_score(entry)]}** | {100 * (value - rerun):+.1f} | {percent(best)} | {percent(again)} "
            f"| {_verdict(value, best, again)} |"
        )
    if missing:
        lines += [
            "",
            "Not run yet: " + ", ".join(begun(name) for name in missing) + ". `python -m benchmarks.papers.run --only NAME` runs them.",
        ]
    return [*lines, ""]


def _printed(pair, targets=16):
    """A published mean and standard deviation over targets, as mean ± half of a 95 % interval of the mean."""
    return f"{pair[0]:.1f} ± {stats.t.ppf(0.975, targets - 1) * pair[1] / targets**0.5:.1f}"


def _verdict(value, best, again):
    if value >= best + GOAL:
        return "ten points above"
    return "not below a second LiRA" if value >= again else "missed"


def _differences(entries):
    lines = [
        "What differs from the paper, setting by setting, and how many records of a model the top 0.1, 1 and 5 % are:",
        "",
    ]
    for name, entry in entries.items():
        counts = " / ".join(f"{math.ceil(share * (entry['records'] // 2)):,}" for share in (0.001, 0.01, 0.05))
        lines.append(
            f"- **{entry['title']}** ({entry['records']:,} records, {entry['references']} models, {entry['targets']} of them scored; {fit(entry)}; top "
            f"{counts}). {DIFFERS[name]}"
        )
    return [*lines, ""]


def _other_truths(entries):
    lines = [
        "## The same recall against other truths",
        "",
        "Per cent of each attack's top 1 % in a score's top 5 %: LiRA's success, LiRA's d′ (does not tie where success saturates), RMIA, Shokri. In brackets what a second attack",
        "with the other half of the models finds of the first one's, where it was measured. Mean over targets ± half of its 95 % interval.",
        "",
        "| setting | attack | loss | Newton | influence | leverage | margin leverage | leave-one-out | shift | whole network: influence | whole network: shift |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    scores = ("loss", "newton", "influence", "leverage", "margin_leverage", "loo", "shift", "network_influence", "network_shift")
    attacks = {"lira_success": "LiRA", "lira_d": "LiRA d′", "rmia_success": "RMIA", "shokri_success": "Shokri"}
    for entry in entries.values():
        for attack, label in attacks.items():
            noise = recall(entry, "noise ceiling", attack=attack, table="ceiling")
            cells = [with_spread(row_of(entry, score, "recall", attack, 0.01, 0.05)) for score in scores]
            lines.append(f"| {entry['title']} | {label}{'' if noise is None else f' [{percent(noise)}]'} | {' | '.join(cells)} |")
    return [*lines, ""]


def _side_lines(sides, entries):
    """Whether losses of models with the record could tell LiRA's top records apart, or only those of models without it."""
    shown = {name: entry for name, entry in entries.items() if name in sides}
    if not shown:
        return []
    lines = [
        "## What a score would have to know",
        "",
        "Per cent of LiRA's top 1 % in the top 5 %, by its success / by d′: ranked by the recommended score; by the loss of the scored model; by the mean loss of all *other* models",
        "that had the record, and of those that had not, which takes reference models. Mean over targets. A score of one model sees the side with the record alone: where the",
        "exposed records stand out on the side without it only, they have been learnt like the others, and what the model would have said without them has to be inferred.",
        "",
        "| setting | recommended | loss of the scored model | mean loss, models with the record | mean loss, models without it |",
        "|---|---|---|---|---|",
    ]
    attacks = ("lira_success", "lira_d")
    for name, entry in shown.items():
        cells = [" / ".join(percent(recall(entry, default_score(entry), attack=attack)) for attack in attacks)]
        cells += [
            " / ".join(percent(recall(sides[name], side, attack=attack)) for attack in attacks) for side in ("own", "with", "without")
        ]
        lines.append(f"| {entry['title']} | {' | '.join(cells)} |")
    return [*lines, ""]


def _table_5(entries):
    lines = [
        "## Recall at 0.1, 1 and 5 %, and Spearman ([RET] Table 5)",
        "",
        "Share of LiRA's top k % in a score's top k % and rank correlation with LiRA's success; *published → ours*, mean over targets ± half of its 95 % interval. The",
        "paper's row of the full network for CIFAR-10 is left out: it repeats California's to the last digit.",
        "",
    ]
    for name, entry in entries.items():
        printed = published_row("ret_table_5", name)
        scores = [score for score in _scores(entry) if row_of(entry, score, "spearman")]
        lines += [f"**{entry['title']}**", "", "| score | 0.1 % | 1 % | 5 % | Spearman |", "|---|---|---|---|---|"]
        for score in scores:
            ours = [with_spread(row_of(entry, score, "recall", top=k, keep=k)) for k in (0.001, 0.01, 0.05)]
            ours.append(with_spread(row_of(entry, score, "spearman"), scale=1, digits=3))
            theirs = printed.get(score, (None,) * 4)
            cells = [
                own if value is None else f"{value:.{digits}f} → {own}"
                for value, own, digits in zip(theirs, ours, (1, 1, 1, 3), strict=True)
            ]
            lines.append(f"| {named(score)} | {' | '.join(cells)} |")
        noise = [percent(recall(entry, "noise ceiling", k, k, table="ceiling")) for k in (0.001, 0.01, 0.05)]
        lines += [
            f"| *a second LiRA* | {' | '.join(noise)} | {row_of(entry, 'noise ceiling', 'spearman', table='ceiling')['value']:.3f} |",
            "",
        ]
    return lines


def _scores(entry):
    found = dict.fromkeys(row["score"] for row in entry["agreement"])
    return sorted(found, key=lambda s: (s.startswith("network_"), list(NAMES).index(s.removeprefix("network_")))) if _plain(found) else []


def _plain(scores):
    return all(score.removeprefix("network_") in NAMES for score in scores)


def _attacks(entries):
    lines = [
        "## How strong the attacks were",
        "",
        "Mean over the scored models ± their standard deviation, each attacked with all the others. True-positive rates at false-positive rates of 0.001 and 0.01; none below one",
        "record's share.",
        "",
        "| setting | LiRA AUC | LiRA TPR at 0.001 | LiRA TPR at 0.01 | RMIA AUC | RMIA TPR at 0.001 | loss AUC |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in entries.values():
        rates = entry["attacks"]

        def mean(attack, name, rates=rates):
            values = rates[attack].get(name)
            return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}" if values else "–"

        lines.append(
            f"| {entry['title']} | {mean('lira', 'auc')} | {mean('lira', 'tpr_0.001')} | {mean('lira', 'tpr_0.01')} "
            f"| {mean('rmia', 'auc')} | {mean('rmia', 'tpr_0.001')} | {mean('loss', 'auc')} |"
        )
    return [*lines, ""]

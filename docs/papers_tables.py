"""Measured part of docs/papers.md: the papers' tables with the published figure beside ours."""

import json
import statistics
from pathlib import Path

import numpy as np
from papers_extras import early_stop_lines, figure_lines, peer_lines, percent, sentence_lines

ROOT = Path(__file__).parents[1]
PUBLISHED = json.loads((ROOT / "benchmarks" / "papers" / "published.json").read_text())
RUNS = ROOT / "benchmarks" / "results" / "papers"
ORDER = tuple(PUBLISHED["ret_table_1"]["rows"])
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
# One score a task, the same in every setting, as docs/network.md recommends: the column that audits rank by, over all layers for numbers.
DEFAULT = {"classification": "shift", "regression": "network_shift"}
GOAL = 0.10


def runs():
    """Name → stored results of every setting of [RET] that is complete, in the paper's order."""
    return {name: json.loads((RUNS / f"{name}.json").read_text()) for name in ORDER if (RUNS / f"{name}.json").exists()}


def named(score):
    whole = score.startswith("network_")
    return NAMES[score.removeprefix("network_")] + (", whole network" if whole else "")


def row_of(entry, score, metric, attack="lira_success", top=None, keep=None, table="agreement"):
    """The stored row, or None."""
    wanted = {"attack": attack, "score": score, "metric": metric, "top": top, "keep": keep}
    return next((row for row in entry[table] if all(row[key] == value for key, value in wanted.items())), None)


def recall(entry, score, top=0.01, keep=0.05, attack="lira_success", table="agreement"):
    found = row_of(entry, score, "recall", attack, top, keep, table)
    return None if found is None else found["value"]


def with_spread(row, scale=100, digits=1):
    """A row's mean and half its 95 % interval over the targets, "–" where there is none."""
    if row is None or row["value"] is None:
        return "–"
    half = None if row["low"] is None else (row["high"] - row["low"]) / 2
    return f"{scale * row['value']:.{digits}f}" + ("" if half is None else f" ± {scale * half:.{digits}f}")


def default_score(entry):
    """The task's default where it was computed: a linear model is its own last layer."""
    score = DEFAULT["regression" if entry["task"] == "regression" else "classification"]
    return score if row_of(entry, score, "spearman") else score.removeprefix("network_")


def papers_section(pictures, peers, early_stop):
    """Lines of the generated part of the page."""
    entries = runs()
    if not entries:
        return []
    missing = [name for name in ORDER if name not in entries]
    return [
        *_table_1(entries, missing),
        *_differences(entries),
        *_other_truths(entries),
        *_table_5(entries),
        *_attacks(entries),
        *_table_4(entries),
        *_depths(),
        *early_stop_lines(early_stop),
        *sentence_lines(pictures),
        *peer_lines(peers),
        *figure_lines(entries, pictures),
    ]


def proof_lines():
    """The README's table: the recommended score beside the best published one, setting by setting."""
    lines = [
        "| | best published | **one audit** | a second LiRA with half of the models | reference models / audit |",
        "|---|---|---|---|---|",
    ]
    for name, entry in runs().items():
        value, best, noise = _judged(name, entry)
        # Where the recommended score is over the whole network, that is what is paid for.
        paid = entry["seconds"]["network" if default_score(entry).startswith("network_") else "audit"]["processor"]
        cost = f"{_reference_seconds(entry) / paid:,.0f} ×"
        lines.append(f"| {entry['title']} | {percent(best, 0)} % | **{percent(value, 0)} %** | {percent(noise, 0)} % | {cost} |")
    return [*lines, ""]


def _reference_seconds(entry):
    """Processor seconds of the reference models without the scores of the targets among them.

    Runs from before the scores had a clock of their own: an audit and a whole-network pass are taken off for each target.
    """
    spent = {part: entry["seconds"].get(part, {"processor": 0.0})["processor"] for part in ("references", "audit", "network")}
    return spent["references"] - (0 if "scores" in entry["seconds"] else entry["targets"] * (spent["audit"] + spent["network"]))


def _judged(name, entry):
    """Recall of LiRA's top 1 % in the recommended score's top 5 %, the best published one, and LiRA's own noise."""
    best = max(pair[0] for pair in PUBLISHED["ret_table_1"]["rows"][name].values()) / 100
    return recall(entry, default_score(entry)), best, recall(entry, "noise ceiling", table="ceiling")


def _table_1(entries, missing):
    lines = [
        "## Recall of LiRA's top 1 % in a score's top 5 % ([RET] Table 1)",
        "",
        "Per cent, mean over targets ± half of its 95 % interval; *published → ours*. The truth is LiRA's success a record, measured with all the other models. *Recommended*",
        'is the one score per task that this page judges: `shift`, by which audits rank, of the last layer for classes and over the whole network (`layers="all"`) for numbers.',
        "*Noise* is what a second LiRA with half of the models, disjoint, finds of the first one's top 1 %; a score without noise of its own may pass it.",
        "",
        "| setting | loss | gradient norm | Newton | influence | **recommended** | best published | noise | goal |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in entries.items():
        printed = PUBLISHED["ret_table_1"]["rows"][name]
        shown = {score: with_spread(row_of(entry, score, "recall", top=0.01, keep=0.05)) for score in (*printed, default_score(entry))}
        cells = [f"{printed[score][0]:.1f} → {shown[score]}" for score in ("loss", "gradient_norm", "newton", "influence")]
        value, best, noise = _judged(name, entry)
        lines.append(
            f"| {entry['title']} | {' | '.join(cells)} | **{shown[default_score(entry)]}** | {percent(best)} | {percent(noise)} "
            f"| {_verdict(value, best, noise)} |"
        )
    if missing:
        lines += ["", "Not complete yet: " + ", ".join(f"`{name}`" for name in missing) + "."]
    return [*lines, ""]


def _verdict(value, best, noise):
    if value >= best + GOAL:
        return "ten points above"
    return "at the noise" if value >= noise else "missed"


def _differences(entries):
    lines = ["What differs from the paper, setting by setting:", ""]
    lines += [
        f"- **{e['title']}** ({e['records']:,} records, {e['references']} models, {e['targets']} of them scored; {_fit(e)}). {e['differs']}"
        for e in entries.values()
    ]
    return [*lines, ""]


def _fit(entry):
    fit = entry["fit"]
    return f"{fit['shown']} {fit['members']:.3f} on members, {fit['others']:.3f} on others"


def _other_truths(entries):
    lines = [
        "## The same recall against other truths",
        "",
        "Per cent of each attack's top 1 % in a score's top 5 %: LiRA's success, LiRA's d′ (does not tie where success saturates), RMIA, Shokri. In brackets the",
        "noise between halves, where it was measured. Mean over targets ± half of its 95 % interval.",
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


def _table_5(entries):
    lines = [
        "## Recall at 0.1, 1 and 5 %, and Spearman ([RET] Table 5)",
        "",
        "Share of LiRA's top k % in a score's top k % and rank correlation with LiRA's success; *published → ours*, mean over targets ± half of its 95 % interval.",
        "",
    ]
    for name, entry in entries.items():
        printed = PUBLISHED["ret_table_5"]["rows"][name]
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
            f"| *noise between halves* | {' | '.join(noise)} | {row_of(entry, 'noise ceiling', 'spearman', table='ceiling')['value']:.3f} |",
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
        "Mean over the scored models ± their standard deviation, each attacked with all the others.",
        "",
        "| setting | LiRA AUC | LiRA TPR at 0.001 | at 0.01 | RMIA AUC | RMIA TPR at 0.001 | loss AUC |",
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


def _table_4(entries):
    lines = [
        "## Time ([RET] Table 4)",
        "",
        "Seconds. *Published*: one V100. *Ours*: processor seconds of one CPU core, so that what else ran beside it does not count; an audit is everything",
        "`noshadow audit` does, signals, all score columns and model risk. *References over audit*: what the same answer costs by training the reference models. A star:",
        "the targets were scored on the references' clock; an audit and a pass over all layers have been taken off for each target, about what that cost.",
        "",
        "| setting | published: one model | published: scores of one target | ours: one model | **ours: one audit** | ours: scores over all layers | ours: all references | **references over audit** | whole setting, CPU-hours | wall, hours |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in entries.items():
        printed, seconds = PUBLISHED["ret_table_4"]["rows"][name], entry["seconds"]
        audit, whole = (seconds.get(part, {"processor": 0})["processor"] for part in ("audit", "network"))
        references = _reference_seconds(entry)
        total = {clock: sum(part[clock] for part in seconds.values()) / 3600 for clock in ("processor", "wall")}
        lines.append(
            f"| {entry['title']} | {printed['train_model']} | {printed['score_target']} | {seconds['train_model']['processor']:.1f} | **{audit:.1f}** "
            f"| {f'{whole:.1f}' if whole else '–'} | {references:,.0f}{'' if 'scores' in seconds else '*'} | **{references / audit:,.0f} ×** | {total['processor']:.2f} | {total['wall']:.2f} |"
        )
    return [*lines, ""]


def _depths():
    path = RUNS / "cifar10_residual.json"
    if not path.exists():
        return []
    entry = json.loads(path.read_text())
    labels = {
        "lira_score": "LiRA score",
        "sigma_ratio": "σ out / σ in",
        "tpr_0.05": "TPR at FPR 0.05",
        "mean_gap": "mean gap",
        "d_prime": "d′ (not in the paper)",
    }
    depths = ("last", "2", "4", "all")
    lines = [
        "## The leverage score by depth ([GLS] Table 2, Table 1 and Figure 1)",
        "",
        f"{entry['title']}: {entry['records']:,} records, {entry['references']} models, {entry['targets']} of them scored; {_fit(entry)}. {entry['differs']}",
        "",
        "Spearman, mean over models; *published → ours*, ± half of the range of the central 95 % of the models.",
        "",
        "| shadow metric | " + " | ".join("last layer" if d == "last" else f"{d} layers" for d in depths) + " | margin leverage | shift |",
        "|---|" + "---|" * (len(depths) + 2),
    ]
    for metric, label in labels.items():
        found = {name: _central(values) for name, values in entry["depths"][metric].items()}
        printed = PUBLISHED["gls_table_2"]["rows"].get(metric, {})
        cells = [f"{printed[d][0]:.2f} ± {printed[d][1]:.2f} → {found[d]}" if d in printed else found[d] for d in depths]
        lines.append(f"| {label} | {' | '.join(cells)} | {found['margin_leverage']} | {found['shift']} |")
    return [*lines, "", *_depth_costs(entry, depths)]


def _central(values):
    """Mean ± half of the distance between the 2.5 % and 97.5 % quantiles, as in [GLS] Table 2."""
    low, high = np.quantile(values, (0.025, 0.975))
    return f"{np.mean(values):.2f} ± {(high - low) / 2:.2f}"


def _depth_costs(entry, depths):
    """[GLS] Table 1 in seconds: what the published algorithm and ours cost over the last layers."""
    ours, product, published = entry["depth_seconds"], entry["product_seconds"], PUBLISHED["gls_table_1"]
    points, steps = entry["records"] // 2, published["iterations"]
    some, every = ({d: k * steps * product[d] / 3600 for d in depths} for k in (published["records"], points))
    rows = {
        "published: one product with the Hessian, O(npm), seconds": [f"{product[d]:.2f}" for d in depths],
        f"published: {published['records']} records, as in the paper, O(kTnpm), hours": [f"{some[d]:,.1f}" for d in depths],
        f"published: all {points:,} records, hours": [f"{every[d]:,.0f}" for d in depths],
        f"**ours**: all {points:,} records, **seconds**": [f"**{ours[d]['processor']:.1f}**" for d in depths],
        "published over ours, all records": [f"{3600 * every[d] / ours[d]['processor']:,.0f} ×" for d in depths],
    }
    return [
        "What it costs, in processor time of one core, measured in one run. The published algorithm solves a linear system for each record by conjugate gradients. One",
        f"product with the Hessian over all training records, for the outputs of one record, was measured; the hours are that many products with T = {steps} steps a record,",
        "its limit, which most records do not need. Ours is exact on the last layer and takes 1,024 projected gradients over several.",
        "",
        "| | " + " | ".join("last layer" if d == "last" else f"{d} layers" for d in depths) + " |",
        "|---|" + "---|" * len(depths),
        *(f"| {label} | {' | '.join(cells)} |" for label, cells in rows.items()),
        "",
    ]

"""Measured part of docs/papers.md: the papers' tables with the published figure beside ours."""

import json
from pathlib import Path

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


def default_score(entry):
    """The task's default where it was computed: a linear model is its own last layer."""
    score = DEFAULT["regression" if entry["task"] == "regression" else "classification"]
    return score if row_of(entry, score, "spearman") else score.removeprefix("network_")


def percent(value, digits=1):
    return "–" if value is None else f"{100 * value:.{digits}f}"


def papers_section(pictures, peers):
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
        *_sentences(pictures),
        *_peers(peers),
        *_figures(entries, pictures),
    ]


def _table_1(entries, missing):
    lines = [
        "## Recall of LiRA's top 1 % in a score's top 5 % ([RET] Table 1)",
        "",
        "Per cent, mean over targets; *published → ours*. The truth is LiRA's success a record, measured with all the other models. *Recommended* is the one score",
        'per task that this page judges: `shift`, by which audits rank, of the last layer for classes and over the whole network (`layers="all"`) for numbers.',
        "*Noise* is what a second LiRA with half of the models, disjoint, finds of the first one's top 1 %; a score without noise of its own may pass it.",
        "",
        "| setting | loss | gradient norm | Newton | influence | **recommended** | 95 % interval | best published | noise | goal |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in entries.items():
        printed = PUBLISHED["ret_table_1"]["rows"][name]
        cells = [f"{printed[score][0]:.1f} → {percent(recall(entry, score))}" for score in ("loss", "gradient_norm", "newton", "influence")]
        found = row_of(entry, default_score(entry), "recall", top=0.01, keep=0.05)
        best, noise = max(pair[0] for pair in printed.values()) / 100, recall(entry, "noise ceiling", table="ceiling")
        lines.append(
            f"| {entry['title']} | {' | '.join(cells)} | **{percent(found['value'])}** | {percent(found['low'])} – {percent(found['high'])} "
            f"| {percent(best)} | {percent(noise)} | {_verdict(found['value'], best, noise)} |"
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
        "noise between halves, where it was measured.",
        "",
        "| setting | attack | loss | Newton | influence | leverage | margin leverage | leave-one-out | shift | whole network: influence | whole network: shift |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    scores = ("loss", "newton", "influence", "leverage", "margin_leverage", "loo", "shift", "network_influence", "network_shift")
    attacks = {"lira_success": "LiRA", "lira_d": "LiRA d′", "rmia_success": "RMIA", "shokri_success": "Shokri"}
    for entry in entries.values():
        for attack, label in attacks.items():
            noise = recall(entry, "noise ceiling", attack=attack, table="ceiling")
            cells = [percent(recall(entry, score, attack=attack)) for score in scores]
            lines.append(f"| {entry['title']} | {label}{'' if noise is None else f' [{percent(noise)}]'} | {' | '.join(cells)} |")
    return [*lines, ""]


def _table_5(entries):
    lines = [
        "## Recall at 0.1, 1 and 5 %, and Spearman ([RET] Table 5)",
        "",
        "Share of LiRA's top k % in a score's top k % and rank correlation with LiRA's success; *published → ours*.",
        "",
    ]
    for name, entry in entries.items():
        printed = PUBLISHED["ret_table_5"]["rows"][name]
        scores = [score for score in _scores(entry) if row_of(entry, score, "spearman")]
        lines += [f"**{entry['title']}**", "", "| score | 0.1 % | 1 % | 5 % | Spearman |", "|---|---|---|---|---|"]
        for score in scores:
            ours = [recall(entry, score, k, k) for k in (0.001, 0.01, 0.05)]
            cells = [_beside(value, ours[i], 1) for i, value in enumerate(printed.get(score, (None,) * 4)[:3])]
            rank = row_of(entry, score, "spearman")["value"]
            shown = f"{printed[score][3]:.3f} → {rank:.3f}" if printed.get(score, (None,) * 4)[3] is not None else f"{rank:.3f}"
            lines.append(f"| {named(score)} | {' | '.join(cells)} | {shown} |")
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


def _beside(published, ours, digits):
    return percent(ours, digits) if published is None else f"{published:.{digits}f} → {percent(ours, digits)}"


def _attacks(entries):
    lines = [
        "## How strong the attacks were",
        "",
        "Mean over the scored models, each attacked with all the others.",
        "",
        "| setting | LiRA AUC | LiRA TPR at 0.001 | at 0.01 | RMIA AUC | RMIA TPR at 0.001 | loss AUC |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in entries.values():
        rates = entry["attacks"]

        def mean(attack, name, rates=rates):
            return f"{sum(rates[attack][name]) / len(rates[attack][name]):.3f}" if name in rates[attack] else "–"

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
        "`noshadow audit` does, signals, all score columns and model risk. *References over audit*: what the same answer costs by training the reference models.",
        "",
        "| setting | published: one model | published: scores of one target | ours: one model | **ours: one audit** | ours: scores over all layers | ours: all references | **references over audit** | whole setting, CPU-hours | wall, hours |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in entries.items():
        printed, seconds = PUBLISHED["ret_table_4"]["rows"][name], entry["seconds"]
        audit, references, whole = (seconds.get(part, {"processor": 0})["processor"] for part in ("audit", "references", "network"))
        total = {clock: sum(part[clock] for part in seconds.values()) / 3600 for clock in ("processor", "wall")}
        lines.append(
            f"| {entry['title']} | {printed['train_model']} | {printed['score_target']} | {seconds['train_model']['processor']:.1f} | **{audit:.1f}** "
            f"| {f'{whole:.1f}' if whole else '–'} | {references:,.0f} | **{references / audit:,.0f} ×** | {total['processor']:.2f} | {total['wall']:.2f} |"
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
    depths = [depth for depth in next(iter(entry["depths"].values())) if depth not in ("margin_leverage", "shift")]
    lines = [
        "## The leverage score by depth ([GLS] Table 2, Table 1 and Figure 1)",
        "",
        f"{entry['title']}: {entry['records']:,} records, {entry['references']} models, {entry['targets']} of them scored; {_fit(entry)}. {entry['differs']}",
        "",
        "Spearman, mean over targets; *published → ours*.",
        "",
        "| shadow metric | " + " | ".join("last layer" if d == "last" else f"{d} layers" for d in depths) + " | margin leverage | shift |",
        "|---|" + "---|" * (len(depths) + 2),
    ]
    for metric, label in labels.items():
        found = {name: sum(values) / len(values) for name, values in entry["depths"][metric].items()}
        printed = PUBLISHED["gls_table_2"]["rows"].get(metric, {})
        cells = [f"{printed[d][0]:.2f} → {found[d]:.2f}" if d in printed else f"{found[d]:.2f}" for d in depths]
        lines.append(f"| {label} | {' | '.join(cells)} | {found['margin_leverage']:.2f} | {found['shift']:.2f} |")
    cost = entry["depth_seconds"]
    lines += [
        "",
        "Processor seconds to score every training record of one model: "
        + ", ".join(f"{cost[d]['processor']:.1f} ({'last layer, exact' if d == 'last' else f'{d} layers, projected'})" for d in depths)
        + ".",
    ]
    return [*lines, ""]


def _sentences(pictures):
    found = pictures.get("sst2_probe", {}).get("sentences")
    if not found:
        return []
    lines = [
        "## Sentences with the highest scores ([RET] Table 6)",
        "",
        "SST-2, linear head on MiniLM; in brackets the label and LiRA's success on the sentence.",
        "",
        "| | Newton | influence |",
        "|---|---|---|",
    ]
    for rank, (newton, influence) in enumerate(zip(found["newton"], found["influence"], strict=True), 1):
        cells = [f"{_cell(row['text'])} ({row['label']}, {row['success']:.2f})" for row in (newton, influence)]
        lines.append(f"| {rank} | {' | '.join(cells)} |")
    return [*lines, ""]


def _cell(text):
    return text.replace("|", "\\|").replace("`", "'").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")


def _peers(peers):
    if not peers:
        return []
    lines = [
        "## What one would pick instead",
        "",
        f"{peers['title']}: the same model, the same records, the same truth (LiRA with {peers['references']} models), the same machine. Processor seconds include everything",
        "that the method needs beyond the trained model.",
        "",
        "| method | processor seconds | recall of the top 1 % in the top 5 % | the same by d′ | of the top 5 % in the top 5 % | Spearman with success | Spearman with d′ |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in peers["rows"]:
        lines.append(
            f"| {row['method']} | {row['processor']:,.2g} | {percent(row['recall_1_5'])} | {percent(row['recall_1_5_d'])} | {percent(row['recall_5_5'])} "
            f"| {row['spearman_success']:.3f} | {row['spearman_d']:.3f} |"
        )
    held = peers["ceiling"]
    lines.append(
        f"| *noise between halves of the truth* | – | {percent(held['recall_1_5'])} | {percent(held['recall_1_5_d'])} | {percent(held['recall_5_5'])} "
        f"| {held['spearman_success']:.3f} | {held['spearman_d']:.3f} |"
    )
    chart = "![Recall against processor seconds of each method](images/papers/peers.svg)"
    return [*lines, "", chart, "", *[f"- {note}" for note in peers["notes"]], ""]


def _figures(entries, pictures):
    """The charts and galleries that are stored, each with what it shows."""
    residual = pictures.get("cifar10_residual", {})
    galleries = [name for name in (*entries, "cifar10_residual") if "gallery" in pictures.get(name, {})]
    curves = "Recall of the top k in the top k, mean over targets, both axes logarithmic; the last line is a random order."
    shown = [
        (
            "theory" in pictures,
            "theory.svg",
            "**Theory ([RET] Figure 1).** Expected loss gap over a record's error and leverage, and the trade-off of the best attack. Closed forms, not simulations.",
        ),
        (
            "theory" in pictures,
            "fixed_design.svg",
            "**Fixed design ([GLS] Figure 5).** Trade-off of the best test on the residual for five leverages.",
        ),
        (True, "recall_lira.svg", f"**LiRA ([RET] Figure 2).** {curves}"),
        (
            any(e["network"] for e in entries.values()),
            "recall_network.svg",
            f"**LiRA, with scores over the whole network ([RET] Figure 3).** {curves}",
        ),
        (True, "recall_rmia.svg", f"**RMIA ([RET] Figure 4).** {curves}"),
        (True, "recall_shokri.svg", f"**Shokri ([RET] Figure 5).** {curves}"),
        (
            any("scatter" in pictures.get(name, {}) for name in entries),
            "scatter.svg",
            "**Loss and influence ([RET] Figure 7).** A sample of the audited model's records, coloured by LiRA's success: blue a coin toss, orange always right.",
        ),
        ("frogs" in residual, "depths.svg", "**Depth ([GLS] Figure 1).** A point a target, and what one model costs."),
        (
            "frogs" in residual,
            "frogs.svg",
            "**Frogs ([GLS] Figure 2).** t-SNE of the last layer's features of one class, coloured by the rank of the leverage: orange highest.",
        ),
        (
            "high_and_low" in residual,
            "high_and_low.svg",
            "**High and low leverage ([GLS] Figure 4).** LiRA's trade-off on the 2 % of records with the highest and the lowest leverage, over all models, with 95 % bands.",
        ),
    ]
    lines = ["## Figures", ""]
    for there, name, text in shown:
        lines += [text, "", f"![{text.partition('.**')[0].strip('* ')}](images/papers/{name})", ""] if there else []
    for name in galleries:
        figure = "[GLS] Figure 3" if name == "cifar10_residual" else "[RET] Figure 6"
        title = entries[name]["title"] if name in entries else "CIFAR-10, residual network"
        rows = "; ".join(pictures[name]["gallery"])
        lines += [
            f"**{title} ({figure}).** Rows from the top: {rows}.",
            "",
            f"![Images of {title} with extreme scores](images/papers/{name}.png)",
            "",
        ]
    return lines

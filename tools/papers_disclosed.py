"""Measured part of docs/papers.md that a reader would otherwise have to ask for: replaced runs, dampings, statistics, notes, fewer models."""

from papers_extras import percent
from papers_stored import POOLED_BELOW, default_score, published_row, recall, row_of, with_spread

ATTACKS = ("lira_success", "lira_d")
FEWER = "32"  # models, the most that were tried with one spread for all records
WAYS = {
    "hessian_10": "Hessian, damping 10 (as published)",
    "gauss_newton_10": "Gauss–Newton, damping 10",
    "hessian_training": "Hessian, the training's λ",
    "gauss_newton_training": "Gauss–Newton, the training's λ (ours)",
    "squared_gradient": "squared gradient norm over the whole network",
    "last_influence": "influence of the last layer, the training's λ",
}


def replaced_lines(found):
    """Runs whose results were replaced after a look at them."""
    if not found:
        return []
    lines = [
        "## Settings that were trained again",
        "",
        "Some settings were trained again, otherwise, after their first results had been seen; the other tables show the last run alone. This is what the earlier ones showed, from the",
        "history of this repository: per cent of LiRA's top 1 % in the top 5 %, by d′ and in brackets by success. The changes were made because the networks had learnt too little,",
        "or too much by heart, beside the paper's; they were not chosen by the recall, but the recall had been seen.",
        "",
        "| setting | run | training | fit | loss | Newton | shift | second LiRA |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for runs in found["otherwise"].values():
        for number, run in enumerate(runs, 1):
            cells = [
                f"{percent(pair[1])} ({percent(pair[0])})"
                for pair in (*(run["recall"][s] for s in ("loss", "newton", "shift")), run["second"])
            ]
            fit, which = run["fit"], "shown on this page" if number == len(runs) else f"replaced (commit {run['commit']})"
            lines.append(
                f"| {run['title']} | {which} | {_training(run['training'])} | {fit['shown']} {fit['members']:.3f} on members, {fit['others']:.3f} on others | {' | '.join(cells)} |"
            )
    return [*lines, "", *_alike(found["alike"])]


def _alike(settings):
    """Runs that were made again as they were."""
    if not settings:
        return []
    lines = [
        "Others were run again as they were, so that notes and newer tables are there, and of the present code. How far Spearman and recalls of every score with every attack moved, as a",
        "share of one:",
        "",
        "| setting | replaced (commit) | figures | the same to five digits | largest difference |",
        "|---|---|---|---|---|",
    ]
    for setting in settings.values():
        lines += [
            f"| {setting['title']} | {run['commit']} | {run['rows']} | {run['same']} | {run['largest']:.4f} |" for run in setting["runs"]
        ]
    return [*lines, ""]


def epoch_lines(found):
    """How well one model of a setting fits after some of its epochs."""
    if not found:
        return []
    lines = [
        "## Epochs",
        "",
        "[RET] prints no accuracies, so that the numbers of epochs that it states are kept in the settings that take all of its records. (The encoders take part of SST-2, which is at hand",
        "whole, and three epochs of its ten.) One model of such a setting, trained on half of the records before any reference model was, with a seed of its own: accuracy on members and on others.",
        "",
    ]
    for entry in found.values():
        every = entry["epochs"][-1]["epoch"] // 5
        shown = [row for row in entry["epochs"] if row["epoch"] % every == 0 and row["epoch"]]
        heads = " | ".join(f"epoch {row['epoch']}" for row in shown)
        rows = [f"| {side} | " + " | ".join(f"{row[side]:.3f}" for row in shown) + " |" for side in ("members", "others")]
        lines += [f"| {entry['title']} | {heads} |", "|---|" + "---|" * len(shown), *rows, ""]
    return lines


def _training(how):
    inputs = " × ".join(map(str, how["input_shape"]))
    return (
        f"{how['records']:,} records of {inputs}, {how['references']} models, {how['optimizer']} at {how['lr']:g}, {how['schedule']}, "
        f"batches of {how['batch_size']}, {how['epochs']} epochs"
    )


def damping_lines(found):
    """Influence over the whole network: curvature and damping, setting by setting."""
    if not found:
        return []
    lines = [
        "## Influence over the whole network: which damping?",
        "",
        "[RET] takes the Hessian with a damping of 10, without which its conjugate gradients did not converge (Appendix D.1); our columns take Gauss–Newton with the training's own λ.",
        "Both curvatures at both dampings, on targets trained again from their seeds; per cent of LiRA's top 1 % in the top 5 %, mean and 95 % interval over targets. At a damping of 10 the curvature hardly",
        "counts and the influence is close to the squared gradient norm divided by the damping, which the last column shows.",
        "",
    ]
    for entry in found.values():
        scored = f"{entry['scored']:,} of a target's {entry['members']:,} records are scored"
        if entry["scored"] < entry["members"]:
            scored += ": LiRA's top 1 % by d′, and random others that stand for all others"
        lines += [
            f"**{entry['title']}**: {entry['models']} reference models, {entry['targets']} targets; {scored}.",
            "",
            "| influence | LiRA's d′ | LiRA's success | solves that ended within 10⁻² | Spearman with the squared gradient |",
            "|---|---|---|---|---|",
        ]
        for name, label in WAYS.items():
            cells = [with_spread(row_of(entry, name, "recall", attack, 0.01, 0.05)) for attack in reversed(ATTACKS)]
            ended, close = entry["ended"].get(name), entry["spearman_with_squared_gradient"].get(name)
            cells += ["–" if ended is None else f"{100 * ended['converged']:.0f} %", "–" if close is None else f"{close:.3f}"]
            lines.append(f"| {label} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def crowding_lines(found):
    """Whole-network columns in a projection, beside the exact ones."""
    if not found:
        return []
    lines = [
        "## Columns over the whole network: projected or exact?",
        "",
        "The columns over the whole network of CIFAR-10's CNN and of the encoder were computed in 1,024 projected directions when they were run; regressions had the exact dual. Where many",
        "records crowd few directions, sizes come out too small. Both ways on one model: "
        f"{found['title']}, {found['records']:,} records, {found['parameters']:,} parameters. *Projected over exact*: median",
        "over the 5 % of the records with the highest exact value. CIFAR-10's CNN takes the dual from its next run on; the encoder stays projected, as the leverages over several layers below are.",
        "",
        "| column | projected over exact | Spearman | top 1 % of the exact in the top 5 % of the projected, per cent |",
        "|---|---|---|---|",
    ]
    for name, row in found["columns"].items():
        words = name.replace("_", " ").replace("loo", "leave-one-out")
        lines.append(f"| {words} | {row['ratio']:.2f} | {row['spearman']:.4f} | {percent(row['recall'])} |")
    seconds = found["processor_seconds"]
    lines += [
        "",
        f"Processor seconds: {seconds['dual']:g} by the dual, {seconds['projected']:g} projected. What the package said of the projected ones:",
        "",
    ]
    return [*lines, *(f"- {note}." for note in found["notes"]["projected"]), ""]


def statistic_lines(entries):
    """Regressions attacked by the signed residual and by the loss."""
    shown = {name: entry for name, entry in entries.items() if recall(entry, "loss", attack="lira_loss_success") is not None}
    if not shown:
        return []
    lines = [
        "## Regressions: which statistic is attacked?",
        "",
        "The package attacks a regression by its signed residual, looked at from both sides; the other tables show that truth. [RET] attacks the loss, which",
        '`AttackOptions(statistic="loss")` and `noshadow reference score --statistic loss` do as well ([how](reference.md#the-attacks)). *Published* is by the loss and its success.',
        "Both from the same models, per cent of LiRA's top 1 % in the top 5 %, and the rank correlation with the same truth.",
        "",
        "| setting | statistic | loss | Newton | influence | shift | second LiRA | Spearman: Newton |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in shown.items():
        for attack, label in (
            ("lira_d", "residual, d′"),
            ("lira_success", "residual, success"),
            ("lira_loss_d", "loss, d′"),
            ("lira_loss_success", "loss, success (the paper's)"),
        ):
            cells = [with_spread(row_of(entry, score, "recall", attack, 0.01, 0.05)) for score in ("loss", "newton", "influence", "shift")]
            noise = percent(recall(entry, "noise ceiling", attack=attack, table="ceiling"))
            order = with_spread(row_of(entry, "newton", "spearman", attack), scale=1, digits=3)
            lines.append(f"| {entry['title']} | {label} | {' | '.join(cells)} | {noise} | {order} |")
        printed, order = published_row("ret_table_1", printed_as(name)), published_row("ret_table_5", printed_as(name))["newton"][3]
        cells = [f"{printed[score][0]:.1f}" for score in ("loss", "newton", "influence")]
        lines.append(f"| {entry['title']} | *published* | {' | '.join(cells)} | – | – | {order:.3f} |")
    return [*lines, ""]


def printed_as(name):
    """The setting under whose name the published figures are: the ridge in closed form is the same one's."""
    return "california_ridge" if name == "papers_ridge" else name


def statistic_figures(ridge):
    """What docs/papers.md quotes of the ridge in closed form attacked by its loss: recall and Spearman of Newton, published and by both truths."""
    found = {
        "ridge_published": f"{published_row('ret_table_1', 'california_ridge')['newton'][0]:.1f}",
        "ridge_published_order": f"{published_row('ret_table_5', 'california_ridge')['newton'][3]:.3f}",
    }
    for end in ("success", "d"):
        found[f"ridge_loss_{end}"] = percent(recall(ridge, "newton", attack=f"lira_loss_{end}"))
        found[f"ridge_loss_{end}_order"] = f"{row_of(ridge, 'newton', 'spearman', f'lira_loss_{end}')['value']:.3f}"
    return found


def one_spread_lines(entries):
    """Whether settings whose records have spreads of their own would reach the goal with one spread for all."""
    told = []
    for entry in entries.values():
        found = entry.get("by_count", {}).get("lira_d")
        if found and entry["references"] >= POOLED_BELOW:
            value, again = found[default_score(entry)][FEWER], found["second"][FEWER]
            told.append(f"{entry['title']} {percent(value)} of {percent(again)}, {'met' if value >= again else 'missed'}")
    if not told:
        return []
    return [
        f"Of settings with {POOLED_BELOW} models or more, *goal* is by each record's own spread, which is the noisier one. The recommended score and a second LiRA with one spread for all records,",
        f"from {FEWER} models each ([below](#how-many-reference-models-does-the-truth-need)): {'; '.join(told)}.",
        "",
    ]


def count_lines(entries):
    """Recall over the number of reference models."""
    shown = {name: entry for name, entry in entries.items() if "by_count" in entry}
    if not shown:
        return []
    without = [entry["title"] for name, entry in entries.items() if name not in shown]
    uneven = [entry for entry in shown.values() if entry.get("fraction", 0.5) != 0.5]
    counts = sorted({int(count) for entry in shown.values() for row in entry["by_count"]["lira_d"].values() for count in row})
    lines = [
        "## How many reference models does the truth need?",
        "",
        "Per cent of LiRA's top 1 % in the top 5 % when the truth is from K reference models, by d′, and in brackets by success; mean over targets and up to three disjoint draws of models.",
        "*Second LiRA* is from K other models. Scores do not change with K, only the truth does. Below 64 models LiRA has one variance for all records, from 64 on each record its own, here as",
        "elsewhere on this page: that changes what d′ is, and with it which score leads. A step between 32 and 64 is this change, not noise. Records that fewer than three of the K models had, or had not, are left out"
        + "".join(
            f"; each model of {entry['title']} has {100 * entry['fraction']:.0f} % of the records, so that few are left with few models"
            for entry in uneven
        )
        + ".",
        *([f"Measured before this table was: {'; '.join(without)}."] if without else []),
        "",
        "| setting | score | " + " | ".join(f"K = {count}" for count in counts) + " |",
        "|---|---|" + "---|" * len(counts),
    ]
    for entry in shown.values():
        d_prime, success = (entry["by_count"][attack] for attack in ("lira_d", "lira_success"))
        for score, row in d_prime.items():
            if score in ("entropy", "network_leverage") or score.startswith("leverage_"):
                continue
            cells = [f"{percent(row[str(c)])} ({percent(success[score][str(c)])})" if str(c) in row else "–" for c in counts]
            name = (
                "*second LiRA*"
                if score == "second"
                else score.replace("network_", "whole network: ").replace("_", " ").replace("loo", "leave-one-out")
            )
            lines.append(f"| {entry['title']} | {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def note_lines(entries):
    """What the package itself said of the scores."""
    lines = [
        "## What the package said of these scores",
        "",
        "Notes of the last run of each setting, once each; in brackets how many of the scored models they were said of (figures in a note are of the first). Runs from before notes were",
        "kept have none here.",
        "",
    ]
    for entry in entries.values():
        notes = entry.get("notes", {}).get("targets", [])
        lines += [f"- **{entry['title']}**, {row['layers']} ({row['targets']} of {entry['targets']}): {row['note']}." for row in notes]
        lines += [f"- **{entry['title']}**, the audited model: {note}." for note in entry.get("notes", {}).get("audit", [])]
        if "notes" in entry and not any(entry["notes"].values()):
            lines.append(f"- **{entry['title']}**: nothing.")
    missing = [entry["title"] for entry in entries.values() if "notes" not in entry]
    if missing:
        lines.append(f"- Before notes were kept: {'; '.join(missing)}.")
    return [*lines, ""]

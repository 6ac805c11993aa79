"""Measured part of docs/language_models.md: whatever configurations are stored."""

import numpy as np
from scipy.stats import spearmanr

FEWEST_FOR_A_LINE = 4
TEXTS = {
    "tinyshakespeare": "*Bytes* are tiny Shakespeare in pieces of {length} bytes.",
    "wikitext2": "*Words* are the validation and test text of WikiText-2 in pieces of {length} words, the 999 most frequent of them known.",
}


def language_section(cases):
    """Lines of the generated part; the configurations in the order of their loss AUC."""
    rows = sorted((_row(name, case) for name, case in cases.items()), key=lambda row: row["auc"])
    any_case = next(iter(cases.values()))
    counts = f"{any_case['references']} models a configuration, each on a random half of {any_case['configuration']['records']:,} sequences and each attacked with the others"
    false_positives = int(any_case["pooled"]["nonmember_scores"] * 1e-3)
    lines = [
        f"{len(rows)} of 5 configurations, {counts}. {' '.join(TEXTS[text].format(length=length) for text, length in _lengths(cases))}",
        "Names are layers × width; no dropout. Loss AUC (standard deviation over models in brackets), losses, skewness and TNR are means over models. LiRA's statistic is −loss, with one",
        f"variance for all records; its TPR is read from the scores of all models pooled, so that FPR 0.001 rests on {false_positives} false positives.",
        "",
        "| model | parameters | epochs | loss in / out, nats | skewness of losses | **loss AUC** | loss TNR at FNR 0.01 | LiRA AUC | **LiRA TPR at FPR 0.01** | LiRA TPR at FPR 0.001 | loss attack's TPR at FPR 0.01 |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['name']} | {row['parameters']:,} | {row['epochs']} | {row['member_loss']:.2f} / {row['nonmember_loss']:.2f} | {row['skewness']:.2f} "
        f"| **{row['auc']:.3f}** ({row['auc_spread']:.3f}) | {row['tnr']:.3f} | {row['lira_auc']:.3f} | **{row['tpr_0.01']:.3f}** | {row['tpr_0.001']:.3f} | {row['loss_tpr_0.01']:.3f} |"
        for row in rows
    ]
    return [*lines, "", *_line_fit(rows), *_records(rows), *_scores(rows)]


def _lengths(cases):
    """(text, length of its pieces) of the texts that were used."""
    return sorted({(case["configuration"]["text"], case["configuration"]["length"]) for case in cases.values()})


def _row(name, case):
    targets, pooled = case["targets"], case["pooled"]
    mean = {key: float(np.mean(values)) for key, values in targets.items()}
    return {
        "name": name.replace("_", ", ").replace("x", " × "),
        "parameters": case["parameters"],
        "epochs": case["configuration"]["epochs"],
        "auc": mean["auc"],
        "auc_spread": float(np.std(targets["auc"])),
        "tnr": mean["tnr_0.01"],
        "tpr_0.01": pooled["lira_tpr_0.01"],
        "tpr_0.001": pooled["lira_tpr_0.001"],
        "loss_tpr_0.01": pooled["loss_tpr_0.01"],
        "ceiling": pooled["noise_ceiling_spearman"],
        "scores": {key: np.array(values) for key, values in case["record_scores"].items()} if "record_scores" in case else None,
        "nonmember_scores": pooled["nonmember_scores"],
        **{key: mean[key] for key in ("member_loss", "nonmember_loss", "skewness", "lira_auc", "loss_spearman", "loss_recall")},
    }


def _line_fit(rows):
    """The straight line through the configurations, as [TAIL] draws it, and how it does on one it has not seen."""
    if len(rows) < FEWEST_FOR_A_LINE:
        return []
    auc, tnr, tpr = (np.array([row[key] for row in rows]) for key in ("auc", "tnr", "tpr_0.01"))
    slope, start = np.polyfit(auc, tpr, 1)
    inside, outside, other = (
        _rmse(auc, tpr, leave_out=False),
        _rmse(auc, tpr, leave_out=True),
        _rmse(tnr, tpr, leave_out=True),
    )
    order = float(spearmanr(auc, tpr).statistic)
    return [
        f"Rank correlation of loss AUC and LiRA's TPR at 0.01 over the {len(rows)} configurations: {order:.2f}; of loss TNR and that TPR: {float(spearmanr(tnr, tpr).statistic):.2f}.",
        f"The straight line TPR at 0.01 = {start:.2f} + {slope:.2f} · AUC leaves a root mean square error of {inside:.3f} on these {len(rows)} configurations and {outside:.3f} on one left out;",
        f"a line from TNR at 0.01 leaves {other:.3f} on one left out. [TAIL] reports 0.01 for its five models, in sample.",
        "",
    ]


def _rmse(x, y, *, leave_out):
    errors = []
    for k in range(len(x)):
        kept = np.arange(len(x)) != k if leave_out else np.ones(len(x), dtype=bool)
        errors.append(np.polyval(np.polyfit(x[kept], y[kept], 1), x[k]) - y[k])
    return float(np.sqrt(np.mean(np.square(errors))))


def _records(rows):
    lines = [
        "**Which sequences.** Does the loss of a member say how exposed it is? Truth is LiRA's d′ of the sequence over the other models. The ceiling is the rank correlation of two such truths,",
        "each from half of the models: where it is low, not even the attack knows which sequences it finds.",
        "",
        "| model | rank correlation of loss and d′ | exposed 5 % found in the 25 % with the highest loss | ceiling |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row['name']} | {row['loss_spearman']:+.2f} | {row['loss_recall']:.2f} (chance 0.25) | {row['ceiling']:.2f} |" for row in rows
    ]
    return [*lines, ""]


def _scores(rows):
    """What the scores of one model say about its members, beside its loss on the same models."""
    scored = [row for row in rows if row["scores"] is not None]
    if not scored:
        return []
    models = len(scored[0]["scores"]["loss_spearman"])
    apart = max(float(row["scores"]["largest_loss_change"].max()) for row in scored)
    again = "which gave their losses to the last digit" if apart == 0 else f"which moved no loss by more than {apart:.1g}"
    lines = [
        f"**Which score.** The record scores of the first {models} models of {len(scored)} of the {len(rows)} configurations (trained a second time for it, {again}), against the same d′: rank correlation, and in",
        "brackets how many of the exposed 5 % are in the 25 % with the highest score; means over models. λ is n·weight_decay, as in the training; *λ unknown* is what is taken when nobody says;",
        "*over tokens* is what is done for vocabularies too large for eigenvectors, and the last column its rank correlation with the other.",
        "",
        "| model | loss | **influence** | influence, λ unknown | influence, over tokens | leverage | gradient norm | tokens beside eigenvectors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = ("loss", "influence", "influence_auto", "influence_tokens", "leverage", "gradient_norm")
    for row in scored:
        cells = [f"{row['scores'][f'{name}_spearman'].mean():+.2f} ({row['scores'][f'{name}_recall'].mean():.2f})" for name in names]
        cells[1] = f"**{cells[1]}**"
        lines.append(f"| {row['name']} | {' | '.join(cells)} | {row['scores']['tokens_like_eigenvectors_spearman'].mean():.3f} |")
    return [*lines, "", *_verdict(scored), ""]


def _verdict(scored):
    gains = np.concatenate([row["scores"]["influence_spearman"] - row["scores"]["loss_spearman"] for row in scored])
    blind = np.concatenate([row["scores"]["influence_auto_spearman"] - row["scores"]["loss_spearman"] for row in scored])
    found = np.mean([(row["scores"]["influence_recall"] - row["scores"]["loss_recall"]).mean() for row in scored])
    seconds = [float(row["scores"]["cpu_seconds"].mean()) for row in scored]
    return [
        f"Influence is closer to the attack than the loss in {int((gains > 0).sum())} of these {len(gains)} models, by {gains.mean():.2f} of rank correlation in the mean (λ unknown: {int((blind > 0).sum())}, by {blind.mean():.2f}),",
        f"and finds {found:+.2f} of the exposed 5 %. Reading and scoring a model took {min(seconds):.1f} to {max(seconds):.1f} s of one core.",
    ]

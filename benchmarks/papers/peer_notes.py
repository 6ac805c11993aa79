"""What a reader of the table of benchmarks/papers/peers.py must know, as sentences with their figures."""

import numpy as np

from benchmarks.papers.peer_methods import FOLDS, OURS, REPEATS

NAMED = (
    OURS["shift"],
    "loss",
    "ART: SHAPr",
    f"cleanlab: label quality, {FOLDS}-fold",
    "RMIA, 1 reference",
    "RMIA, 4 references",
    "LiRA's d′, 16 references",
)


def notes(entry, setting):
    """How each method was called, and how far the figures can be trusted, as sentences."""
    noise, half = entry["ceiling"], setting.references // 2
    spread = np.mean([np.std(row["targets"], ddof=1) for row in entry["rows"]]) / np.sqrt(setting.targets)
    return [
        f"All figures are means over {setting.targets} models, each trained on another half of the {setting.records:,} records. "
        f"The top 1 % of one are {setting.records // 200} records; the standard error of a recall of them is {100 * spread:.1f} points "
        "on average.",
        f"Noise: LiRA with {half} models finds {100 * noise['recall_1_5']:.1f} % of the top 1 % of LiRA with {half} others in its top "
        f"5 %, and {100 * noise['recall_5_5']:.1f} % of its top 5 %; Spearman {noise['spearman_success']:.3f}, for d′ "
        f"{noise['spearman_d']:.3f}. That is a low estimate of what can be reached: by {half} models {noise['largest']:.0f} of "
        f"the {setting.records:,} records share the largest success, by all {setting.references} models {entry['largest']['records']}. A "
        "random order finds 5.0 %.",
        f"LiRA's success saturates: {entry['largest']['targets']:.0f} of a target's records share its largest value on average, "
        "and which of them are the top 1 % is drawn by lot (the expectation is shown). By d′, which does not tie, the recall of the "
        f"top 1 % in the top 5 % is {_listed(entry['rows'])}; noise {100 * noise['recall_1_5_d']:.1f} %.",
        "Seconds are those of one thread, imports not counted; other work ran on the machine, which stretches wall seconds. Of calls "
        f"that train nothing, the least of {REPEATS} (SHAPr: of one).",
        "Loss and gradient norm are columns of the audit; alone they cost one forward pass.",
        "SHAPr: `art.metrics.SHAPr` on `SklearnClassifier(model)`, with all non-members as its test records.",
        "cleanlab: `get_label_quality_scores` (self-confidence), lower quality taken as riskier. In sample it is the model's own "
        "probability of the label and ranks as the loss does; its documentation asks for held-out probabilities, here by "
        f"{FOLDS}-fold cross-validation.",
        "RMIA and LiRA with a few references rank by their score on the audited model. RMIA has γ = 2; with one reference it is "
        "offline, and that reference was trained on as many further images; with more it is online, each record in half of them. LiRA "
        "is online with one variance for all records. *d′* ranks by the distance between the references trained with and without the "
        "record. Means over disjoint draws; none of these models is in the truth.",
        _sacro_note(entry),
    ]


def _listed(rows):
    return ", ".join(f"{100 * row['recall_1_5_d']:.1f} % ({row['method']})" for row in rows if row["method"] in NAMED)


def _sacro_note(entry):
    rows, audit = [row for row in entry["rows"] if row["method"].startswith("SACRO")], entry["rows"][0]["processor"]
    tied, costs = [f"{100 * row['tied']:.0f} %" for row in rows], [f"{row['processor'] / audit:.1f}" for row in rows]
    if not rows:
        return "SACRO-ML is missing: `sacroml` was not installed."
    return (
        "SACRO-ML: `LIRAAttack(n_shadow_models=…, report_individual=True, write_report=False)`, ranked by `member_prob`. The numbers of "
        "shadow models were to cost one audit and ten in processor seconds, which is wall time on an idle machine; one is the fewest. They "
        f"cost {', '.join(costs)} audits in the rows above, in their order. Records that tie at its largest score: {', '.join(tied)}; "
        "ties count as broken at random."
    )

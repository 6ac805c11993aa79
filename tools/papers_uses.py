"""Measured part of docs/papers.md: what the papers propose to use the scores for, canaries and private training, each measured once."""

WAYS = {
    "random": "random",
    "random, wrong labels": "random, with a wrong label",
    "loss": "highest loss",
    "leverage": "highest leverage",
    "influence": "highest influence",
    "shift": "highest `shift`",
    "best possible": "highest d′ of the reference models themselves",
}
ARMS = {
    "clipped, no noise": "clipped, no noise",
    "uniform": "the same bound and noise for everybody",
    "guided": "a quarter of the bound for the tenth with the highest `shift`",
    "random tenth": "a quarter of the bound for a random tenth",
    "everybody guarded": "a quarter of the bound for everybody",
}


def canary_lines(found):
    if not found:
        return []
    fit, spread = found["fit"], found["random_spread"]
    lines = [
        "### Canaries",
        "",
        "[RET] proposes its scores for choosing canaries: records that an auditor watches because the attack should be strongest on them. Fashion-MNIST, a network of one hidden layer,",
        f"{found['records']:,} records, {found['models']} models on half of them each (accuracy {fit['members']:.3f} on members, {fit['others']:.3f} on others). {found['canaries']} canaries are taken from the training records of one audited model,",
        f"which is none of the attacked ones; LiRA attacks every model with all the others, on the canaries alone. *Random*: mean of {found['random_draws']} draws ± their standard deviation. Wrong labels, the usual canary,",
        "change the data; the other ways do not.",
        "",
        "| canaries | LiRA AUC | success | TPR at FPR 0.01 | TPR at FPR 0.05 | median d′ |",
        "|---|---|---|---|---|---|",
    ]
    for name, label in WAYS.items():
        row = found["ways"][name]
        cells = [
            f"{row[key]:.{digits}f}" + (f" ± {spread[key]:.{digits}f}" if name == "random" else "")
            for key, digits in (("auc", 3), ("success", 3), ("tpr_0.01", 3), ("tpr_0.05", 3), ("d_prime", 2))
        ]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return [*lines, ""]


def canary_figures(found):
    """What docs/papers.md quotes: AUC and rate of canaries chosen by `shift`, and of those with wrong labels."""
    chosen = {"shift": found["ways"]["shift"], "wrong": found["ways"]["random, wrong labels"]}
    return {f"canary_{end}_{name}": f"{row[key]:.3f}" for name, row in chosen.items() for end, key in (("auc", "auc"), ("tpr", "tpr_0.01"))}


def private_lines(found):
    if not found:
        return []
    lines = [
        "### Private training",
        "",
        "Both papers name private training by record as a use. Here records that an audit ranks highest get a smaller bound on their gradients in DP-SGD (Opacus) while the noise stays: a record",
        f"that is clipped at a quarter has four times the noise multiplier, so a smaller ε of its own. Fashion-MNIST, one hidden layer, {found['records']:,} records, {found['models']} models an arm, {found['epochs']} epochs, noise {found['noise']:g} times the bound.",
        "The ranks are from two plain models, one on each half of the records. *Highest* are the tenth of the records that the audit ranks highest, in every arm; ε by Opacus' accountant at",
        "δ = 1/members, of records with the whole bound and with a quarter of it. Bounds that depend on the data are themselves not private: ε does not count the audit.",
        "",
        f"| arm | accuracy on others | accuracy on others, highest | d′: highest | d′: rest | LiRA AUC: highest | LiRA AUC: rest | TPR at {found['level']:g}: highest | TPR at {found['level']:g}: rest | ε |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, label in ARMS.items():
        row = found["arms"][name]
        pairs = [row["attack"][group][key] for key in ("d_prime", "auc", f"tpr_{found['level']:g}") for group in ("highest", "others")]
        cells = [f"{row['fit']['others']:.3f}", f"{row['fit_highest']:.3f}", *(f"{value:.3f}" for value in pairs)]
        both = row["epsilon"]
        guarded = name in ("guided", "random tenth")
        told = (
            "∞"
            if both["bound"] is None
            else f"{both['smaller bound']:g}"
            if name == "everybody guarded"
            else f"{both['bound']:g}" + (f"; {both['smaller bound']:g}" if guarded else "")
        )
        lines.append(f"| {label} | {' | '.join(cells)} | {told} |")
    return [*lines, ""]


def use_lines(canaries, private):
    """Both, under one heading."""
    lines = [*canary_lines(canaries), *private_lines(private)]
    return ["## What the scores can be used for", "", *lines] if lines else []

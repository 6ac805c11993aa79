"""What the judging setups said, LiRA's two rules over K, few references, and texts: measured parts of docs/calibration.md."""

from tail_tables import named

SPOKEN = {
    "losses": "margin shift at 0.1, linear (shipped before)",
    "leverage": "a · TNR^b · h̄^c",
    "four references": "LiRA with four references at FPR 0.01, linear",
    "two references": "RMIA with two references at FPR 0.01, linear",
    "LiRA with four, as measured": "LiRA with four references, its own rate",
    "RMIA with two, as measured": "RMIA with two references, its own rate",
}
PARTS = {"all": "all", "unseen data sets": "data sets never seen"}
RULES = {"": "each record's own", "_global": "one for all records"}
WAYS = {
    "measured": "LiRA's own rate with them",
    "calibrated": "calibration from that rate at FPR 0.01",
    "exposure": "mean `attack_rate` of an audit",
}


def judged_section(judged, few, shipped):
    """Lines on all of these."""
    return [*_summary(judged), *_setups(judged), *_few(few), *_texts(judged), *_rules(shipped)]


def _summary(judged):
    goal = judged["difference"]
    lines = [
        "### Judged on new setups",
        "",
        f"The forms were fixed, then these {len(judged['setups'])} setups were named and trained ({_later(judged)}). Rates: LiRA's TPR at FPR 0.001 with 64 references,",
        "each record's own spread; coefficients and intervals from the 43 calibration setups alone. *Cover* is the share of models whose nominal 90 % interval holds the rate;",
        "a miss is a setup whose rate lies outside the interval of most of its models; *in domain* are setups whose models are mostly not flagged.",
        "",
        "| setups | predictor | RMSE | MAE | bias | spread of the rates | cover | misses / of them flagged | in domain: setups, RMSE, cover |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for part, spoken in PARTS.items():
        for name, row in judged["summary"][part].items():
            cover = misses = inside = ""
            if "cover" in row:
                cover, misses = f"{row['cover']:.2f}", f"{len(row['misses'])} / {len(row['misses_flagged'])}"
                inside = f"{row['in_domain']}, {row['in_domain_rmse']:.3f}, {row['in_domain_cover']:.2f}"
            lines.append(
                f"| {spoken}, {row['setups']} | {SPOKEN[name]} | **{row['rmse']:.3f}** | {row['mae']:.3f} | {row['bias']:+.3f} | {row['spread']:.3f} | {cover} | {misses} | {inside} |"
            )
    low, high = goal["interval"]
    return [
        *lines,
        "",
        f"By the rule that was written down with the forms, the one with the smaller error ships: a · TNR^b · h̄^c. Its lead of {goal['value']:.3f} is not beyond doubt (95 % bootstrap over",
        f"setups: {low:+.3f} to {high:+.3f}). Both miss the goal of 0.02, and both intervals hold too little; the shipped intervals are therefore wider than those judged here.",
        "",
    ]


def _later(judged):
    """What was trained when, of the setups that were named."""
    names = {kind: ", ".join(f"`{name}`" for name in judged[kind]) for kind in ("missing", "later")}
    told = [f"{names['missing']} of the list not trained yet"] if names["missing"] else []
    return "; ".join([*told, f"{names['later']} when the others had judged, so that they judge what ships and are no part of it"])


def _setups(judged):
    lines = [
        "| setup | members | random labels | train / test accuracy | TNR | h̄ | skewness | LiRA | from losses | from TNR and h̄ | from four references | flagged (losses / TNR and h̄) |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(judged["setups"], key=lambda one: one["rate"]):
        predicted = " | ".join(f"{row[name]['predicted']:.3f}" for name in ("losses", "leverage", "four references"))
        lines.append(
            f"| {row['setup']}{' (known source)' if row['known_source'] else ''} | {row['members']:,} | {row['label_noise']:g} | {row['member_accuracy']:.2f} / {row['nonmember_accuracy']:.2f} "
            f"| {row['tnr_0.001']:.3f} | {row['margin_leverage_mean']:.2f} | {row['skewness']:.2f} | **{row['rate']:.3f}** | {predicted} | {row['losses']['flagged']:.2f} / {row['leverage']['flagged']:.2f} |"
        )
    return [*lines, ""]


def _few(few):
    lines = [
        "### What four reference models tell",
        "",
        f"{len(few['setups'])} judging setups, {few['targets']} models each, every record with two models trained on it and two not; the truth is LiRA's rate with 64. *Of one model* is the error of a",
        "single audit.",
        "",
        "| estimate from the same four models | R² / RMSE / MAE of setups | bias | RMSE of one model |",
        "|---|---|---|---|",
    ]
    for way, spoken in WAYS.items():
        row = few["summary"][way]
        lines.append(
            f"| {spoken} | {row['r2']:.3f} / **{row['rmse']:.3f}** / {row['mae']:.3f} | {row['bias']:+.3f} | {row['rmse_of_one']:.3f} |"
        )
    return [*lines, ""]


def _texts(judged):
    lines = [
        "### Texts, and whether the domain can grow",
        "",
        "Setups on texts, predicted from the 43 calibration setups (*before*), and from these and the judging setups of other data sets (*after*). The ratio is that of the measured rate to",
        "its prediction on data sets left out (both plus 0.02), over all setups of both kinds.",
        "",
        "| form | text setups | RMSE, bias before | RMSE, bias after | median ratio, skewness below 0.8 | median ratio, others | rank correlation of skewness and ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in judged["grown"].items():
        before, after, ratio = row["before"], row["after"], row["median_ratio"]
        lines.append(
            f"| {SPOKEN[name]} | {row['texts']} | {before['rmse']:.3f}, {before['bias']:+.3f} | {after['rmse']:.3f}, {after['bias']:+.3f} "
            f"| {ratio['symmetric']:.2f} ({len(row['symmetric'])} setups) | {ratio['others']:.2f} | {row['spearman_skewness_ratio']:+.2f} |"
        )
    return [*lines, ""]


def _rules(shipped):
    lines = [
        "### One rule for the spread over K",
        "",
        f"The calibrations of linear models and networks. With one spread every curve is fitted to {shipped['setups']} setups. With each record's own spread those of K = 64 are; fewer references find a",
        f"share of that, measured on the {shipped['judging']} judging setups, and the curve is brought down by it. Cover and width: intervals from errors on data sets left out, of all setups.",
        "",
        "| predictors, curve | spread | FPR | K | coefficients | share of K = 64 (RMSE) | left out R² / RMSE / MAE | cover left out | width |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in shipped["calibrations"].items():
        rule = RULES["_global" if name.endswith("_global") else ""]
        for cell in found["cells"]:
            coefficients = ", ".join(f"{value:.3g}" for value in cell["coefficients"])
            share = out = cover = width = ""
            if "share_of_64" in cell:
                share = f"{cell['share_of_64']:.2f} ({cell['share_rmse']:.3f})"
            else:
                out = " / ".join(f"{cell[f'left_out_{key}']:.3f}" for key in ("r2", "rmse", "mae"))
                cover, width = f"{cell['left_out_coverage']:.2f}", f"{cell['left_out_width']:.3f}"
            lines.append(
                f"| {named(found['predictors'])}, {found['form']} | {rule} | {cell['fpr']:g} | {cell['references']} | {coefficients} | {share} | {out} | {cover} | {width} |"
            )
    return [*lines, ""]

"""Measured parts on what of a gain others do not explain, on intervals of canaries, and on AUC and TNR as predictors."""

from finetuned_tables import WORDS, named, table

COLUMNS = ("base_gain", "error_zone", "window_votes", "own_gain")
SEQUENCES = 320  # test sequences of one target
TRUTHS = {"skew_normal": "skew-normal, as is fitted"}


def own_gain_section(found, beside):
    """Lines on `own_gain`: the choice, the attacks beside LiRA, and what is left of the texts' order."""
    how, cases = found["how"], found["cases"]
    choice = how["choice"]
    lines = [
        "**The gain that others do not explain.** Some of the same fine-tunes, trained again from the same seeds with their weights kept. TPR at FPR 0.01 of",
        "all their targets together; LiRA with four references is that of all 36 targets, from the table above. A target has 320 sequences that it never saw: with one",
        f"target the rate rests on {int(how['fpr'] * SEQUENCES)} false positives.",
        "",
    ]
    rows = [
        [
            named(case),
            str(case["targets"]),
            *(f"{case['attacks'][name]['tpr_0.01']:.3f}" for name in COLUMNS),
            f"{beside['cases'][key]['attacks']['lira_4']['tpr_0.01']:.3f}",
            f"{case['attacks']['base_gain']['auc']:.3f} / {case['attacks']['own_gain']['auc']:.3f}",
        ]
        for key, case in cases.items()
    ]
    lines += table(["configuration", "targets", *COLUMNS, "lira_4", "AUC of base_gain / own_gain"], rows)
    return [*lines, *_choice(cases, how, choice), *_reached(cases, beside, how), *_order(cases)]


def _grid(cases, how):
    """Choice → its rates over the configurations of the pool that chose."""
    own = [case["grid"] for case in cases.values() if case["pool"] == how["chosen_on"]]
    names = set.intersection(*(set(grid) for grid in own)) if own else set()
    return {name: [grid[name] for grid in own] for name in sorted(names)}


def _choice(cases, how, choice):
    grid = _grid(cases, how)
    if not grid:
        return []
    means = sorted(sum(rates) / len(rates) for rates in grid.values())
    key = f"{choice['share']:g}/{choice['most']:g}/{choice['damping']:g}"
    return [
        f"The choice ({choice['share']:g} of the way, {choice['most']:g} nats a token, damping {choice['damping']:g}) was made on {WORDS[how['chosen_on']]}, on one fine-tune of each kind, before the reviews were looked at:",
        f"the best mean over five configurations among those that find {how['least']:g} after ten epochs of either kind. Over the {len(grid)} choices tried the mean runs from {means[0]:.2f} to",
        f"{means[-1]:.2f}; the chosen one has {sum(grid[key]) / len(grid[key]):.2f}.",
        "",
    ]


def _reached(cases, beside, how):
    words = []
    for role, pool in (("chose", how["chosen_on"]), ("judge", how["judged_on"])):
        held = {key: case for key, case in cases.items() if case["pool"] == pool}
        rates = {key: {name: case["attacks"][name]["tpr_0.01"] for name in COLUMNS} for key, case in held.items()}
        above = sum(row["own_gain"] >= beside["cases"][key]["attacks"]["lira_4"]["tpr_0.01"] for key, row in rates.items())
        gain = sum(row["own_gain"] > row["base_gain"] for row in rates.values())
        best = sum(row["own_gain"] > max(row["error_zone"], row["window_votes"]) for row in rates.values())
        words.append(
            f"On the {len(held)} configurations that {role} it is at or above LiRA with four references in {above}, above `base_gain` in {gain}, and above both `error_zone` and `window_votes` in {best}."
        )
    return [*words, ""]


def _order(cases):
    rows = [case["order"] for case in cases.values()]
    times = {name: [row[name]["spread_without"] / row[name]["separation"] for row in rows] for name in ("base_gain", "own_gain")}
    ranks = {name: [row[name]["spearman"] for row in rows if row[name]["spearman"] is not None] for name in times}
    return [
        f"Why it finds more, and why not all: from sequence to sequence the score without a membership varies {_ends(times['base_gain'])} times as much as a membership adds for `base_gain`, and",
        f"{_ends(times['own_gain'])} times for `own_gain`; scores with and without it have rank correlations of {_ends(ranks['base_gain'], '+.2f')} and {_ends(ranks['own_gain'], '+.2f')}. A part of the texts' order",
        "is left after the others' steps are taken out.",
        "",
    ]


def _ends(values, form=".1f"):
    return f"{min(values):{form}} to {max(values):{form}}"


def predictors_section(found):
    """Lines on AUC and TNR as predictors of LiRA's rate on texts that no line was fitted on."""
    plain, logits = found["lines"]["plain"], found["lines"]["logits"]
    low, high = plain["auc_minus_tnr"]["interval"]
    low_logit, high_logit = logits["auc_minus_tnr"]["interval"]
    within = found["within"]
    return [
        f"**AUC or TNR?** {found['configurations']} configurations from {found['trainings']} trainings: these fine-tunes on two kinds of texts, and the models above that were trained from nothing. A line from one figure to",
        "LiRA's TPR at FPR 0.01 is fitted on two of the three groups and judged on the third.",
        "",
        *table(
            ["mean error of the rate", "all", "Shakespeare", "reviews", "from nothing"],
            [
                [f"{figure.upper()}, {words}", *(f"{line[figure][name]:.3f}" for name in ("mean", "shakespeare", "sst2", "from nothing"))]
                for words, line in (("line", plain), ("line between logits", logits))
                for figure in ("auc", "tnr")
            ],
        ),
        f"Settled: of the two the AUC predicts better, by {-plain['auc_minus_tnr']['mean']:.3f} ({-high:.3f} to {-low:.3f}, trainings drawn anew) with lines and {-logits['auc_minus_tnr']['mean']:.3f} ({-high_logit:.3f} to {-low_logit:.3f}) between logits. Within a group both put configurations in",
        f"nearly the same order as LiRA does: rank correlations of {_ends(list(within['auc'].values()), '.2f')} and {_ends(list(within['tnr'].values()), '.2f')}. Not settled, and refuted as far as it goes: a line that carries over. Errors of {plain['auc']['mean']:.2f} of the rate",
        "are no prediction, and the same AUC means a far larger rate in a fine-tune than in a model trained from nothing. Nine trainings are few, and their fits are held fixed in the intervals.",
        "",
    ]


def intervals_section(found):
    """Lines of docs/how-to/canaries.md: how often intervals by extrapolation hold."""
    how = found["how"]
    truths = [name for name in TRUTHS if name in found["truths"]]
    bits = [row["bits"] for row in found["truths"][truths[0]]]
    rows = [
        [
            f"{bit} bits",
            *(f"{row['cover']:.2f} ({row['bias']:+.1f}, {row['width']:.1f})" for row in (found["truths"][name][place] for name in truths)),
        ]
        for place, bit in enumerate(bits)
    ]
    return [
        f"Cover of {how['level']:.0%} intervals over {how['runs']} simulated sets of {how['draws']} draws, {how['resamples']} resamples each; in brackets the mean error and the mean width, in bits.",
        "",
        *table(["true exposure", *(TRUTHS[name] for name in truths)], rows),
        "The truth simulated is of the family that is fitted. Another tail was not simulated: the interval is that of the fit, and takes the family for true.",
        "",
    ]

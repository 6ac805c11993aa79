"""What exposure is held against: other methods at its price, and a second LiRA, in docs/exposure.md, docs/papers.md and the README."""

import json

from exposure_stored import COUNTS, ORDER, RUNS, cell, earlier_lines, mean, runs, titled
from papers_stored import POOLED_BELOW, second_by_d

RIVALS = ("difference", "lira_record", "lira_pooled", "lira_nig", "lira_record_d", "lira_pooled_d", "lira_nig_d", "rmia")
SHOWN = {
    "difference": "mean IN − mean OUT",
    "lira_record": "LiRA, record variance",
    "lira_pooled": "LiRA, pooled variance",
    "lira_nig": "LiRA, shrunk variance",
    "lira_record_d": "LiRA's d′, record variance",
    "lira_pooled_d": "LiRA's d′, pooled variance",
    "lira_nig_d": "LiRA's d′, shrunk variance",
    "rmia": "RMIA",
}
# What an audit can be given, in words, the cheapest first.
EVIDENCE = {
    "exposure": "the final model alone",
    "exposure_checkpoint": "a checkpoint",
    "exposure_trace": "losses of every epoch",
    "exposure_folds2": "two folds",
    "exposure_short3": "three short reference models",
    "exposure_1": "one reference model",
    "exposure_2": "two reference models",
    "exposure_short3_1": "three short reference models and a whole one",
    "exposure_folds5": "five folds",
    "exposure_4": "four reference models",
    "exposure_short3_2": "three short reference models and two whole ones",
    "exposure_8": "eight reference models",
    "exposure_16": "16 reference models",
}
NOTHING = 0.1  # recall between halves of the truth models, twice that of a random order, below which there is nothing to rank
FREE_RIVALS = ("loss", "lt_iqr", "label_quality_folds2", "label_quality_folds5")


def evidence_lines():
    """The README's table of what more than the final model adds, all judged by the same models."""
    lines = [
        "| data and model | the final model alone | and a checkpoint | and two reference models | the attack, run again (weaker bar) |",
        "|---|---|---|---|---|",
    ]
    entries = runs()
    for entry in entries.values():
        methods = ("exposure", "exposure_checkpoint", "exposure_2")
        told = [f"{cell(mean(entry, method))} % / {cell(mean(entry, method, 'success'))} %" for method in methods]
        lines.append(f"| {titled(entry)} | {' | '.join(told)} | {cell(entry['second_lira']['recall']['mean'])} % |")
    return [*lines, *earlier_lines(entries)]


def cheapest_evidence(name, other=None):
    """The evidence with the fewest trainings whose recall by d′ reaches a second LiRA, in words: that of its own run, and `other`, a second LiRA of another."""
    entry = runs().get(name)
    if entry is None:
        return "–"
    bars = {"its own run's": entry["second_lira"]["recall"]["mean"]} | ({} if other is None else {"this table's": other})
    return "; ".join(f"{whose} {cell(bar)}: {_cheapest(entry, bar)}" for whose, bar in bars.items())


def _cheapest(entry, bar):
    reached = [
        (found["trainings"], method) for method, found in entry["methods"].items() if method in EVIDENCE and mean(entry, method) >= bar
    ]
    if not reached:
        return "none of those tried"
    trainings, method = min(reached, key=lambda pair: (pair[0], list(EVIDENCE).index(pair[1])))
    return f"{EVIDENCE[method]} ({cell(mean(entry, method))}; {trainings:.2g} trainings)"


def halves(entries):
    """How many truth models a half has, of the setting with the fewest and of that with the most."""
    counts = [entry["models"]["truth"] // 2 for entry in entries.values()]
    return f"{min(counts)} to {max(counts)}"


def best_rival(entry, count):
    """(recall, name) of the best other method with at most this many reference models or folds of the same price."""
    names = [f"{rival}_{k}" for rival in RIVALS for k in COUNTS if k <= count] + [
        name for name in FREE_RIVALS if name in entry["methods"] and entry["methods"][name]["trainings"] <= count
    ]
    return max((mean(entry, name), name) for name in names if name in entry["methods"])


def spoken(method):
    """A rival's name in words."""
    base, _, count = method.rpartition("_")
    return f"{SHOWN[base]}, {count}" if base in SHOWN else {"loss": "loss", "lt_iqr": "LT-IQR"}.get(method, "out-of-fold label quality")


def goal_lines(entries):
    lines = [
        "### Goals",
        "",
        "*Two beat four*: exposure with two references against the best other method with up to four",
        "trainings. *Exposure, ≤ 4*: the better of two and four references, held against two bars. *Own second*",
        "*LiRA*: what half of the truth models of this run find of the other half's top, both with each record's",
        f"own spread, which halves of {halves(entries)} models hardly know: a weak bar. *Papers' second LiRA*: the",
        "one that [the papers, re-made](papers.md) judges by, from a run with more models, whose halves have one",
        f"spread for all records below {POOLED_BELOW} models: a stricter bar, of another truth. *3 short*: a checkpoint, a trace",
        "and three short references, what these cost in trainings, and whether the own second LiRA is reached.",
        "By the means alone.",
        "",
        "| setting | exposure, 2 | best other, ≤ 4 | two beat four | exposure, ≤ 4 | own second LiRA | reached | papers' second LiRA | reached | 3 short | at the price of | own second LiRA reached |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key, entry in entries.items():
        two, (other, name), four = mean(entry, "exposure_2"), best_rival(entry, 4), mean(entry, "exposure_4")
        second, strict, short = entry["second_lira"]["recall"]["mean"], second_by_d(key), mean(entry, "exposure_short3")
        price, best = entry["methods"]["exposure_short3"]["trainings"], max(two, four)
        lines.append(
            f"| {titled(entry)} | {cell(two)} | {cell(other)} ({spoken(name)}) | {verdict(two > other, second)} | {cell(best)} "
            f"| {cell(second)} | {verdict(best >= second, second)} | {cell(strict)} | {verdict(best >= strict, strict)} "
            f"| {cell(short)} | {price:.1f} | {verdict(short >= second, second)} |"
        )
    lines += ["", "*Nothing to find*: the truth models do not agree among themselves on who is exposed, so no method can be judged.", ""]
    return [*lines, *missing_lines(entries)]


def verdict(reached, second):
    return "nothing to find" if second < NOTHING else ("yes" if reached else "**no**")


def missing_lines(entries):
    """Which of the papers' settings have not been judged yet."""
    papers = RUNS.parent / "papers"
    left = [json.loads((papers / f"{name}.json").read_text())["title"] for name in ORDER if name not in entries]
    return [f"Not judged yet, as their models are still to be trained: {'; '.join(left)}.", ""] if left else []

"""Measured parts of docs/language_models.md on fine-tunes beside their base: what is found, and what a large model takes."""

import numpy as np

from noshadow.arguments import MAX_MEMORY
from noshadow.views.sequence_gradients import BYTES_PER_PARAMETER

BILLION, MILLION, GIGA = 1e9, 1e6, 1e9
# Rules that are handed nothing of the base (benchmarks/finetuned/rules.py).
WITHOUT_BASE = ("exposure",)
LIRAS = ("lira_1", "lira_2", "lira_4", "lira_8")
WORDS = {"full": "full", "lora": "LoRA", "shakespeare": "Shakespeare", "sst2": "reviews"}
RATED = ("loss", "min_k", "min_k_plus", "zlib_ratio", "base_gain", "error_zone", "window_votes", *LIRAS)
RANKED = ("loss", "min_k", "min_k_plus", "zlib_ratio", "base_gain", "error_zone", "window_votes", "head_influence")
WEIGHED = (
    "lira_2",
    "exposure_2",
    "exposure_gain_2",
    "exposure_all_2",
    "exposure_margin_2",
    "mean_rank_2",
    "lira_4",
    "exposure_gain_4",
    "lira_8",
)


COSTS = {
    "forward": "bare forward pass",
    "losses": "losses",
    "statistics": "losses and what tokens are told",
    "head_scores": "scores of the output head",
    "own_gain_lora": "`own_gain`, LoRA",
    "own_gain_full": "`own_gain`, every weight",
    "own_gain_folded": "the same, folded",
}


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


def named(case):
    return f"{WORDS[case['pool']]}, {WORDS[case['kind']]}, {case['epochs']}"


def finetuned_section(found):
    """Lines of the part on what is found: attacks, records, goals and predictors."""
    cases, how = found["cases"], found["how"]
    models = min(case["models"] for case in cases.values())
    lines = [
        f"{len(cases)} configurations, {models} fine-tunes each, every one a target once: its references are others of its block of {how['block']},",
        "and the truth is d′ over the models of the other blocks. Records are ranked for every third target. Configurations are pool, kind of fine-tune and epochs; those of one pool",
        f"and kind are snapshots of the same trainings. Rules were chosen on {WORDS[how['chosen_on']]} and are judged on {WORDS[how['judged_on']]}.",
        "",
        "**Attacks.** Loss AUC, then TPR at FPR 0.01 (at 0.001), scores of all targets pooled.",
        "",
    ]
    rows = [
        [
            named(case),
            f"{case['attacks']['loss']['auc']:.3f}",
            *(f"{case['attacks'][name]['tpr_0.01']:.3f} ({case['attacks'][name]['tpr_0.001']:.3f})" for name in RATED),
        ]
        for case in cases.values()
    ]
    lines += table(["configuration", "**loss AUC**", *RATED], rows)
    lines += [
        "**Which sequences.** Rank correlation of each column with d′ over members; in brackets how many of the exposed 5 % are in its top 25 %.",
        "",
    ]
    rows = [[named(case), *(_ranked(case, name) for name in RANKED)] for case in cases.values()]
    lines += table(["configuration", *RANKED], rows)
    lines += ["**With references**, recall of the same; a second LiRA is one half of the truth models against the other.", ""]
    rows = [
        [named(case), *(f"{case['records'][name]['recall']['mean']:.2f}" for name in WEIGHED), f"{case['second_lira']['mean']:.2f}"]
        for case in cases.values()
    ]
    return lines + table(["configuration", *WEIGHED, "second LiRA"], rows) + _why(found) + _goals(found) + _predictors(found)


def _why(found):
    rows = [case["gains"] for case in found["cases"].values()]
    low, high = (f(row["spearman"] for row in rows) for f in (min, max))
    times = [row["spread_without"] / row["separation_spread"] for row in rows]
    return [
        "**Why the gain says little of one sequence.** Sequences gain in much the same order whether a fine-tuning had them or not: the",
        f"mean gain under models with a sequence and under models without it have a rank correlation of {low:.2f} to {high:.2f}. From sequence to",
        f"sequence the gain without it varies {min(times):.1f} to {max(times):.1f} times as much as what a membership adds: the base knows how hard a text is, not how",
        "much of its style the others teach. Reference models, fine-tuned on the others, know both.",
        "",
    ]


def _ranked(case, name):
    row = case["records"].get(name)
    return "" if row is None else f"{row['spearman']['mean']:+.2f} ({row['recall']['mean']:.2f})"


def chosen(found, rules=None):
    """Of all rules, or of these, the one with the best mean recall with two references on the pool that rules are chosen on."""
    cases = [case for case in found["cases"].values() if case["pool"] == found["how"]["chosen_on"]]
    return max(rules or found["how"]["rules"], key=lambda rule: np.mean([case["records"][f"{rule}_2"]["recall"]["mean"] for case in cases]))


def _goals(found):
    rule = chosen(found)
    cases = [case for case in found["cases"].values() if case["pool"] == found["how"]["judged_on"]]
    alone = sum(case["attacks"]["base_gain"]["tpr_0.01"] >= case["attacks"]["lira_4"]["tpr_0.01"] for case in cases)
    ranked = sum(case["records"]["base_gain"]["recall"]["mean"] >= case["records"]["lira_4"]["recall"]["mean"] for case in cases)
    with_base = chosen(found, [name for name in found["how"]["rules"] if name not in WITHOUT_BASE])
    beside, based = (
        sum(case["records"][f"{name}_2"]["recall"]["mean"] >= case["second_lira"]["mean"] for case in cases) for name in (rule, with_base)
    )
    words = "which leaves the base out" if rule in WITHOUT_BASE else "which has the base"
    return [
        f"**Goals**, on the {len(cases)} configurations that judge. `base_gain` alone at or above a LiRA with four references: in {alone} by TPR at FPR",
        f"0.01, in {ranked} by recall. Two references by the chosen rule `{rule}`, {words}, at a second LiRA: in {beside}. The base and two references, by the",
        f"best of the rules that have the base on the texts that choose (`{with_base}`): in {based}.",
        "",
    ]


def _predictors(found):
    by = found["predictors"]
    return [
        f"**[TAIL] §5.3.** Rank correlation over the {len(found['cases'])} configurations with LiRA's TPR at FPR 0.01 (eight references): loss AUC {by['auc']:.2f},",
        f"TNR at FNR 0.01 {by['tnr']:.2f}.",
        "",
    ]


def _gradients(last, setting):
    """Lines on what the gradients behind `own_gain` add to the pass, and to memory."""
    passes = last["seconds"]["forward"]
    lora, full, folded = (last["seconds"][f"own_gain_{name}"] / passes for name in ("lora", "full", "folded"))
    return [
        f"`own_gain` is taken wherever a base can be read. Its gradients, a sequence of {setting['length']} tokens at a time, cost {lora:.1f} bare passes of the largest where LoRA of rank {setting['lora_rank']} was trained,",
        f"{full:.0f} where every weight was, and {folded:.0f} where they are folded for want of memory: with whole gradients {lora * passes / last['tokens'] / last['parameters'] * BILLION * MILLION / 3600:.0f} core hours for the million tokens through",
        f"a model of a billion parameters with LoRA. Where every weight was trained they take {BYTES_PER_PARAMETER} bytes per parameter beside the gradients, {BYTES_PER_PARAMETER * BILLION / GIGA:.0f} GB for a billion: more than `max_memory`",
        f"allows by itself ({MAX_MEMORY / GIGA:.0f} GB), and the column says so.",
    ]


def cost_section(found):
    """Lines of the part on memory and time of a model of a billion parameters, from measured constants."""
    rows, setting = found["rows"], found["setting"]
    last = rows[-1]
    per = {name: value / last["tokens"] / last["parameters"] for name, value in last["seconds"].items()}
    # A billion parameters, a million tokens, one core; what is beyond the bare pass does not grow with the layers.
    hours = per["forward"] * BILLION * MILLION / 3600
    beyond = (last["seconds"]["statistics"] - last["seconds"]["forward"]) / last["tokens"] / setting["vocabulary"]
    costs = [
        [
            f"{row['parameters'] / MILLION:.1f} million",
            *(f"{row['seconds'][name] / row['tokens'] * 1000:.2f}" for name in COSTS),
        ]
        for row in rows
    ]
    vocabulary, width = 50_000, 2_048
    head = last["seconds"]["head_scores"] / last["tokens"] / setting["vocabulary"] / last["width"] * vocabulary * width
    return [
        f"Processor milliseconds per token, one thread, GPT-2 of {setting['layers']} layers, {setting['vocabulary']:,} tokens and random weights:",
        "",
        *table(["parameters", *COSTS.values()], costs),
        f"The bare pass of the largest took {per['forward'] * BILLION * 1000:.0f} ms per token and billion parameters on one such core: a million tokens through",
        f"a model of a billion parameters take {hours:.0f} core hours, and a base as many again. A GPU or more cores divide that. What is added to the",
        f"pass grows with the vocabulary and not with the layers: {beyond * vocabulary * MILLION / 3600:.1f} core hours for a million tokens of {vocabulary:,} kinds.",
        *_gradients(last, setting),
        f"Scores of the output head grow with vocabulary × width: {head * MILLION / 3600:.0f} core hours at {vocabulary:,} × {width:,}.",
        "",
        "Memory, of a billion parameters: 2 GB of weights in bfloat16 or 4 GB in float32, once with adapters and twice with a base of its own.",
        f"Beside them one batch of logits (at most half a gigabyte), {last['bytes_per_token']['statistics']} bytes per token for what tokens are told, and for the scores of the",
        f"output head what it saw at each token: 4 bytes × width, {4 * width * MILLION / GIGA:.1f} GB for a million tokens of width {width:,}. `score_options` has `max_memory`; beyond",
        "it the head is not scored, and losses, gains and attacks remain.",
        "",
    ]

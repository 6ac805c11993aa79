"""What docs/papers.md and its pictures read: stored results of the settings, the published figures, and how a figure is looked up."""

import json
from pathlib import Path

from papers_extras import percent

ROOT = Path(__file__).parents[1]
PUBLISHED = json.loads((ROOT / "benchmarks" / "papers" / "published.json").read_text())
DIFFERS = json.loads((ROOT / "benchmarks" / "papers" / "differs.json").read_text())
RUNS = ROOT / "benchmarks" / "results" / "papers"
MARGINS = ROOT / "benchmarks" / "margins"
# Settings that stand in for one of the paper's, under whose name the published figures are.
PUBLISHED_AS = {
    "fashion_probe": "pneumonia_probe",
    "cifar10_full": "cifar10_cnn",
    "cifar100_full": "cifar100_resnet",
    "sst2_minilm": "sst2_bert",
}
ORDER = tuple(
    name
    for published in PUBLISHED["ret_table_1"]["rows"]
    for name in (published, *(ours for ours, theirs in PUBLISHED_AS.items() if theirs == published))
)
# Settings of [GLS]: the network in the paper's regime first, then the one that knows its records by heart.
BY_DEPTH = ("fashion_depths", "cifar10_residual")
# LiRA has one spread for all records with fewer models than that (benchmarks.papers.truth, as the package).
POOLED_BELOW = 64
# One score a task, the same in every setting, as docs/network.md recommends: the column that audits rank by, over all layers for numbers.
DEFAULT = {"classification": "shift", "regression": "network_shift"}


def runs():
    """Name → stored results of every setting of [RET] that is complete, in the paper's order."""
    return {name: json.loads((RUNS / f"{name}.json").read_text()) for name in ORDER if (RUNS / f"{name}.json").exists()}


def depth_runs():
    """The same of [GLS]'s settings."""
    return {name: json.loads((RUNS / f"{name}.json").read_text()) for name in BY_DEPTH if (RUNS / f"{name}.json").exists()}


def second_by_d(name):
    """What a LiRA with half of a setting's models finds, by d′, of the top 1 % of another with the other half."""
    return recall((runs() | depth_runs())[name], "noise ceiling", attack="lira_d", table="ceiling")


def begun(name):
    """A setting that is not complete, with how many of its models are kept for a later run to go on from."""
    plan = MARGINS / name / "plan.json"
    if not plan.exists():
        return f"`{name}`"
    models = json.loads(plan.read_text())["plan"]["models"]
    return f"`{name}` ({len(list((MARGINS / name / 'models').glob('*.npz')))} of {models} models trained and kept in `benchmarks/margins`)"


def row_of(entry, score, metric, attack="lira_success", top=None, keep=None, table="agreement"):
    """The stored row, or None."""
    wanted = {"attack": attack, "score": score, "metric": metric, "top": top, "keep": keep}
    return next((row for row in entry[table] if all(row[key] == value for key, value in wanted.items())), None)


def recall(entry, score, top=0.01, keep=0.05, attack="lira_success", table="agreement"):
    found = row_of(entry, score, "recall", attack, top, keep, table)
    return None if found is None else found["value"]


def with_spread(row, scale=100, digits=1):
    """A row's mean and half its 95 % interval over the targets, "–" where there is none; an interval cut at 0 or 1 has its longer half."""
    if row is None or row["value"] is None:
        return "–"
    half = None if row["low"] is None else max(row["high"] - row["value"], row["value"] - row["low"])
    return f"{scale * row['value']:.{digits}f}" + ("" if half is None else f" ± {scale * half:.{digits}f}")


def default_score(entry):
    """The task's default where it was computed: a linear model is its own last layer."""
    score = DEFAULT["regression" if entry["task"] == "regression" else "classification"]
    return score if row_of(entry, score, "spearman") else score.removeprefix("network_")


def published_row(table, name):
    """The paper's row of a setting, or of the one it stands in for."""
    return PUBLISHED[table]["rows"][PUBLISHED_AS.get(name, name)]


def judged(name, entry, attack="lira_success"):
    """Recall of LiRA's top 1 % in the top 5 %: the recommended score's, the best published one, the best published score run here, a second LiRA's.

    The published figure is by LiRA's success, whichever the attack.
    """
    printed = published_row("ret_table_1", name)
    best = max(pair[0] for pair in printed.values()) / 100
    rerun = max(recall(entry, score, attack=attack) for score in printed)
    return recall(entry, default_score(entry), attack=attack), best, rerun, recall(entry, "noise ceiling", attack=attack, table="ceiling")


def fit(entry):
    found = entry["fit"]
    return f"{found['shown']} {found['members']:.3f} on members, {found['others']:.3f} on others"


def reference_seconds(entry):
    """Processor seconds of the reference models without the scores of the targets among them.

    Runs from before the scores had a clock of their own: an audit and a whole-network pass are taken off for each target.
    """
    spent = {part: entry["seconds"].get(part, {"processor": 0.0})["processor"] for part in ("references", "audit", "network")}
    return spent["references"] - (0 if "scores" in entry["seconds"] else entry["targets"] * (spent["audit"] + spent["network"]))


def recommended_seconds(entry):
    """Processor seconds of what the recommended score costs: an audit, and a pass over all layers where the score is of them."""
    parts = ("audit", "network") if default_score(entry).startswith("network_") else ("audit",)
    return sum(entry["seconds"][part]["processor"] for part in parts)


def ratio(entry):
    """References over the recommended score; "≥" where the targets' scores had no clock of their own and too much may have been taken off."""
    return f"{'' if 'scores' in entry['seconds'] else '≥ '}{reference_seconds(entry) / recommended_seconds(entry):,.0f} ×"


def cell(value, digits=0):
    return f"{percent(value, digits)} %"

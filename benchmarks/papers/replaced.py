"""Runs of the papers' settings that were replaced by later ones: what they trained and what they showed, read from the git history.

`python -m benchmarks.papers.replaced` needs a clone with its history and writes benchmarks/results/papers_replaced.json.
"""

import json
import subprocess
from pathlib import Path

from benchmarks.papers.run import RESULTS

RESULT = RESULTS.parent / "papers_replaced.json"
ROOT = Path(__file__).parents[2]
TRAINED = ("build", "epochs", "batch_size", "lr", "optimizer", "schedule")
SCORES = ("loss", "newton", "influence", "shift")


def history(name):
    """Stored results of one setting, the oldest first, each with its commit."""
    path = f"benchmarks/results/papers/{name}.json"
    commits = _git("log", "--format=%h", "--reverse", "--", path).split()
    return [(commit, json.loads(_git("show", f"{commit}:{path}"))) for commit in commits]


def _git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def shown(commit, entry):
    """What a run trained, how well it fitted, and its recalls of LiRA's top 1 % in the top 5 %, by success and by d′."""
    rows = {(row["score"], row["attack"]): row["value"] for row in entry["agreement"] + entry["ceiling"] if _headline(row)}
    attacks = ("lira_success", "lira_d")
    found = {
        "commit": commit,
        "title": entry["title"],
        "training": trained(entry),
        "fit": entry["fit"],
        "recall": {score: [rows[score, attack] for attack in attacks] for score in SCORES},
        "second": [rows["noise ceiling", attack] for attack in attacks],
    }
    if "depths" in entry:
        found["leverage_and_lira_score"] = round(sum(entry["depths"]["lira_score"]["last"]) / entry["targets"], 4)
    return found


def _headline(row):
    return row["metric"] == "recall" and (row["top"], row["keep"]) == (0.01, 0.05)


def trained(entry):
    """What decides the models: network, records, images' size, and the settings of the optimiser."""
    kept = {name: entry["training"][name] for name in TRAINED}
    return kept | {"records": entry["records"], "references": entry["references"], "input_shape": entry["training"]["input_shape"]}


def main():
    found = {}
    for path in sorted(RESULTS.glob("*.json")):
        runs = history(path.stem)
        if not runs:
            continue
        last = {}
        for commit, entry in runs:
            # Of runs that trained alike, the last: tables were added without training again.
            last[json.dumps(trained(entry), sort_keys=True)] = (commit, entry)
        if len(last) > 1:
            found[path.stem] = [shown(*run) for run in last.values()]
    RESULT.write_text(json.dumps(found, separators=(",", ":"), sort_keys=True, ensure_ascii=False).replace("},{", "},\n{") + "\n")


if __name__ == "__main__":
    main()

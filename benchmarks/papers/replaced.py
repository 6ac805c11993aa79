"""Runs of the papers' settings that were replaced by later ones: what they trained and what they showed, read from the git history.

Where the later run trained otherwise, its recalls stand beside those before; where it trained alike, how far all of its figures moved.

`python -m benchmarks.papers.replaced` needs a clone with its history and writes benchmarks/results/papers_replaced.json.
"""

import itertools
import json
import subprocess
from pathlib import Path

from benchmarks.papers.run import RESULTS

RESULT = RESULTS.parent / "papers_replaced.json"
ROOT = Path(__file__).parents[2]
TRAINED = ("build", "epochs", "batch_size", "lr", "optimizer", "schedule")
SCORES = ("loss", "newton", "influence", "shift")
ROW = ("attack", "score", "metric", "top", "keep")


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


def repeated(runs):
    """Runs that trained alike and anew, each with how far the agreement of scores and attacks moved from the run before."""
    found = []
    for (commit, before), (_, after) in itertools.pairwise(runs):
        # Tables that are added without training leave the clock of the trainings as it was.
        if trained(before) == trained(after) and before["seconds"]["train_model"] != after["seconds"]["train_model"]:
            first, second = ({tuple(row[key] for key in ROW): row["value"] for row in entry["agreement"]} for entry in (before, after))
            moved = [abs(second[row] - value) for row, value in first.items() if value is not None and second.get(row) is not None]
            found.append({"commit": commit, "rows": len(moved), "same": moved.count(0.0), "largest": round(max(moved), 5)})
    return found


def main():
    found, alike = {}, {}
    for path in sorted(RESULTS.glob("*.json")):
        runs = history(path.stem)
        if not runs:
            continue
        again = repeated(runs)
        if again:
            alike[path.stem] = {"title": runs[-1][1]["title"], "runs": again}
        last = {}
        for commit, entry in runs:
            # Of runs that trained alike, the last: tables were added without training again.
            last[json.dumps(trained(entry), sort_keys=True)] = (commit, entry)
        if len(last) > 1:
            found[path.stem] = [shown(*run) for run in last.values()]
    found = {"otherwise": found, "alike": alike}
    RESULT.write_text(json.dumps(found, separators=(",", ":"), sort_keys=True, ensure_ascii=False).replace("},{", "},\n{") + "\n")


if __name__ == "__main__":
    main()

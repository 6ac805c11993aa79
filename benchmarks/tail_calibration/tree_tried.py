"""What was tried for trees beyond the scores that ship: combinations of free columns, and sizes of forests from reference forests.

`python -m benchmarks.tail_calibration.tree_tried --work DIR` reads the work folder of `tree_run` and writes
benchmarks/results/tree_tried.json; a family whose setups are not all there keeps its stored part. Combinations are means of normal scores
of ranks. Setups of CHOOSING data sets choose, the others judge.
"""

import argparse
import json
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.environment import environment
from benchmarks.tail_calibration.tree_measure import (
    COVARIATES,
    REFERENCES,
    columns_in,
    free_sources,
    geometric_mean,
    separation_of,
    statistic,
)
from benchmarks.tail_calibration.tree_setups import SETUPS
from noshadow._exposure import Source, sizes, weighed
from noshadow._exposure.basis import normal_scores
from noshadow.metrics import top_recall

RESULTS = Path(__file__).parents[1] / "results" / "tree_tried.json"
CHOOSING = ("fashion", "cifar10", "sst2")
SIZED_BY = 4  # reference forests
# name → weight of each column's normal scores
TRIED = {
    "boosting": [
        {"shift": 1},
        {"loo": 1},
        {"shift": 1, "early_loss": 1},
        {"loo": 1, "early_loss": 1},
        {"shift": 1, "loo": 1, "early_loss": 1},
        {"shift": 1, "margin left out": 1},
        {"loo": 1, "margin left out": 1, "early_loss": 1},
        {"shift": 1, "early_loss": 1, "other labels": 1},
        {"shift": 2, "early_loss": 1, "other labels": 1},
        {"loo": 1, "early_loss": 1, "other labels": 1},
        {"shift": 1, "leaf_size": -1},
        {"loo": 1, "leaf_size": -1, "early_loss": 1},
        {"shift": 1, "lt_iqr": 0.5},
        {"shift": 1, "early_loss": 1, "lt_iqr": 1},
        {"shift": 1, "leverage": 1},
        {"loo": 1, "leverage": 1},
        {"shift": 1, "leverage": 1, "early_loss": 1},
        {"early_loss": 1, "leverage": 1},
        # What has a denominator: the jackknife's spread of the margin with the structure fixed, and the true one, which nobody knows.
        {"shift / √spread": 1},
        {"shift / spread": 1},
        {"shift / true spread": 1},
        # What these models lack: the mean margin under the truth's models without the record, negative.
        {"true margin left out": 1},
        # The parts of what ships.
        {"yielding fall": 1},
        {"yielding loss": 1},
        {"√(shift · loss left out)": 1},
        {"yielding_shift": 1},
        {"yielding_shift / √spread": 1},
    ],
    "forest": [
        {"loo": 1},
        {"shift": 1},
        {"left_out_loss": 1},
        {"out_of_bag_loss": 1},
        {"loo": 1, "out_of_bag_loss": 1},
        {"loo": 2, "out_of_bag_loss": 1},
        {"loo": 1, "shift": 1},
        {"loo": 2, "shift": 1},
        {"loo": 1, "shift": 1, "out_of_bag_loss": 1},
        {"loo": 1, "leaf_size": -1},
    ],
}


def called(weights):
    """A combination in words."""
    words = [f"{'' if abs(weight) == 1 else f'{abs(weight):g} '}{name}" for name, weight in weights.items()]
    return words[0] + "".join(
        f" {'−' if weight < 0 else '+'} {word}" for word, weight in zip(words[1:], list(weights.values())[1:], strict=True)
    )


def combined(weights, columns):
    """Weighted sum of normal scores, (m,)."""
    parts = [weight * normal_scores(np.where(np.isnan(columns[name]), -np.inf, columns[name]))[0] for name, weight in weights.items()]
    return np.sum(parts, axis=0, dtype=np.float64)


def held_of(setup, work):
    with np.load(work / f"{setup.name}.npz") as held:
        return held["membership"], statistic(setup, held["probability"])


def columns_of(setup, work, target, own, truth=None):
    """name → (m,) of one audited model's records: columns of the audit, and candidates made of them."""
    with np.load(work / f"{setup.name}_target_{target}.npz") as kept:
        columns = columns_in(kept)
        if setup.family == "boosting":
            columns |= {"margin left out": columns["shift"] - own, "other labels": kept["other_labels"]}
            columns |= of_spread(columns, kept["jackknife_variance"])
            columns |= {} if truth is None else of_truth(columns, *truth)
            columns |= {"yielding fall": kept["yielding_fall"], "yielding loss": kept["yielding_loss"]}
            columns["√(shift · loss left out)"] = geometric_mean(columns["shift"], np.logaddexp(0, columns["shift"] - own))
    return columns


def of_spread(columns, variance):
    """Scores over the jackknife's spread of the margin."""
    found = {"shift / √spread": columns["shift"] / variance**0.25, "shift / spread": columns["shift"] / variance**0.5}
    found["yielding_shift / √spread"] = columns["yielding_shift"] / variance**0.25
    return found


def of_truth(columns, margins, membership):
    """What a score would gain from what nobody knows: the spread that d′ is divided by, and the mean margin without the record."""
    sides = [margins.var(0, where=side, ddof=1) for side in (membership, ~membership)]
    spread = np.sqrt((sides[0] + sides[1]) / 2)
    return {"shift / true spread": columns["shift"] / spread, "true margin left out": -margins.mean(0, where=~membership)}


def recalls(setup, work):
    """Combination → recall of the top 1 % by d′ in its top 5 %, mean over targets; second LiRA beside them."""
    membership, margins = held_of(setup, work)
    truth = slice(setup.targets + REFERENCES, None)
    real = separation_of(setup, margins[truth], membership[truth])
    halves = [separation_of(setup, margins[truth][k::2], membership[truth][k::2]) for k in range(2)]
    rows = {}
    for target in range(setup.targets):
        member = membership[target]
        known = np.isfinite([values[member] for values in (real, *halves)]).all(0)
        d, one, other = (values[member][known] for values in (real, *halves))
        columns = columns_of(setup, work, target, margins[target][member], (margins[truth][:, member], membership[truth][:, member]))
        for weights in TRIED[setup.family]:
            rows.setdefault(called(weights), []).append(top_recall(d, combined(weights, columns)[known]))
        rows.setdefault("second LiRA", []).append((top_recall(one, other) + top_recall(other, one)) / 2)
    return {name: float(np.mean(values)) for name, values in rows.items()}


def covered(setup, work):
    """Share of true d′ within the 90 % intervals from reference forests on margins of votes: all records, the top 5 % by d′.

    The truth is of the models that were not used, and its own noise is in these shares. The rule that refuses sizes of tied margins is
    switched off.
    """
    membership, margins = held_of(setup, work)
    real = separation_of(setup, margins[setup.targets + SIZED_BY :], membership[setup.targets + SIZED_BY :])
    rows, found = slice(setup.targets, setup.targets + SIZED_BY), {"references": [], "references and out of bag": []}
    for target in range(setup.targets):
        member = membership[target]
        own, test, d = margins[target][member], margins[target][~member], real[member]
        columns = columns_of(setup, work, target, own)
        free = {name: columns[name] for name in COVARIATES if name in columns and np.isfinite(columns[name]).all()}
        unseen = np.where(membership[rows], np.nan, margins[rows])[:, ~member]
        source = Source("references", margins=margins[rows][:, member], membership=membership[rows][:, member], test_margins=unseen)
        for name, sources in zip(found, ([source], [*free_sources(columns, own, test), source]), strict=True):
            with mock.patch.object(sizes, "TIED", 2.0):
                low, high = weighed(own, test, sources, free=free).interval.T
            inside, known = (low <= d) & (d <= high), np.isfinite(d)
            top = known & (d >= np.quantile(d[known], 0.95))
            found[name].append((inside[known].mean(), inside[top].mean()))
    return {name: [round(float(value), 3) for value in np.mean(values, axis=0)] for name, values in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder that tree_run wrote")
    work = parser.parse_args().work
    done = [setup for setup in SETUPS.values() if setup.calibrates and (work / f"{setup.name}.npz").exists()]
    rows = {setup.name: recalls(setup, work) for setup in done}
    families = {}
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"combinations": {}}
    whole = {family: all(setup in done for setup in SETUPS.values() if setup.calibrates and setup.family == family) for family in TRIED}
    for family, tried in TRIED.items():
        if not whole[family]:
            families[family] = before["combinations"][family]
            continue
        sides = {"choosing": [], "judging": []}
        for setup in done:
            if setup.family == family:
                sides["choosing" if setup.data_set in CHOOSING else "judging"].append(rows[setup.name])
        table = {}
        for name in (*map(called, tried), "second LiRA"):
            table[name] = {
                side: {
                    "recall": round(float(np.mean([row[name] for row in held])), 4),
                    "at_or_above": sum(row[name] >= row["second LiRA"] - 1e-9 for row in held),
                    "settings": len(held),
                }
                for side, held in sides.items()
            }
        families[family] = table
    cover = before.get("cover")
    if whole["forest"]:
        settings = {setup.name: covered(setup, work) for setup in done if setup.family == "forest"}
        cover = {"references": SIZED_BY, "level": 0.9, "settings": settings}
    result = {"environment": environment(), "combinations": families, "cover": cover}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

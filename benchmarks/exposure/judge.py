"""What every method finds on every setup whose models are there, and how reliable sizes are.

`python -m benchmarks.exposure.judge --data DIR --work DIR [--calibration] [--only NAME ...]` writes one JSON file per setup into
benchmarks/results/exposure (calibration setups into its folder `calibration`). It trains nothing and leaves out setups that are not
complete.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from benchmarks.environment import environment
from benchmarks.exposure.evidence import complete, evidence_of, pool_of
from benchmarks.exposure.measures import beside_truth, ranked, reliability, sized, summary
from benchmarks.exposure.methods import scored
from benchmarks.exposure.setups import CALIBRATION, JUDGING, SETUPS, recipe
from benchmarks.exposure.training import half
from benchmarks.exposure.truth import null_bias, truth_of
from noshadow._exposure import held_out
from noshadow._exposure.rules import CHOSEN

NULL_MODELS = (16, 24, 32, 48, 64, 200)
RESULTS = Path(__file__).parents[1] / "results" / "exposure"


def judged(setup, data, work):
    """Everything measured on one setup; None while models are missing."""
    folder = work / setup.name
    if not complete(setup, folder):
        return None
    x, y = setup.records(data, work)
    trained = recipe(setup, x, y)
    pool = pool_of(setup, folder, trained.task, trained.epochs)
    truth, rows, sizes, noise, refused = truth_of(pool), {}, {}, [], {}
    for target in range(setup.targets):
        evidence = evidence_of(setup, pool, folder, target)
        member, order = half(target, len(x)), np.roll(np.arange(len(pool.references)), -2 * target)
        own = np.load(folder / f"target_{target:02d}.npz")["margins"][-1].astype(np.float64)
        real, success = sized(truth.d_prime, evidence.members, pool.direction), truth.success[evidence.members]
        noise.append(ceiling(truth, evidence.members, pool.direction))
        for one in scored(evidence, pool, (own, member, order)):
            row = rows.setdefault(one.name, {"trainings": [], "d_prime": [], "success": []})
            row["trainings"].append(one.trainings)
            row["d_prime"].append(ranked(real, one.score))
            row["success"].append(ranked(success, one.score))
            if one.ours and one.found.order_only and one.found.state is not None and one.found.state.tail is not None:
                refused.setdefault(one.name, []).append(one.found.state.tail.ratio)
            elif one.ours and not one.found.order_only:
                told = reliability(one.found, truth, evidence.members, pool.direction)
                sizes.setdefault(one.name, []).append(told | {"beside_truth": beside_truth(one.found, pool, evidence.members, real)})
    return described(setup, trained, pool, folder) | {
        "methods": {name: gathered(row) for name, row in rows.items()},
        "second_lira": {name: summary([one[name] for one in noise]) for name in noise[0]},
        "reliability": {name: reliable(parts) for name, parts in sizes.items()},
        "rules": asdict(CHOSEN),
        "held_out": {"farther": held_out.FARTHER, "order_only": {name: told_of(ratios) for name, ratios in refused.items()}},
        "environment": environment(),
    }


def told_of(ratios):
    """How many audited models have no rates as left-out references contradict them, and how far margins reached there."""
    return {"targets": len(ratios), "reach": round(float(np.mean(ratios)), 4)}


def ceiling(truth, members, direction):
    """What one half of the truth models finds of the other half's top: recall of the top 1 % in the top 5 %, both ways."""
    first, second = (sized(side, members, direction) for side in truth.sides)
    both = (ranked(first, second), ranked(second, first))
    return {name: float(np.mean([one[name] for one in both])) for name in both[0]}


def gathered(row):
    """Means and standard errors over targets."""
    found = {"trainings": round(float(np.mean(row["trainings"])), 3)}
    for truth in ("d_prime", "success"):
        found[truth] = {name: summary([one[name] for one in row[truth]]) for name in row[truth][0]}
    return found


def reliable(parts):
    """Reliability over targets: rates by tenths averaged, errors of the averages, cover."""
    found = {name: summary([part[name] for part in parts]) for name in ("cover", "cover_top", "width")}
    found["beside_truth"] = {
        name: {whom: round(float(np.mean([part["beside_truth"][name][whom] for part in parts])), 3) for whom in ("all", "top")}
        for name in parts[0]["beside_truth"]
    }
    for fpr in parts[0]["rates"]:
        said, seen = (np.mean([part["rates"][fpr][side] for part in parts], axis=0) for side in ("predicted", "measured"))
        found[f"rate_{fpr}"] = {
            "predicted": np.round(said, 4).tolist(),
            "measured": np.round(seen, 4).tolist(),
            "error": round(float(np.abs(said - seen).mean()), 4),
            "worst": round(float(np.abs(said - seen).max()), 4),
            "top": round(float(np.mean([part["rates"][fpr]["top"] for part in parts])), 4),
        }
    return found


def described(setup, trained, pool, folder):
    """What was trained on what, and what it cost."""
    seconds = json.loads((folder / "seconds.json").read_text())
    inside, outside = (np.where(chosen, pool.truth, np.nan) for chosen in (pool.truth_membership, ~pool.truth_membership))
    shown = (lambda values: np.nanmean(values**2)) if pool.task == "regression" else (lambda values: (values[~np.isnan(values)] > 0).mean())
    return {
        "name": setup.name,
        "title": setup.title,
        "source": setup.source,
        "task": pool.task,
        "records": len(trained.x),
        "models": {"targets": setup.targets, "references": setup.references, "truth": setup.truth, "folded": setup.folded},
        "training": trained.settings(),
        "processor_seconds": {"expected": setup.seconds, "spent": round(sum(part["processor"] for part in seconds.values()))},
        "fit": {
            "shown": "squared error" if pool.task == "regression" else "margins above 0",
            "members": round(float(shown(inside)), 4),
            "others": round(float(shown(outside)), 4),
        },
        "best_epochs": [int(np.load(folder / f"target_{target:02d}.npz")["best"]) for target in range(setup.targets)],
    }


def write(path, entry):
    """One line an entry, so that changes can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".part").write_text(json.dumps(entry, separators=(",", ":"), sort_keys=True).replace('},"', '},\n"') + "\n")
    path.with_suffix(".part").rename(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="work folder of benchmarks.exposure.run")
    parser.add_argument("--calibration", action="store_true", help="the calibration setups instead of the papers' settings")
    parser.add_argument("--only", nargs="+", choices=SETUPS, help="some setups")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chosen = CALIBRATION if arguments.calibration else JUDGING
    for setup in [SETUPS[name] for name in arguments.only] if arguments.only else chosen:
        entry = judged(setup, arguments.data, arguments.work)
        if entry is None:
            print(f"{setup.name}: models are missing", flush=True)
            continue
        write((RESULTS if setup.judging else RESULTS / "calibration") / f"{setup.name}.json", entry)
        print(setup.name, {name: round(100 * row["d_prime"]["recall"]["mean"]) for name, row in entry["methods"].items()}, flush=True)
    if not arguments.calibration and not (RESULTS / "null_records.json").exists():
        bias = [null_bias(models, balanced=balanced) for balanced in (True, False) for models in NULL_MODELS]
        write(RESULTS / "null_records.json", {"bias": bias, "environment": environment()})


if __name__ == "__main__":
    main()

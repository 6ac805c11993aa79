"""What four reference models tell of what 64 would find, on the judging setups: three ways from the same four models.

For some models of each setup, every record has two other models that were trained on it and two that were not: LiRA's rate with
them as it is measured; the calibration fixed for it
("four references", read at FPR 0.01); and the mean over records of `attack_rate`, which is what an audit with
`reference_models=4` reports.

`python -m benchmarks.tail_calibration.few --work DIR` needs the work folder of `judging` and writes
benchmarks/results/tail_few.json.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.environment import environment
from benchmarks.tail_calibration.fit import rounded
from benchmarks.tail_calibration.fixed import RESULTS as FIXED_FILE
from benchmarks.tail_calibration.judging import JUDGED, JUDGING
from benchmarks.tail_calibration.measure import gathered, resolved
from noshadow._exposure import Source, weighed
from noshadow.attacks import lira_scores
from noshadow.metrics import tpr_at_fpr
from noshadow.reference import load_references
from noshadow.results import Calibration
from noshadow.tail.calibration import fit_quality
from noshadow.tail.prediction import predicted_tpr

RESULTS = JUDGED.parent / "tail_few.json"
TARGETS, MODELS = 4, 4
FREE = ("shift", "leverage", "newton", "margin_leverage")
WAYS = ("measured", "calibrated", "exposure")


def of_target(references, target, calibration, rng):
    """The three estimates of one model's rate."""
    signals, membership = np.asarray(references.statistic), np.asarray(references.membership)
    own, inside = signals[target], membership[target]
    held, side = gathered(signals, membership, target, MODELS, rng)
    scores, n = lira_scores(own, held, side, variance="global"), int(inside.sum())
    rates = {level: tpr_at_fpr(scores[inside], scores[~inside], resolved(level, n)) for level in (1e-3, 1e-2)}
    how = {"fpr": resolved(1e-3, n), "references": 64, "sizes": (n, n), "clear_gap": True}
    predicted = predicted_tpr(calibration, {"lira_k4_tpr_0.01": rates[1e-2]}, **how)
    unseen = np.where(side, np.nan, held)[:, ~inside]
    source = Source("references", margins=held[:, inside], membership=side[:, inside], test_margins=unseen, early=False, trainings=4.0)
    free = {name: np.asarray(values) for name, values in references.model(target).extra.items() if name in FREE}
    found = weighed(own[inside], own[~inside], [source], free=free)
    rate = float("nan") if found.order_only else float(np.mean(found.tpr(how["fpr"])))
    return {"measured": rates[1e-3], "calibrated": predicted.value, "exposure": rate}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="work folder of judging")
    work = parser.parse_args().work
    calibration = Calibration.from_dict(json.loads(FIXED_FILE.read_text())["calibrations"]["four references"])
    rows, rng = [], np.random.default_rng(0)
    for setup in JUDGING:
        path = JUDGED / f"{setup.name}.json"
        if setup.mirrored or not path.exists():  # exposure reads one margin a record
            continue
        references = load_references(work / setup.name)
        found = [of_target(references, target, calibration, rng) for target in range(TARGETS)]
        rate = float(np.mean(json.loads(path.read_text())["targets"]["lira_record_tpr_0.001"]))
        rows.append({"setup": setup.name, "rate": round(rate, 5)} | {way: [round(one[way], 5) for one in found] for way in WAYS})
        print(rows[-1], flush=True)
    truth = np.array([row["rate"] for row in rows])
    means = {way: np.array([np.nanmean(row[way]) for row in rows]) for way in WAYS}
    single = {way: float(np.sqrt(np.nanmean([(value - row["rate"]) ** 2 for row in rows for value in row[way]]))) for way in WAYS}
    result = {
        "models": MODELS,
        "targets": TARGETS,
        "setups": rows,
        "summary": {
            way: rounded(fit_quality(truth, means[way]) | {"bias": (means[way] - truth).mean(), "rmse_of_one": single[way]}) for way in WAYS
        },
        "environment": environment(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(result["summary"])


if __name__ == "__main__":
    main()

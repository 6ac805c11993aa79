"""The form of `fixed_again` judged once, beside what ships, on setups that were named after it: predictions against LiRA's rates.

`python -m benchmarks.tail_calibration.judge_again` reads benchmarks/results/tail_fixed_again.json and tail_judging_again/*.json and
writes benchmarks/results/tail_judged_again.json. The rule stands in `fixed_again`.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd

from benchmarks.environment import environment
from benchmarks.tail_calibration.fit import rounded
from benchmarks.tail_calibration.fixed_again import JUDGED as FIRST
from benchmarks.tail_calibration.fixed_again import PREDICTORS, RATE, RESULTS, design, log_rate, rate_of
from benchmarks.tail_calibration.judge import of_setup
from benchmarks.tail_calibration.judging import LATER
from benchmarks.tail_calibration.judging_again import JUDGED_AGAIN, JUDGING_AGAIN, UNSEEN
from benchmarks.tail_calibration.ship import as_before, stored_entries
from noshadow.tail.prediction import shipped_calibration

JUDGED = RESULTS.parent / "tail_judged_again.json"


def by_skewness(fixed, targets):
    """The fixed form on every model of a setup, as `of_setup` has it; no domain was fixed with it."""
    count = len(targets["margin_leverage_mean"])
    logs = design(pd.DataFrame({name: targets[name][:count] for name in PREDICTORS})) @ np.array(fixed["coefficients"])
    value, low, high = (rate_of(logs + end) for end in (0.0, fixed["low"], fixed["high"]))
    rate = np.mean(targets[RATE])
    held = ((low <= rate) & (rate <= high)).mean()
    return rounded({"predicted": value.mean(), "low": low.mean(), "high": high.mean(), "held": held, "flagged": 0.0})


def ways(fixed):
    """Name → a function of a setup's stored figures."""
    entries, judging, _ = stored_entries()
    before, references = (as_before(name, entries, judging) for name in ("leverage", "four references"))
    anywhere = replace(references, domain={name: ends for name, ends in references.domain.items() if name != "skewness"})
    return {
        "leverage": lambda entry: of_setup(before, entry),
        "with skewness": lambda entry: by_skewness(fixed, entry["targets"]),
        "references": lambda entry: of_setup(references, entry),
        "references, any skewness": lambda entry: of_setup(anywhere, entry),
    }


def judged_row(found, entry):
    targets, setup = entry["targets"], entry["setup"]
    names = ("member_accuracy", "nonmember_accuracy", "tnr_0.001", "skewness", "margin_leverage_mean")
    row = {
        "setup": setup["name"],
        "data": setup["data"],
        "members": setup["records"] // 2,
        "label_noise": setup["label_noise"],
        "unseen": setup["name"] in UNSEEN,
        "rate": round(float(np.mean(targets[RATE])), 5),
    }
    row |= {name: round(float(np.mean(targets[name])), 4) for name in names}
    return row | {name: way(entry) for name, way in found.items()}


def summary(rows, name):
    """Error as a number and as a factor, and cover; the same of the setups whose models are mostly not flagged."""
    found = {"all": _quality(rows, name)}
    inside = [row for row in rows if row[name]["flagged"] < 0.5]
    return found | ({"in_domain": _quality(inside, name)} if inside else {})


def _quality(rows, name):
    rates, predicted = np.array([row["rate"] for row in rows]), np.array([row[name]["predicted"] for row in rows])
    ratios = log_rate(predicted) - log_rate(rates)
    return {"setups": len(rows)} | rounded(
        {
            "rmse": np.sqrt(np.mean((predicted - rates) ** 2)),
            "bias": np.mean(predicted - rates),
            "factor": np.exp(np.sqrt(np.mean(ratios**2))),
            "spread": rates.std(),
            "cover": np.mean([row[name]["held"] for row in rows]),
        }
    )


def untouched():
    """What ships on the setups of `judging` that neither a curve nor an interval has seen."""
    names = [name for name in LATER if not (JUDGED_AGAIN / f"{name}.json").exists()]
    entries = [json.loads((FIRST / f"{name}.json").read_text()) for name in names]
    return [
        {"setup": entry["setup"]["name"], "rate": round(float(np.mean(entry["targets"][RATE])), 5)}
        | {kind: of_setup(shipped_calibration(kind), entry) for kind in ("losses", "leverage", "references")}
        for entry in entries
    ]


def main():
    found = ways(json.loads(RESULTS.read_text()))
    paths = [JUDGED_AGAIN / f"{setup.name}.json" for setup in JUDGING_AGAIN]
    rows = [judged_row(found, json.loads(path.read_text())) for path in paths if path.exists()]
    told = {name: summary(rows, name) for name in found}
    result = {
        "setups": rows,
        "missing": [path.stem for path in paths if not path.exists()],
        "later": [row["setup"] for row in rows if row["setup"] in LATER],
        "summary": told,
        # What the rule of `fixed_again` asked when all but these had judged.
        "summary_before": {name: summary([row for row in rows if row["setup"] not in LATER], name) for name in found},
        "untouched": untouched(),
        "environment": environment(),
    }
    JUDGED.write_text(json.dumps(result, indent=1) + "\n")
    for name, row in told.items():
        print(name, row)


if __name__ == "__main__":
    main()

"""Rates of records as they ship, on the setups of `judging_again`: the model's rate by what ships, dealt out by the shipped curve.

`record_rates.json` was judged when models' rates were predicted from losses alone, and its reference models are gone. These are new
setups, which neither the curve nor any predictor was fitted to, with the model's rate from each predictor and as it was measured.

`python -m benchmarks.tail_calibration.records_again --work DIR` needs the work folder of `judging_again` and writes
benchmarks/results/record_rates_again.json.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.environment import environment
from benchmarks.tail_calibration.judging_again import JUDGED_AGAIN, JUDGING_AGAIN
from benchmarks.tail_calibration.measure import resolved
from benchmarks.tail_calibration.records import by_tenths, setup_bins
from noshadow.tail.prediction import predicted_tpr, shipped_calibration
from noshadow.tail.record_rates import rates_averaging_to, shipped_curves

RESULTS = JUDGED_AGAIN.parent / "record_rates_again.json"
KINDS = ("losses", "leverage", "references")


def dealt_out(setup, kind, curve, n):
    """(models, bins) rates of the rank bins: the model's rate by this calibration, or the measured one, dealt out by the curve."""
    bins = setup["bins"][curve.fpr]
    if kind == "measured":
        rates = np.clip(bins["found"].sum(1) / bins["count"].sum(1), curve.fpr, 0.999)
    else:
        how = {"fpr": resolved(curve.fpr, n), "references": 64, "sizes": (n, n), "clear_gap": True}
        rates = [predicted_tpr(shipped_calibration(kind), shown, **how).value for shown in setup["shown"]]
    return np.array([rates_averaging_to(curve.coefficients, rate, bins["z"], curve.fpr) for rate in rates])


def judged(setups, sizes, kind, curve):
    """How far tenths of the records miss what was measured, and how many of them the shipped interval holds."""
    found = {
        setup["name"]: by_tenths(dealt_out(setup, kind, curve, n), setup["bins"][curve.fpr]) for setup, n in zip(setups, sizes, strict=True)
    }
    value, measured = (np.array([row[name] for row in found.values()]) for name in ("predicted", "measured"))
    scale = value + curve.offset
    inside = (measured >= np.clip(value + curve.low * scale, 0, 1)) & (measured <= np.clip(value + curve.high * scale, 0, 1))
    misses = np.array([row["rms_miss"] for row in found.values()])
    worst = max(found, key=lambda name: found[name]["rms_miss"])
    return {
        "rms_miss": round(float(np.sqrt(np.mean(misses**2))), 4),
        "median_miss": round(float(np.median(misses)), 4),
        "worst": worst,
        "coverage": round(float(inside.mean()), 3),
        "setups": found,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="work folder of judging_again")
    work = parser.parse_args().work
    paths = [JUDGED_AGAIN / f"{setup.name}.json" for setup in JUDGING_AGAIN]
    entries = [json.loads(path.read_text()) for path in paths if path.exists()]
    setups, sizes = [setup_bins(entry, work) for entry in entries], [entry["setup"]["records"] // 2 for entry in entries]
    levels = {f"{curve.fpr:g}": {kind: judged(setups, sizes, kind, curve) for kind in (*KINDS, "measured")} for curve in shipped_curves()}
    result = {"setups": len(setups), "references": 64, "levels": levels, "environment": environment()}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    for fpr, level in levels.items():
        for kind, row in level.items():
            print(fpr, kind, {name: row[name] for name in ("rms_miss", "median_miss", "worst", "coverage")})


if __name__ == "__main__":
    main()

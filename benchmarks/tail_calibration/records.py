"""A record's own TPR from the one classifier that exists: the model's predicted rate, dealt out by rank of `shift`.

For every model of every setup, LiRA (64 references) finds some members at a false-positive rate over the model's records. The
chance that it finds a member is fitted as logit p = a + b L + c z + d L z + e z², L the logit of the model's TPR and z the normal
score of the member's rank by `shift` (`margin_leverage` for heads whose softmax columns were not computed), each setup counting
once. Judged leaving data sets out, with the model's TPR *predicted* from its losses, as an audit has it.

`python -m benchmarks.tail_calibration.records --work DIR [--ship]` needs the work folder of `run` and writes
benchmarks/results/record_rates.json.
"""

import argparse
import itertools
import json
from pathlib import Path

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from benchmarks.environment import environment
from benchmarks.tail_calibration.curve_fit import fitted_curve
from benchmarks.tail_calibration.fit import CHOSEN, RUNS, SHIPPED, rows_of, shown
from benchmarks.tail_calibration.measure import attacked
from noshadow.metrics import error_budget
from noshadow.reference import load_references
from noshadow.tail import fit_calibration
from noshadow.tail.prediction import predicted_tpr
from noshadow.tail.record_rates import rates_averaging_to

RESULTS = Path(__file__).parents[1] / "results" / "record_rates.json"
FPRS = (1e-3, 1e-2)
BINS = 100
MODELS = 16
LEVEL, OFFSET = 0.9, 0.01


def found_members(references, target, fpr):
    """Whether LiRA finds each member of one model at this false-positive rate over the model's records."""
    signals, membership = np.asarray(references.statistic), np.asarray(references.membership)
    scores, inside = attacked(signals, membership, target, "record"), membership[target]
    outside = np.sort(scores[~inside])[::-1]
    return scores[inside] > outside[error_budget(fpr, len(outside))]


def binned(score, found):
    """Normal score of the middle of each rank bin, records in it, and how many of them were found."""
    place = (rankdata(score, method="average") - 0.5) / len(score)
    number = np.minimum((place * BINS).astype(int), BINS - 1)
    count = np.bincount(number, minlength=BINS)
    return ndtri((np.arange(BINS) + 0.5) / BINS), count, np.bincount(number, weights=found, minlength=BINS)


def setup_bins(entry, work):
    """(models, BINS) records and finds a bin at each rate, and what the models show."""
    references = load_references(work / entry["setup"]["name"])
    models = min(MODELS, sum(bool(references.extra(t)) for t in range(MODELS)))
    column = "shift" if "shift" in references.extra(0) else "margin_leverage"
    found = {}
    for fpr in FPRS:
        rows = [binned(references.extra(t)[column], found_members(references, t, fpr)) for t in range(models)]
        found[fpr] = {"z": rows[0][0], "count": np.stack([row[1] for row in rows]), "found": np.stack([row[2] for row in rows])}
    return {
        "name": entry["setup"]["name"],
        "data_set": entry["setup"]["data"].split("_")[0],
        "column": column,
        "bins": found,
        "shown": [shown(entry["targets"], t) for t in range(models)],
        "rows": rows_of(entry),
    }


def record_curve(setups, fpr):
    """Coefficients from measured model rates: what is fitted is how a rate is dealt out, not how it is predicted."""
    rates, z, count, found, weight = [], [], [], [], []
    for setup in setups:
        bins = setup["bins"][fpr]
        rate = np.clip(bins["found"].sum(1) / bins["count"].sum(1), fpr, 0.999)
        rates.append(np.repeat(rate, BINS))
        z.append(np.tile(bins["z"], len(rate)))
        count.append(bins["count"].ravel())
        found.append(bins["found"].ravel())
        weight.append(np.full(bins["count"].size, 1 / bins["count"].sum()))
    return fitted_curve(*map(np.concatenate, (rates, z, count, found, weight)))


def judged(setups, fpr):
    """Left-out data sets: predicted against measured rates over tenths of the records by rank, and by size of the prediction."""
    pairs, by_setup = [], {}
    for data_set in sorted({setup["data_set"] for setup in setups}):
        kept = [setup for setup in setups if setup["data_set"] != data_set]
        predictors, form = CHOSEN["losses"]
        rows = [row for setup in kept for row in setup["rows"] if (row["fpr"], row["references"]) == (fpr, 64)]
        calibration = fit_calibration(rows, predictors=predictors, form=form)
        coefficients = record_curve(kept, fpr)
        for setup in (one for one in setups if one["data_set"] == data_set):
            rates = dealt_out(setup, calibration, coefficients, fpr)
            bins = setup["bins"][fpr]
            pairs.append((rates.ravel(), bins["count"].ravel(), bins["found"].ravel()))
            by_setup[setup["name"]] = by_tenths(rates, bins)
    ends = interval(by_setup, {setup["name"]: setup["data_set"] for setup in setups})
    return {"reliability": reliability(pairs), "setups": by_setup} | ends | summary(by_setup)


def dealt_out(setup, calibration, coefficients, fpr):
    """(models, BINS) predicted rates of the rank bins."""
    found = []
    for one in setup["shown"]:
        model = predicted_tpr(calibration, one, fpr=fpr, references=64, sizes=(2000, 2000), clear_gap=True)
        found.append(rates_averaging_to(coefficients, model.value, setup["bins"][fpr]["z"], fpr))
    return np.array(found)


def by_tenths(rates, bins):
    """Predicted and measured rates of tenths of the records by rank."""
    count, found = (bins[name].sum(0).reshape(10, -1).sum(-1) for name in ("count", "found"))
    value, measured = rates.mean(0).reshape(10, -1).mean(-1), found / count
    return {
        "predicted": [round(float(rate), 4) for rate in value],
        "measured": [round(float(rate), 4) for rate in measured],
        "rms_miss": round(float(np.sqrt(((value - measured) ** 2).mean())), 4),
    }


def relative_errors(rows):
    value, measured = (np.array([row[name] for row in rows]) for name in ("predicted", "measured"))
    return ((measured - value) / (value + OFFSET)).ravel()


def interval(by_setup, data_set_of):
    """Quantiles of the relative errors of tenths of left-out data sets, and their coverage when made from other data sets."""
    ends = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    inside = []
    for data_set in sorted(set(data_set_of.values())):
        own = relative_errors([row for name, row in by_setup.items() if data_set_of[name] == data_set])
        low, high = np.quantile(relative_errors([row for name, row in by_setup.items() if data_set_of[name] != data_set]), ends)
        inside += ((own >= low) & (own <= high)).tolist()
    low, high = np.quantile(relative_errors(by_setup.values()), ends)
    return {"low": round(float(low), 4), "high": round(float(high), 4), "coverage": round(float(np.mean(inside)), 3)}


def reliability(pairs):
    """Measured rate of records with predictions in the same range; every setup counts once."""
    edges = [0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]
    rows = []
    for low, high in itertools.pairwise(edges):
        weight = total = said = 0.0
        setups = 0
        for rates, count, found in pairs:
            inside = (rates >= low) & (rates < high)
            if count[inside].sum() > 0:
                share = 1 / count.sum()
                weight, total = weight + share * count[inside].sum(), total + share * found[inside].sum()
                said, setups = said + share * (rates * count)[inside].sum(), setups + 1
        if weight:
            rows.append(
                {
                    "from": low,
                    "to": high,
                    "share": weight / len(pairs),
                    "predicted": said / weight,
                    "measured": total / weight,
                    "setups": setups,
                }
            )
    return [{name: round(float(value), 5) for name, value in row.items()} for row in rows]


def summary(by_setup):
    misses = np.array([row["rms_miss"] for row in by_setup.values()])
    worst = max(by_setup, key=lambda name: by_setup[name]["rms_miss"])
    return {
        "rms_miss": round(float(np.sqrt((misses**2).mean())), 4),
        "median_miss": round(float(np.median(misses)), 4),
        "worst": worst,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--ship", action="store_true", help="write the curve into the package")
    arguments = parser.parse_args()
    setups = [setup_bins(json.loads(path.read_text()), arguments.work) for path in sorted(RUNS.glob("*.json"))]
    result = {"setups": len(setups), "references": 64, "environment": environment(), "levels": {}}
    for fpr in FPRS:
        coefficients = record_curve(setups, fpr)
        result["levels"][f"{fpr:g}"] = {"coefficients": list(coefficients)} | judged(setups, fpr)
        shown_rows = result["levels"][f"{fpr:g}"]
        print(fpr, coefficients, *(shown_rows[name] for name in ("rms_miss", "median_miss", "worst", "low", "high", "coverage")))
        for row in shown_rows["reliability"]:
            print("  ", row)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.ship:
        names = ("coefficients", "low", "high")
        curves = [{"fpr": float(fpr)} | {name: level[name] for name in names} for fpr, level in result["levels"].items()]
        content = {"format": 1, "name": "records-1", "setups": len(setups), "offset": OFFSET, "level": LEVEL, "curves": curves}
        (SHIPPED / "records.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()

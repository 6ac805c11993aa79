"""One more form, fixed before its judging setups existed, after the first judging said where the shipped one fails.

The first judging setups showed what the hindsight of `why` names: where the losses of strangers are symmetric, LiRA finds more than
TNR and leverage say, and errors are a factor rather than a number. So: log(rate + 0.002) as a straight line in log(TNR + 0.001), the
log of the mean margin leverage and the log of the strangers' skewness, by least squares over setups, fitted to the 43 calibration
setups and the 16 that have judged by now. Its 90 % interval are the 5 % and 95 % quantiles of the left-out errors on that scale.

`python -m benchmarks.tail_calibration.fixed_again` fits it and writes benchmarks/results/tail_fixed_again.json, with its error on
data sets left out. `judge_again` judges it once, on `judging_again`'s setups.

The rule, written down with the form: it ships if on the new setups both its RMSE and its RMS factor are smaller than those of what
ships, and its intervals hold at least as often. The prediction from four references is judged beside it as it ships, and with a domain
that does not ask for the skewness, which says nothing against it on the first judging setups: that domain ships if the setups that it
lets in have no larger RMSE than those that the shipped one lets in.

How it went: on the first ten setups the errors were smaller and the intervals held a little less often, so that nothing changed. The
eleventh of the list was trained later, and with it the intervals hold more often: by the rule, over the whole list, the form ships.
"""

import json

import numpy as np
import pandas as pd

from benchmarks.environment import environment
from benchmarks.tail_calibration.fit import RUNS, rounded
from benchmarks.tail_calibration.judging import LATER

JUDGED = RUNS.parent / "tail_judging"
RESULTS = RUNS.parent / "tail_fixed_again.json"
RATE = "lira_record_tpr_0.001"
PREDICTORS = ("tnr_0.001", "margin_leverage_mean", "skewness")
OFFSET, TNR_OFFSET, LEAST_SKEWNESS = 0.002, 1e-3, 0.25
LEVEL = 0.9


def setup_means(folder):
    """One row a setup: its means over models of every figure that it shows."""
    entries = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    rows = []
    for entry in entries:
        setup = entry["setup"]
        named = {"setup": setup["name"], "data_set": setup["data"].split("_")[0], "members": setup["records"] // 2}
        rows.append(named | {name: float(np.mean(values)) for name, values in entry["targets"].items()})
    return pd.DataFrame(rows)


def design(frame):
    """(n, 4): a constant, and the logs of the three figures."""
    tnr, leverage, skewness = (frame[name].to_numpy(float) for name in PREDICTORS)
    logs = np.log(tnr + TNR_OFFSET), np.log(leverage), np.log(np.maximum(skewness, LEAST_SKEWNESS))
    return np.column_stack([np.ones(len(frame)), *logs])


def log_rate(rate):
    return np.log(np.asarray(rate, float) + OFFSET)


def rate_of(logs):
    """Rates in [0, 1] of sums of the straight line."""
    return np.clip(np.exp(logs) - OFFSET, 0.0, 1.0)


def left_out(frame):
    """Sums of the straight line for every setup, each from the other data sets."""
    x, y, found = design(frame), log_rate(frame[RATE]), np.zeros(len(frame))
    for data_set in frame["data_set"].unique():
        own = (frame["data_set"] == data_set).to_numpy()
        found[own] = x[own] @ np.linalg.lstsq(x[~own], y[~own], rcond=None)[0]
    return found


def quality(rates, logs):
    """RMSE of the rates, and root mean square of the log-ratios as a factor."""
    errors = logs - log_rate(rates)
    return {
        "rmse": float(np.sqrt(np.mean((rate_of(logs) - np.asarray(rates)) ** 2))),
        "factor": float(np.exp(np.sqrt(np.mean(errors**2)))),
    }


def main():
    judged = setup_means(JUDGED)
    frame = pd.concat([setup_means(RUNS), judged[~judged["setup"].isin(LATER)]], ignore_index=True)
    logs = left_out(frame)
    errors = log_rate(frame[RATE]) - logs
    low, high = np.quantile(errors, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    coefficients = np.linalg.lstsq(design(frame), log_rate(frame[RATE]), rcond=None)[0]
    result = {
        "predictors": list(PREDICTORS),
        "setups": len(frame),
        "coefficients": coefficients.tolist(),
        "low": float(low),
        "high": float(high),
        "left_out": rounded(quality(frame[RATE], logs)),
        "environment": environment(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(result)


if __name__ == "__main__":
    main()

"""Why the goal of an RMSE of 0.02 was missed on the first judging setups, from what is stored; nothing is trained.

`python -m benchmarks.tail_calibration.why` reads benchmarks/results/tail_calibration/*.json, tail_judging/*.json and tail_fixed.json,
and writes benchmarks/results/tail_why.json:

- the noise of the measured rates, which is no part of it;
- the error of the shipped form as a factor, on judging setups and on data sets left out of the calibration;
- who makes the squared error;
- each suspect (few members, heavy label noise, letters and words, symmetric losses, linear heads, convolutions) as the median of
  measured over predicted, on judging setups and, left out, on those of the calibration;
- every straight line between logs of up to three of the figures that a model shows by itself, fitted to the calibration setups: its
  error there on data sets left out, and its error on the judging setups. The smallest of the latter is picked with hindsight, and
  bounds what such a form could have reached.
"""

import itertools
import json

import numpy as np
import pandas as pd

from benchmarks.environment import environment
from benchmarks.tail_calibration.fit import RUNS, rounded
from benchmarks.tail_calibration.fixed import RESULTS as FIXED_FILE
from benchmarks.tail_calibration.fixed_again import JUDGED, RATE, log_rate, rate_of, setup_means
from noshadow.tail.forms import fitted_coefficients, predicted_rates

RESULTS = RUNS.parent / "tail_why.json"
SHIPPED = ("tnr_0.001", "margin_leverage_mean")
LARGE, SYMMETRIC, FEW, NOISY = 0.15, 0.8, 1000, 0.3
TEXTS = ("shakespeare", "wikitext", "source", "sst2")
MOST = 3


def read(folder):
    """Means of every setup, with what kind of setup it is."""
    frame = setup_means(folder)
    setups = [json.loads(path.read_text())["setup"] for path in sorted(folder.glob("*.json"))]
    kinds = ["convolutions" if setup["channels"] else "dense" if setup["hidden"] else "linear" for setup in setups]
    return frame.assign(kind=kinds, label_noise=[setup["label_noise"] for setup in setups])


def noise(folder):
    """Root mean square, over setups, of the standard error of a mean rate over its models."""
    rates = [np.array(json.loads(path.read_text())["targets"][RATE]) for path in sorted(folder.glob("*.json"))]
    return float(np.sqrt(np.mean([own.var(ddof=1) / len(own) for own in rates])))


def shipped_form(frame):
    """The shipped form on these setups, each from the other data sets of the calibration."""
    found = np.zeros(len(frame))
    for data_set in frame["data_set"].unique():
        own = (frame["data_set"] == data_set).to_numpy()
        kept = frame[~own]
        coefficients = fitted_coefficients("power", kept[list(SHIPPED)].to_numpy(), kept[RATE].to_numpy(), np.ones(len(kept)))
        found[own] = predicted_rates("power", coefficients, frame.loc[own, list(SHIPPED)].to_numpy())
    return found


def suspects(frame):
    """Name → which setups it is about."""
    return {
        "all": np.ones(len(frame), bool),
        "rate above 0.15": (frame[RATE] > LARGE).to_numpy(),
        "rate below 0.05": (frame[RATE] < 0.05).to_numpy(),
        "fewer than 1,000 members": (frame["members"] < FEW).to_numpy(),
        "a third of the labels random, or more": (frame["label_noise"] >= NOISY).to_numpy(),
        "letters, words and sentences": frame["data_set"].isin(TEXTS).to_numpy(),
        "skewness of strangers' losses below 0.8": (frame["skewness"] < SYMMETRIC).to_numpy(),
        "skewness above 0.8, letters, words and sentences": (frame["data_set"].isin(TEXTS) & (frame["skewness"] >= SYMMETRIC)).to_numpy(),
        "linear models": (frame["kind"] == "linear").to_numpy(),
        "convolutions": (frame["kind"] == "convolutions").to_numpy(),
    }


def by_suspect(frame, predicted):
    """Setups, median of measured over predicted (both plus 0.002), and share of the squared error."""
    logs, squares = log_rate(frame[RATE]) - log_rate(predicted), (predicted - frame[RATE].to_numpy()) ** 2
    return {
        name: {"setups": int(rows.sum())}
        | (rounded({"ratio": np.exp(np.median(logs[rows])), "share": squares[rows].sum() / squares.sum()}) if rows.any() else {})
        for name, rows in suspects(frame).items()
    }


def quality(frame, predicted):
    errors = predicted - frame[RATE].to_numpy()
    factor = np.exp(np.sqrt(np.mean((log_rate(predicted) - log_rate(frame[RATE])) ** 2)))
    return rounded({"rmse": np.sqrt(np.mean(errors**2)), "factor": factor, "spread": frame[RATE].std(ddof=0), "mean": frame[RATE].mean()})


def figures(frame):
    """What a model shows by itself, in logs."""
    logs = {"TNR": np.log(frame["tnr_0.001"] + 1e-3), "2 AUC − 1": np.log(2 * frame["auc"] - 1), "KS": np.log(frame["ks"])}
    logs |= {
        f"TNR at {level}, less it": np.log(np.maximum(frame[f"tnr_{level}"] - float(level), 0) + 0.005) for level in ("0.01", "0.05", "0.1")
    }
    logs |= {
        f"margin shift at {level}": np.log(np.maximum(frame[f"margin_shift_{level}"], 0) + 0.02) for level in ("0.02", "0.05", "0.1", "0.2")
    }
    logs |= {"mean h": np.log(frame["margin_leverage_mean"]), "mean h at one decay": np.log(frame["margin_leverage_fixed_mean"])}
    logs |= {f"{level} quantile of h": np.log(frame[f"margin_leverage_q{level}"] + 1e-3) for level in ("0.5", "0.9", "0.99")}
    logs |= {"accuracy gap": np.log(np.maximum(frame["accuracy_gap"], 0) + 0.01), "skewness": np.log(frame["skewness"])}
    logs |= {"member loss": np.log(frame["member_loss"] + 1e-3), "loss gap": np.log(np.maximum(frame["loss_gap"], 0) + 0.01)}
    return pd.DataFrame(logs | {"test error": np.log(1 - frame["nonmember_accuracy"] + 0.01), "linear": (frame["kind"] == "linear") * 1.0})


def lines(calibration, judging):
    """Every straight line between logs: its figures, its errors on data sets left out, and on the judging setups."""
    own, other = figures(calibration), figures(judging)
    y, sets = log_rate(calibration[RATE]), calibration["data_set"].to_numpy()
    found = []
    for count in range(1, MOST + 1):
        for names in itertools.combinations(own.columns, count):
            x, beyond = (np.column_stack([np.ones(len(part)), part[list(names)]]) for part in (own, other))
            out = np.zeros(len(y))
            for data_set in np.unique(sets):
                kept = sets != data_set
                out[~kept] = x[~kept] @ np.linalg.lstsq(x[kept], y[kept], rcond=None)[0]
            judged = beyond @ np.linalg.lstsq(x, y, rcond=None)[0]
            row = {"figures": list(names), "left_out": quality(calibration, rate_of(out)), "judging": quality(judging, rate_of(judged))}
            found.append(row)
    return found


def best(found):
    """The lines with the smallest errors: chosen on the calibration, and with hindsight; and that of the shipped figures."""
    picks = {
        f"{part}, {error}": min(found, key=lambda row: row[part][error]) for part in ("left_out", "judging") for error in ("rmse", "factor")
    }
    picks["same figures"] = next(row for row in found if row["figures"] == ["TNR", "mean h"])
    return {"tried": len(found), "picked": picks}


def main():
    calibration, judging = read(RUNS), read(JUDGED)
    coefficients = next(
        cell["coefficients"]
        for cell in json.loads(FIXED_FILE.read_text())["calibrations"]["leverage"]["cells"]
        if (cell["fpr"], cell["references"]) == (1e-3, 64)
    )
    predicted = {
        "calibration": shipped_form(calibration),
        "judging": predicted_rates("power", coefficients, judging[list(SHIPPED)].to_numpy()),
    }
    frames = {"calibration": calibration, "judging": judging}
    result = {
        "noise": {name: round(noise(folder), 5) for name, folder in (("calibration", RUNS), ("judging", JUDGED))},
        "shipped": {name: quality(frame, predicted[name]) for name, frame in frames.items()},
        "suspects": {name: by_suspect(frame, predicted[name]) for name, frame in frames.items()},
        "lines": best(lines(calibration, judging)),
        "environment": environment(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: result[name] for name in ("noise", "shipped", "suspects", "lines")}, indent=0))


if __name__ == "__main__":
    main()

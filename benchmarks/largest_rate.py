"""How often the 90 % interval of the largest rate of any record holds the true one, and what the largest estimate does instead.

Records are drawn from the model behind `noshadow.exposure`, so that every true rate is known: as it is, with spreads that differ between
records, with slopes of heavier tails than a Gaussian's, and without any leakage. Beside these, logistic regressions on random halves of
scikit-learn's digits, whose truth is measured by models that the estimate does not see. Flags of a retraining are judged in the same runs.
`python benchmarks/largest_rate.py`.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from environment import environment
from scipy.special import ndtr, ndtri
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import noshadow as ns
from noshadow._exposure import largest_rate, retraining
from noshadow.limits import STRONG_TIMES

RESULTS = Path(__file__).parent / "results" / "largest_rate.json"
FPR, RARE, RECORDS, TOP = 0.01, 0.001, 1000, 10
SLOPES = np.array([[1.0, -0.1], [-0.1, 0.06]])  # of a record's own level and slope
SPREADS = (0.7, 0.5)  # OUT, IN
FREEDOM, TAIL = 10, 4  # degrees of freedom of records' own spreads, and of slopes with heavy tails
KINDS = {
    "as assumed": {},
    "spreads of their own": {"freedom": FREEDOM},
    "heavy tails": {"tail": TAIL},
    "no leakage": {"leak": 0.0},
}
CASES = [(kind, models) for kind in KINDS for models in (4, 16, 64)]
TRUTH_MODELS, REAL_SETS = 400, 20


def drawn(n, models, rng, *, freedom=None, tail=None, leak=1.0):
    """Arguments of `exposure`, and the truth: separation, spread without and with each record."""
    first, second = rng.normal(size=(2, n))
    level, slope = rng.multivariate_normal([0, 0], SLOPES, n).T
    if tail is not None:
        slope = np.sqrt(SLOPES[1, 1] * (tail - 2) / tail) * rng.standard_t(tail, n)
    separation = leak * (0.8 + 0.4 * first + slope)
    wide = np.outer(SPREADS if leak else (SPREADS[0], SPREADS[0]), np.ones(n))
    if freedom is not None:
        wide = wide * np.sqrt(freedom / rng.chisquare(freedom, (2, n)))
    base, inside = 1 + 0.5 * first - 0.3 * second + level, rng.random((models, n)) < 0.5
    margins = base + separation + wide[1] * rng.normal(size=n)
    references = base + inside * separation + np.where(inside, wide[1], wide[0]) * rng.normal(size=inside.shape)
    return {"margins": margins, "covariates": {"a": first, "b": second}, "references": references, "membership": inside}, separation, wide


def rates(separation, wide, fpr=FPR):
    return ndtr((separation + ndtri(fpr) * wide[0]) / wide[1])


def plain_rates(references, inside, fpr=FPR):
    """Each record's rate by its own two means and one pooled spread per side, as LiRA takes them: nothing is shrunk."""
    sides = [np.where(inside == side, references, np.nan) for side in (False, True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # records without a model on a side have no rate
        means = [np.nanmean(side, axis=0) for side in sides]
    wide = [
        np.sqrt(np.nansum((side - mean) ** 2) / np.maximum((~np.isnan(side)).sum(0) - 1, 0).sum())
        for side, mean in zip(sides, means, strict=True)
    ]
    found = ndtr((means[1] - means[0] + ndtri(fpr) * wide[0]) / wide[1])
    return float(np.nanmax(found))


def overlap(separation, wide, rng):
    """Share of the top of one training that is in the top of another."""
    tops = [set(np.argsort(-(separation + wide[1] * rng.normal(size=len(separation))) / wide[0])[:TOP].tolist()) for _ in range(2)]
    return len(tops[0] & tops[1]) / TOP


def judged(found, arguments, true, again, together):
    """One data set: what was said of the largest rate and of flags, beside the truth."""
    largest, flags = largest_rate(found, FPR), retraining(found, FPR)
    low, high = largest.interval
    row = int(np.argmax(found.tpr(RARE)))
    return {
        "true": true,
        "median": largest.median,
        "low": low,
        "high": high,
        "covered": low <= true <= high,
        "above": true > high,
        "largest_plain": plain_rates(arguments["references"], arguments["membership"]),
        "largest_shrunk": float(found.tpr(FPR).max()),
        # Far above a guess: what a verdict would take for a sign of leakage.
        "alarm": largest_rate(found, RARE).interval[0] > STRONG_TIMES * RARE,
        "alarm_own": found.tpr_interval(RARE)[row, 0] > STRONG_TIMES * RARE,
        "again": again,
        "again_said": flags.flagged_again[0],
        "again_covered": flags.flagged_again[1] <= again <= flags.flagged_again[2],
        "overlap": together,
        "overlap_said": flags.top_overlap[0],
        "overlap_covered": None if together is None else flags.top_overlap[1] <= together <= flags.top_overlap[2],
    }


def summary(kind, models, n, rows):
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0] if rows[0][name] is not None}
    return {"kind": kind, "models": models, "records": n, "repetitions": len(rows)} | means


def simulated(kind, models, repetitions):
    rows = []
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        arguments, separation, wide = drawn(RECORDS, models, rng, **KINDS[kind])
        truth = rates(separation, wide)
        again = float((truth**2).sum() / truth.sum())
        rows.append(judged(ns.exposure(**arguments), arguments, float(truth.max()), again, overlap(separation, wide, rng)))
    return summary(kind, models, RECORDS, rows)


def digits_margins(models):
    """Margins (models, n) of logistic regressions on random halves, and who was in."""
    x, y = load_digits(return_X_y=True)
    x, n, rng = x / 16, len(y), np.random.default_rng(0)
    inside = rng.random((models, n)) < 0.5
    found = np.empty((models, n))
    for row, rows in zip(found, inside, strict=True):
        logits = LogisticRegression(C=1.0, max_iter=1000).fit(x[rows], y[rows]).decision_function(x)
        own = logits[np.arange(n), y]
        logits[np.arange(n), y] = -np.inf
        row[:] = own - np.logaddexp.reduce(logits, axis=1)
    return found, inside


def real(margins, inside, models, sets):
    """Sets of a few models against the truth of all others; each audited model's own records."""
    rows = []
    for number in range(sets):
        rng = np.random.default_rng(number)
        audited, *few = rng.permutation(len(margins))[: models + 1].tolist()
        others, own = np.setdiff1d(np.arange(len(margins)), [audited, *few]), inside[audited]
        sides = [np.where(inside[others][:, own] == side, margins[others][:, own], np.nan) for side in (False, True)]
        separation = np.nanmean(sides[1], 0) - np.nanmean(sides[0], 0)
        truth = rates(separation, np.stack([np.nanstd(side, axis=0, ddof=1) for side in sides]))
        arguments = {"margins": margins[audited, own], "references": margins[few][:, own], "membership": inside[few][:, own]}
        again = float((truth**2).sum() / truth.sum())
        rows.append(judged(ns.exposure(**arguments), arguments, float(truth.max()), again, None))
    return summary("digits, logistic regression", models, int(inside.sum(1).mean()), rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions, nothing stored")
    quick = parser.parse_args().quick
    rows = [simulated(kind, models, 5 if quick else 200) for kind, models in CASES]
    margins, inside = digits_margins(40 if quick else TRUTH_MODELS)
    rows += [real(margins, inside, models, 3 if quick else REAL_SETS) for models in (4, 16)]
    print(json.dumps(rows, indent=1))
    if not quick:
        stored = {
            "rows": rows,
            "nominal": 0.9,
            "fpr": FPR,
            "rare": RARE,
            "times": STRONG_TIMES,
            "truth_models": TRUTH_MODELS,
            "freedom": FREEDOM,
            "tail": TAIL,
        }
        RESULTS.write_text(json.dumps(stored | {"environment": environment()}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

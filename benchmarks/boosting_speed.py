"""What the scores of boosted models cost: one pass over the trees, by library and size.

Times are processor seconds of `boosting_scores` (yielding shift, shift, loo, influence, leverage and leaf sizes of every record) on one
thread, after the model is fitted; the fit on the same thread stands beside it. `python -m benchmarks.boosting_speed` measures 100,000
records × 100 rounds; `--full` adds a million records × 500 rounds of scikit-learn's histogram boosting. Needs the extra `trees` for all
rows.
"""

import argparse
import importlib.util
import json
import resource
import time
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.environment import environment
from noshadow.scores.trees.boosting import boosting_scores
from noshadow.views.readers import reader_of
from noshadow.views.view import Settings

RESULTS = Path(__file__).parent / "results" / "boosting_speed.json"
FEATURES = 20


def records(count):
    """Two classes that overlap; a fifth of the labels is random."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, FEATURES)).astype(np.float32)
    y = (x[:, :5].sum(1) + rng.normal(size=count) > 0).astype(np.int64)
    random = rng.random(count) < 0.2
    y[random] = rng.integers(0, 2, int(random.sum()))
    return x, y


def models(rounds):
    """Name → a function that makes the model; libraries that are not there are left out."""
    found = {"scikit-learn, histograms": lambda: HistGradientBoostingClassifier(max_iter=rounds, early_stopping=False, random_state=0)}
    if importlib.util.find_spec("xgboost"):
        found["XGBoost"] = lambda: importlib.import_module("xgboost").XGBClassifier(n_estimators=rounds, n_jobs=1)
    if importlib.util.find_spec("lightgbm"):
        found["LightGBM"] = lambda: importlib.import_module("lightgbm").LGBMClassifier(n_estimators=rounds, n_jobs=1, verbose=-1)
    if importlib.util.find_spec("catboost"):
        # With backtracking, its default, CatBoost's later steps cannot be rebuilt for so many records.
        options = {"leaf_estimation_backtracking": "No", "allow_writing_files": False, "thread_count": 1, "verbose": 0}
        found["CatBoost"] = lambda: importlib.import_module("catboost").CatBoostClassifier(iterations=rounds, **options)
    return found


def timed(make, x, y, rounds):
    """Processor seconds of the fit and of the scores, and the peak of the process's memory."""
    started = time.process_time()
    model = make().fit(x, y)
    fit, started = time.process_time() - started, time.process_time()
    scores = boosting_scores(reader_of(model).boosted(model, (x, y), weights=None, settings=Settings()))
    row = {
        "records": len(y),
        "rounds": rounds,
        "fit_processor_seconds": fit,
        "processor_seconds": time.process_time() - started,
        "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    return row | {"largest_deviation": scores.facts["largest_deviation"], "largest_leaf_value": scores.facts["largest_leaf_value"]}


def main():
    """Measure and store, keeping rows that are not measured anew."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="a million records × 500 rounds as well")
    full = parser.parse_args().full
    held = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else {}
    x, y = records(100_000)
    for name, make in models(100).items():
        held[name] = timed(make, x, y, 100)
        print(name, held[name])
    if full:
        x, y = records(1_000_000)
        held["scikit-learn, histograms, full size"] = timed(models(500)["scikit-learn, histograms"], x, y, 500)
        print(held["scikit-learn, histograms, full size"])
    RESULTS.write_text(json.dumps({"environment": environment(), "features": FEATURES, "rows": held}, indent=1) + "\n")


if __name__ == "__main__":
    main()

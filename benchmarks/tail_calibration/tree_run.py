"""Trains the models of every tree setup and keeps what they say; nothing is judged here.

`python -m benchmarks.tail_calibration.tree_run --data DIR --work DIR [--only NAME ...]` goes on where it stopped. `--audited` trains and
audits the first models of finished setups again, for columns that are new since; all else stays.

Every setup has 64 models on independent random halves of its records. The first three are audited, with what rivals need beside it; the
next two serve as two references; the rest are the truth of the ranking. `tree_measure` reads the work folder.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import noshadow as ns
from benchmarks.tail_calibration.tree_labels import other_labels
from benchmarks.tail_calibration.tree_rivals import quantile_margin
from benchmarks.tail_calibration.tree_setups import SETUPS, table
from benchmarks.tail_calibration.tree_spread import spread_and_parts

FOLDS = 5


def halves(records, models):
    """(models, records) memberships: independent random halves."""
    rng = np.random.default_rng(1)
    return np.array([rng.permutation(records) < records // 2 for _ in range(models)])


def own_probabilities(outputs, y):
    """(n,) probability of each record's class, and whether it is the largest one."""
    return outputs[np.arange(len(y)), y].astype(np.float64), outputs.argmax(1) == y


def fitted(setup, seed, x, y):
    """One model; every class must be in its half, whose columns are then the classes."""
    model = setup.model(seed).fit(x, y)
    assert len(model.classes_) == model.classes_.max() + 1
    return model


def audited(setup, model, x, y, member):
    """Every column of an audit of one model, its outputs, and the probabilities of five folds."""
    audit = ns.audit(model, (x[member], y[member]), (x[~member], y[~member]), progress=False)
    columns = audit.records.select_dtypes("number")
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    outside = cross_val_predict(clone(setup.model(0)), x[member], y[member], cv=folds, method="predict_proba")
    found = {f"column_{name}": columns[name].to_numpy(np.float64) for name in columns}
    if setup.family == "boosting":
        found["other_labels"] = other_labels(model, x[member], y[member])
        found |= spread_and_parts(model, x[member], y[member])
    outputs = model.predict_proba(x)
    found["quantile_margin"] = quantile_margin(x, y, outputs, member)[member]
    return found | {"outputs": outputs, "folds": outside, "ranked_by": np.array(audit.ranked_by or "")}


def trained(setup, data, work):
    """Writes NAME.npz (all models) and NAME_target_K.npz (audited ones)."""
    path = work / f"{setup.name}.npz"
    if path.exists():
        return 0.0
    started = time.process_time()
    x, y = table(setup, data)
    membership, rows, right = halves(len(y), setup.models), [], []
    for number, member in enumerate(membership):
        model = fitted(setup, number, x[member], y[member])
        own, correct = own_probabilities(model.predict_proba(x), y)
        rows.append(own)
        right.append(correct)
        if number < setup.targets:
            np.savez(work / f"{setup.name}_target_{number}.npz", y=y, **audited(setup, model, x, y, member))
    seconds = time.process_time() - started
    part = path.with_suffix(".part.npz")
    np.savez(part, probability=np.array(rows), correct=np.array(right), membership=membership, y=y, seconds=seconds)
    part.rename(path)
    print(
        setup.name, f"{np.array(right)[membership].mean():.3f} / {np.array(right)[~membership].mean():.3f}", f"{seconds:.0f} s", flush=True
    )
    return seconds


def audited_again(setup, data, work):
    """Writes NAME_target_K.npz of a finished setup anew, by the models that are trained from the same seeds."""
    x, y = table(setup, data)
    with np.load(work / f"{setup.name}.npz") as held:
        before = held["probability"][: setup.targets]
    for number, member in enumerate(halves(len(y), setup.models)[: setup.targets]):
        model = fitted(setup, number, x[member], y[member])
        assert np.allclose(own_probabilities(model.predict_proba(x), y)[0], before[number]), "another model than before"
        np.savez(work / f"{setup.name}_target_{number}.npz", y=y, **audited(setup, model, x, y, member))
    print(setup.name, "audited again", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="where answers go; run again to go on")
    parser.add_argument("--only", nargs="+", choices=SETUPS, help="some setups")
    parser.add_argument("--audited", action="store_true", help="audit the first models of finished setups again")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    for name in asked.only or SETUPS:
        if not asked.audited:
            trained(SETUPS[name], asked.data, asked.work)
        elif (asked.work / f"{name}.npz").exists():
            audited_again(SETUPS[name], asked.data, asked.work)


if __name__ == "__main__":
    main()

"""What one would pick instead of an audit: other tools on the same models, records, truth and machine → results/papers_peers.json.

`python -m benchmarks.papers.peers --data DIR --work DIR [--quick]` goes on where it stopped; `--quick` writes into the work folder alone.
Needs `pip install adversarial-robustness-toolbox cleanlab sacroml`; without sacroml its rows are left out, and a note says so.

A scikit-learn network is trained on half of 4,000 images, once a target. The truth is LiRA with reference models that no method sees; the
few references of RMIA and LiRA are other ones. Everything runs in one thread of this process, so processor seconds miss nothing.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

import noshadow as ns
from benchmarks.environment import environment
from benchmarks.papers.peer_methods import (
    OURS,
    Case,
    Few,
    audit_methods,
    cleanlab_methods,
    reference_methods,
    sacro_counts,
    sacro_methods,
    shapr_method,
    timed,
)
from benchmarks.papers.peer_notes import notes
from benchmarks.papers.run import RESULTS, Clock, write
from benchmarks.papers.truth import measured_truth
from benchmarks.tail_calibration.pools import pool
from noshadow.losses import record_margins
from noshadow.metrics import noise_ceiling, spearman, top_recall
from noshadow.reference import load_references, status, train_references

PEERS = ("adversarial-robustness-toolbox", "cleanlab", "sacroml")
RECALLS = {"recall_1_5": (0.01, 0.05), "recall_5_5": (0.05, 0.05)}
COLUMNS = ("processor", "wall", *RECALLS, "recall_1_5_d", "spearman_success", "spearman_d", "tied")
# Every record is in exactly two of four models, and in one of each pair: the smallest balanced set.
SET = 4
FIRST_SEED = 100


@dataclass(frozen=True)
class Setting:
    """Sizes: records (half of them a target's), the truth's references, targets, sets of four further references."""

    records: int = 4_000
    references: int = 64
    targets: int = 5
    sets: int = 8
    epochs: int = 40


@dataclass(frozen=True, eq=False)
class Training:
    """The one training that every model of the experiment went through."""

    x: np.ndarray
    y: np.ndarray
    epochs: int

    def __call__(self, indices, seed):
        """A network fitted to these rows."""
        # Without any early stopping: every model sees the same number of epochs.
        options = {"max_iter": self.epochs, "n_iter_no_change": self.epochs, "early_stopping": False}
        return MLPClassifier((64,), alpha=1e-4, random_state=seed, **options).fit(self.x[indices], self.y[indices])


def stored(path, make):
    """What `make` gives, from disk when it is there."""
    if not path.exists():
        path.with_suffix(".part").write_text(json.dumps(make()))
        path.with_suffix(".part").rename(path)
    return json.loads(path.read_text())


def references_in(folder, clock, part, training, records, **options):
    """A complete set of reference models; the seconds of what is trained are added to the part."""
    if folder.exists() and not status(folder).missing:
        return load_references(folder)
    with clock.timed(part):
        return train_references(
            folder, training, *records, workers=1, threads=1, progress=False, settings={"epochs": training.epochs}, **options
        )


def cases(training, setting):
    """The targets: the first is trained on the first half of the records, the others on random halves."""
    n, rng = setting.records, np.random.default_rng(FIRST_SEED)
    for number in range(setting.targets):
        order = np.arange(n) if number == 0 else rng.permutation(n)
        members, others = (np.sort(part) for part in np.split(order, 2))
        yield Case(training(members, number), training.x[:n], training.y[:n], members, others)


def few_references(training, setting, folder, clock):
    """(balanced sets of four, models that have seen no record of the targets' pool)."""
    x, y = training.x[: setting.records], training.y[: setting.records]
    sets = [
        references_in(folder / f"set_{k}", clock, "few", training, [(x, y)], pool="train", models=SET, seed=FIRST_SEED + k)
        for k in range(setting.sets)
    ]
    halves = np.split(np.arange(setting.records, 2 * setting.records), 2)

    def outside_margins(number):
        model = training(halves[number % 2], FIRST_SEED + number)
        return record_margins(ns.collect_signals(model, (x, y)).outputs, y, "classification")

    outside, costs = zip(*[timed(lambda k=k: outside_margins(k)) for k in range(setting.sets // 2)], strict=True)
    cost = {name: float(np.mean([seconds[name] for seconds in costs])) for name in ("processor", "wall")}
    each = {name: seconds / (SET * setting.sets) for name, seconds in clock.parts["few"].items()}
    return (
        Few(np.concatenate([s.statistic for s in sets]), np.concatenate([s.membership for s in sets]), each),
        Few(np.stack(outside), np.zeros((len(outside), setting.records), bool), cost),
    )


def judged(methods, success, d_prime):
    """Method → its metrics on one target, means over its draws, and its seconds; `tied` is the share of records at its largest score."""
    rows = {}
    for name, (scores, seconds) in methods.items():
        found = {column: [top_recall(success, s, top=top, keep=keep) for s in scores] for column, (top, keep) in RECALLS.items()}
        found |= {"spearman_success": [spearman(success, s) for s in scores], "spearman_d": [spearman(d_prime, s) for s in scores]}
        found["recall_1_5_d"] = [top_recall(d_prime, s, top=0.01, keep=0.05) for s in scores]
        found["tied"] = [(s == s.max()).mean() for s in scores]
        rows[name] = {column: float(np.mean(values)) for column, values in found.items()} | seconds
    return rows


def target_rows(case, number, few, truth, folder):
    """Method → row of one target, group by group from disk when it is there."""
    success, d_prime = (truth[name][case.members] for name in ("lira_success", "lira_d"))

    def group(name, call):
        return stored(folder / f"{name}_{number}.json", lambda: judged(call(), success, d_prime))

    rows = group("audit", lambda: audit_methods(case))
    rows |= group("shapr", lambda: shapr_method(case)) | group("cleanlab", lambda: cleanlab_methods(case))
    rows |= group("references", lambda: reference_methods(case, *few))
    if importlib.util.find_spec("sacroml") is None:
        print("sacroml is not installed: its rows are left out", flush=True)
        return rows
    budget, work = rows[OURS["shift"]]["processor"], folder / "sacro"
    counts = stored(folder / "sacro_counts.json", lambda: sacro_counts(case, work, budget))
    return rows | group("sacro", lambda: sacro_methods(case, work, counts))


def at_largest(success):
    """How many records share the largest success."""
    return int((success == success.max()).sum())


def ceiling(references):
    """The same metrics between two truths from disjoint halves of the references, over all records of the pool."""
    first, second = (measured_truth(references, half) for half in references.plan.halves)
    tables = {
        name: noise_ceiling(first[name], second[name], recalls=tuple(RECALLS.values()), resamples=100)
        for name in ("lira_success", "lira_d")
    }
    recalls = {name: table.query("metric == 'recall'").value.tolist() for name, table in tables.items()}
    ranks = {name: float(table.query("metric == 'spearman'").value.iloc[0]) for name, table in tables.items()}
    found = dict(zip(RECALLS, recalls["lira_success"], strict=True)) | {"recall_1_5_d": recalls["lira_d"][0]}
    found |= {"spearman_success": ranks["lira_success"], "spearman_d": ranks["lira_d"]}
    return found | {"largest": float(np.mean([at_largest(half["lira_success"]) for half in (first, second)]))}


def averaged(targets):
    """Rows of the table: means over the targets, and the recalls one by one."""
    rows = []
    for name in targets[0]:
        found = [rows[name] for rows in targets]
        row = {column: round(float(np.mean([one[column] for one in found])), 5) for column in COLUMNS}
        rows.append({"method": name, "targets": [round(one["recall_1_5"], 5) for one in found]} | row)
    return rows


def installed(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def made(setting, data, work):
    """The stored entry."""
    folder = work / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    clock, n = Clock(folder / "seconds.json"), setting.records
    x, y = pool("fashion_mnist", data, work, records=2 * n, label_noise=0.0)
    training = Training(x.reshape(len(x), -1).astype(np.float64), y, setting.epochs)
    x, y, half = training.x[:n], training.y[:n], n // 2
    records = [(x[:half], y[:half]), (x[half:], y[half:])]
    first = next(cases(training, setting)).model
    references = references_in(folder / "references", clock, "references", training, records, model=first, models=setting.references)
    truth = measured_truth(references, np.arange(setting.references))
    few, rows, largest = few_references(training, setting, folder, clock), [], []
    for number, case in enumerate(cases(training, setting)):
        largest.append(at_largest(truth["lira_success"][case.members]))
        rows.append(target_rows(case, number, few, truth, folder))
        print("target", number, clock.parts, flush=True)
    correct, member = np.asarray(references.correct), np.asarray(references.membership)
    entry = {
        "title": "Fashion-MNIST, one hidden layer of 64 (scikit-learn)",
        "references": setting.references,
        "records": setting.records,
        "targets": setting.targets,
        "fit": {"members": round(float(correct[member].mean()), 4), "others": round(float(correct[~member].mean()), 4)},
        "rows": averaged(rows),
        "largest": {"targets": float(np.mean(largest)), "records": at_largest(truth["lira_success"])},
        "ceiling": {name: round(value, 5) for name, value in ceiling(references).items()},
        "seconds": clock.parts,
        "load": os.getloadavg()[0],
        "versions": {name: installed(name) for name in PEERS},
        "environment": environment(),
    }
    return entry | {"notes": notes(entry, setting)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="where models and scores go; run again to go on")
    parser.add_argument("--quick", action="store_true", help="few records, few models: does it run?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    setting = Setting(records=400, references=16, targets=2, sets=4, epochs=10) if arguments.quick else Setting()
    work = arguments.work / "quick" if arguments.quick else arguments.work
    results = work if arguments.quick else RESULTS.parent
    with threadpool_limits(1):
        write(results / "papers_peers.json", made(setting, arguments.data, work))


if __name__ == "__main__":
    main()

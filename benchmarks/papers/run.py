"""The papers' tables re-made: trains, attacks, scores and writes benchmarks/results/papers/NAME.json, one file a setting.

`python -m benchmarks.papers.run --data DIR --work DIR [--only NAME ...] [--quick]` goes on where it stopped. A setting's audit, with
its ground truth and report, stays in the work folder. `--quick` runs every setting on a few records with a few models and writes into
the work folder alone. Settings at the published scale (`hours` in settings.py) run when `--only` names them.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import noshadow as ns
from benchmarks.environment import environment
from benchmarks.papers.columns import ScoreColumns, TimedColumns, whole_network
from benchmarks.papers.counts import by_count
from benchmarks.papers.gls import depth_seconds, depth_table, published_seconds
from benchmarks.papers.kept import MARGINS, restore
from benchmarks.papers.settings import ALWAYS, SETTINGS, members, quick, recipe, records
from benchmarks.papers.truth import agreement, attack_rates, ceiling, curves, target_sides
from noshadow.reference import load_references, status, train_references, with_ground_truth

RESULTS = Path(__file__).parents[1] / "results" / "papers"
SEED = 2_024
SCORE_SECONDS = "score_seconds.jsonl"


class Clock:
    """Processor and wall seconds of each part of a setting, summed over interrupted runs."""

    def __init__(self, path):
        self.path = path
        self.parts = json.loads(path.read_text()) if path.exists() else {}

    @contextlib.contextmanager
    def timed(self, part, *, resumes=False):
        """Measures what happens inside; work that goes on where it stopped adds up, other work counts when it is done."""
        wall, processor = time.perf_counter(), time.process_time()
        done = False
        try:
            yield
            done = True
        finally:
            if done or resumes:
                before = self.parts.get(part, {"wall": 0.0, "processor": 0.0}) if resumes else {"wall": 0.0, "processor": 0.0}
                spent = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
                self.parts[part] = {clock: round(before[clock] + spent[clock], 2) for clock in spent}
                self.path.write_text(json.dumps(self.parts))


def audited_model(trained, folder, clock, count=None):
    """The model that is audited, trained on the first `count` records (None: on half of them); from disk when it is there."""
    count, path = count or len(trained.x) // 2, folder / "model.safetensors"
    if not path.exists():
        with clock.timed("train_model"):
            module = trained(np.arange(count), SEED)
        save_file(module.state_dict(), path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    module = trained.build()
    module.load_state_dict(load_file(path))
    return module.eval()


def audited(module, trained, train, test, folder, clock):
    """Its audit, as a user would ask for it."""
    path = folder / "audit"
    if not path.exists():
        with clock.timed("audit"):
            found = ns.audit(module, train, test, task=trained.task, weight_decay=trained.weight_decay, progress=False)
        found.save(path)
    return ns.load(path)


def time_whole_network(setting, module, trained, train, clock):
    """What scores over all layers cost, measured once."""
    if setting.network is not None and "network" not in clock.parts:
        with clock.timed("network"):
            whole_network(trained, module, train, "all", setting.network)


def reference_models(setting, trained, module, train, test, folder, clock):
    """Reference models on random parts of all records, the first of them scored when they are trained."""
    path = folder / "references"
    if path.exists() and not status(path).missing:
        return load_references(path)
    with clock.timed("references", resumes=True):
        return train_references(
            path,
            trained,
            train,
            test,
            model=module,
            models=setting.references,
            fraction=setting.fraction,
            engine=setting.engine,
            workers=1,
            threads=torch.get_num_threads(),
            keep_outputs=not setting.kept,
            extra=TimedColumns(ScoreColumns(trained, setting.network, setting.depths), folder / SCORE_SECONDS),
            extra_models=setting.targets,
            progress=False,
        )


def parted(seconds, path):
    """The seconds of each part with those of the targets' scores taken out of the references', on whose clock they ran.

    Work folders from before the scores had a clock of their own have no such file: their references include them.
    """
    if not path.exists():
        return seconds
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    scores = {clock: round(sum(target[clock] for target in lines), 2) for clock in ("wall", "processor")}
    references = {clock: round(seconds["references"][clock] - scores[clock], 2) for clock in scores}
    return seconds | {"scores": scores, "references": references}


def made(setting, data, work):
    """Everything the tables need of one setting."""
    folder = work / setting.name
    folder.mkdir(parents=True, exist_ok=True)
    if setting.kept and not (folder / "references").exists() and (MARGINS / setting.name).exists():
        restore(MARGINS / setting.name, folder)
    clock = Clock(folder / "seconds.json")
    x, y, _ = records(setting, data, work)
    trained, count = recipe(setting, x, y), members(setting, len(x))
    train, test = (x[:count], y[:count]), (x[count:], y[count:])
    module = audited_model(trained, folder, clock, count)
    found = audited(module, trained, train, test, folder, clock)
    time_whole_network(setting, module, trained, train, clock)
    references = reference_models(setting, trained, module, train, test, folder, clock)
    if found.ground_truth is None:
        with clock.timed("ground_truth"):
            found = with_ground_truth(found, references, progress=False)
        found.save(folder / "audit", overwrite=True)
    if not (folder / "report.html").exists():
        ns.write_report(found, folder / "report.html")
    with clock.timed("tables"):
        tables = measured_tables(setting, trained, module, references)
    return (
        described(setting, trained, references)
        | tables
        | {"notes": told_notes(folder / SCORE_SECONDS, found)}
        | {"seconds": parted(clock.parts, folder / SCORE_SECONDS), "load": os.getloadavg()[0], "environment": environment()}
    )


def measured_tables(setting, trained, module, references):
    """Agreement, noise, curves and attacks of one setting, and the leverage score by depth where it was asked for."""
    truths, scores = target_sides(references, setting.targets)
    tables = {
        "agreement": agreement(truths, scores),
        "ceiling": ceiling(references, setting.targets),
        "curves": curves(truths, scores),
        "by_count": by_count(references, scores),
        "attacks": attack_rates(references, setting.targets),
    }
    if setting.depths:
        tables["depths"] = depth_table(references, setting.targets, setting.depths)
    if setting.depths and not setting.solved:
        # Where benchmarks.papers.solved runs the published algorithm itself, its cost is measured, not reckoned from one product.
        count = members(setting, len(trained.x))
        tables["depth_seconds"] = depth_seconds(trained, module, setting.depths, count)
        tables["product_seconds"] = published_seconds(trained, module, setting.depths, count)
    return tables


def told_notes(path, audit):
    """What the package said of the audited model and of the targets' scores; notes that differ in figures alone are one, with a count."""
    held = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        for layers, notes in json.loads(line).get("notes", {}).items():
            for note in notes:
                held.setdefault((layers, re.sub(r"\d[\d.,e+-]*", "#", note)), []).append(note)
    return {
        "audit": list(map(str, audit.notes)),
        "targets": [{"layers": layers, "note": notes[0], "targets": len(notes)} for (layers, _), notes in held.items()],
    }


def described(setting, trained, references):
    """What was trained on what."""
    member, loss, correct = np.asarray(references.membership), np.asarray(references.loss), references.correct
    shown = loss if correct is None else np.asarray(correct)
    return {
        "title": setting.title,
        "task": trained.task,
        "training": trained.settings(),
        "records": len(trained.x),
        "references": setting.references,
        "targets": setting.targets,
        "fraction": setting.fraction,
        "parameters": sum(parameter.numel() for parameter in trained.build().parameters()),
        "network": setting.network,
        "engine": references.describe["engine_reason"],
        "fit": {
            "shown": "loss" if correct is None else "accuracy",
            "members": round(float(shown[member].mean()), 4),
            "others": round(float(shown[~member].mean()), 4),
        },
    }


def write(path, entry):
    """One line a row, so that changes can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".part").write_text(json.dumps(entry, separators=(",", ":"), sort_keys=True).replace("},{", "},\n{") + "\n")
    path.with_suffix(".part").rename(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="where models and audits go; run again to go on")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, help="some settings, those of many hours among them")
    parser.add_argument("--quick", action="store_true", help="few records, few models: does it run?")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    # An ended run leaves through the clock, so that its seconds are counted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    work, results = (arguments.work / "quick", arguments.work / "quick") if arguments.quick else (arguments.work, RESULTS)
    for name in arguments.only or (SETTINGS if arguments.quick else ALWAYS):
        setting = quick(SETTINGS[name]) if arguments.quick else SETTINGS[name]
        started = time.perf_counter()
        write(results / f"{name}.json", made(setting, arguments.data, work))
        print(name, f"{time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()

"""Calibration runs: reference models of every setup, each attacked with the others, beside everything the model alone shows.

`python -m benchmarks.tail_calibration.run --data DIR --work DIR [--only NAME ...] [--kind dense|convolutional] [--threads 1]`
goes on where it stopped; benchmarks/results/tail_calibration/NAME.json appears when a setup is complete. `fit` reads those.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from benchmarks.environment import environment
from benchmarks.tail_calibration.measure import LastLayerColumns, margin_columns, measured, traced
from benchmarks.tail_calibration.pools import POOLS
from benchmarks.tail_calibration.setups import CONVOLUTIONAL, DENSE, SETUPS, recipe
from noshadow.reference import load_references, mirrored, train_references

RESULTS = Path(__file__).parents[1] / "results" / "tail_calibration"
REFERENCES = 64


def calibrated(setup, data, work, *, results=RESULTS, pools=POOLS, tracing=True):
    """The stored JSON of one setup, made now when it is missing."""
    path = results / f"{setup.name}.json"
    if path.exists():
        entry = json.loads(path.read_text())
        if "margin_shift_0.1" not in entry["targets"]:
            # Measured before these were thought of; they need nothing but the stored losses.
            entry["targets"] |= margin_columns(load_references(work / setup.name))
            write(path, entry)
        return entry
    started = time.perf_counter()
    trained = recipe(setup, data, work, pools)
    references = train_references(
        work / setup.name,
        trained,
        (trained.x.numpy(), trained.y.numpy()),
        models=REFERENCES,
        pool="train",
        workers=1,
        threads=torch.get_num_threads(),
        keep_outputs=False,
        engine="one-by-one" if setup.channels else "auto",  # stacked convolutions are several times slower
        queries=(mirrored,) if setup.mirrored else (),
        extra=LastLayerColumns(trained),
        extra_models=setup.audited,
        progress=False,
    )
    training = time.perf_counter() - started
    found = measured(references) | ({"traced": traced(trained)} if tracing else {})
    entry = {
        "setup": setup.described(),
        "references": REFERENCES,
        "parameters": sum(parameter.numel() for parameter in trained.build().parameters()),
        "seconds": {"training": round(training, 1), "all": round(time.perf_counter() - started, 1)},
        "environment": environment(),
    }
    write(path, entry | found)
    return entry | found


def write(path, entry):
    """One line a list, so that changes can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".part").write_text(json.dumps(entry, separators=(",", ":")).replace('],"', '],\n"') + "\n")
    path.with_suffix(".part").rename(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="where reference models go; run again to go on")
    parser.add_argument("--only", nargs="+", choices=SETUPS, help="some setups")
    parser.add_argument("--kind", choices=("dense", "convolutional"), help="one family of setups")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.work.mkdir(parents=True, exist_ok=True)
    families = {None: (*DENSE, *CONVOLUTIONAL), "dense": DENSE, "convolutional": CONVOLUTIONAL}
    for setup in [SETUPS[name] for name in arguments.only] if arguments.only else families[arguments.kind]:
        entry = calibrated(setup, arguments.data, arguments.work)
        tell(entry)


def tell(entry):
    """One line about a setup."""
    mean = {name: sum(values) / len(values) for name, values in entry["targets"].items()}
    shown = ("member_accuracy", "nonmember_accuracy", "tnr_0.001", "auc", "lira_record_tpr_0.001", "lira_global_tpr_0.001")
    print(entry["setup"]["name"], *(f"{name} {mean[name]:.3f}" for name in shown), f"{entry['seconds']['all']} s", flush=True)


if __name__ == "__main__":
    main()

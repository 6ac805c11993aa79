"""How well one model of a setting fits after each epoch, so that its epochs are settled before any reference model is trained.

`python -m benchmarks.papers.epochs --data DIR --work DIR [--setting NAME]` trains one model on the first half of the records and writes
benchmarks/results/papers_epochs.json. It looks at accuracies alone, never at a recall.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.environment import environment
from benchmarks.papers.run import RESULTS
from benchmarks.papers.settings import SETTINGS, members, recipe, records

RESULT = RESULTS.parent / "papers_epochs.json"
# Not the seed of any model that is audited, scored or a reference.
SEED = 1
READ = 5_000


def accuracies(trained, count, read=READ):
    """Accuracy on the first members and on the first others before training and after each epoch."""
    rows = np.r_[0 : min(read, count), count : min(count + read, len(trained.x))]
    x, y, inside = trained.x[rows], trained.y[rows].numpy(), rows < count
    found = []

    def read_epoch(epoch, snapshot):
        right = np.asarray(snapshot.outputs(x))[0].argmax(1) == y
        found.append({"epoch": epoch, "members": round(float(right[inside].mean()), 4), "others": round(float(right[~inside].mean()), 4)})
        print(found[-1], flush=True)

    trained.train_one(np.arange(count), SEED, on_epoch=read_epoch)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="work folder of benchmarks.papers.run")
    parser.add_argument("--setting", choices=SETTINGS, default="cifar10_full")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    setting = SETTINGS[arguments.setting]
    x, y, _ = records(setting, arguments.data, arguments.work)
    trained, processor = recipe(setting, x, y), time.process_time()
    held = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    held[setting.name] = {
        "title": setting.title,
        "training": trained.settings(),
        "read": READ,
        "epochs": accuracies(trained, members(setting, len(x))),
        "processor_seconds": round(time.process_time() - processor, 1),
        "environment": environment(),
    }
    RESULT.write_text(json.dumps(held, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

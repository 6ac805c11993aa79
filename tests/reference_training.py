"""Small trainings that test processes, worker processes and clusters import alike."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from noshadow.reference import train_references

RECORDS, FEATURES = 60, 4
PAUSE = "NOSHADOW_TEST_PAUSE"
LOG = "NOSHADOW_TEST_LOG"


def data(records=RECORDS, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(records, FEATURES)).astype(np.float32)
    return x, (x @ rng.normal(size=(FEATURES, 3)) + 0.5 * rng.normal(size=(records, 3))).argmax(1)


def splits():
    x, y = data()
    half = RECORDS // 2
    return (x[:half], y[:half]), (x[half:], y[half:])


def network():
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))


def fit(indices, seed, record=None):
    """A small network; dropout and order of records come from the seeded global state."""
    if LOG in os.environ:
        with Path(os.environ[LOG]).open("a") as log:
            log.write(f"{os.getpid()} {os.getppid()}\n")
    time.sleep(float(os.environ.get(PAUSE, "0")))
    x, y = data()
    model, inputs, labels = network(), torch.from_numpy(x[indices]), torch.from_numpy(y[indices])
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for epoch in range(4):
        if record is not None and epoch == 0:
            record(model)
        model.train()
        for rows in torch.randperm(len(indices)).split(16):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimiser.step()
        if record is not None:
            record(model)
    return model


def fit_after_a_death(indices, seed, *, marker):
    """As `fit`, but the first process to come here is killed; `marker` is the file that says it happened."""
    marker = Path(marker)
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return fit(indices, seed)


def always_dying(indices, seed):
    os.kill(os.getpid(), signal.SIGKILL)


class Stacked:
    """Trains stacks whose every model depends on the whole stack, so that a stack put together differently shows."""

    def __init__(self, reason=None, epochs=4):
        self.reason, self.epochs, self.calls = reason, epochs, []

    def __call__(self, indices, seed):
        return fit(indices, seed)

    def train_one(self, indices, seed, *, traces=None):
        model = fit(indices, seed)
        return (model, np.tile(np.arange(self.epochs + 1.0), (RECORDS, 1))) if traces else model

    def train_many(self, indices_list, seeds, *, traces_on=None):
        self.calls.append(tuple(seeds))
        models = []
        for rows, seed in zip(indices_list, seeds, strict=True):
            torch.manual_seed(seed + sum(seeds) % 1000)
            models.append(fit(rows, seed))
        return (models, [np.full((RECORDS, 3), float(seed)) for seed in seeds]) if traces_on else models

    def settings(self):
        return {"epochs": self.epochs}

    def vectorisable(self):
        return self.reason


TRAININGS = {"one-by-one": fit, "vectorised": Stacked()}

if __name__ == "__main__":
    folder, engine = sys.argv[1:]
    train, test = splits()
    import reference_training

    train_references(
        folder, reference_training.TRAININGS[engine], train, test, models=10, stack=4, engine=engine, workers=1, model=None, progress=False
    )

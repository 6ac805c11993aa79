"""Heads in files, and passes whose workers die: imported by tests, worker processes and clusters alike."""

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from noshadow.scores.sharded import passes as shard_passes

LOG = "NOSHADOW_TEST_LOG"


def head(task, n=700, d=6, m=4, seed=0):
    """Features of mixed scales with offsets, outputs linear in them, targets with noise."""
    rng = np.random.default_rng(seed)
    features = (rng.normal(size=(n, d)) * np.exp(rng.normal(size=d)) + 5 * rng.normal(size=d)).astype(np.float32)
    outputs = 0.5 * (features - features.mean(0)) @ rng.normal(size=(d, {"regression": 2, "binary": 1, "classification": m}[task]))
    if task == "regression":
        return features, outputs, outputs + rng.normal(size=outputs.shape)
    if task == "binary":
        return features, outputs, (rng.random(n) < 1 / (1 + np.exp(-outputs[:, 0]))).astype(int)
    return features, outputs, (outputs + rng.gumbel(size=outputs.shape)).argmax(1)


def in_files(folder, name, array, cuts=()):
    """Paths of the array's parts, cut before the given rows."""
    edges, paths = [0, *cuts, len(array)], []
    for i, (start, stop) in enumerate(pairwise(edges)):
        paths.append(Path(folder) / f"{name}{i}.npy")
        np.save(paths[-1], array[start:stop])
    return paths


def grams_after_a_death(given, *, marker):
    """The second moments, but the first process to come here is killed; others note who they are."""
    marker = Path(marker)
    if LOG in os.environ:
        with Path(os.environ[LOG]).open("a") as log:
            log.write(f"{os.getpid()} {os.getppid()}\n")
        time.sleep(0.3)
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return shard_passes.grams(given)


def always_dying(given):
    os.kill(os.getpid(), signal.SIGKILL)


def failing(given):
    raise ZeroDivisionError("by design")

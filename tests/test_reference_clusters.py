"""Reference models on real clusters of this machine: workers and nodes are killed, and the arrays are those of one process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from cluster_scripts import HERE, seen_by
from extras import extra
from listening import LOOPBACK
from noshadow import InputError
from noshadow.reference import load_references, train_references
from reference_training import LOG, PAUSE, fit, splits

TRAIN, TEST = splits()
OPTIONS = {"models": 12, "progress": False}


def arrays_of(folder):
    references = load_references(folder)
    layouts = [references.model(t).layout for t in range(references.plan.models)]
    return {(t, name): there.array(name).tobytes() for t, there in enumerate(layouts) for name in there.places}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same models, trained in this process."""
    folder = tmp_path_factory.mktemp("alone") / "r"
    train_references(folder, fit, TRAIN, TEST, workers=1, **OPTIONS)
    return arrays_of(folder)


def kill_when_models_arrive(folder, pid, killed):
    """SIGKILL a worker as soon as two models are there."""
    deadline = time.monotonic() + 120
    while len(list((folder / "models").glob("[0-9]*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    killed.append(len(list((folder / "models").glob("[0-9]*"))))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_dask_workers_may_die(tmp_path, alone, monkeypatch):
    distributed = extra("distributed")
    monkeypatch.setenv(PAUSE, "0.2")
    here = "127.0.0.1:0"
    options = {"processes": True, "n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1"}
    options |= {"dashboard_address": here, "worker_dashboard_address": here}
    with distributed.LocalCluster(silence_logs=50, **options) as cluster:
        # Dask tries a task again whose worker died; with no failure allowed it gives up (KilledWorker), and we have to.
        cluster.scheduler.allowed_failures = 0
        with distributed.Client(cluster, set_as_default=False) as client:
            pids = list(client.run(os.getpid).values())
        folder, killed = tmp_path / "r", []
        watcher = threading.Thread(target=kill_when_models_arrive, args=(folder, pids[0], killed))
        watcher.start()
        references = train_references(folder, fit, TRAIN, TEST, backend="dask", address=cluster.scheduler_address, **OPTIONS)
        watcher.join()
    assert killed[0] < 12 and references.notes == load_references(folder).notes
    assert arrays_of(folder) == alone


def end_workers(log):
    """End the workers of the killed node, which notice only after a while that it is gone."""
    for pid in {int(line.split()[0]) for line in log.read_text().splitlines()} if log.exists() else ():
        with contextlib.suppress(OSError):
            if b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


def test_ray_nodes_may_die(tmp_path, alone):
    extra("ray")
    folder = tmp_path / "r"
    try:
        seen = seen_by("ray_cluster.py", folder, **{PAUSE: "0.3", LOG: str(tmp_path / "log")})
    finally:
        end_workers(tmp_path / "log")
    assert seen["models"] == 12 and 2 <= seen["done"] < 12 and not seen["initialised"]
    assert set(seen["listening"]) <= LOOPBACK and seen["listening"]
    assert arrays_of(folder) == alone
    parents = {line.split()[1] for line in (tmp_path / "log").read_text().splitlines()}
    assert len(parents) >= 2  # both nodes trained


LOCAL = """
import json, logging, sys, threading, time
from listening import listening
from reference_training import fit, splits, train_references

def main():
    logging.disable(logging.WARNING)
    heard, done = set(), threading.Event()

    def watch():
        while not done.wait(0.1):
            heard.update(listening())

    watcher = threading.Thread(target=watch)
    watcher.start()
    references = train_references(sys.argv[1], fit, *splits(), backend=sys.argv[2], workers=1, models=12, progress=False)
    done.set()
    watcher.join()
    time.sleep(1)
    print(json.dumps({"heard": sorted(heard), "after": listening(), "notes": references.notes}))

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(("backend", "module"), [("ray", "ray"), ("dask", "distributed")])
def test_a_cluster_is_started_here_and_ended_when_none_is_named(tmp_path, alone, backend, module):
    extra(module)
    script = tmp_path / "local.py"
    script.write_text(LOCAL)
    environment = os.environ | {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(tmp_path / "r"), backend]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr[-3000:]
    seen = json.loads(result.stdout.splitlines()[-1])
    assert seen["heard"] and set(seen["heard"]) <= LOOPBACK and seen["after"] == []
    # joblib does not hand a single worker's tasks over, and says nothing of it: we do
    assert seen["notes"][-1] == f"The {backend.title()} cluster offers one worker: joblib trained the models in this process instead."
    assert arrays_of(tmp_path / "r") == alone


@pytest.mark.parametrize(("backend", "module", "address"), [("ray", "ray", "127.0.0.1:9"), ("dask", "distributed", "tcp://127.0.0.1:9")])
def test_a_cluster_that_is_not_there_is_one_sentence(tmp_path, backend, module, address):
    extra(module)
    match = rf"address must be that of a running {backend.title()} cluster; got '{address}' \(.*refused\)\."
    with pytest.raises(InputError, match=match) as caught:
        train_references(tmp_path / "r", fit, TRAIN, TEST, backend=backend, address=address, **OPTIONS)
    assert "\n" not in str(caught.value)


def test_arrays_that_differ_would_show(alone):
    assert len(alone) == 12 * 4 and len({value for (_, name), value in alone.items() if name == "loss"}) == 12
    assert np.frombuffer(alone[0, "loss"]).shape == (60,)

"""Scores over shards on real clusters of this machine: a worker is killed, and the numbers are those of one process."""

import numpy as np
import pytest

import noshadow as ns
from cluster_scripts import seen_by
from extras import extra
from listening import LOOPBACK
from shard_work import LOG, head, in_files


def files_and_truth(folder):
    arrays = head("classification")
    paths = [in_files(folder, name, array, (250,)) for name, array in zip(("features", "outputs", "targets"), arrays, strict=True)]
    return paths, ns.record_scores(*arrays)


def assert_same(columns, notes, truth):
    assert columns.keys() == truth.columns().keys()
    assert tuple(notes) == truth.notes
    for name, column in truth.columns().items():
        # Sums in another order, as in test_scores_sharded.
        np.testing.assert_allclose(columns[name], column, rtol=1e-10, err_msg=name)


def test_ray_on_two_nodes_survives_a_lost_worker(tmp_path):
    extra("ray")
    _, truth = files_and_truth(tmp_path)
    log = tmp_path / "log"
    seen = seen_by("ray_shards.py", tmp_path, **{LOG: str(log)})
    assert seen["died"] and not seen["initialised"]
    assert set(seen["listening"]) <= LOOPBACK and seen["listening"]
    assert_same(dict(np.load(tmp_path / "scores.npz", allow_pickle=False)), seen["notes"], truth)
    processes, nodes = (set(column) for column in zip(*map(str.split, log.read_text().splitlines()), strict=True))
    assert len(processes) >= 3  # the one that was killed and two more
    assert len(nodes) >= 2


def test_dask_gives_the_same_numbers(tmp_path):
    distributed = extra("distributed")
    paths, truth = files_and_truth(tmp_path)
    here = "127.0.0.1:0"
    options = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": here, "worker_dashboard_address": here}
    with distributed.LocalCluster(silence_logs=50, processes=True, **options) as cluster:
        scores = ns.sharded_record_scores(*paths, backend="dask", address=cluster.scheduler_address, shards=6)
    assert_same(scores.columns(), scores.notes, truth)


@pytest.mark.parametrize(("backend", "module", "address"), [("ray", "ray", "127.0.0.1:9"), ("dask", "distributed", "tcp://127.0.0.1:9")])
def test_a_cluster_that_is_not_there_is_one_sentence(backend, module, address):
    extra(module)
    match = rf"^sharded_record_scores: address must be that of a running {backend.title()} cluster; got '{address}' \(.*refused\)\.$"
    with pytest.raises(ns.InputError, match=match):
        ns.sharded_record_scores(*head("binary", n=60), backend=backend, address=address)

"""A Ray cluster of two nodes on the loopback interface, one of which is killed while reference models are trained on it.

A process of its own: Ray decides when it is imported which interface it uses, and stays in the process it was started in.
"""

import json
import logging
import os
import shutil
import sys
import threading
import time
from pathlib import Path

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback only
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}

import ray
from ray.cluster_utils import Cluster

from listening import listening
from noshadow.reference import train_references
from reference_training import LOG, fit, splits

MODELS = 12
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "node_ip_address": "127.0.0.1"}


def killed_midway(cluster, node, folder, seen):
    """Kill the second node once models have arrived and it has trained some."""
    (raylet,) = node.all_processes["raylet"]
    log = Path(os.environ[LOG])
    while seen["running"]:
        trained_there = log.exists() and str(raylet.process.pid) in log.read_text().split()
        done = len(list((folder / "models").glob("[0-9]*")))
        if trained_there and done >= 2:
            seen |= {"done": done, "listening": listening()}
            cluster.remove_node(node, allow_graceful=False)
            return
        time.sleep(0.02)


def trained_while_a_node_dies(cluster, node, folder, seen):
    watcher = threading.Thread(target=killed_midway, args=(cluster, node, Path(folder), seen))
    watcher.start()
    train, test = splits()
    try:
        return train_references(folder, fit, train, test, models=MODELS, backend="ray", address=cluster.address, workers=2, progress=False)
    finally:
        seen["running"] = False
        watcher.join()


def main(folder):
    logging.disable(logging.WARNING)
    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    try:
        node = cluster.add_node(**NODE)
        cluster.wait_for_nodes()
        # On a busy machine Ray may put both workers on the head node: then nothing was killed, and it is done again.
        for _ in range(4):
            shutil.rmtree(folder, ignore_errors=True)
            seen = {"running": True}
            references = trained_while_a_node_dies(cluster, node, folder, seen)
            if "done" in seen:
                break
        after = ray.is_initialized()
    finally:
        cluster.shutdown()
    print(json.dumps(seen | {"initialised": after, "models": references.plan.models}))


if __name__ == "__main__":
    main(sys.argv[1])

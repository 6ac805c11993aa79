"""A Ray cluster of two nodes on the loopback interface; one of its workers is killed while it walks a shard.

A process of its own: Ray decides when it is imported which interface it uses, and stays in the process it was started in.
"""

import json
import logging
import os
import sys
from functools import partial
from pathlib import Path

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # loopback only

import numpy as np
import ray
from ray.cluster_utils import Cluster

import noshadow as ns
from listening import listening
from noshadow.scores.sharded import passes as shard_passes
from shard_work import grams_after_a_death

NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "node_ip_address": "127.0.0.1"}


def main(folder):
    logging.disable(logging.WARNING)
    folder = Path(folder)
    paths = [sorted(folder.glob(f"{name}*.npy")) for name in ("features", "outputs", "targets")]
    shard_passes.grams = partial(grams_after_a_death, marker=str(folder / "died"))
    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    try:
        cluster.add_node(**NODE)
        cluster.wait_for_nodes()
        heard = listening()
        scores = ns.sharded_record_scores(*paths, backend="ray", address=cluster.address, workers=2, shards=6)
        after = ray.is_initialized()
    finally:
        cluster.shutdown()
    np.savez(folder / "scores.npz", **scores.columns())
    print(json.dumps({"listening": heard, "initialised": after, "notes": scores.notes, "died": (folder / "died").exists()}))


if __name__ == "__main__":
    main(sys.argv[1])

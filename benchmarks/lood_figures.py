"""Figures of leave-one-out distinguishability on real data: queries and reconstruction, activations, trained networks.

`python benchmarks/lood_figures.py --data DIR [--only NAME] [--work DIR] [--quick] [--again]` adds what is missing to
results/lood_figures.json, one entry a figure, stored as it comes, and pictures of images to docs/images/lood/. DIR holds cifar10/.
"""

import argparse
import functools
import json
import os
import time
from pathlib import Path

import torch
from environment import environment
from lood_activations import activations
from lood_data import store, stored_figures
from lood_many_records import gap, one_start
from lood_means import leak_and_attack, mean_distance_optimum, sine
from lood_networks import trained_networks
from lood_queries import (
    convolutions,
    data_normalisation,
    gallery,
    group_of_three,
    normalised_convolutions,
    perturbations,
    several_queries,
    trace,
)
from lood_rates import rates

PICTURES = Path(__file__).parents[1] / "docs" / "images" / "lood"
# [LOOD] Figure 5's depth. Ten layers with weight variance 2 diverge at the rate of two, 0.01. After as many epochs gelu networks
# fit less than relu ones, so they are also trained for as many as lead to about the same loss.
DEEP = {"depth": 10, "lr": 0.0025, "epochs": 40, "chosen": 70, "seeds": 12, "seeds_with": 40}
FITTED, DEEP_FITTED = {"epochs": 44}, DEEP | {"epochs": 96}
NETWORKS = {
    "networks_relu": {"activation": "relu"},
    "networks_gelu": {"activation": "gelu"},
    "networks_gelu_fitted": FITTED | {"activation": "gelu"},
    "networks_relu_deep": DEEP | {"activation": "relu"},
    "networks_gelu_deep": DEEP | {"activation": "gelu"},
    "networks_gelu_deep_fitted": DEEP_FITTED | {"activation": "gelu"},
}


def without_pictures(figure, data, pictures, **options):
    return figure(data, **options)


def figures(network, records, work):
    """Every figure by name: a function of (data folder, folder of pictures, quick=…)."""
    names = {
        function.__name__: function
        for function in (
            sine,
            perturbations,
            leak_and_attack,
            trace,
            gallery,
            group_of_three,
            several_queries,
            data_normalisation,
            convolutions,
            normalised_convolutions,
            mean_distance_optimum,
            rates,
        )
    }
    names |= {function.__name__: functools.partial(function, records=records, work=work) for function in (gap, one_start)}
    names["activations"] = functools.partial(without_pictures, activations)
    trained = functools.partial(without_pictures, trained_networks, work=work, **network)
    networks = {name: functools.partial(trained, **plan) for name, plan in NETWORKS.items()}
    return names | networks


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--only", help="one figure")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing stored: does every figure run?")
    parser.add_argument("--again", action="store_true", help="measure again what is stored")
    parser.add_argument("--width", type=int, default=128, help="of the trained networks")
    parser.add_argument("--records", type=int, default=500, help="of gap and one_start; the paper has 500")
    parser.add_argument("--work", type=Path, help="where figures over many records keep what is measured; run again to go on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chosen = figures({"width": arguments.width}, arguments.records, None if arguments.quick else arguments.work)
    if arguments.only not in (None, *chosen):
        parser.error(f"--only must be one of {', '.join(chosen)}")
    for name in [arguments.only] if arguments.only else chosen:
        if name in stored_figures() and not (arguments.quick or arguments.again):
            continue
        worked = time.process_time()
        entry = chosen[name](arguments.data, None if arguments.quick else PICTURES, quick=arguments.quick)
        # A figure that went on with what was kept says itself what all of it took.
        entry = {"cpu_seconds": time.process_time() - worked} | entry
        entry |= {"load": os.getloadavg()[0], "environment": environment()}
        print(name, f"{entry['cpu_seconds']:.1f} s", json.dumps(entry)[:300], flush=True)
        if not arguments.quick:
            store(name, entry)


if __name__ == "__main__":
    main()

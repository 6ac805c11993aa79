"""Write nngp_reference.csv: kernel values of neural-tangents 0.6.5, an independent implementation in JAX.

neural-tangents needs an environment of its own, since it does not import beside current versions of JAX and NumPy:

    python3 -m venv reference-env
    reference-env/bin/pip install "jax==0.4.30" "jaxlib==0.4.30" "numpy<2" absl-py frozendict
    reference-env/bin/pip install --no-deps "neural-tangents==0.6.5"
    reference-env/bin/python tests/data/make_nngp_reference.py

Its TensorFlow part is not needed and is replaced by an empty module. Inputs are sines of whole numbers, so that no random
generator has to agree. The last record of z is the first of x: coinciding inputs are among the values.
"""

import csv
import importlib
import math
import sys
import types
from pathlib import Path

TABLE = Path(__file__).with_name("nngp_reference.csv")
FIELDS = ("architecture", "activation", "depth", "weight_variance", "bias_variance", "filter_size", "row", "column", "value")
FEATURES, IMAGE = 5, (2, 4, 3)


def record(index, numbers):
    """Numbers of one record: its size grows with its index."""
    return [0.5 * (index + 1) * math.sin(1.0 + 1.7 * index + 2.3 * j + 0.9 * index * j) for j in range(numbers)]


def inputs(numbers):
    """Rows of x (3 records) and z (2 records, the last being the first of x)."""
    rows = [record(index, numbers) for index in range(4)]
    return rows[:3], [rows[3], rows[0]]


def settings():
    """(architecture, activation, depth, weight variance, bias variance, filter size) of every network."""
    for activation in ("relu", "gelu", "erf"):
        for depth in (1, 2, 5):
            yield from (("fc", activation, depth, weight, bias, 0) for weight, bias in ((2.0, 0.0), (1.5, 0.1)))
        for size in (2, 3):
            yield from (("conv", activation, depth, 1.8, 0.1 * (depth - 1), size) for depth in (1, 2, 3))


def main():
    """Write the table."""
    sys.modules["neural_tangents.experimental"] = types.ModuleType("experimental")
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    stax = importlib.import_module("neural_tangents.stax")
    nonlinearities = {"relu": stax.Relu, "gelu": stax.Gelu, "erf": stax.Erf}
    channels, height, width = IMAGE

    def arrays(architecture):
        if architecture == "fc":
            return [jax.numpy.array(rows) for rows in inputs(FEATURES)]
        images = [jax.numpy.array(rows).reshape(-1, *IMAGE) for rows in inputs(channels * height * width)]
        return [jax.numpy.moveaxis(image, 1, -1) for image in images]

    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for setting in settings():
            architecture, activation, depth, weight, bias, size = setting
            scales = {"W_std": math.sqrt(weight), "b_std": math.sqrt(bias)}
            layers = []
            for _ in range(depth):
                layers.append(stax.Dense(1, **scales) if architecture == "fc" else stax.Conv(1, (size, size), padding="SAME", **scales))
                layers.append(nonlinearities[activation]())
            layers += ([] if architecture == "fc" else [stax.Flatten()]) + [stax.Dense(1, **scales)]
            kernel = stax.serial(*layers)[2](*arrays(architecture), "nngp")
            for row in range(kernel.shape[0]):
                for column in range(kernel.shape[1]):
                    writer.writerow((*setting, row, column, repr(float(kernel[row, column]))))


if __name__ == "__main__":
    main()

"""How fast deep kernels become constant ([LOOD] Proposition G.1): recursions over thousands of layers, on the edge of chaos and off it.

On the edge the variance q of a record stays, and only ε = 1 − correlation moves. relu, gelu and erf are closed forms in 50 digits
(mpmath). tanh and elu take ε′ = weight·E[(φ(s + d) − φ(s − d))²]/2q with independent s, d, which has nothing to cancel in float64.
"""

import math

import mpmath as mp
import numpy as np
from lood_data import rounded

from noshadow._lood import critical_weights, nngp_kernel

DEPTHS = (10, 30, 100, 300, 1000, 3000, 10000)
OFF_DEPTHS = (10, 30, 100, 300)
ACTIVATIONS = ("relu", "gelu", "tanh", "elu", "erf")
START = 0.5  # ε of the two inputs: 60 degrees
DIGITS = 50


def relu_step(e):
    """ε after one layer of weights (2, 0): the arc-cosine kernel of order one."""
    c = 1 - e
    sine = mp.sqrt(e * (1 + c))
    return 1 - (sine + (mp.pi - mp.acos(c)) * c) / mp.pi


def gelu_moments(q):
    """E[φφ] and E[φ′φ′] of gelu as functions of the covariance c, both variances q."""

    def value(c):
        delta = (1 + q) ** 2 - c**2
        return (c * (mp.pi / 2 + mp.asin(c / (1 + q))) + (q**2 - c**2 + 2 * c**2 / (1 + q)) / mp.sqrt(delta)) / (2 * mp.pi)

    return value, lambda c: mp.diff(value, c)


def erf_moments(q):
    return (lambda c: 2 / mp.pi * mp.asin(2 * c / (1 + 2 * q))), (lambda c: 4 / mp.pi / mp.sqrt((1 + 2 * q) ** 2 - 4 * c**2))


def closed_form_step(moments):
    """ε after one critical layer at q = 1, from the activation's moments."""
    q = mp.mpf(1)
    value, slope = moments(q)
    weight = 1 / slope(q)
    top = value(q)
    return lambda e: weight * (top - value(q * (1 - e))) / q


def difference_step(name):
    """ε after one critical layer of tanh or elu at q = 1, from a grid of (s, d)."""
    weight, _ = critical_weights(name)
    s_nodes, d_nodes = np.linspace(-9, 9, 1201), np.linspace(-9, 9, 61)
    law = [np.exp(-(nodes**2) / 2) for nodes in (s_nodes, d_nodes)]
    law = [values / values.sum() for values in law]

    def step(e):
        s, d = math.sqrt(1 - e / 2) * s_nodes[:, None], math.sqrt(e / 2) * d_nodes
        if name == "tanh":
            difference = np.sinh(2 * d) / (np.cosh(s + d) * np.cosh(s - d))
        else:
            a, b = s + d, s - d
            difference = np.maximum(a, 0) - np.maximum(b, 0) + np.exp(np.minimum(b, 0)) * np.expm1(np.minimum(a, 0) - np.minimum(b, 0))
        return float(weight * law[0] @ difference**2 @ law[1] / 2)

    return step


def steps():
    return {
        "relu": relu_step,
        "gelu": closed_form_step(gelu_moments),
        "erf": closed_form_step(erf_moments),
        "tanh": difference_step("tanh"),
        "elu": difference_step("elu"),
    }


def limit(name):
    """What L^p·ε tends to: 9π²/2 for relu (p = 2), 2/(weight·E[φ″²]) for the others (p = 1), by integration."""
    if name == "relu":
        return 9 * math.pi**2 / 2
    second = {
        "gelu": lambda x: (2 - x**2) * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi),
        "erf": lambda x: -4 * x / math.sqrt(math.pi) * np.exp(-(x**2)),
        "tanh": lambda x: -2 * np.tanh(x) / np.cosh(x) ** 2,
        "elu": lambda x: (x < 0) * np.exp(np.minimum(x, 0)),
    }[name]
    grid = np.linspace(-12, 12, 200_001)
    law = np.exp(-(grid**2) / 2)
    return 2 / (critical_weights(name)[0] * float((second(grid) ** 2 * law).sum() / law.sum()))


def on_the_edge(name, step, depths):
    """ε at each depth, the local exponent there (one layer further), and L^p·ε over its limit."""
    power, rows, e = 2 if name == "relu" else 1, [], mp.mpf(START) if name in ("relu", "gelu", "erf") else START
    for layer in range(1, depths[-1] + 1):
        e, before = step(e), e
        if layer in depths:
            # d log ε / d log L between two layers.
            exponent = float((mp.log(e) - mp.log(before)) / (mp.log(layer) - mp.log(layer - 1)))
            rows.append({"depth": layer, "distance": float(e), "exponent": exponent, "over_limit": float(e) * layer**power / limit(name)})
    return rows


def off_the_edge(name):
    """Mean diagonal and 1 − correlation with weight variance 2 and no biases, the same two inputs."""
    x = math.sqrt(2) * np.array([[1.0, 0.0], [1 - START, math.sqrt(1 - (1 - START) ** 2)]])
    rows = []
    for depth in OFF_DEPTHS:
        matrix = nngp_kernel(x, depth=depth, activation=name).numpy()
        rows.append({"depth": depth, "diagonal": float(matrix[0, 0]), "distance": float(1 - matrix[0, 1] / matrix[0, 0])})
    return rows


def rates(data, pictures, *, quick):
    """Both recursions for every activation."""
    depths = DEPTHS[:2] if quick else DEPTHS
    with mp.workdps(DIGITS):
        found = {name: on_the_edge(name, step, depths) for name, step in steps().items()}
    return {
        "digits": DIGITS,
        "start": START,
        "weights": {name: rounded(critical_weights(name), 6) for name in ACTIVATIONS},
        "limits": {name: limit(name) for name in ACTIVATIONS},
        "on_the_edge": {name: found[name] for name in ACTIVATIONS},
        "off_the_edge": {name: off_the_edge(name) for name in ACTIVATIONS},
    }

"""Which activation leaks more: relu against gelu, tanh, elu and erf over depth, at fixed noise and at noise scaled to the kernel."""

import numpy as np
from lood_data import bootstrap, car_plane

from noshadow._lood import critical_weights, flatness_bound, kernel_flatness, lood_scores, nngp_kernel

ACTIVATIONS = ("relu", "gelu", "tanh", "elu", "erf")
DEPTHS = (2, 4, 6, 8, 10)
WEIGHT = 2.0
FIXED_NOISE = 0.1
NOISE_SHARE = 0.05  # of the kernel's mean diagonal; equals the fixed noise for relu on the sphere, whose diagonal is 2


def activations(data, *, quick):
    """Every cell: inputs and weights × activation × depth, with two noises, each compared with relu at the same depth."""
    n = 60 if quick else 600
    x, y = car_plane(data, n)
    flat = x.reshape(n, -1)
    sphere = flat / np.sqrt((flat**2).mean(1, keepdims=True))
    depths = DEPTHS[:1] if quick else DEPTHS
    cases = {
        "sphere": lambda activation, depth: nngp_kernel(sphere, depth=depth, activation=activation, weight_variance=WEIGHT),
        "raw": lambda activation, depth: nngp_kernel(flat, depth=depth, activation=activation, weight_variance=WEIGHT),
        "kept": lambda activation, depth: kept_kernel(sphere, activation, depth),
        "critical": lambda activation, depth: critical_kernel(sphere, activation, depth),
    }
    rows = []
    for case, kernel in cases.items():
        for depth in depths:
            found = {name: cell(kernel(name, depth).numpy(), y) for name in ACTIVATIONS}
            rows += [{"case": case, "activation": name, "depth": depth} | summary(found[name], found["relu"]) for name in ACTIVATIONS]
            print("activations", case, depth, flush=True)
    return {
        "n": n,
        "side": x.shape[-1],
        "weight_variance": WEIGHT,
        "fixed_noise": FIXED_NOISE,
        "noise_share": NOISE_SHARE,
        "critical_weights": {name: critical_weights(name) for name in ACTIVATIONS},
        "kept_weight_variance": {name: 1 / second_moment(name) for name in ACTIVATIONS},
        "rows": rows,
    }


def second_moment(activation):
    """E[φ(z)²] of a standard normal z."""
    return float(nngp_kernel([[1.0]], depth=1, activation=activation, weight_variance=1.0))


def kept_kernel(sphere, activation, depth):
    """Kernel of the network whose weights and inputs are scaled so that the variance is 1 in every layer."""
    moment = second_moment(activation)
    return nngp_kernel(sphere * np.sqrt(moment), depth=depth, activation=activation, weight_variance=1 / moment)


def critical_kernel(sphere, activation, depth):
    """Kernel with weights on the edge of chaos, inputs scaled so that the variance is 1 from the first layer on."""
    weight, bias = critical_weights(activation)
    scaled = sphere * np.sqrt((1 - bias) / weight)
    return nngp_kernel(scaled, depth=depth, activation=activation, weight_variance=weight, bias_variance=bias)


def cell(matrix, y):
    """Scores at both noises and the kernel's flatness."""
    scaled = NOISE_SHARE * float(matrix.diagonal().mean())
    return {
        "fixed": lood_scores(matrix, y, noise=FIXED_NOISE),
        "scaled": lood_scores(matrix, y, noise=scaled),
        "diagonal": float(matrix.diagonal().mean()),
        "flatness": kernel_flatness(matrix),
        "bound": flatness_bound(matrix, y, noise=scaled),
    }


def summary(found, relu):
    flat = found["flatness"]
    row = {"diagonal": found["diagonal"], "h": flat.distance, "h_relative": flat.relative if np.isfinite(flat.relative) else None}
    row |= {"bound": found["bound"], "largest_mean_distance": float(found["scaled"].mean_distance.max())}
    for noise in ("fixed", "scaled"):
        for column in ("kl", "mean_distance"):
            own, base = getattr(found[noise], column), getattr(relu[noise], column)
            ratio = base / own
            row[f"{noise}_{column}"] = {
                "median": float(np.median(own)),
                "relu_over_this": bootstrap(np.median, ratio, resamples=400),
                "relu_higher": float((ratio > 1).mean()),
                "relu_higher_by_tenth": float((ratio > 1.1).mean()),
                "this_higher_by_tenth": float((ratio < 1 / 1.1).mean()),
            }
        row[f"{noise}_auc"] = float(np.median(found[noise].auc))
    return row

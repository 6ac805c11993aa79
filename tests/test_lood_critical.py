"""Weights on the edge of chaos: against integrals by the trapezoid rule and against the kernels they are for."""

import math

import numpy as np
import pytest
from scipy.special import erf, ndtr

from noshadow._lood import critical_weights, nngp_kernel
from noshadow.checks import InputError

GRID = np.linspace(-12, 12, 400_001)
NORMAL = np.exp(-(GRID**2) / 2) / math.sqrt(2 * math.pi)


def density(x):
    return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


# Activation, first and second derivative; relu's second is no function.
FORMS = {
    "relu": (lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0, None),
    "gelu": (lambda x: x * ndtr(x), lambda x: ndtr(x) + x * density(x), lambda x: (2 - x**2) * density(x)),
    "erf": (erf, lambda x: 2 / math.sqrt(math.pi) * np.exp(-(x**2)), lambda x: -4 * x / math.sqrt(math.pi) * np.exp(-(x**2))),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2, lambda x: -2 * np.tanh(x) * (1 - np.tanh(x) ** 2)),
    "elu": (
        lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
        lambda x: np.exp(np.minimum(x, 0)),
        lambda x: (x < 0) * np.exp(np.minimum(x, 0)),
    ),
}


def mean_square(function, variance):
    return float(np.trapezoid(function(math.sqrt(variance) * GRID) ** 2 * NORMAL, GRID))


@pytest.mark.parametrize("variance", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("name", FORMS)
def test_the_slope_is_one_and_the_variance_stays(name, variance):
    weight, bias = critical_weights(name, variance=variance)
    form, slope, _ = FORMS[name]
    # The trapezoid rule errs by 1e-5 where relu's slope jumps, by 1e-9 elsewhere; tanh and elu are known to 1e-9.
    assert weight * mean_square(slope, variance) == pytest.approx(1.0, abs=1e-4 if name == "relu" else 1e-7)
    assert bias + weight * mean_square(form, variance) == pytest.approx(variance, rel=1e-7)
    assert bias >= 0


def correlation(name, variance, depth, apart=1.0):
    """Correlation of two records after `depth` layers, whose variance is `variance` from the first layer on."""
    weight, bias = critical_weights(name, variance=variance)
    length = math.sqrt(2 * (variance - bias) / weight)  # K⁰(x, x) = bias + weight·‖x‖²/2
    x = length * np.array([[1.0, 0.0], [math.cos(apart), math.sin(apart)]])
    matrix = nngp_kernel(x, depth=depth, activation=name, weight_variance=weight, bias_variance=bias).numpy()
    # The variance is a fixed point of the recursion; unstable ones (gelu below 3.6) are not asked for here.
    assert matrix.diagonal() == pytest.approx([variance] * 2, rel=1e-6)
    return matrix[0, 1] / variance


@pytest.mark.parametrize(("name", "variance"), [("gelu", 8.0), ("erf", 1.0), ("tanh", 1.0), ("tanh", 0.3), ("elu", 1.0)])
def test_smooth_activations_forget_like_one_over_the_depth(name, variance):
    """[LOOD] Proposition G.1 with critical weights: L·(1 − c) tends to 2/(weight·q·E[φ″²])."""
    weight, _ = critical_weights(name, variance=variance)
    limit = 2 / (weight * variance * mean_square(FORMS[name][2], variance))
    found = [depth * (1 - correlation(name, variance, depth)) / limit for depth in (100, 300)]
    # Measured at 300 layers: 0.94 to 1.11. Corrections fall like log L / L, those of elu, whose second derivative jumps, like L^-½.
    assert found[1] == pytest.approx(1.0, abs=0.13)
    # At L^-½ or L^-2 the second would be 1.7 times or a third of the first.
    assert found[1] / found[0] == pytest.approx(1.0, abs=0.2)


def test_relu_forgets_like_one_over_the_square_of_the_depth():
    limit = 9 * math.pi**2 / 2
    found = [depth**2 * (1 - correlation("relu", 1.0, depth)) for depth in (150, 600)]
    assert abs(found[1] - limit) < abs(found[0] - limit) and found[1] == pytest.approx(limit, rel=0.06)


def test_off_the_edge_nothing_falls_like_one_over_the_depth():
    """With weight variance 2 and no biases, tanh networks tear records apart, and gelu networks fade to nothing."""
    x = math.sqrt(2) * np.array([[1.0, 0.0], [math.cos(1.0), math.sin(1.0)]])
    torn = nngp_kernel(x, depth=100, activation="tanh").numpy()
    assert abs(torn[0, 1] / torn[0, 0]) < 1e-2
    faded = nngp_kernel(x, depth=60, activation="gelu").numpy()
    assert faded[0, 0] < 1e-9


@pytest.mark.parametrize("wrong", [{"activation": "swish"}, {"activation": "tanh", "variance": 0.0}])
def test_bad_input_is_one_sentence(wrong):
    with pytest.raises(InputError, match=r"critical_weights: (activation|variance) must"):
        critical_weights(**wrong)

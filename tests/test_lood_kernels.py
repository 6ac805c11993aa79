"""Kernels of infinitely wide networks, RBF and Laplace, against quadrature, sampling, finite differences and neural-tangents."""

import csv
import importlib.util
import itertools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special
from scipy.spatial.distance import cdist

from noshadow._lood import networks
from noshadow._lood.activations import ACTIVATIONS, expectation
from noshadow._lood.expectation_table import expectation_table
from noshadow._lood.kernels import laplace_kernel, nngp_kernel, rbf_kernel
from noshadow.checks import InputError

DATA = Path(__file__).parent / "data"
NAMES = tuple(ACTIVATIONS)


def density(x):
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def sech_square(x):
    return 1 / np.cosh(np.clip(x, -300, 300)) ** 2


# φ, φ′ and φ″; relu's second derivative is a point mass, left out below.
FUNCTIONS = {
    "relu": (lambda x: np.maximum(x, 0), lambda x: np.where(x > 0, 1.0, 0.0), None),
    "gelu": (
        lambda x: x * special.ndtr(x),
        lambda x: special.ndtr(x) + x * density(x),
        lambda x: (2 - x * x) * density(x),
    ),
    "erf": (
        special.erf,
        lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
        lambda x: -4 * x / math.sqrt(math.pi) * np.exp(-x * x),
    ),
    "tanh": (np.tanh, sech_square, lambda x: -2 * np.tanh(x) * sech_square(x)),
    "elu": (
        lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
        lambda x: np.where(x > 0, 1.0, np.exp(np.minimum(x, 0))),
        lambda x: np.where(x > 0, 0.0, np.exp(np.minimum(x, 0))),
    ),
}


def panels(edges, nodes):
    x, w = np.polynomial.legendre.leggauss(nodes)
    low, width = edges[:-1, None], np.diff(edges)[:, None]
    return (low + width * (x + 1) / 2).ravel(), (width * w / 2).ravel()


def quadrature(f, g, p, q, correlation, nodes=10):
    """E[f(u)g(v)] by Gauss–Legendre panels that shrink geometrically towards u = 0 and v = 0, in independent coordinates."""
    away = np.concatenate([[0.0], np.geomspace(1e-4, 0.05, 8), np.linspace(0.05, 1, 13)[1:]])
    x, weight = panels(11 * np.concatenate([-away[:0:-1], away]), nodes)
    outer = weight * density(x) * f(math.sqrt(p) * x)
    if abs(correlation) == 1:
        return float((outer * g(math.copysign(math.sqrt(q), correlation) * x)).sum())
    sine = math.sqrt((1 - correlation) * (1 + correlation))
    crossing = np.clip(-correlation * x / sine, -11, 11)[:, None]
    part, part_weight = panels(away, nodes)
    inner = 0.0
    for side in (1, -1):
        length = 11 - side * crossing
        y = crossing + side * length * part
        inner = inner + (length * part_weight * density(y) * g(math.sqrt(q) * (correlation * x[:, None] + sine * y))).sum(1)
    return float((outer * inner).sum())


VARIANCES = [(1e-6, 1e-6), (1e-6, 1e3), (0.3, 10.0), (1.0, 1.0), (1e3, 1e3)]
CORRELATIONS = [-1.0, -0.999, -0.3, 0.5, 0.9999, 1.0]


def one_pair(p, q, correlation):
    """Two records whose K⁰ has these variances and this correlation when weight_variance = 1."""
    x = math.sqrt(2 * p) * np.array([[1.0, 0.0]])
    z = math.sqrt(2 * q) * np.array([[correlation, math.sqrt((1 - correlation) * (1 + correlation))]])
    return x, z


@pytest.mark.parametrize("name", NAMES)
def test_expectations_agree_with_independent_quadrature(name):
    f = FUNCTIONS[name][0]
    for (p, q), correlation in itertools.product(VARIANCES, CORRELATIONS):
        x, z = one_pair(p, q, correlation)
        ours = nngp_kernel(x, z, depth=1, activation=name, weight_variance=1.0).item()
        size = math.sqrt(quadrature(f, f, p, p, 1.0) * quadrature(f, f, q, q, 1.0))
        # 1e-8 of the size of φ(u)φ(v), as promised; the quadrature itself is good to about 1e-11 of it.
        assert abs(ours - quadrature(f, f, p, q, correlation)) < 1e-8 * size, (p, q, correlation)


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_expectations_of_derivatives(name):
    f, first, second = FUNCTIONS[name]
    for (p, q), correlation in itertools.product(VARIANCES, CORRELATIONS):
        arguments = [torch.tensor([v], dtype=torch.float64) for v in (p, q, correlation * math.sqrt(p * q))]
        by_p, by_q, by_c = (slope.item() for slope in ACTIVATIONS[name].slopes(*arguments))
        assert abs(by_c - quadrature(first, first, p, q, correlation)) < 1e-8
        if second is not None:
            # Relative where the slope is large (a tiny variance beside a huge one), absolute elsewhere.
            assert by_p == pytest.approx(quadrature(second, f, p, q, correlation) / 2, rel=1e-8, abs=1e-8)
            assert by_q == pytest.approx(quadrature(f, second, p, q, correlation) / 2, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("name", ["tanh", "elu"])
def test_the_quadrature_of_these_tests_agrees_with_scipy(name):
    f = FUNCTIONS[name][0]
    p, q, correlation = 0.7, 1.9, 0.4
    sine = math.sqrt(1 - correlation**2)

    def inner(x):
        kink = -correlation * x / sine
        y = integrate.quad(lambda y: density(y) * f(math.sqrt(q) * (correlation * x + sine * y)), -10, 10, points=[kink], epsabs=1e-12)
        return y[0] * density(x) * f(math.sqrt(p) * x)

    value = integrate.quad(inner, -10, 10, points=[0], epsabs=1e-11, limit=200)[0]
    assert quadrature(f, f, p, q, correlation) == pytest.approx(value, abs=1e-10)


def reference_module():
    spec = importlib.util.spec_from_file_location("make_nngp_reference", DATA / "make_nngp_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference_cases():
    with (DATA / "nngp_reference.csv").open() as file:
        rows = list(csv.DictReader(file))
    fields = ("architecture", "activation", "depth", "weight_variance", "bias_variance", "filter_size")
    cases = {}
    for row in rows:
        cases.setdefault(tuple(row[f] for f in fields), {})[int(row["row"]), int(row["column"])] = float(row["value"])
    return cases


def test_kernels_agree_with_neural_tangents():
    module, cases = reference_module(), reference_cases()
    assert set(cases) == {tuple(str(v) for v in setting) for setting in module.settings()}
    for (architecture, activation, depth, weight, bias, size), values in cases.items():
        x, z = module.inputs(module.FEATURES if architecture == "fc" else math.prod(module.IMAGE))
        options = {"architecture": "conv", "image_shape": module.IMAGE, "filter_size": int(size)} if architecture == "conv" else {}
        kernel = nngp_kernel(
            x, z, depth=int(depth), activation=activation, weight_variance=float(weight), bias_variance=float(bias), **options
        )
        theirs = np.array([[values[i, j] for j in range(2)] for i in range(3)])
        # Both float64 closed forms of at most five layers: 1e-14 was seen, 1e-12 leaves room for other BLAS libraries.
        np.testing.assert_allclose(kernel.numpy(), theirs, rtol=1e-12, err_msg=f"{architecture} {activation} {depth}")


def random_features(x, name, depth, weight, bias, width, rng):
    """Last hidden layer of one random network of finite width."""
    h = x
    for _ in range(depth):
        w = rng.standard_normal((h.shape[1], width)) * math.sqrt(weight / h.shape[1])
        h = FUNCTIONS[name][0](h @ w + math.sqrt(bias) * rng.standard_normal(width))
    return h


@pytest.mark.parametrize("name", NAMES)
def test_wide_random_networks_have_this_covariance(name):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((4, 6))
    draws = [random_features(x, name, 2, 1.6, 0.2, 512, rng) for _ in range(60)]
    sampled = np.mean([0.2 + 1.6 * h @ h.T / 512 for h in draws], axis=0)
    kernel = nngp_kernel(x, depth=2, activation=name, weight_variance=1.6, bias_variance=0.2).numpy()
    # 60 networks of 512 features: standard errors near 1 % of the diagonal, and a bias of order 1/512.
    np.testing.assert_allclose(sampled, kernel, atol=0.05 * kernel.diagonal().max())


def test_wide_random_convolutions_have_this_covariance():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(3, 2, 4, 4, generator=generator, dtype=torch.float64)
    total = torch.zeros(3, 3, dtype=torch.float64)
    for _ in range(40):
        h = x
        for _ in range(2):
            fan = h.shape[1] * 4
            filters = torch.randn(256, h.shape[1], 2, 2, generator=generator, dtype=torch.float64) * math.sqrt(1.8 / fan)
            biases = math.sqrt(0.1) * torch.randn(256, generator=generator, dtype=torch.float64)
            h = torch.relu(torch.nn.functional.conv2d(torch.nn.functional.pad(h, (0, 1, 0, 1)), filters, biases))
        total += 0.1 + 1.8 * h.flatten(1) @ h.flatten(1).T / h[0].numel()
    options = {"weight_variance": 1.8, "bias_variance": 0.1, "architecture": "conv", "image_shape": (2, 4, 4), "filter_size": 2}
    kernel = nngp_kernel(x, depth=2, **options)
    # 40 networks of 256 channels: standard errors near 1 %.
    torch.testing.assert_close(total / 40, kernel, rtol=0.05, atol=0.02)


def naive_convolution(x, z, depth, weight, bias, size):
    """The recursion with loops, relu, one pair of records of shape (c, h, w)."""
    _, height, width = x.shape
    before = (size - 1) // 2

    def window(grid):
        out = np.zeros((height, width))
        for i, j, a, b in itertools.product(range(height), range(width), range(size), range(size)):
            row, column = i + a - before, j + b - before
            if 0 <= row < height and 0 <= column < width:
                out[i, j] += grid[row, column] / size**2
        return bias + weight * out

    def relu(p, q, c):
        angle = np.arccos(np.clip(c / np.sqrt(p * q), -1, 1))
        return np.sqrt(p * q) * (np.sin(angle) + (math.pi - angle) * np.cos(angle)) / (2 * math.pi)

    p, q, c = (a.mean(0) for a in (x * x, z * z, x * z))
    for _ in range(depth):
        p, q, c = window(p), window(q), window(c)
        p, q, c = p / 2, q / 2, relu(p, q, c)
    return bias + weight * c.mean()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_convolution_agrees_with_loops(size):
    rng = np.random.default_rng(size)
    x, z = rng.standard_normal((2, 2, 3, 5)), rng.standard_normal((3, 2, 3, 5))
    options = {"weight_variance": 1.3, "bias_variance": 0.2, "architecture": "conv", "image_shape": (2, 3, 5), "filter_size": size}
    kernel = nngp_kernel(x, z.reshape(3, -1), depth=2, **options).numpy()
    naive = [[naive_convolution(a, b, 2, 1.3, 0.2, size) for b in z] for a in x]
    np.testing.assert_allclose(kernel, naive, rtol=1e-12)


def test_one_pixel_convolution_is_fully_connected():
    x = np.random.default_rng(0).standard_normal((5, 7))
    conv = nngp_kernel(x, depth=3, activation="gelu", architecture="conv", image_shape=(7, 1, 1), filter_size=1)
    torch.testing.assert_close(conv, nngp_kernel(x, depth=3, activation="gelu"), rtol=1e-13, atol=0)


@pytest.mark.parametrize("name", ["tanh", "elu"])
def test_interpolated_expectations_agree_with_exact_ones(name):
    rng = np.random.default_rng(11)
    for low, high in ((1.0, 1.0), (0.2, 4.0), (0.0, 30.0)):
        variance = torch.from_numpy(np.concatenate([[low, high], rng.uniform(low, high, 28)]))
        correlation = torch.from_numpy(np.cos(math.pi * rng.random((30, 30))))
        correlation[0], correlation[1] = 1.0, -1.0
        c = correlation * (variance[:, None] * variance).sqrt()
        table = expectation_table(ACTIVATIONS[name], low, high, 10**7)
        assert table is not None
        exact = ACTIVATIONS[name].value(variance[:, None], variance, c)
        # Coefficients are kept down to 1e-11 of the largest; a few tens of them are dropped.
        assert float((table.value(variance, variance, c) - exact).abs().max()) < 1e-9 * max(1.0, high)


@pytest.mark.parametrize("name", ["tanh", "elu"])
@pytest.mark.parametrize("options", [{}, {"architecture": "conv", "image_shape": (1, 2, 4)}], ids=["fc", "conv"])
def test_large_kernels_are_interpolated_and_agree_with_small_ones(name, options, monkeypatch):
    used = []

    def counted(*arguments):
        used.append(expectation_table(*arguments))
        return used[-1]

    monkeypatch.setattr(networks, "expectation_table", counted)
    rng = np.random.default_rng(2)
    x = rng.standard_normal((150, 8))
    x *= rng.uniform(0.9, 1.1, (150, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    interpolated = nngp_kernel(x, depth=2, activation=name, bias_variance=0.1, **options)
    assert len(used) == 2
    assert all(table is not None for table in used)
    exact = nngp_kernel(torch.from_numpy(x).requires_grad_(), depth=2, activation=name, bias_variance=0.1, **options)
    torch.testing.assert_close(interpolated, exact.detach(), rtol=0, atol=1e-9)
    assert torch.equal(interpolated.diagonal(), exact.detach().diagonal())  # never interpolated


def assert_gradient(function, x, step, **tolerances):
    """The gradient of a scalar function along four random directions is that of central differences."""
    inner = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(inner), inner)
    directions = torch.randn(4, *x.shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    slopes = torch.stack([(function(x + step * v) - function(x - step * v)) / (2 * step) for v in directions])
    torch.testing.assert_close((directions * gradient).flatten(1).sum(1), slopes, **tolerances)


KERNELS = {name: (lambda a, b, name=name: nngp_kernel(a, b, depth=2, activation=name, weight_variance=1.7)) for name in NAMES}
KERNELS["relu, deep"] = lambda a, b: nngp_kernel(a, b, depth=6, bias_variance=0.1)
KERNELS["conv"] = lambda a, b: nngp_kernel(a, b, depth=2, architecture="conv", image_shape=(1, 2, 3), filter_size=2)
KERNELS["rbf"] = lambda a, b: rbf_kernel(a, b, length_scale=1.5)
KERNELS["laplace"] = lambda a, b: laplace_kernel(a, b, length_scale=1.5)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("apart", [1.0, 1e-4])
def test_gradients_agree_with_differences_far_and_near(name, apart):
    # Differences of step h err by h² and by rounding/h; beside the cusp of the Laplace kernel by (h/distance)².
    kernel, step = KERNELS[name], min(1e-5, apart / (3000 if name == "laplace" else 30))
    generator = torch.Generator().manual_seed(8)
    z = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    x = z[:2] + apart * torch.randn(2, 6, generator=generator, dtype=torch.float64)
    weights = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    assert_gradient(lambda v: (kernel(v, z) * weights).sum(), x, step, rtol=1e-5, atol=1e-6)
    assert_gradient(lambda v: (kernel(x, v) * weights).sum(), z, step, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", [k for name, k in KERNELS.items() if name != "laplace"], ids=[n for n in KERNELS if n != "laplace"])
def test_gradients_agree_with_differences_at_coincidence(kernel):
    generator = torch.Generator().manual_seed(9)
    z = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    weights = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    # The third derivative jumps at x = z, so differences err by the square of the step, 1e-5, or by rounding over it.
    assert_gradient(lambda v: (kernel(v, z) * weights).sum(), z, 1e-5, rtol=1e-6, atol=1e-8)
    assert_gradient(lambda v: (kernel(v, None) * weights).sum(), z, 1e-5, rtol=1e-6, atol=1e-8)


def test_relu_gradient_at_coincidence_in_closed_form():
    z = torch.randn(50, 300, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(nngp_kernel(x, z, depth=3).diagonal().sum(), x)
    # Weight variance 2: each layer passes half of the gradient of 2·c, so ∂K(x, z)/∂x = 2z/d at x = z for every depth.
    # Exact to rounding because correlations within 16 ulp of one count as one.
    torch.testing.assert_close(gradient, 2 * z / 300, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_rounding_of_a_covariance_does_not_reach_the_gradient(name):
    variance = torch.tensor([0.7, 1.0, 3.0], dtype=torch.float64)
    gradients = []
    for c in (variance.clone(), variance * (1 - 4e-16), variance * (1 + 4e-16)):
        expectation(ACTIVATIONS[name], variance, variance, c.requires_grad_()).sum().backward()
        gradients.append(c.grad)
    # An angle of √(2·4e-16) would show as 5e-9 in relu's gradient.
    torch.testing.assert_close(torch.stack(gradients[1:]), gradients[0].expand(2, 3), rtol=1e-14, atol=0)


def test_laplace_gradient_at_coincidence_is_zero():
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    moved = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(laplace_kernel(moved, x, length_scale=1.0).diagonal().sum(), moved)
    assert torch.equal(gradient, torch.zeros_like(x))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", [{}, {"architecture": "conv", "image_shape": (1, 4, 4)}], ids=["fc", "conv"])
def test_zero_records_and_patches_give_finite_gradients(name, options):
    x = torch.zeros(3, 16, dtype=torch.float64)
    x[1, 5], x[2, 0] = 1.0, 2.0
    moved = x.clone().requires_grad_()
    kernel = nngp_kernel(moved, x, depth=2, activation=name, **options)
    (gradient,) = torch.autograd.grad(kernel.sum(), moved)
    assert bool(torch.isfinite(kernel).all())
    assert bool(torch.isfinite(gradient).all())
    assert float(kernel[0].abs().max().detach()) == pytest.approx(0, abs=1e-15)


def test_adam_brings_a_query_to_the_record():
    generator = torch.Generator().manual_seed(4)
    record = torch.randn(1, 12, generator=generator, dtype=torch.float64)
    query = torch.randn(1, 12, generator=generator, dtype=torch.float64).requires_grad_()
    optimiser = torch.optim.Adam([query], lr=0.1)
    for _ in range(150):
        optimiser.zero_grad()
        both = nngp_kernel(query, depth=2)
        loss = -nngp_kernel(query, record, depth=2)[0, 0] / both[0, 0].sqrt()
        loss.backward()
        assert bool(torch.isfinite(query.grad).all())
        optimiser.step()
    cosine = torch.nn.functional.cosine_similarity(query.detach(), record).item()
    assert cosine == pytest.approx(1, abs=1e-4)


def test_float32_and_integer_inputs_give_float64_and_their_own_gradient():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    kernel = nngp_kernel(x, depth=1)
    kernel.sum().backward()
    assert kernel.dtype == torch.float64
    assert x.grad.dtype == torch.float32
    assert nngp_kernel(np.eye(3, dtype=np.int64), depth=1).dtype == torch.float64
    with torch.no_grad():
        assert not nngp_kernel(x, depth=1).requires_grad


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.integers(0, 4),
    st.floats(0.1, 4.0),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from(["fc", "conv"]),
    st.integers(0, 10**6),
)
def test_kernels_are_covariances(name, depth, weight, bias, architecture, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((7, 8)) * np.exp(rng.uniform(-2, 2, (7, 1)))
    x[6] = x[0]
    kept = x.copy()
    options = {"depth": depth, "activation": name, "weight_variance": weight, "bias_variance": bias, "architecture": architecture}
    options |= {"image_shape": (2, 2, 2), "filter_size": 2}
    kernel = nngp_kernel(x, **options).numpy()
    size = kernel.diagonal().max()
    assert np.array_equal(x, kept)
    assert np.array_equal(kernel, kernel.T)
    # Rounding of 7 × 7 entries, elu and tanh included (1e-11 of the size).
    assert np.linalg.eigvalsh(kernel).min() > -1e-10 * size
    np.testing.assert_allclose(nngp_kernel(x, x.copy(), **options).numpy(), kernel, rtol=1e-12, atol=1e-13 * size)
    order = rng.permutation(7)
    np.testing.assert_allclose(nngp_kernel(x[order], **options).numpy(), kernel[np.ix_(order, order)], rtol=1e-12, atol=1e-13 * size)
    np.testing.assert_allclose(kernel[6], kernel[0], rtol=1e-12, atol=1e-13 * size)


@given(st.integers(1, 5), st.floats(1e-3, 1e3), st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_relu_kernels_without_biases_are_homogeneous(depth, scale, seed):
    x = np.random.default_rng(seed).standard_normal((5, 6))
    for options in ({}, {"architecture": "conv", "image_shape": (1, 2, 3)}):
        kernel = nngp_kernel(x, depth=depth, **options)
        torch.testing.assert_close(nngp_kernel(scale * x, depth=depth, **options), scale**2 * kernel, rtol=1e-10, atol=0)


def test_depth_zero_is_linear():
    x = np.random.default_rng(0).standard_normal((4, 2, 3))
    rows = x.reshape(4, 6)
    for options in ({}, {"architecture": "conv", "image_shape": (1, 2, 3)}):
        kernel = nngp_kernel(x, depth=0, weight_variance=1.5, bias_variance=0.2, **options).numpy()
        np.testing.assert_allclose(kernel, 0.2 + 1.5 * rows @ rows.T / 6, rtol=1e-13)


def test_relu_preserves_the_diagonal_at_weight_variance_two():
    x = np.random.default_rng(0).standard_normal((4, 6))
    expected = 2 * (x**2).sum(1) / 6
    np.testing.assert_allclose(nngp_kernel(x, depth=8).diagonal().numpy(), expected, rtol=1e-13)


@pytest.mark.parametrize("options", [{}, {"architecture": "conv", "image_shape": (2, 2, 2)}], ids=["fc", "conv"])
def test_tiles_make_no_difference(options, monkeypatch):
    x, z = (np.random.default_rng(seed).standard_normal((n, 8)) for seed, n in ((0, 23), (1, 10)))
    whole = nngp_kernel(x, depth=2, **options), nngp_kernel(x, z, depth=2, **options)
    monkeypatch.setattr(networks, "_TILE_NUMBERS", 100)
    torch.testing.assert_close(nngp_kernel(x, depth=2, **options), whole[0], rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(nngp_kernel(x, z, depth=2, **options), whole[1], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(("kernel", "power"), [(rbf_kernel, 2), (laplace_kernel, 1)])
def test_radial_kernels_agree_with_direct_distances(kernel, power):
    rng = np.random.default_rng(0)
    x = 1e4 + rng.standard_normal((700, 3))  # far from the origin, where norms cancel; more than one tile
    x[5] = x[3]
    x[6] = x[3] + 1e-7
    z = x[:40] + 0.3
    distance = cdist(x, x) / 0.8
    expected = np.exp(-(distance**2) / 2) if power == 2 else np.exp(-distance)
    ours = kernel(x, length_scale=0.8).numpy()
    # Centring leaves norms near 2 and distances from 1e-7 on; cancellation is at most 1e-16/1e-6.
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-9)
    assert np.array_equal(ours, ours.T)
    assert ours[3, 5] == 1.0
    assert abs(ours[3, 6] - expected[3, 6]) < 1e-14
    cross = np.exp(-((cdist(x, z) / 0.8) ** power) / power)
    np.testing.assert_allclose(kernel(x, z, length_scale=0.8).numpy(), cross, rtol=0, atol=1e-9)
    assert np.linalg.eigvalsh(kernel(x[:100], length_scale=0.8).numpy()).min() > -1e-12


def test_a_kernel_that_does_not_fit_is_refused_before_it_is_allocated():
    x = np.zeros((300_000, 1))
    with pytest.raises(
        InputError, match=r"kernel must fit in 2 GB of memory; got 300000 × 300000 pairs that need 720 GB. About 15[0-9]{3}"
    ):
        nngp_kernel(x, depth=1, max_memory=2e9)
    with pytest.raises(InputError, match=r"About [0-9]+ of the 300000 rows of z would fit"):
        nngp_kernel(x[:30000], x, depth=1, max_memory=2e9)
    with pytest.raises(InputError, match="Make room"):
        nngp_kernel(x, depth=1, max_memory=1e6)
    images = torch.zeros(200, 3 * 32 * 32, dtype=torch.float64)
    nngp_kernel(images[:20], depth=1, architecture="conv", image_shape=(3, 32, 32), max_memory=2e8)
    with pytest.raises(InputError, match=r"200 × 200 pairs with gradients that need 6\.[0-9]+ GB"):
        nngp_kernel(images.requires_grad_(), depth=2, architecture="conv", image_shape=(3, 32, 32), max_memory=2e9)


def test_radial_kernels_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(networks, "available_memory", lambda: 1e6)
    with pytest.raises(InputError, match=r"rbf_kernel: the kernel must fit in 0.001 GB of memory; got 1000 × 1000 pairs"):
        rbf_kernel(np.zeros((1000, 2)), length_scale=1.0)
    monkeypatch.setattr(networks, "available_memory", lambda: None)
    assert rbf_kernel(np.zeros((2, 2)), length_scale=1.0).shape == (2, 2)


def test_memory_stays_near_the_result():
    code = """
import resource, numpy as np
from noshadow._lood.kernels import nngp_kernel
x = np.random.default_rng(0).standard_normal((3000, 8))
nngp_kernel(x[:500], depth=2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
nngp_kernel(x, depth=2)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (8 * 3000**2))
"""
    used = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(used) < 1.5  # times the result, 72 MB


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": [[0.0, np.nan]]}, "nngp_kernel: x must be finite; got 1 NaN"),
        ({"z": [[0.0, np.inf]]}, "z must be finite"),
        ({"z": [[0.0, 1.0, 2.0]]}, r"x and z must have records of one size; got shapes \(2, 2\) and \(1, 3\)"),
        ({"x": [1.0, 2.0]}, r"x must hold one record a row, \(n, …\); got shape \(2,\). Make one feature a column"),
        ({"x": np.zeros((0, 2))}, "x must hold at least one record"),
        ({"x": [["a", "b"]]}, "x must be numeric"),
        ({"x": [[1e120, 0.0]]}, "x must stay within"),
        ({"x": [[1e60, 0.0]]}, "x and weight_variance must keep every variance within 1e[+]100; got 1e[+]120 in layer 0"),
        ({"weight_variance": 1e60, "depth": 3}, "must keep every variance within"),
        ({"depth": -1}, "depth must be a whole number ≥ 0; got -1"),
        ({"depth": 1.5}, "depth must be a whole number"),
        ({"activation": "swish"}, "activation must be one of 'relu', 'gelu', 'erf', 'tanh', 'elu'; got 'swish'"),
        ({"weight_variance": 0.0}, "weight_variance must be a number > 0; got 0"),
        ({"bias_variance": -0.1}, "bias_variance must be a number ≥ 0; got -0.1"),
        ({"architecture": "mlp"}, "architecture must be one of 'fc', 'conv'; got 'mlp'"),
        ({"architecture": "conv"}, r"image_shape must be given as \(channels, height, width\) for architecture='conv'; got None"),
        ({"architecture": "conv", "image_shape": (1, 2)}, r"image_shape must be \(channels, height, width\); got \(1, 2\)"),
        ({"architecture": "conv", "image_shape": (1, 0, 2)}, "image_shape must be a whole number ≥ 1; got 0"),
        ({"architecture": "conv", "image_shape": (1, 2, 2)}, r"x must have records of image_shape \(1, 2, 2\), or rows of 4; got \(2, 2\)"),
        ({"architecture": "conv", "image_shape": (1, 1, 2), "z": np.zeros((1, 3))}, "z must have records of image_shape"),
        ({"architecture": "conv", "image_shape": (2, 1, 3), "x": np.zeros((1, 1, 3, 2))}, "Channels come first"),
        ({"filter_size": 0}, "filter_size must be a whole number ≥ 1; got 0"),
        ({"max_memory": 0}, "max_memory must be a number > 0; got 0"),
    ],
)
def test_wrong_input_is_refused(changes, message):
    arguments = {"x": [[1.0, 0.0], [0.0, 1.0]], "depth": 1} | changes
    with pytest.raises(InputError, match=message):
        nngp_kernel(arguments.pop("x"), arguments.pop("z", None), **arguments)


@pytest.mark.parametrize("kernel", [rbf_kernel, laplace_kernel])
def test_wrong_input_of_radial_kernels_is_refused(kernel):
    with pytest.raises(InputError, match=f"{kernel.__name__}: length_scale must be a number > 0; got 0"):
        kernel([[1.0]], length_scale=0.0)
    with pytest.raises(InputError, match=f"{kernel.__name__}: x must be finite"):
        kernel([[np.nan]], length_scale=1.0)
    with pytest.raises(InputError, match="x and z must have records of one size"):
        kernel([[1.0]], [[1.0, 2.0]], length_scale=1.0)

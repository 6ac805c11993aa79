"""Kernels of Gaussian processes: networks of infinite width, RBF and Laplace.

They are tensors in float64, differentiable in both arguments.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noshadow._lood.activations import ACTIVATIONS
from noshadow._lood.networks import as_images, convolutional_network, dense_network, image_sizes, network_kernel, require_room, tiled
from noshadow.arguments import renamed
from noshadow.checks import (
    as_array,
    named_in_errors,
    numeric_array,
    refuse,
    require_choice,
    require_number,
    require_squarable,
    require_whole,
)

ARCHITECTURES = ("fc", "conv")
_TILE_ROWS = 512
# Arrays of the kernel's size alive at once when gradients are wanted.
_ARRAYS = 6
# Squared distances this far below the squared norms have lost digits to cancellation and are taken
# from differences instead.
_CANCELLED = 1e-6
_DIFFERENCE_NUMBERS = 1 << 22


@named_in_errors
@renamed(memory_limit="max_memory")
def nngp_kernel(
    x: object,
    z: object = None,
    *,
    depth: int,
    activation: str = "relu",
    weight_variance: float = 2.0,
    bias_variance: float = 0.0,
    architecture: str = "fc",
    image_shape: tuple[int, int, int] | None = None,
    filter_size: int = 3,
    max_memory: float | None = None,
) -> Tensor:
    """Covariance of the outputs of a random network of infinite width (NNGP kernel).

    The outputs are those at two sets of inputs.

    Fully connected: K⁰(x, z) = bias + weight·xᵀz/d and, `depth` times, K ← bias +
    weight·E[φ(u)φ(v)], (u, v) Gaussian with covariance [[K(x, x), K(x, z)], [K(x, z), K(z, z)]].
    Convolutional: the same at each position, xᵀz/d and E[φφ] replaced by their means over channels
    and over the filter's window (zero outside the image), in the last step over all positions.

    Args:
        x: (n, …) inputs, each flattened to d numbers; images for "conv": (n, channels, height,
            width), flat or not.
        z: (m, …) other inputs; x itself when None.
        depth: hidden nonlinear layers before the readout, ≥ 0; 0 is the linear kernel K⁰.
        activation: "relu", "gelu" (xΦ(x)), "erf", "tanh" or "elu" (α = 1).
        weight_variance: variance of a layer's weights times its fan-in, > 0. bias_variance:
            variance of its biases, ≥ 0.
        architecture: "fc", or "conv": `depth` convolutions of stride 1 that keep the image's shape,
            then a readout of all positions, no pooling.
        image_shape: (channels, height, width), for "conv" only.
        filter_size: side of the square filters, ≥ 1, for "conv" only. Even sizes reach further down
            and right.
        max_memory: bytes the kernel may take; None: what the system has available, where it says
            (Linux).

    Returns:
        (n, m) float64 tensor, symmetric when z is None. When x or z requires a gradient so does the
        kernel, also at coinciding inputs; once only. An input whose variance is 0 in some layer (a
        zero input of a relu network without biases) has no derivative there; a finite one is
        returned.

    Raises:
        InputError: an argument is out of range, shapes do not fit, values are not finite, or the
            kernel would not fit in memory.

    Exact when: widths are infinite. relu, gelu and erf are closed forms; elu (an integral over an
        angle) and tanh (a sum of ten erfs) are within 1e-9 of √(E[φ(u)²]E[φ(v)²]) for variances
        from 1e-6 to 1e3, closed forms within 1e-12. Covariances are clipped to ±√(K(x, x)K(z, z)),
        which undoes rounding only.
    Cost: n·m·d flops and 30–200 ns per pair and layer (times positions for "conv"), half that when
        z is None. Memory: the result, the inputs and about 25 MB; with gradients 8·(3·depth + 6)
        bytes per pair, "conv" 8·(7·depth + 6) per pair and position, and 1–4 µs per pair and layer
        for tanh and elu.
    Reference: [LOOD] Section 3; Cho and Saul 2009 (relu), Williams 1997 (erf), Tsuchida et al. 2021
        (gelu), Novak et al. 2019 (conv).

    Example:
        >>> from noshadow._lood.kernels import nngp_kernel
        >>> nngp_kernel([[1.0, 0.0], [0.0, 1.0]], depth=1).round(decimals=4).tolist()
        [[1.0, 0.3183], [0.3183, 1.0]]
    """
    layers = require_whole(depth, "depth", low=0)
    require_choice(activation, tuple(ACTIVATIONS), "activation")
    weight = require_number(weight_variance, "weight_variance", low=0, low_open=True)
    bias = require_number(bias_variance, "bias_variance", low=0)
    require_choice(architecture, ARCHITECTURES, "architecture")
    size = require_whole(filter_size, "filter_size", low=1)
    limit = None if max_memory is None else require_number(max_memory, "max_memory", low=0, low_open=True)
    rows = _records(x, "x")
    columns = None if z is None else _records(z, "z").to(rows.device)
    if architecture == "conv":
        shape = image_sizes(image_shape)
        rows, columns = as_images(rows, shape, "x"), None if columns is None else as_images(columns, shape, "z")
        network = convolutional_network(ACTIVATIONS[activation], layers, weight, bias, filter_size=size, shape=shape)
    else:
        rows, columns = _flat(rows, columns)
        network = dense_network(ACTIVATIONS[activation], layers, weight, bias)
    return network_kernel(rows, columns, network, max_memory=limit)


@named_in_errors
def rbf_kernel(x: object, z: object = None, *, length_scale: float) -> Tensor:
    """Squared-exponential kernel exp(−‖x − z‖²/(2ℓ²)).

    Args:
        x: (n, …) inputs, each flattened. z: (m, …) other inputs; x itself when None.
        length_scale: ℓ > 0, in the units of the inputs.

    Returns:
        (n, m) float64 tensor in [0, 1], differentiable in x and z.

    Raises:
        InputError: an argument is out of range, shapes do not fit, or values are not finite.

    Exact when: always; small distances are taken from differences, not from norms.
    Cost: n·m·d flops; memory: the result and a copy of the inputs.

    Example:
        >>> from noshadow._lood.kernels import rbf_kernel
        >>> rbf_kernel([[0.0], [1.0]], length_scale=1.0).round(decimals=4).tolist()
        [[1.0, 0.6065], [0.6065, 1.0]]
    """
    scale = require_number(length_scale, "length_scale", low=0, low_open=True)
    return _radial_kernel(x, z, lambda squared: (squared / scale / (-2 * scale)).exp())


@named_in_errors
def laplace_kernel(x: object, z: object = None, *, length_scale: float) -> Tensor:
    """Laplace kernel exp(−‖x − z‖/ℓ), Euclidean norm.

    Args, Returns, Raises, Cost: as in `rbf_kernel`. At x = z the kernel has a cusp and no gradient;
    0, the mean of its one-sided slopes, is returned there.

    Exact when: always; small distances are taken from differences, not from norms.

    Example:
        >>> from noshadow._lood.kernels import laplace_kernel
        >>> laplace_kernel([[0.0], [1.0]], length_scale=2.0).round(decimals=4).tolist()
        [[1.0, 0.6065], [0.6065, 1.0]]
    """
    scale = require_number(length_scale, "length_scale", low=0, low_open=True)

    def kernel(squared: Tensor) -> Tensor:
        apart = squared > 0
        # Twice `where`: the root of an untaken zero would still put NaN into the gradient.
        distance = torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)
        return (distance / -scale).exp()

    return _radial_kernel(x, z, kernel)


def _records(value: object, argument: str) -> Tensor:
    """Finite records (n, …) in float64; a tensor keeps its graph and its device."""
    array = as_array(value, argument)
    if array.ndim < 2:
        refuse(argument, "hold one record a row, (n, …)", f"shape {array.shape}", "Make one feature a column: x[:, None].")
    numeric_array(array, argument, ndim=array.ndim)
    if array.size == 0:
        refuse(argument, "hold at least one record of at least one number", f"shape {array.shape}")
    require_squarable(array, argument)
    if isinstance(value, Tensor):
        return value.to(torch.float64)
    # A read-only array is copied: torch shares memory with what it is given.
    return torch.from_numpy(np.require(array, np.float64, ["C", "W"]))


def _flat(x: Tensor, z: Tensor | None) -> tuple[Tensor, Tensor | None]:
    rows = x.flatten(1)
    if z is None:
        return rows, None
    columns = z.flatten(1)
    if rows.shape[1] != columns.shape[1]:
        refuse("x and z", "have records of one size", f"shapes {tuple(x.shape)} and {tuple(z.shape)}")
    return rows, columns


class _SquaredDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor) -> Tensor:
        ctx.save_for_backward(x, z)
        return _squared_distances(x, z)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (gradient,) = gradients
        x, z = ctx.saved_tensors
        by_x = gradient.sum(1)[:, None] * x - gradient @ z
        by_z = gradient.sum(0)[:, None] * z - gradient.T @ x
        return 2 * by_x, 2 * by_z


def _radial_kernel(x: object, z: object, kernel: Callable[[Tensor], Tensor]) -> Tensor:
    records = _records(x, "x")
    rows, columns = _flat(records, None if z is None else _records(z, "z").to(records.device))
    gradients = torch.is_grad_enabled() and (rows.requires_grad or (columns is not None and columns.requires_grad))
    m = None if columns is None else len(columns)
    per_pair, fixed = 8 * (_ARRAYS if gradients else 1), 8 * rows.shape[1] * (len(rows) + (m or 0))
    require_room(len(rows), m, per_pair=per_pair, fixed=fixed, max_memory=None, gradients=gradients)
    centre = rows.detach().mean(0)  # distances ignore it, and norms of centred records cancel less
    rows = rows - centre
    columns = rows if columns is None else columns - centre
    if gradients:
        return kernel(_SquaredDistance.apply(rows, columns))  # type: ignore[no-untyped-call]
    result = rows.new_empty(len(rows), len(columns))
    return tiled(result, lambda a, b: kernel(_squared_distances(rows[a], columns[b])), symmetric=z is None, side=_TILE_ROWS)


def _squared_distances(x: Tensor, z: Tensor) -> Tensor:
    norms = torch.einsum("nd,nd->n", x, x)[:, None] + torch.einsum("md,md->m", z, z)
    squared = torch.addmm(norms, x, z.T, alpha=-2)
    # `not above` rather than `below`: two records at the centre have norms 0.
    close = torch.nonzero(squared.le(_CANCELLED * norms))
    for pairs in torch.split(close, max(_DIFFERENCE_NUMBERS // x.shape[1], 1)):
        difference = x[pairs[:, 0]] - z[pairs[:, 1]]
        squared[pairs[:, 0], pairs[:, 1]] = difference.square_().sum(1)
    return squared

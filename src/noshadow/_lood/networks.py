"""Networks of infinite width, and the recursion that their kernels share.

The networks are fully connected or convolutional.

The readout of a flattened convolutional network meets each position with weights of its own, so
only covariances of two records *at the same position* enter the kernel: (h, w) numbers per pair
instead of (h·w)². Stride 1; zero padding keeps the image's shape. A filter of even size reaches one
pixel further down and right than up and left (f = 2: the pixel itself, its right and lower
neighbours).
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from noshadow._lood.activations import Activation, expectation
from noshadow._lood.expectation_table import expectation_table
from noshadow.checks import refuse, require_whole

# Numbers in a tile: small enough for the caches, large enough for the threads.
_TILE_NUMBERS = 1 << 18
# Arrays of one tile that are alive at once; and of all pairs and positions for a gradient, in each
# layer (windows need more) and besides.
_TILE_ARRAYS = 12
_GRADIENT_ARRAYS, _WINDOW_ARRAYS, _OTHER_ARRAYS = 3, 4, 6
_LARGEST_VARIANCE = 1e100

Layer = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Network:
    """What a network of infinite width is determined by.

    Attributes:
        activation: its Gaussian expectation.
        weight_variance, bias_variance: K ← bias + weight·(aggregated expectation).
        products: (rows of x, rows of z) → mean products over inputs, (*positions, i, j).
        squares: x → the same of every record with itself, (*positions, n).
        aggregations: depth + 1 maps over positions: before each nonlinearity, and of the readout.
        positions: how many there are.
    """

    activation: Activation
    weight_variance: float
    bias_variance: float
    products: Callable[[Tensor, Tensor], Tensor]
    squares: Callable[[Tensor], Tensor]
    aggregations: tuple[Callable[[Tensor], Tensor], ...]
    positions: int = 1

    @property
    def depth(self) -> int:
        """Number of nonlinear layers."""
        return len(self.aggregations) - 1

    def affine(self, covariance: Tensor, layer: int) -> Tensor:
        """Covariances after the weights and biases of a layer."""
        return self.aggregations[layer](covariance) * self.weight_variance + self.bias_variance


def dense_network(activation: Activation, depth: int, weight_variance: float, bias_variance: float) -> Network:
    """`depth` fully connected layers, each before a nonlinearity, and a readout."""

    def products(rows: Tensor, columns: Tensor) -> Tensor:
        return rows @ columns.T / rows.shape[1]

    def squares(rows: Tensor) -> Tensor:
        return torch.einsum("nd,nd->n", rows, rows) / rows.shape[1]

    def unchanged(covariance: Tensor) -> Tensor:
        return covariance

    return Network(activation, weight_variance, bias_variance, products, squares, (unchanged,) * (depth + 1))


def image_sizes(image_shape: object) -> tuple[int, int, int]:
    """(channels, height, width), checked."""
    if image_shape is None:
        refuse("image_shape", "be given as (channels, height, width) for architecture='conv'", "None")
    if not isinstance(image_shape, (tuple, list)) or len(image_shape) != 3:
        refuse("image_shape", "be (channels, height, width)", repr(image_shape))
    channels, height, width = (require_whole(size, "image_shape", low=1) for size in image_shape)
    return channels, height, width


def as_images(x: Tensor, shape: tuple[int, int, int], argument: str) -> Tensor:
    """Records (n, c, h, w) from rows of c·h·w numbers or from images in that order.

    Other layouts are refused, not guessed.
    """
    channels, height, width = shape
    layouts = [shape, (channels * height * width,)] + ([(height, width)] if channels == 1 else [])
    if tuple(x.shape[1:]) not in layouts:
        hint = "Channels come first: move the axes of images stored as (height, width, channels)."
        refuse(argument, f"have records of image_shape {shape}, or rows of {channels * height * width}", f"{tuple(x.shape)}", hint)
    return x.reshape(len(x), *shape)


def convolutional_network(
    activation: Activation, depth: int, weight_variance: float, bias_variance: float, *, filter_size: int, shape: tuple[int, int, int]
) -> Network:
    """`depth` convolutions, each before a nonlinearity, and a readout of all positions."""
    channels, height, width = shape

    def products(rows: Tensor, columns: Tensor) -> Tensor:
        return rows.permute(2, 3, 0, 1) @ columns.permute(2, 3, 1, 0) / channels  # (h, w, i, j)

    def squares(images: Tensor) -> Tensor:
        return torch.einsum("nchw,nchw->hwn", images, images) / channels

    def patch_mean(covariance: Tensor) -> Tensor:
        return _patch_sum(_patch_sum(covariance, 0, filter_size), 1, filter_size) / filter_size**2

    def image_mean(covariance: Tensor) -> Tensor:
        return covariance.mean((0, 1))

    aggregations = (*[patch_mean] * depth, image_mean)
    return Network(activation, weight_variance, bias_variance, products, squares, aggregations, height * width)


def _patch_sum(covariance: Tensor, axis: int, filter_size: int) -> Tensor:
    """Sums over windows along one axis, what lies outside counted as zero."""
    before, length = (filter_size - 1) // 2, covariance.shape[axis]
    total = covariance.clone()
    for offset in range(-before, filter_size - before):
        if offset and abs(offset) < length:
            kept = length - abs(offset)
            total.narrow(axis, max(-offset, 0), kept).add_(covariance.narrow(axis, max(offset, 0), kept))
    return total


def network_kernel(x: Tensor, z: Tensor | None, network: Network, *, max_memory: float | None) -> Tensor:
    """Kernel (n, m) of two sets of records, or (n, n) of one with itself, float64.

    Differentiable as one tile when a gradient is wanted of x or z; otherwise tile by tile into the
    result.
    """
    other = x if z is None else z
    differentiable = torch.is_grad_enabled() and (x.requires_grad or other.requires_grad)
    _require_room(x, z, network, differentiable, max_memory)
    by_row = variances(x, network)
    by_column = by_row if z is None else variances(other, network)
    if differentiable:
        whole = _tile(network.products(x, other), by_row, by_column, network, [_exact(network)] * network.depth)
        return whole if z is not None else torch.diagonal_scatter(whole, by_row[-1])
    layers = _layers(by_row[:-1], by_column[:-1], network)

    def kernel(rows: slice, columns: slice) -> Tensor:
        p, q = [v[..., rows] for v in by_row], [v[..., columns] for v in by_column]
        return _tile(network.products(x[rows], other[columns]), p, q, network, layers)

    side = max(math.isqrt(_TILE_NUMBERS // network.positions), 1)
    result = tiled(x.new_empty(len(x), len(other)), kernel, symmetric=z is None, side=side)
    if z is None:
        result.diagonal().copy_(by_row[-1])
    return result


def tiled(result: Tensor, kernel: Callable[[slice, slice], Tensor], *, symmetric: bool, side: int) -> Tensor:
    """Fill the result in tiles of `side` records.

    A symmetric result is filled from the tiles on and above its diagonal.
    """
    n, m = result.shape
    for top in range(0, n, side):
        rows = slice(top, top + side)
        for left in range(top if symmetric else 0, m, side):
            columns = slice(left, left + side)
            tile = kernel(rows, columns)
            if symmetric and left == top:
                tile = tile.triu() + tile.triu(1).T
            result[rows, columns] = tile
            if symmetric and left > top:
                result[columns, rows] = tile.T
    return result


def variances(x: Tensor, network: Network) -> list[Tensor]:
    """Variances before each nonlinearity, (*positions, n), and the diagonal of the kernel, (n,)."""
    steps = [network.affine(network.squares(x), 0)]
    for layer in range(network.depth):
        steps.append(network.affine(expectation(network.activation, steps[-1], steps[-1], steps[-1]), layer + 1))
    for layer, step in enumerate(steps):
        largest = float(step.detach().max())
        if not largest <= _LARGEST_VARIANCE:
            rule = f"keep every variance within {_LARGEST_VARIANCE:g}"
            refuse("x and weight_variance", rule, f"{largest:g} in layer {layer}", "Rescale the records, or lower weight_variance.")
    return steps


def require_room(n: int, m: int | None, *, per_pair: int, fixed: int, max_memory: float | None, gradients: bool) -> None:
    """Refuse a kernel of n × m pairs that would not fit, before it is allocated.

    The kernel has n × n pairs when m is None.
    """
    limit = available_memory() if max_memory is None else max_memory
    columns = n if m is None else m
    need = per_pair * n * columns + fixed
    if limit is None or need <= limit:
        return
    pairs = int(max(limit - fixed, 0) // per_pair)
    fit = f"About {math.isqrt(pairs)} records" if m is None else f"About {pairs // n} of the {m} rows of z"
    hint = f"{fit} would fit; pass fewer, or make room." if pairs >= (1 if m is None else n) else "Make room."
    what = f"{n} × {columns} pairs{' with gradients' if gradients else ''} that need {_gigabytes(need)}"
    refuse("the kernel", f"fit in {_gigabytes(limit)} of memory", what, hint)


def available_memory() -> float | None:
    """Bytes that can be had without swapping (Linux), else all bytes of memory.

    Returns None where the system does not tell.
    """
    source = Path("/proc/meminfo")
    if source.is_file():
        lines = (line.split() for line in source.read_text().splitlines())
        return next((1024.0 * int(words[1]) for words in lines if words[0] == "MemAvailable:"), None)
    if {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(getattr(os, "sysconf_names", {})):
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return None


def _require_room(x: Tensor, z: Tensor | None, network: Network, differentiable: bool, limit: float | None) -> None:
    n, m = len(x), len(x if z is None else z)
    positions, layers = network.positions, network.depth + 1
    in_a_layer = _GRADIENT_ARRAYS + (_WINDOW_ARRAYS if positions > 1 else 0)
    kept = positions * (in_a_layer * network.depth + _OTHER_ARRAYS)
    tile = 0 if differentiable else _TILE_ARRAYS * min(max(_TILE_NUMBERS, positions), n * m * positions)
    diagonals = layers * positions * (n if z is None else n + m)
    require_room(
        n,
        None if z is None else m,
        per_pair=8 * kept if differentiable else 8,
        fixed=8 * (diagonals + tile),
        max_memory=limit,
        gradients=differentiable,
    )


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB"


def _tile(products: Tensor, p: Sequence[Tensor], q: Sequence[Tensor], network: Network, layers: Sequence[Layer]) -> Tensor:
    covariance = network.affine(products, 0)
    for index, layer in enumerate(layers):
        covariance = network.affine(layer(p[index], q[index], covariance), index + 1)
    return covariance


def _exact(network: Network) -> Layer:
    return lambda p, q, c: expectation(network.activation, p[..., :, None], q[..., None, :], c)


def _layers(p: Sequence[Tensor], q: Sequence[Tensor], network: Network) -> list[Layer]:
    if not network.activation.costly:
        return [_exact(network)] * network.depth
    return [_fastest(own, other, network) for own, other in zip(p, q, strict=True)]


def _fastest(p: Tensor, q: Tensor, network: Network) -> Layer:
    smallest, largest = min(float(p.min()), float(q.min())), max(float(p.max()), float(q.max()))
    pairs = p.shape[-1] * q.shape[-1] * network.positions
    table = expectation_table(network.activation, smallest, largest, pairs)
    return _exact(network) if table is None else table.value

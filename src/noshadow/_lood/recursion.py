"""The recursion that every network kernel shares, walked over tiles of pairs or as one differentiable tile."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from noshadow._lood.activations import Activation, expectation
from noshadow._lood.expectation_table import expectation_table
from noshadow.checks import refuse

# Numbers in a tile: small enough for the caches, large enough for the threads.
_TILE_NUMBERS = 1 << 18
# Arrays of one tile that are alive at once; and of all pairs and positions for a gradient, in each layer (windows need more) and besides.
_TILE_ARRAYS = 12
_GRADIENT_ARRAYS, _WINDOW_ARRAYS, _OTHER_ARRAYS = 3, 4, 6
_LARGEST_VARIANCE = 1e100


@dataclass(frozen=True)
class Network:
    """Widths gone to infinity: what is left of a network.

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


Layer = Callable[[Tensor, Tensor, Tensor], Tensor]


def network_kernel(x: Tensor, z: Tensor | None, network: Network, owner: str, *, memory_limit: float | None) -> Tensor:
    """Kernel (n, m) of two sets of records, or (n, n) of one with itself, float64.

    Differentiable as one tile when a gradient is wanted of x or z; otherwise tile by tile into the result.
    """
    other = x if z is None else z
    differentiable = torch.is_grad_enabled() and (x.requires_grad or other.requires_grad)
    _require_room(x, z, network, owner, differentiable, memory_limit)
    by_row = variances(x, network, owner)
    by_column = by_row if z is None else variances(other, network, owner)
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
    """The result filled in tiles of `side` records; a symmetric one from the tiles on and above its diagonal."""
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


def variances(x: Tensor, network: Network, owner: str) -> list[Tensor]:
    """Variances before each nonlinearity, (*positions, n), and the diagonal of the kernel, (n,)."""
    steps = [network.affine(network.squares(x), 0)]
    for layer in range(network.depth):
        steps.append(network.affine(expectation(network.activation, steps[-1], steps[-1], steps[-1]), layer + 1))
    for layer, step in enumerate(steps):
        largest = float(step.detach().max())
        if not largest <= _LARGEST_VARIANCE:
            rule = f"keep every variance within {_LARGEST_VARIANCE:g}"
            refuse(owner, "x and weight_variance", rule, f"{largest:g} in layer {layer}", "Rescale the records, or lower weight_variance.")
    return steps


def require_room(n: int, m: int | None, owner: str, *, per_pair: int, fixed: int, memory_limit: float | None, gradients: bool) -> None:
    """Refuse a kernel of n × m pairs (n × n when m is None) that would not fit, before it is allocated."""
    limit = available_memory() if memory_limit is None else memory_limit
    columns = n if m is None else m
    need = per_pair * n * columns + fixed
    if limit is None or need <= limit:
        return
    pairs = int(max(limit - fixed, 0) // per_pair)
    fit = f"About {math.isqrt(pairs)} records" if m is None else f"About {pairs // n} of the {m} rows of z"
    hint = f"{fit} would fit; pass fewer, or make room." if pairs >= (1 if m is None else n) else "Make room."
    what = f"{n} × {columns} pairs{' with gradients' if gradients else ''} that need {_gigabytes(need)}"
    refuse(owner, "the kernel", f"fit in {_gigabytes(limit)} of memory", what, hint)


def available_memory() -> float | None:
    """Bytes that can be had without swapping (Linux), else all there are, else None where the system does not tell."""
    source = Path("/proc/meminfo")
    if source.is_file():
        lines = (line.split() for line in source.read_text().splitlines())
        return next((1024.0 * int(words[1]) for words in lines if words[0] == "MemAvailable:"), None)
    if {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(getattr(os, "sysconf_names", {})):
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return None


def _require_room(x: Tensor, z: Tensor | None, network: Network, owner: str, differentiable: bool, limit: float | None) -> None:
    n, m = len(x), len(x if z is None else z)
    positions, layers = network.positions, network.depth + 1
    in_a_layer = _GRADIENT_ARRAYS + (_WINDOW_ARRAYS if positions > 1 else 0)
    kept = positions * (in_a_layer * network.depth + _OTHER_ARRAYS)
    tile = 0 if differentiable else _TILE_ARRAYS * min(max(_TILE_NUMBERS, positions), n * m * positions)
    diagonals = layers * positions * (n if z is None else n + m)
    require_room(
        n,
        None if z is None else m,
        owner,
        per_pair=8 * kept if differentiable else 8,
        fixed=8 * (diagonals + tile),
        memory_limit=limit,
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
